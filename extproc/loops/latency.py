"""Keeps what finished requests said of endpoints and pools.

Used from the event loop's thread only. Requests are counted where they end, so that an endpoint that goes and comes
back has nothing to subtract. The rejected alternative, counting begins and ends, goes below zero for those that end
after their endpoint was forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from extproc.model.telemetry import AccessSample
from extproc.windows.expiring import Expiring
from extproc.windows.latency import NO_TAIL, UNSEEN, LatencyReading, LatencyWindow, LatencyWindows, Tail
from extproc.windows.outcome import Outcome, outcome

OTHER = "other"

SETS_AT_A_TIME = 4
"""Parameter sets told apart at one endpoint: the active one, the one before, the safe one and a canary."""

SERVED_STEP_S = 1.0
"""How exactly `served_since` knows the time."""

_SERVED = frozenset({Outcome.OK, Outcome.CLIENT_ERROR})


class LoadReport(Struct, frozen=True):
    """The last load report an endpoint sent with an answer, and when it came: monotonic seconds."""

    metrics: Mapping[str, float]
    at: float


class _Endpoint:
    __slots__ = ("load", "served", "sets", "window")

    def __init__(self, window_s: float, slots: int) -> None:
        self.window = LatencyWindow(window_s=window_s, slots=slots)
        self.sets = LatencyWindows(other=OTHER, limit=SETS_AT_A_TIME, window_s=window_s, slots=slots)
        self.served = Expiring(_Count, window_s=window_s, slots=max(1, round(window_s / SERVED_STEP_S)))
        self.load: LoadReport | None = None


class _Count:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Latency:
    """Windows by endpoint, by endpoint and parameter set, by (pool, tier) and by (pool, route).

    Which address belongs to which endpoint, and which cluster to which pool, is told by `place`. A cluster that is
    not among them is the pool `other`; `unplaced` counts requests to addresses that are not.
    """

    def __init__(self, *, window_s: float = 60.0, slots: int = 12, max_series: int = 1024) -> None:
        self._window_s = window_s
        self._slots = slots
        self.unplaced = 0
        self._endpoint_of: Mapping[str, str] = {}
        self._pool_of: Mapping[str, str] = {}
        self._endpoints: dict[str, _Endpoint] = {}
        self._tiers = self._series(max_series)
        self._routes = self._series(max_series)

    def _series(self, limit: int) -> LatencyWindows[tuple[str, str]]:
        return LatencyWindows(other=(OTHER, OTHER), limit=limit, window_s=self._window_s, slots=self._slots)

    def place(self, endpoints: Mapping[str, str], pools: Mapping[str, str], *, now: float) -> None:
        """Replace both maps: `ip:port` as Envoy's log has it to the endpoint's key (several to one, as they come),
        Envoy's cluster to the pool's name.

        An endpoint that is not among them any more is forgotten when its window is empty, not at once: a name that
        does not resolve for a moment does not cost what is known of it.
        """
        self._endpoint_of, self._pool_of = endpoints, pools
        placed = set(endpoints.values())
        self._endpoints = {
            key: endpoint
            for key, endpoint in self._endpoints.items()
            if key in placed or self._speaks(endpoint, now)
        }

    def _speaks(self, endpoint: _Endpoint, now: float) -> bool:
        last_at = endpoint.window.last_at
        return last_at is not None and abs(now - last_at) <= self._window_s

    def pool_of(self, cluster: str) -> str:
        """The pool of a cluster; `other` where it has none."""
        return self._pool_of.get(cluster, OTHER)

    def record(self, samples: Iterable[AccessSample], *, now: float) -> None:
        """Take what one access log message held."""
        for sample in samples:
            ended = outcome(sample)
            key = self._endpoint_of.get(sample.upstream)
            if key is not None:
                self._record_endpoint(key, sample, ended, now)
            elif sample.upstream:
                self.unplaced += 1
            pool = self._pool_of.get(sample.cluster, OTHER)
            self._tiers.record((pool, sample.tier), sample, ended, now=now)
            self._routes.record((pool, sample.route), sample, ended, now=now)

    def _record_endpoint(self, key: str, sample: AccessSample, ended: Outcome, now: float) -> None:
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            endpoint = self._endpoints[key] = _Endpoint(self._window_s, self._slots)
        endpoint.window.record(sample, ended, now=now)
        endpoint.sets.record(sample.params, sample, ended, now=now)
        if ended in _SERVED:
            endpoint.served.at(now=now).value += 1
        if sample.orca:
            endpoint.load = LoadReport(sample.orca, now)

    def reading(self, endpoint: str, *, now: float) -> LatencyReading:
        """Of one endpoint; `UNSEEN` where no request is known of it."""
        known = self._endpoints.get(endpoint)
        return UNSEEN if known is None else known.window.reading(now=now)

    def under(self, endpoint: str, sets: Collection[str], *, now: float) -> LatencyReading:
        """Of one endpoint, requests that these parameter sets decided alone; sets as `AccessSample.params` has
        them."""
        known = self._endpoints.get(endpoint)
        return UNSEEN if known is None else known.sets.merged(sets, now=now)

    def begin_set(self, parameter_set: str) -> None:
        """What is known of this parameter set is forgotten everywhere: it is in force again, as a new one."""
        for endpoint in self._endpoints.values():
            endpoint.sets.forget(parameter_set)

    def tail(self, endpoint: str, *, now: float) -> Tail:
        """The P99 of one endpoint, without the rest of its reading; `NO_TAIL` where no request is known of it."""
        known = self._endpoints.get(endpoint)
        return NO_TAIL if known is None else known.window.tail(now=now)

    def readings(self, *, now: float) -> dict[str, LatencyReading]:
        """Of every endpoint that is placed."""
        return {key: self.reading(key, now=now) for key in sorted(set(self._endpoint_of.values()))}

    def by_tier(self, *, now: float) -> dict[tuple[str, str], LatencyReading]:
        """By (pool, tier); tier "" for requests nobody judged."""
        return dict(self._tiers.readings(now=now))

    def by_route(self, *, now: float) -> dict[tuple[str, str], LatencyReading]:
        """By (pool, name of the route)."""
        return dict(self._routes.readings(now=now))

    def served_since(self, endpoint: str, since: float, *, now: float) -> int:
        """Requests the endpoint answered at `since` or later, as far back as the window goes; none of the moments
        within `SERVED_STEP_S` after `since` is sure to be among them.

        A metrics page that stays the same although this grows is frozen.
        """
        known = self._endpoints.get(endpoint)
        return 0 if known is None else sum(count.value for count in known.served.since(since, now=now))

    def load_report(self, endpoint: str) -> LoadReport | None:
        """The latest one, however old: None where the endpoint never sent any."""
        known = self._endpoints.get(endpoint)
        return None if known is None else known.load
