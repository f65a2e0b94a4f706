"""Endpoints to weigh, and any mixture of readings."""

from __future__ import annotations

from math import inf, nan

from hypothesis import strategies as st

from extproc.scoring.values import EndpointInput, PoolWeights, Reading

NOW = 1000.0


def endpoint(
    key: str,
    memory: float | None = None,
    p99_s: float | None = None,
    *,
    healthy: bool = True,
    age_s: float = 0.0,
    p99_age_s: float | None = None,
    most_s: float = 1.0,
) -> EndpointInput:
    """Readings `age_s` old, the latency's `p99_age_s` where it differs."""
    old_s = age_s if p99_age_s is None else p99_age_s
    return EndpointInput(
        key=key,
        healthy=healthy,
        memory=None if memory is None else Reading(memory, NOW - age_s),
        p99_s=None if p99_s is None else Reading(p99_s, NOW - old_s),
        max_acceptable_p99_s=most_s,
    )


def weights(found: PoolWeights) -> list[int]:
    return [each.weight for each in found.weights]


ODD = [nan, inf, -inf, -1.0, -0.0, 0.0, 5e-324, 1.0, 1e308]

values = st.sampled_from(ODD) | st.floats(0, 2) | st.floats()
readings = st.none() | st.builds(
    Reading, values, st.floats(NOW - 60, NOW + 5) | st.sampled_from([nan, inf, -inf, 0.0])
)


def inputs(
    *, most: int = 12, healthy: st.SearchStrategy[bool] | None = None
) -> st.SearchStrategy[list[EndpointInput]]:
    """Pools of 1 to `most` endpoints, each with any readings."""
    one = st.builds(
        lambda healthy, memory, p99_s, most_s: (healthy, memory, p99_s, most_s),
        healthy if healthy is not None else st.booleans(),
        readings,
        readings,
        st.floats(0.01, 10) | st.sampled_from([nan, 0.0, inf, -1.0]),
    )
    return st.lists(one, min_size=1, max_size=most).map(
        lambda rows: [
            EndpointInput(key=f"e{i}", healthy=h, memory=m, p99_s=p, max_acceptable_p99_s=s)
            for i, (h, m, p, s) in enumerate(rows)
        ]
    )
