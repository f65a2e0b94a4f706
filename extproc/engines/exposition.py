"""Prometheus text exposition, old and OpenMetrics, cut down to the wanted series before anything is parsed.

An engine's page is 50 KB of which some 80 lines matter: one pass of a compiled pattern finds them on the bytes,
before anything is decoded. The rejected alternative, the parser of prometheus_client, builds an object of every
line: 9 ms for such a page where this takes 0.4.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from extproc.engines.failures import Cause, Failure

MAX_PAGE_BYTES = 2 << 20
MAX_SERIES = 20_000
"""Wanted series of one page; a page with more is refused: its labels have run wild."""

_LABELS = r'\{((?:[^"}\n]++|"(?:[^"\\\n]++|\\.)*+")*+)\}'
_SERIES = re.compile(rf"^([^{{\s]++)(?:{_LABELS})?[ \t]++([^\s_]++)(?!\S)", re.MULTILINE)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\]++|\\.)*+)"')
_ESCAPE = re.compile(r"\\(.)")
_NAMED = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*+[{ \t]")


class Point(Struct, frozen=True, gc=False):
    """One sample line. `name` is the wanted spelling; `value` may be NaN or infinite.

    Not tracked by the collector: it holds text and a number, and a thousand pages make ninety thousand of them.
    """

    name: str
    labels: Mapping[str, str]
    value: float


Points = tuple[Point, ...]


class Wanted(Struct, frozen=True):
    """What to keep of a page: `names` maps every accepted spelling of a sample's name to the one points carry.

    `cumulative` holds the names, in that spelling, whose values only ever grow.
    """

    names: Mapping[str, str]
    cumulative: frozenset[str]
    pattern: re.Pattern[bytes]


def wanted(
    *,
    gauges: Iterable[str] = (),
    counters: Iterable[str] = (),
    histograms: Iterable[str] = (),
    summaries: Iterable[str] = (),
) -> Wanted:
    """Compile families to a filter. A counter is found with and without OpenMetrics' suffix `_total`."""
    plain = {name: name for name in (*gauges, *summaries)}
    counted = {spelling: name for name in counters for spelling in _spellings(name)}
    parts = [name + part for name in histograms for part in ("_bucket", "_sum", "_count")]
    names = plain | counted | {part: part for part in parts}
    # The longest first: an alternation takes the first that fits.
    either = b"|".join(re.escape(name.encode()) for name in sorted(names, key=len, reverse=True))
    pattern = re.compile(rb"\n((?:" + either + rb")[{ \t][^\n]*)")
    return Wanted(names, frozenset((*counted.values(), *parts)), pattern)


def _spellings(counter: str) -> tuple[str, str]:
    base = counter.removesuffix("_total")
    return base, f"{base}_total"


def cut(page: bytes, wanted: Wanted) -> bytes | Failure:
    """The wanted lines, in the page's order, b"" where a page has none of them; or why it is no page of metrics."""
    if len(page) > MAX_PAGE_BYTES:
        return Failure(Cause.TOO_LARGE, f"{len(page)} bytes")
    if not _is_exposition(page):
        return Failure(Cause.NOT_METRICS, "the first line is neither a comment nor a sample")
    lines = wanted.pattern.findall(b"\n" + page)
    if len(lines) > MAX_SERIES:
        return Failure(Cause.TOO_MANY_SERIES, f"{len(lines)} series")
    return b"\n".join(lines)


def _is_exposition(page: bytes) -> bool:
    """By the first line that is not blank: an error page and a JSON body fail here, whatever the status said."""
    start = page[:4096].lstrip()
    if start.startswith(b"#"):
        return True
    line = start.split(b"\n", 1)[0]
    if not _NAMED.match(line):
        return False
    found = _SERIES.match(line.decode("utf-8", "replace"))
    # A first line longer than the look at it ends in its labels.
    return _number(found[3]) is not None if found else len(line) >= 2048


def parse(lines: bytes, wanted: Wanted) -> Points:
    """The points of what `cut` left. A malformed line is left out, as if the engine had not sent it."""
    found = _SERIES.findall(lines.decode("utf-8", "replace"))
    points = []
    for spelling, labels, text in found:
        name, value = wanted.names.get(spelling), _number(text)
        if name is not None and value is not None:
            points.append(Point(name, _labels(labels), value))
    return tuple(points)


def _labels(text: str) -> dict[str, str]:
    labels = dict(_LABEL.findall(text))
    if "\\" in text:
        return {name: _ESCAPE.sub(_unescaped, value) for name, value in labels.items()}
    return labels


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def gauges(points: Points, name: str, **labels: str) -> list[float]:
    """Finite values of a family, of the series with these labels alone; [] where the family is absent."""
    return [
        point.value
        for point in points
        if point.name == name
        and math.isfinite(point.value)
        and all(point.labels.get(label) == value for label, value in labels.items())
    ]
