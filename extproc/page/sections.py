"""The parts of the status page, each from the plain values that the JSON pages show.

A part that did not change is not sent again, so ages that grow by themselves stand in the first one only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from extproc.page.html import Markup, badge, bar, facts, table

Values = Mapping[str, Any]

GOOD, WARNING, BAD, PLAIN = "good", "warning", "bad", "plain"

COLOURS = {
    **dict.fromkeys(("ready", "closed", "fine", "active", "healthy", "kept", "ok", "good", "info"), GOOD),
    **dict.fromkeys(("half_open", "warning", "draining", "degraded", "offered"), WARNING),
    **dict.fromkeys(("open", "drift", "refused", "critical", "panic", "broken", "failed", "rolled_back"), BAD),
}

SHOWN = 12
"""Rows of a list that grows: enough for a look, the rest is in `/events` and the audit file."""


def sections(head: Values, weights: Values, status: Values, traffic: Values) -> dict[str, str]:
    """HTML by the id of the part, in the order of the page. Missing values show as dashes: a page about trouble
    must stand half a world."""
    parts = {
        "now": _now(head, weights, status),
        "pools": _pools(weights, status),
        "breakers": _breakers(status),
        "drift": _drift(status),
        "parameters": _parameters(status),
        "rates": _rates(traffic),
        "latency": _latency(traffic),
        "decisions": _decisions(traffic),
        "overrides": _overrides(traffic),
        "incidents": _incidents(status),
    }
    return {name: str(part) for name, part in parts.items()}  # what encodes JSON takes no subclass


def _now(head: Values, weights: Values, status: Values) -> Markup:
    slo = status.get("slo", {})
    broken = ", ".join(slo.get("broken", ()))
    panic = status.get("panic")
    told = {
        "State": badge(head.get("state"), COLOURS),
        "Version": head.get("version"),
        "Uptime": head.get("uptime"),
        "Generation": head.get("generation"),
        "Parameter set": head.get("parameter_set"),
        "SLO": badge("broken" if broken else "kept", COLOURS) if "slo" in status else None,
        "Last look of protection": _seconds_ago(status.get("looked_s_ago")),
        "Last weights": _seconds_ago(weights.get("tick_age_s")),
    }
    if broken:
        told["SLO broken by"] = broken
    if panic:
        told["Panic"] = f"no pool is closed, {panic} serves"
    if status.get("enabled") is False:
        told["Protection"] = badge("warning", COLOURS)
    return facts("Now", told)


def _pools(weights: Values, status: Values) -> Markup:
    loads = {pool.get("name"): pool for pool in status.get("pools", ())}
    rows = []
    for pool in weights.get("pools", ()):
        name = pool.get("name")
        standing = _standing(pool, loads.get(name, {}))
        engine = f"{pool.get('engine', '')} {pool.get('role', '')}".strip()
        endpoints = pool.get("endpoints") or [{}]
        rows += [(name, engine, standing, *_endpoint(each)) for each in endpoints]
    columns = ("Pool", "Engine", "Standing", "Endpoint", "Weight", "Share", "Why", "Terms")
    return table("Pools and weights", columns, rows)


def _standing(pool: Values, load: Values) -> Markup:
    words = [word for word, holds in _POOL_WORDS.items() if holds(pool, load)]
    return Markup(" ".join(badge(word, COLOURS) for word in words or ["ok"]))


_POOL_WORDS: Mapping[str, Callable[[Values, Values], object]] = {
    "degraded": lambda _, load: load.get("degraded"),
    "saturated": lambda pool, _: pool.get("saturated"),
    "unhealthy": lambda pool, _: pool.get("unhealthy"),
}


def _endpoint(each: Values) -> tuple[object, ...]:
    share = each.get("share")
    moved = each.get("moved_by")
    why = f"{each.get('reason')}, moved by {moved}" if moved else each.get("reason")
    utilities = {name: term.get("utility") for name, term in each.get("terms", {}).items()}
    terms = (f"{name} {_figure(utility)}" for name, utility in utilities.items() if utility is not None)
    name = each.get("endpoint")
    shown = None if share is None else bar(share, f"share of {name}")
    weight = badge("draining", COLOURS) if each.get("draining") else each.get("weight")
    return name, weight, shown, why, ", ".join(terms)


def _breakers(status: Values) -> Markup:
    rows = (
        (
            each.get("name"),
            badge(each.get("state"), COLOURS),
            each.get("reason"),
            each.get("window", {}).get("requests"),
            each.get("window", {}).get("errors"),
            _seconds(each.get("window", {}).get("p99_s")),
        )
        for each in status.get("breakers", ())
    )
    return table("Breakers", ("Breaker", "State", "Why", "Requests", "Errors", "P99"), rows)


def _drift(status: Values) -> Markup:
    rows = (
        (
            f"{each.get('pool')} / {each.get('tier')}",
            badge(each.get("state"), COLOURS),
            each.get("reason"),
            _figure(each.get("d")),
            _figure(each.get("p")),
            _seconds(each.get("p95_delta_s")),
            each.get("parameter_set"),
        )
        for each in status.get("drift", ())
    )
    columns = ("Pool / tier", "State", "Why", "D", "p", "P95 against baseline", "Parameter set")
    return table("Drift", columns, rows, empty="not enough requests to compare yet")


def _parameters(status: Values) -> Markup:
    parameters = status.get("parameters", {})
    versions = parameters.get("versions", ())
    rows = (
        (
            each.get("label"),
            badge(each.get("standing"), COLOURS),
            "yes" if each.get("good") else "no",
            _when(each.get("activated_at")),
            each.get("reason"),
        )
        for each in list(reversed(versions))[:SHOWN]
    )
    pinned = " (pinned)" if parameters.get("pinned") else ""
    title = f"Parameter sets: {parameters.get('active') or 'none'} is active{pinned}"
    return table(title, ("Set", "Standing", "Proved good", "Active since", "Why"), rows)


def _rates(traffic: Values) -> Markup:
    rates = traffic.get("rates", ())
    rows = ((each["tier"], each["class"], f"{each['per_s']:.1f}") for each in rates)
    title = f"Requests per second, last {traffic.get('rate_window_s', 0):g} s"
    return table(title, ("Tier", "Class", "Per second"), rows, empty="no requests")


def _latency(traffic: Values) -> Markup:
    rows = (
        (
            f"{each['pool']} / {each['tier']}",
            each["requests"],
            _percent(each["error_rate"]),
            *(_seconds(each[key]) for key in ("p50_s", "p95_s", "p99_s", "first_byte_p99_s")),
        )
        for each in traffic.get("latency", ())
    )
    columns = ("Pool / tier", "Requests", "Errors", "P50", "P95", "P99", "First byte P99")
    return table("Latency", columns, rows, empty="no requests")


def _decisions(traffic: Values) -> Markup:
    rows = (
        (
            _when(each["at"]),
            each["tier"],
            each["class"],
            each["scenario"],
            each["tenant"],
            each["pool"],
            badge(each["outcome"], COLOURS),
            each["status"],
            _seconds(each["total_s"]),
            each["fallback"],
        )
        for each in traffic.get("last", ())
    )
    columns = ("When", "Tier", "Class", "Scenario", "Tenant", "Pool", "Outcome", "Status", "Took", "Fallback")
    return table("Last decisions", columns, rows, empty="no requests")


def _overrides(traffic: Values) -> Markup:
    rows = (
        (
            _when(each.get("ts")),
            each.get("field"),
            f"{_scalar(each.get('from'))} → {_scalar(each.get('to'))}",
            each.get("rule"),
            each.get("reason"),
            each.get("tier"),
            each.get("tenant"),
            each.get("request_id"),
        )
        for each in traffic.get("overrides", ())
    )
    columns = ("When", "Field", "Change", "Rule", "Why", "Tier", "Tenant", "Request")
    return table("Last overrides", columns, rows)


def _incidents(status: Values) -> Markup:
    rows = (
        (
            _when(each.get("at")),
            each.get("kind"),
            each.get("subject"),
            each.get("state"),
            badge(each.get("severity"), COLOURS),
            each.get("reason"),
        )
        for each in _first(status.get("incidents", ()))
    )
    return table("Incidents", ("When", "Kind", "Subject", "State", "Severity", "Why"), rows)


def _first(many: Iterable[Values]) -> list[Values]:
    return list(many)[:SHOWN]


def _when(seconds: float | None) -> str | None:
    """UTC, to the second: what a log of any machine can be compared with."""
    return None if not seconds else datetime.fromtimestamp(seconds, UTC).strftime("%m-%d %H:%M:%S")


def _seconds(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value * 1000:.0f} ms" if abs(value) < 1 else f"{value:.2f} s"


def _seconds_ago(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f} s ago"


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.1%}"


def _figure(value: object) -> object:
    return f"{value:.3g}" if isinstance(value, float) else value


def _scalar(value: object) -> object:
    return "absent" if value is None else value
