"""Tables for people, and the same figures as a tree for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from bench.report import table
from bench.streams.measure import Plan, Result, Spread
from bench.variants import NONE, OURS_FAST

MOST_MS = 1.0
"""How much the sidecar may add to the p99 of spacing."""

TIMES = ("variant", "when", "spacing p50 ms", "p99 ms", "max ms", "delay p50 ms", "p99 ms", "max ms")
COSTS = (
    "variant",
    "",
    "streams",
    "events",
    "first event p50 ms",
    "p99 ms",
    "Envoy CPU µs/event",
    "Envoy RSS MB",
    "errors",
)

RUN, HELD = "all of the run", "while all are open"


def good(results: Sequence[Result]) -> bool:
    """Whether every stream came whole and judged, and none stayed open."""
    return all(not each.errors and (each.held is None or not each.held.after) for each in results)


def added_ms(results: Sequence[Result]) -> dict[str, float]:
    """Of p99 of spacing, by the sidecar, in both spans."""
    p99 = {each.name: (each.seen.spacing_ms.p99, each.seen.held_spacing_ms.p99) for each in results}
    return {when: ours - none for when, ours, none in zip((RUN, HELD), p99[OURS_FAST], p99[NONE], strict=True)}


def text(plan: Plan, results: Sequence[Result]) -> str:
    (ours,) = (each for each in results if each.name == OURS_FAST)
    when = "one after the other" if plan.apart else "at the same time"
    title = (
        f"Streams of {plan.seconds:g} s with {plan.rate:g} events a second, started within {plan.spread_s:g} s, "
        f"the variants {when}; delay: from the engine's write to the client's read"
    )
    times = table(TIMES, [row for each in results for row in _times(each)])
    costs = table(COSTS, [_costs(each) for each in results])
    return "\n\n".join([f"{title}\n{times}", costs, _sidecar(ours), _verdict(results)])


def tree(plan: Plan, results: Sequence[Result]) -> dict[str, Any]:
    """Everything printed, and what is behind it."""
    return {
        "plan": asdict(plan),
        "variants": [_plain(each) for each in results],
        "added_p99_ms": added_ms(results),
        "met": {when: added <= MOST_MS for when, added in added_ms(results).items()},
        "good": good(results),
    }


def _times(each: Result) -> list[list[str]]:
    seen = each.seen
    return [
        [each.name, RUN, *_three(seen.spacing_ms), *_three(seen.delay_ms)],
        [each.name, HELD, *_three(seen.held_spacing_ms), *_three(seen.held_delay_ms)],
    ]


def _costs(each: Result) -> list[str]:
    return [
        each.name,
        "",
        f"{each.seen.complete:,}",
        f"{each.seen.events:,}",
        *_three(each.seen.first_ms)[:2],
        f"{each.envoy_us:.1f}",
        f"{each.looks.before.envoy_mb:.0f} – {max(look.envoy_mb for look in each.looks):.0f}",
        str(each.errors) + (f" ({each.seen.error})" if each.seen.error else ""),
    ]


def _three(found: Spread) -> list[str]:
    return [f"{found.p50:.2f}", f"{found.p99:.2f}", f"{found.max:.2f}"]


def _sidecar(ours: Result) -> str:
    held = ours.held
    rows = [
        ("CPU per open stream and second, µs", f"{ours.held_us:.2f}"),
        ("CPU per opened stream, µs", f"{ours.opened_us:.0f}"),
        ("CPU without streams, % of a core", f"{100 * ours.idle_share:.2f}"),
        ("RSS before, at peak, after, MB", _mb([look.sidecar_mb or 0 for look in ours.looks])),
        ("llm_streams_open before, during, after", f"{held.before}, {held.during}, {held.after}" if held else "–"),
    ]
    return table(("sidecar of ours", ""), rows)


def _mb(looks: Sequence[float]) -> str:
    return f"{looks[0]:.1f}, {max(looks):.1f}, {looks[-1]:.1f}"


def _verdict(results: Sequence[Result]) -> str:
    sent = ", ".join(f"{each.seen.sent_spacing_ms.p99:.2f}" for each in results)
    told = [
        f"{when}: {added:+.2f} ms, <= {MOST_MS:g} ms {'met' if added <= MOST_MS else 'MISSED'}"
        for when, added in added_ms(results).items()
    ]
    return "\n".join(
        ["p99 of spacing, ours over no ext_proc", *told, f"(where the engine writes, p99 is {sent} ms)"]
    )


def _plain(each: Result) -> dict[str, Any]:
    return {
        "variant": each.name,
        **msgspec.to_builtins(each.seen),
        "looks": {name: asdict(look) for name, look in each.looks._asdict().items()},
        "envoy_us_per_event": each.envoy_us,
        "sidecar_us_per_stream_second": each.held_us,
        "sidecar_us_per_opened_stream": each.opened_us,
        "sidecar_idle_share": each.idle_share,
        "streams_open": None if each.held is None else asdict(each.held),
        "failed_open": each.failed_open,
        "errors": each.errors,
    }
