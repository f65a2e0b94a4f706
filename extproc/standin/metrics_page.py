"""The stand-in's own load as the three engines it plays would tell it."""

from __future__ import annotations

PATH = "/__metrics"
"""Beside its memory: on the paths of real engines it tells that management was reached."""

_PAGE = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="stand-in"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="stand-in"}} 0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="stand-in"}} {usage:.6f}
# TYPE nv_inference_count counter
nv_inference_count{{model="stand-in",version="1"}} {finished}
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{{model="stand-in",version="1"}} 0
# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{{gpu_uuid="stand-in"}} {used}
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{{gpu_uuid="stand-in"}} {total}
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing {running}
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 0
# TYPE process_requests_total counter
process_requests_total {finished}
"""

SLOTS = 64
"""Requests at which the pretended memory is full."""

TOTAL_BYTES = 1 << 30


def page(*, running: int, finished: int) -> str:
    """Prometheus text; memory grows with the requests in hand."""
    usage = min(running / SLOTS, 1.0)
    return _PAGE.format(
        running=running, finished=finished, usage=usage, used=int(usage * TOTAL_BYTES), total=TOTAL_BYTES
    )
