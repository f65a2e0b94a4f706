"""Finished requests and their tokens as Prometheus metrics: durations, outcomes, lengths.

Recorded once per request, so tallies are added to and one collector makes families of them when Prometheus asks.
Pools are those that are placed, tiers and classes of status few; what else varies is bounded by the tallies
(`other`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial

from prometheus_client import CollectorRegistry, Gauge

from extproc import collectors
from extproc.model.telemetry import AccessSample, UsageSample
from extproc.usage.seen import Outcome as ReadOutcome
from extproc.windows.outcome import Outcome, outcome

DURATION_BUCKETS_S = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.3, 1.6, 1.8, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0),
)
"""Bounds where the shipped thresholds lie, 1.6, 1.8 and 2.0: a quantile is read as between two of them."""

LENGTHS = (100, 250, 500, 1000, 2000, 4000, 8000)
"""Upper bounds, inclusive, of the length buckets: all tokens of a request, prompt and output."""

MANY_TOKENS = 1000

NONE = "none"
"""A label value where there is nothing to name: no tier, no status, no reason."""

_LENGTH_NAMES = (*(str(length) for length in LENGTHS), "+Inf")
_STATUS_NAMES = (NONE, "1xx", "2xx", "3xx", "4xx", "5xx")
_OUTCOME_NAMES = {one: one.name.lower() for one in Outcome}


class TrafficMetrics:
    """`pool_of` names the pool of an Envoy cluster. Used from the event loop's thread only."""

    def __init__(self, registry: CollectorRegistry, *, pool_of: Callable[[str], str]) -> None:
        self._pool_of = pool_of
        counts = partial(collectors.counts, registry)
        buckets = partial(
            collectors.buckets, registry, bounds=DURATION_BUCKETS_S, labels=("pool", "tier", "status")
        )
        self._duration = buckets("llm_request_duration_seconds", "Until the client had the last byte.")
        self._first_byte = buckets("llm_time_to_first_byte_seconds", "Until the engine's first byte.")
        self._outcomes = counts("llm_request_outcomes", "Finished requests.", ("pool", "outcome"))
        self._entries = counts("llm_access_log_entries", "Entries of Envoy's access log.", ("result",))
        self._failures = counts("llm_access_log_failures", "Messages without effect.", ("reason",))
        self._tokens = counts("llm_tokens", "Tokens.", ("kind", "scenario", "length_bucket"))
        self._counted = counts("llm_requests_with_usage", "Requests with known tokens.", ("scenario", "estimated"))
        self._long = counts("llm_requests_over_1k_tokens", "Those of more than 1000 tokens.", ("scenario",))
        self._answers = counts("llm_usage_answers", "Answers looked at, by what came of it.", ("outcome", "reason"))
        self._reasons = counts("llm_finish_reasons", "Why answers ended.", ("reason", "scenario"))
        self._open = Gauge("llm_access_log_streams_open", "Open access log streams.", registry=registry)

    def finished(self, samples: Iterable[AccessSample]) -> None:
        """Finished requests. Durations of those whose client left stand apart, as they are cut short."""
        count = 0
        for sample in samples:
            ended, pool = outcome(sample), self._pool_of(sample.cluster)
            left = ended is Outcome.CANCELLED
            labels = (pool, sample.tier or NONE, "cancelled" if left else status_class(sample.status))
            self._duration.at(labels).observe(sample.total_s)
            if sample.first_byte_s is not None:
                self._first_byte.at(labels).observe(sample.first_byte_s)
            self._outcomes.add((pool, _OUTCOME_NAMES[ended]))
            count += 1
        self._entries.add(("finished",), count)

    def usage_ended(self, ended: ReadOutcome, reason: str) -> None:
        self._answers.add((ended.value, reason or NONE))

    def usage(self, usage: UsageSample) -> None:
        """Tokens of one answer. An unknown prompt length adds nothing, and the output alone is the length."""
        scenario, prompt = usage.scenario or NONE, usage.prompt_tokens or 0
        total = prompt + usage.output_tokens
        length = _LENGTH_NAMES[bisect_left(LENGTHS, total)]
        if usage.prompt_tokens is not None:
            self._tokens.add(("prompt", scenario, length), prompt)
        self._tokens.add(("output", scenario, length), usage.output_tokens)
        self._counted.add((scenario, "true" if usage.estimated else "false"))
        self._long.add((scenario,), int(total > MANY_TOKENS))
        self._reasons.add((usage.finish_reason or NONE, scenario))

    def entries_running(self, count: int) -> None:
        self._entries.add(("running",), count)

    def entries_unreadable(self, count: int) -> None:
        self._entries.add(("unreadable",), count)

    def message_unreadable(self) -> None:
        self._failures.add(("unreadable",))

    def samples_failed(self) -> None:
        self._failures.add(("not_recorded",))

    def log_opened(self) -> None:
        self._open.inc()

    def log_ended(self) -> None:
        self._open.dec()


def status_class(status: int) -> str:
    """ "2xx" for 200; "none" where there was no status, or none that exists."""
    return _STATUS_NAMES[status // 100] if 100 <= status < 600 else NONE
