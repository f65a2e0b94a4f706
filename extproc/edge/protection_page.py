"""The protection loop as plain values: what `/status` shows and `extproc status` prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, to_builtins

from extproc.loops.breakers import Breakers
from extproc.loops.drift import DriftStatus
from extproc.loops.lengths import Estimate
from extproc.loops.protection import Status
from extproc.model.protection import Incident
from extproc.protect.breaker import State
from extproc.protect.history import History

RECORDS_SHOWN = 20


class Shown(Struct, frozen=True):
    """What one look needs."""

    enabled: bool
    status: Status
    breakers: Breakers
    history: History
    history_unsaved: bool
    drift: DriftStatus
    lengths: Mapping[str, Estimate]
    incidents: Iterable[Incident]
    roles: Mapping[str, str]


def describe(shown: Shown, *, wall: float) -> dict[str, object]:
    """`wall` in seconds since the epoch; durations are those of this moment."""
    status = shown.status
    return {
        "enabled": shown.enabled,
        "looked_s_ago": round(max(0.0, wall - status.wall), 1) if status.wall else None,
        "pools": [
            {
                "name": name,
                "role": role,
                "load": _rounded(status.loads.get(name)),
                "degraded": name in status.protection.degraded,
                "limit": status.limits.get(name),
            }
            for name, role in shown.roles.items()
        ],
        "panic": status.panic or None,
        "breakers": [_breaker(shown.breakers, name, wall) for name in shown.breakers.names()],
        "slo": _slo(status),
        "lengths": {name: to_builtins(each) for name, each in shown.lengths.items()},
        "drift": _drift(shown.drift, wall),
        "parameters": _parameters(shown.history, unsaved=shown.history_unsaved),
        "incidents": [to_builtins(each) for each in list(shown.incidents)[:RECORDS_SHOWN]],
    }


def _breaker(breakers: Breakers, name: str, wall: float) -> dict[str, object]:
    state, seen = breakers.states[name], breakers.seen(name)
    return {
        "name": name,
        "state": state.state.value,
        "for_s": round(max(0.0, wall - state.since), 1) if state.since else None,
        "reason": state.reason or None,
        "next_probe_in_s": round(max(0.0, state.until - wall), 1) if state.state is State.OPEN else None,
        "probes": {"good": state.good, "bad": state.bad},
        "window": {"requests": seen.requests, "errors": seen.errors, "p99_s": _rounded(seen.p99_s)},
    }


def _slo(status: Status) -> dict[str, object]:
    slo = status.slo
    return {
        "broken": list(slo.broken),
        "slow_mean": list(slo.slow_mean),
        "affected_share": _rounded(slo.affected_share),
        "breached_s": round(slo.breached_s, 1),
        "endpoints": {
            name: {
                "requests": each.requests,
                "error_rate": _rounded(each.error_rate),
                "p99_s": _rounded(each.p99_s),
                "mean_s": _rounded(each.mean_s),
            }
            for name, each in slo.standings.items()
        },
    }


def _drift(drift: DriftStatus, wall: float) -> list[dict[str, object]]:
    return [
        {
            "pool": verdict.key.pool,
            "parameter_set": verdict.key.parameter_set,
            "tier": verdict.key.tier,
            "state": verdict.state.value,
            "reason": verdict.reason,
            "d": _rounded(verdict.d),
            "p": verdict.p,
            "p95_delta_s": _rounded(verdict.p95_delta_s),
            "tail_share": _rounded(verdict.tail_share),
            "live": verdict.live,
            "baseline": verdict.baseline,
            "baseline_set": verdict.baseline_set or None,
            "looked_s_ago": round(max(0.0, wall - drift.wall), 1),
        }
        for verdict in drift.verdicts
    ]


def _parameters(history: History, *, unsaved: bool) -> dict[str, object]:
    return {
        "active": history.current.label if history.current else None,
        "last_good": history.last_good or None,
        "offered": history.offered or None,
        "pinned": history.pinned,
        "unsaved": unsaved,
        "versions": [
            {
                "label": each.label,
                "version": each.version,
                "standing": each.standing.value,
                "good": bool(each.good_at),
                "seen_at": each.seen_at,
                "activated_at": each.activated_at or None,
                "reason": each.reason or None,
            }
            for each in history.versions
        ],
        "records": [to_builtins(each) for each in reversed(history.records[-RECORDS_SHOWN:])],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
