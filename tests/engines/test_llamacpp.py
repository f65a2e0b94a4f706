"""llama.cpp: a page captured with eight requests on four slots, and rates."""

from __future__ import annotations

from extproc.engines import llamacpp
from extproc.engines.counters import Counters
from extproc.model.telemetry import EngineSample
from tests.engines.texts import page, points


def sample(text: bytes, previous: Counters | None = None, now: float = 5.0) -> tuple[EngineSample, Counters]:
    return llamacpp.sample(previous, points(text, llamacpp.WANTED), now=now)


def test_the_captured_page() -> None:
    seen, counters = sample(page("llamacpp"))
    assert (seen.running, seen.waiting) == (4.0, 4.0)
    assert (seen.memory, seen.kv_usage, seen.p99_s, dict(seen.rates)) == (None, None, None, {})
    assert len(counters.values) == len(llamacpp.COUNTERS)


def test_cached_tokens_are_not_among_the_processed() -> None:
    text = b"llamacpp:prompt_tokens_total %d\nllamacpp:prompt_tokens_cached_total %d\n"
    _, counters = sample(text % (44, 0))
    seen, _ = sample(text % (45, 43), counters, now=10.0)
    assert seen.prefix_hit_rate == 43 / 44
    assert seen.rates == {llamacpp.PROMPT: 0.2, llamacpp.CACHED: 8.6}


def test_without_the_cached_counter_there_is_no_hit_rate() -> None:
    _, counters = sample(b"llamacpp:prompt_tokens_total 1\n")
    seen, _ = sample(b"llamacpp:prompt_tokens_total 9\n", counters, now=10.0)
    assert seen.prefix_hit_rate is None


def test_old_builds_tell_kv_usage() -> None:
    assert sample(b"llamacpp:kv_cache_usage_ratio 0.25\n")[0].kv_usage == 0.25
