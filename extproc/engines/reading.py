"""One look at one source, from what came over the wire to samples: which mapping reads which source."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from extproc.engines import dcgm, exposition, llamacpp, prometheus, triton, vllm
from extproc.engines.counters import Counters
from extproc.engines.exposition import Points
from extproc.engines.failures import Failure
from extproc.model.telemetry import EngineSample

Content = bytes | Points
"""A metrics page, or points that another protocol gave."""

OWN = ""
"""The key of the sample of a source that tells of one endpoint alone."""


class Source(StrEnum):
    """What kind of page or answer a source gives."""

    TRITON = "triton"
    VLLM = "vllm"
    LLAMACPP = "llamacpp"
    DCGM = "dcgm"
    PROMETHEUS = "prometheus"


class Reading(Struct, frozen=True):
    """`samples` by label value, or under `OWN`. `kept` is the part of the content that was read.

    `counters` go into the next reading of the same source.
    """

    samples: Mapping[str, EngineSample]
    kept: Content
    counters: Counters | None = None


_ENGINES = {Source.TRITON: triton, Source.VLLM: vllm, Source.LLAMACPP: llamacpp}


def read(
    source: Source, content: Content, previous: Counters | None, *, label: str | None = None, now: float
) -> Reading | Failure:
    """What the content tells; a Failure where it is no page of metrics. `label` joins samples to endpoints."""
    if source is Source.PROMETHEUS:
        points = () if isinstance(content, bytes) else content
        return Reading(prometheus.samples(points, label=label or "instance", now=now), content)
    module = _ENGINES.get(source)
    filter_ = dcgm.WANTED if module is None else module.WANTED
    kept = exposition.cut(content, filter_) if isinstance(content, bytes) else content
    if isinstance(kept, Failure):
        return kept
    points = exposition.parse(kept, filter_) if isinstance(kept, bytes) else kept
    if module is None:
        return Reading(dcgm.samples(points, label=label, now=now), kept)
    sample, counters = module.sample(previous, points, now=now)
    return Reading({OWN: sample}, kept, counters)
