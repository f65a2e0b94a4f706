"""The load report an engine sends with an answer (ORCA), as it stands in the header `endpoint-load-metrics`.

Read are the spellings engines send: `JSON {...}` and `TEXT a=1,b=2`. A report is a gift: what cannot be read is
left out, without a word. It comes from outside, so its size and its names are bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

import msgspec

HEADER = "endpoint-load-metrics"

MAX_REPORT_BYTES = 4096
MAX_METRICS = 64
MAX_NAME = 128

_NAMED = "named_metrics"
_NOTHING: Mapping[str, float] = {}
_JSON = msgspec.json.Decoder(dict[str, object])


def report(value: bytes) -> Mapping[str, float]:
    """Finite numbers by name; those below `named_metrics` by their own names, which win over the standard ones.

    Empty where there is none, or none that can be read.
    """
    if len(value) > MAX_REPORT_BYTES:
        return _NOTHING
    form, _, text = value.partition(b" ")
    if form == b"JSON":
        return _admitted(_json(text))
    if form == b"TEXT":
        return _admitted(_text(text))
    return _NOTHING


def _json(text: bytes) -> Iterable[tuple[str, object]]:
    try:
        whole = _JSON.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    named = whole.pop(_NAMED, None)
    return (*whole.items(), *(named.items() if isinstance(named, dict) else ()))


def _text(text: bytes) -> Iterable[tuple[str, object]]:
    for pair in text.decode("utf-8", "replace").split(","):
        name, equals, number = pair.partition("=")
        try:
            yield name.strip().removeprefix(f"{_NAMED}."), float(number) if equals else None
        except ValueError:
            continue


def _admitted(metrics: Iterable[tuple[str, object]]) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for name, value in metrics:
        if type(value) not in (int, float) or not 0 < len(name) <= MAX_NAME:
            continue
        number = _float(value)
        if isfinite(number) and (name in found or len(found) < MAX_METRICS):
            found[name] = number
    return found


def _float(value: object) -> float:
    """Infinite where a whole number is larger than any float."""
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return float("inf")
