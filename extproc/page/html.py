"""The few shapes of the status page. Names and reasons are untrusted: whatever is no `Markup` is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

NOTHING = "–"
MAX_CELL = 200
"""Characters of one cell: a name of a client's making must not fill a phone's screen."""


class Markup(str):
    """HTML that was made here."""

    __slots__ = ()


def escaped(value: object) -> str:
    """Any value as text of HTML; None is a dash, what is very long is cut."""
    if isinstance(value, Markup):
        return value
    if value is None or value == "":
        return NOTHING
    told = str(value)
    return html.escape(told if len(told) <= MAX_CELL else f"{told[: MAX_CELL - 1]}…")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "none") -> Markup:
    """The first cell of a row names it. Wide tables scroll in a region that a keyboard reaches."""
    body = "".join(_row(row) for row in rows)
    heading = f"<h2>{escaped(title)}</h2>"
    if not body:
        return Markup(f"{heading}<p>{escaped(empty)}</p>")
    head = "".join(f'<th scope="col">{escaped(column)}</th>' for column in columns)
    return Markup(
        f'{heading}<div class="wide" role="region" aria-label="{escaped(title)}" tabindex="0">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def facts(title: str, values: Mapping[str, object]) -> Markup:
    """Two columns: what it is, and its value."""
    pairs = "".join(
        f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in values.items()
    )
    return Markup(f"<h2>{escaped(title)}</h2><dl>{pairs}</dl>")


def badge(value: object, colours: Mapping[str, str]) -> Markup:
    """A state by word and colour, never by colour alone."""
    return Markup(f'<span class="{colours.get(str(value), "plain")}">{escaped(value)}</span>')


def bar(share: float, label: str) -> Markup:
    """A share in [0, 1]."""
    return Markup(f'<meter value="{share:.4f}" aria-label="{escaped(label)}"></meter> {share:.1%}')


def link(path: str) -> Markup:
    return Markup(f'<a href="{html.escape(path)}">{escaped(path)}</a>')


def _row(cells: Sequence[object]) -> str:
    first, *rest = cells
    return f'<tr><th scope="row">{escaped(first)}</th>{"".join(f"<td>{escaped(cell)}</td>" for cell in rest)}</tr>'
