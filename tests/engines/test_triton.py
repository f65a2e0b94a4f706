"""Triton: the captured page, GPU pages, and what its counters say between two looks."""

from __future__ import annotations

import pytest

from extproc.engines import triton
from extproc.engines.counters import Counters
from extproc.model.telemetry import EngineSample
from tests.engines.texts import page, points

GPUS = b"""
nv_gpu_utilization{gpu_uuid="GPU-0"} 0.41
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.77
nv_gpu_memory_used_bytes{gpu_uuid="GPU-0"} 5e+07
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 75000000
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 2000000000
nv_gpu_memory_total_bytes{gpu_uuid="GPU-0"} 1000000000
"""

TRTLLM = b"""
nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 3
nv_trt_llm_request_metrics{model="m",request_type="scheduled",version="1"} 2
nv_trt_llm_request_metrics{model="m",request_type="max",version="1"} 512
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="m",version="1"} 1000
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="m",version="1"} 4000
nv_inference_pending_request_count{model="m",version="1"} 5
"""


def sample(text: bytes, previous: Counters | None = None, now: float = 5.0) -> tuple[EngineSample, Counters]:
    return triton.sample(previous, points(text, triton.WANTED), now=now)


def test_the_captured_page_of_a_server_without_a_gpu() -> None:
    seen, counters = sample(page("triton"))
    assert (seen.at, seen.memory, seen.gpu_utilisation, seen.sm_utilisation) == (5.0, None, None, None)
    assert (seen.waiting, seen.running, seen.kv_usage) == (0.0, None, None)
    assert seen.p99_s == seen.p999_s == pytest.approx(0.139646)
    assert seen.rates == {}
    assert len(counters.values) == 4 * 8 + 16


def test_several_gpus_the_worst_of_each_term() -> None:
    seen, _ = sample(GPUS)
    assert (seen.memory, seen.gpu_utilisation) == (0.05, 0.77)
    assert (seen.waiting, seen.p99_s) == (None, None)


def test_a_gpu_that_fell_off_the_bus_tells_nothing() -> None:
    seen, _ = sample(b'nv_gpu_memory_total_bytes{gpu_uuid="a"} 0\nnv_gpu_memory_used_bytes{gpu_uuid="a"} 0\n')
    assert seen.memory is None


def test_the_backend_for_language_models_adds_queue_and_blocks() -> None:
    seen, _ = sample(TRTLLM)
    assert (seen.waiting, seen.running, seen.kv_usage) == (8.0, 2.0, 0.25)


def test_counters_become_rates() -> None:
    line = b'nv_inference_request_success{model="m",version="1"} %d\n'
    failed = b'nv_inference_request_failure{model="m",reason="%s",version="1"} %d\n'
    _, counters = sample(line % 100 + failed % (b"OTHER", 1) + failed % (b"BACKEND", 1))
    seen, _ = sample(line % 150 + failed % (b"OTHER", 6) + failed % (b"BACKEND", 6), counters, now=10.0)
    assert seen.rates == {"nv_inference_request_success": 10.0, "nv_inference_request_failure": 2.0}


def test_quantiles_are_of_the_slowest_model_that_has_any() -> None:
    line = b'nv_inference_request_summary_us{model="%s",version="1",quantile="%s"} %s\n'
    rows = [(b"a", b"0.99", b"2000"), (b"b", b"0.99", b"9000"), (b"c", b"0.99", b"NaN"), (b"a", b"0.999", b"Nan")]
    seen, _ = sample(b"".join(line % row for row in rows))
    assert (seen.p99_s, seen.p999_s) == (0.009, None)


def test_any_number_of_models_gives_the_same_few_rates() -> None:
    line = b'nv_inference_request_success{model="%d",version="1"} %d\n'
    _, counters = sample(b"".join(line % (model, 1) for model in range(10_000)))
    seen, _ = sample(b"".join(line % (model, 2) for model in range(10_000)), counters, now=10.0)
    assert seen.rates == {"nv_inference_request_success": 2000.0}
