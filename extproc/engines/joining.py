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
    """`address:http_port`, the address also by its name."""
    HOST = "host"
    """The address or its name; a port in the label does not count."""


def keyed(samples: Mapping[str, EngineSample], join: Join) -> Mapping[str, EngineSample]:
    """Samples by what `names` says of an endpoint, so that a thousand endpoints are not compared with as many
    labels each."""
    groups: dict[str, list[EngineSample]] = {}
    for label, sample in samples.items():
        groups.setdefault(_host(label) if join is Join.HOST else _whole(label), []).append(sample)
    return {name: seen for name, group in groups.items() if (seen := worst(group))}


def names(endpoint: Endpoint, join: Join) -> tuple[str, ...]:
    """What an endpoint may be called by a source, the surest first: by its address, by the name it was found by."""
    hosts = (endpoint.address, endpoint.hostname) if endpoint.hostname else (endpoint.address,)
    if join is Join.HOST:
        return tuple(_host(host) for host in hosts)
    return tuple(_whole(f"{host}:{endpoint.http_port}") for host in hosts)


def worst(samples: Iterable[EngineSample]) -> EngineSample | None:
    """Per term the worst that is known; `at` is the oldest. None of none."""
    known = list(samples)
    if len(known) < 2:
        return known[0] if known else None
    hits = [sample.prefix_hit_rate for sample in known if sample.prefix_hit_rate is not None]
    terms = {term: _highest(known, term) for term in WORST_IS_HIGH}
    return of_terms({**terms, "prefix_hit_rate": min(hits, default=None)}, at=min(sample.at for sample in known))


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


def _whole(label: str) -> str:
    """Lower case, with its port: `[::1]:8000` is `::1:8000`, as an endpoint's key has it."""
    return label.replace("[", "").replace("]", "").lower()
