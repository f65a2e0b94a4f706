"""Escaping, and the shapes of the page."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from extproc.page.html import MAX_CELL, Markup, badge, bar, escaped, facts, link, table


class Seen(HTMLParser):
    """What a browser would see: tags, and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


HOSTILE = st.one_of(
    st.text(), st.sampled_from(["<script>alert(1)</script>", "\" onload='x", "</td><img src=x>", "&lt;"])
)


@given(title=HOSTILE, column=HOSTILE, cell=HOSTILE)
def test_no_text_becomes_a_tag_or_an_attribute(title: str, column: str, cell: str) -> None:
    seen = Seen(
        table(title, (column,), ((cell, cell),)) + badge(cell, {}) + bar(0.5, cell) + facts(title, {cell: cell})
    )
    assert set(seen.tags) == {
        "h2",
        "div",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "span",
        "meter",
        "dl",
        "dt",
        "dd",
    }
    assert set(seen.attributes) <= {"class", "role", "aria-label", "tabindex", "scope", "value"}


@given(
    cell=st.text(
        max_size=MAX_CELL, min_size=1, alphabet=st.characters(exclude_characters="\r\0", exclude_categories=["Cs"])
    )
)
def test_text_arrives_as_it_is(cell: str) -> None:
    assert Seen(f"<p>{escaped(cell)}</p>").text == cell


def test_nothing_is_a_dash_and_zero_is_not() -> None:
    assert [escaped(each) for each in (None, "", 0, False)] == ["–", "–", "0", "False"]


def test_what_is_long_is_cut() -> None:
    assert escaped("x" * 10_000) == "x" * (MAX_CELL - 1) + "…"


def test_markup_stays() -> None:
    assert escaped(Markup("<b>")) == "<b>"
    assert link('/a"b') == '<a href="/a&quot;b">/a&quot;b</a>'


def test_a_state_has_a_word_beside_its_colour() -> None:
    assert badge("open", {"open": "bad"}) == '<span class="bad">open</span>'
    assert badge("new", {}) == '<span class="plain">new</span>'


def test_an_empty_table_says_so() -> None:
    assert table("Pools", ("Pool",), ()) == "<h2>Pools</h2><p>none</p>"
