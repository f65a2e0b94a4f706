"""Samples of a source that tells of many endpoints, found again for one of them.

A source names what it measured by a label: a GPU exporter its host, a monitoring server the scraped instance.
The rejected alternative, to try the host where the whole address is not found, hands an engine the readings
of its neighbour on the same machine: which part is compared is configured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec.structs import replace

from extproc.engines.terms import most
from extproc.model.telemetry import EngineSample
from extproc.model.topology import Endpoint

WORST_IS_HIGH = (
    "memory",
    "kv_usage",
    "gpu_utilisation",
    "sm_utilisation",
    "running",
    "waiting",
    "p99_s",
    "p999_s",
    "ttft_p99_s",
    "fragmentation",
)
TERMS = (*WORST_IS_HIGH, "prefix_hit_rate")


class Join(StrEnum):
    """What of an endpoint a label's value is compared with."""

    ENDPOINT = "endpoint"
    """`address:http_port`."""
    HOST = "host"
    """The address; a port in the label does not count."""


def find(samples: Mapping[str, EngineSample], endpoint: Endpoint, join: Join) -> EngineSample | None:
    """What a source knows of an endpoint, the worst of each term where several labels fit; None = nothing."""
    if join is Join.ENDPOINT:
        return samples.get(endpoint.key)
    host = _host(endpoint.address)
    return worst(sample for label, sample in samples.items() if _host(label) == host)


def worst(samples: Iterable[EngineSample]) -> EngineSample | None:
    """Per term the worst that is known; `at` is the oldest. None of none."""
    known = list(samples)
    if not known:
        return None
    hits = [sample.prefix_hit_rate for sample in known if sample.prefix_hit_rate is not None]
    terms = {term: _highest(known, term) for term in WORST_IS_HIGH}
    return of_terms({**terms, "prefix_hit_rate": min(hits, default=None)}, at=min(sample.at for sample in known))


def filled(own: EngineSample, other: EngineSample) -> EngineSample:
    """An engine's own sample, with what it does not tell taken from another source. `at` and rates stay its own.

    The caller leaves out a source that is too old: a sample has one age.
    """
    missing = {term: getattr(other, term) for term in TERMS if getattr(own, term) is None}
    return replace(own, **missing)


def of_terms(terms: Mapping[str, float | None], *, at: float) -> EngineSample:
    """A sample of terms by name, each one of `TERMS`."""
    return replace(EngineSample(at=at), **terms)


def _highest(samples: list[EngineSample], term: str) -> float | None:
    return most([value for sample in samples if (value := getattr(sample, term)) is not None])


def _host(label: str) -> str:
    """Lower case, without a port and without brackets: `Node-A:9400` and `[::1]:9400` are `node-a` and `::1`."""
    name, colon, port = label.rpartition(":")
    bare = name if colon and port.isdecimal() and (":" not in name or name.endswith("]")) else label
    return bare.strip("[]").lower()
