"""Triton's metrics page as a sample. Its statistics over gRPC come as points of the same names.

Utilisation is 0 to 1 here, 0 to 100 in the GPU exporter. Several GPUs serve one server: the worst counts.
The TensorRT-LLM backend adds its own queue and KV blocks; other backends show no more than the pending count.
"""

from __future__ import annotations

from extproc.engines.counters import Counters, advance, rates
from extproc.engines.exposition import Points, gauges, wanted
from extproc.engines.terms import fraction, latency_s, most, ratio_by, summed
from extproc.model.telemetry import EngineSample

COUNTERS = (
    "nv_inference_request_success",
    "nv_inference_request_failure",
    "nv_inference_count",
    "nv_inference_exec_count",
    "nv_inference_request_duration_us",
    "nv_inference_queue_duration_us",
    "nv_inference_compute_input_duration_us",
    "nv_inference_compute_infer_duration_us",
    "nv_inference_compute_output_duration_us",
)
SUMMARY = "nv_inference_request_summary_us"
PENDING = "nv_inference_pending_request_count"
KV_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
REQUESTS = "nv_trt_llm_request_metrics"

WANTED = wanted(
    gauges=(
        "nv_gpu_memory_used_bytes",
        "nv_gpu_memory_total_bytes",
        "nv_gpu_utilization",
        PENDING,
        KV_BLOCKS,
        REQUESTS,
    ),
    counters=COUNTERS,
    summaries=(SUMMARY,),
)


def sample(previous: Counters | None, points: Points, *, now: float) -> tuple[EngineSample, Counters]:
    """One look at a Triton server, and the counters for the next one."""
    growth, counters = advance(previous, points, WANTED, now=now)
    waiting = gauges(points, PENDING) + gauges(points, REQUESTS, request_type="waiting")
    seen = EngineSample(
        at=now,
        memory=_memory(points),
        kv_usage=_kv_usage(points),
        gpu_utilisation=fraction(most(gauges(points, "nv_gpu_utilization"))),
        running=summed(gauges(points, REQUESTS, request_type="scheduled")),
        waiting=summed(waiting),
        p99_s=_quantile_s(points, "0.99"),
        p999_s=_quantile_s(points, "0.999"),
        rates=rates(growth, COUNTERS),
    )
    return seen, counters


def _memory(points: Points) -> float | None:
    return ratio_by(points, "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes", label="gpu_uuid")


def _kv_usage(points: Points) -> float | None:
    """From the blocks: the backend's own `fraction` does not agree with them in its documentation."""
    used = summed(gauges(points, KV_BLOCKS, kv_cache_block_type="used"))
    blocks = summed(gauges(points, KV_BLOCKS, kv_cache_block_type="max"))
    return fraction(used / blocks) if used is not None and blocks else None


def _quantile_s(points: Points, quantile: str) -> float | None:
    """Of the slowest model; a model without a recent request tells NaN."""
    slowest = most(gauges(points, SUMMARY, quantile=quantile))
    return None if slowest is None else latency_s(slowest / 1e6)
