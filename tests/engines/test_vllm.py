"""vLLM: the captured page, old names, and latencies of the interval."""

from __future__ import annotations

import re

import pytest

from extproc.engines import vllm
from extproc.engines.counters import Counters
from extproc.model.telemetry import EngineSample
from tests.engines.texts import page, points


def sample(text: bytes, previous: Counters | None = None, now: float = 5.0) -> tuple[EngineSample, Counters]:
    return vllm.sample(previous, points(text, vllm.WANTED), now=now)


def test_the_captured_page() -> None:
    seen, counters = sample(page("vllm"))
    assert (seen.kv_usage, seen.memory, seen.running, seen.waiting) == (0.0, 0.0, 0.0, 0.0)
    assert (seen.p99_s, seen.ttft_p99_s, seen.prefix_hit_rate, dict(seen.rates)) == (None, None, None, {})
    assert len(counters.values) > 50


BUCKET = re.compile(rb'(?<=e2e_request_latency_seconds_bucket\{engine="0",le=")([^"]+)(",model_name="tiny"} )(\S+)')


def later(text: bytes) -> bytes:
    """The captured page a moment on: 10 requests more, of which each took 1 to 1.5 s to finish."""

    def counted(found: re.Match[bytes]) -> bytes:
        more = 10 if float(found[1]) >= 1.5 else 0
        return found[1] + found[2] + b"%g" % (float(found[3]) + more)

    return BUCKET.sub(counted, text)


def test_latencies_are_of_the_interval() -> None:
    _, counters = sample(page("vllm"))
    seen, _ = sample(later(page("vllm")), counters, now=10.0)
    assert seen.p99_s == pytest.approx(1.0 + 0.5 * 0.99)
    assert seen.p999_s == pytest.approx(1.0 + 0.5 * 0.999)
    assert seen.ttft_p99_s is None  # no first token in the interval
    assert seen.rates["vllm:generation_tokens_total"] == 0.0


def test_the_mean_gap_between_tokens_is_in_the_rates() -> None:
    text = b"vllm:inter_token_latency_seconds_sum %d\nvllm:inter_token_latency_seconds_count %d\n"
    _, counters = sample(text % (10, 100))
    seen, _ = sample(text % (20, 300), counters, now=10.0)
    gap_s, tokens = (seen.rates[name] for name in vllm.PER_TOKEN)
    assert gap_s / tokens == pytest.approx(0.05)


def test_the_hit_rate_is_of_the_interval() -> None:
    text = b"vllm:prefix_cache_queries_total %d\nvllm:prefix_cache_hits_total %d\n"
    _, counters = sample(text % (1_000_000, 0))
    seen, _ = sample(text % (1_000_200, 150), counters, now=10.0)
    assert seen.prefix_hit_rate == 0.75
    seen, _ = sample(text % (1_000_000, 0), counters, now=10.0)
    assert seen.prefix_hit_rate is None


def test_old_names_are_read() -> None:
    old = b'vllm:gpu_cache_usage_perc{model_name="m"} 0.8431\nvllm:gpu_prefix_cache_queries%s %d\nvllm:gpu_prefix_cache_hits%s %d\n'
    _, counters = sample(old % (b"_total", 100, b"_total", 10))
    seen, _ = sample(old % (b"_total", 200, b"_total", 60), counters, now=10.0)
    assert (seen.kv_usage, seen.memory, seen.prefix_hit_rate) == (0.8431, 0.8431, 0.5)


def test_engine_cores_add_up_and_the_fullest_counts() -> None:
    line = b'vllm:%s{engine="%d",model_name="m"} %s\n'
    rows = [(b"kv_cache_usage_perc", 0, b"0.2"), (b"kv_cache_usage_perc", 1, b"0.9")]
    rows += [(b"num_requests_running", 0, b"3"), (b"num_requests_running", 1, b"4")]
    seen, _ = sample(b"".join(line % row for row in rows))
    assert (seen.kv_usage, seen.running, seen.waiting) == (0.9, 7.0, None)


def test_waiting_by_reason_is_not_counted_twice() -> None:
    seen, _ = sample(b'vllm:num_requests_waiting 2\nvllm:num_requests_waiting_by_reason{reason="capacity"} 2\n')
    assert seen.waiting == 2.0


@pytest.mark.parametrize("value", [b"NaN", b"+Inf", b"43.1", b"-1"])
def test_a_usage_that_is_no_fraction_is_not_known(value: bytes) -> None:
    seen, _ = sample(b"vllm:kv_cache_usage_perc " + value)
    assert (seen.kv_usage, seen.memory) == (None, None)
