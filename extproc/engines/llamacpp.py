"""llama.cpp's metrics page as a sample.

Its page tells the slots at work and the queue; KV usage only in builds before 2025. Averages it calls
`..._seconds` are over its whole life and are not read. Token counters move when a slot ends, not per token.
"""

from __future__ import annotations

from extproc.engines.counters import Counters, advance, rates, share, total
from extproc.engines.exposition import Points, gauges, wanted
from extproc.engines.terms import fraction, most, summed
from extproc.model.telemetry import EngineSample

PROMPT = "llamacpp:prompt_tokens_total"
CACHED = "llamacpp:prompt_tokens_cached_total"

COUNTERS = (
    PROMPT,
    CACHED,
    "llamacpp:prompt_seconds_total",
    "llamacpp:tokens_predicted_total",
    "llamacpp:tokens_predicted_seconds_total",
    "llamacpp:n_decode_total",
    "llamacpp:spec_decode_num_draft_tokens_total",
    "llamacpp:spec_decode_num_accepted_tokens_total",
    "llamacpp:spec_decode_num_drafts_total",
)
WANTED = wanted(
    gauges=("llamacpp:requests_processing", "llamacpp:requests_deferred", "llamacpp:kv_cache_usage_ratio"),
    counters=COUNTERS,
)


def sample(previous: Counters | None, points: Points, *, now: float) -> tuple[EngineSample, Counters]:
    """One look at a llama.cpp server, and the counters for the next one."""
    growth, counters = advance(previous, points, WANTED, now=now)
    processed, cached = total(growth, PROMPT), total(growth, CACHED)
    seen = EngineSample(
        at=now,
        kv_usage=fraction(most(gauges(points, "llamacpp:kv_cache_usage_ratio"))),
        running=summed(gauges(points, "llamacpp:requests_processing")),
        waiting=summed(gauges(points, "llamacpp:requests_deferred")),
        prefix_hit_rate=None if processed is None or cached is None else share(cached, processed + cached),
        rates=rates(growth, COUNTERS),
    )
    return seen, counters
