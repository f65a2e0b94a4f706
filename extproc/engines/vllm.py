"""vLLM's metrics page as a sample.

vLLM takes most of the GPU's memory at its start and never gives it back, so used bytes say nothing of load:
the share of KV blocks in use is `memory` as well. `kv_cache_usage_perc` is a fraction, whatever its name says.
Latencies come from what its histograms counted since the look before; all of its life would hide the last minute.
"""

from __future__ import annotations

from extproc.engines.counters import Counters, Growth, advance, quantile, rates, share, total
from extproc.engines.exposition import Points, gauges, wanted
from extproc.engines.terms import fraction, latency_s, most, summed
from extproc.model.telemetry import EngineSample

KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
"""The present name, and that of releases up to 0.10."""

QUERIES = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")

TTFT = "vllm:time_to_first_token_seconds"
ITL = "vllm:inter_token_latency_seconds"
E2E = "vllm:e2e_request_latency_seconds"

COUNTERS = (
    "vllm:num_preemptions_total",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:request_success_total",
)
PER_TOKEN = (f"{ITL}_sum", f"{ITL}_count")
"""Seconds between tokens and their number: the one over the other is the mean inter-token latency. Its buckets
are not read, since no term of a sample is made of them."""

WANTED = wanted(
    gauges=("vllm:num_requests_running", "vllm:num_requests_waiting", *KV_USAGE),
    counters=(*COUNTERS, *QUERIES, *HITS, *PER_TOKEN),
    histograms=(TTFT, E2E),
)


def sample(previous: Counters | None, points: Points, *, now: float) -> tuple[EngineSample, Counters]:
    """One look at a vLLM server, and the counters for the next one. Of several engine cores the fullest counts."""
    growth, counters = advance(previous, points, WANTED, now=now)
    kv_usage = _kv_usage(points)
    seen = EngineSample(
        at=now,
        memory=kv_usage,
        kv_usage=kv_usage,
        running=summed(gauges(points, "vllm:num_requests_running")),
        waiting=summed(gauges(points, "vllm:num_requests_waiting")),
        p99_s=latency_s(quantile(growth, E2E, 0.99)),
        p999_s=latency_s(quantile(growth, E2E, 0.999)),
        ttft_p99_s=latency_s(quantile(growth, TTFT, 0.99)),
        prefix_hit_rate=share(_first_total(growth, HITS), _first_total(growth, QUERIES)),
        rates=rates(growth, (*COUNTERS, *PER_TOKEN)),
    )
    return seen, counters


def _kv_usage(points: Points) -> float | None:
    return next((fraction(most(found)) for name in KV_USAGE if (found := gauges(points, name))), None)


def _first_total(growth: Growth, names: tuple[str, ...]) -> float | None:
    return next((grown for name in names if (grown := total(growth, name)) is not None), None)
