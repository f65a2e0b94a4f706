"""NVIDIA's GPU exporter (dcgm-exporter): a page of a host's GPUs, split by the label that joins them to endpoints.

`memory` is used / (used + free): memory that the driver reserves is nobody's to use. Utilisation is 0 to 100 on
this page, SM activity 0 to 1. A field the GPU does not support carries a number near the end of its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from extproc.engines.exposition import Point, Points, gauges, wanted
from extproc.engines.joining import worst
from extproc.engines.terms import fraction, most
from extproc.model.telemetry import EngineSample

USED = "DCGM_FI_DEV_FB_USED"
FREE = "DCGM_FI_DEV_FB_FREE"
UTILISATION = "DCGM_FI_DEV_GPU_UTIL"
SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"

WANTED = wanted(gauges=(USED, FREE, UTILISATION, SM_ACTIVE))

BLANK = 2_147_483_632.0
"""The lowest of DCGM's "no value" numbers (`DCGM_INT32_BLANK`); those of the wider types are higher."""

HOST_LABEL = "Hostname"


def samples(points: Points, *, label: str | None = HOST_LABEL, now: float) -> Mapping[str, EngineSample]:
    """By the value of `label`, the worst of the GPUs that carry it; `label` None = all of the page, under "".

    The label's name is compared without case: exporters spell `Hostname` and `hostname`. A GPU without it is
    left out.
    """
    groups: dict[str, dict[tuple[str, str], list[Point]]] = {}
    for point in points:
        value = "" if label is None else _label(point, label)
        if value is not None and point.value < BLANK:
            groups.setdefault(value, {}).setdefault(_gpu(point), []).append(point)
    return {value: seen for value, gpus in groups.items() if (seen := _worst(gpus.values(), now))}


def _worst(gpus: Iterable[list[Point]], now: float) -> EngineSample | None:
    return worst(_sample(tuple(points), now) for points in gpus)


def _sample(points: Points, now: float) -> EngineSample:
    used, free = most(gauges(points, USED)), most(gauges(points, FREE))
    total = None if used is None or free is None else used + free
    busy = most(gauges(points, UTILISATION))
    return EngineSample(
        at=now,
        memory=fraction(used / total) if used is not None and total else None,
        gpu_utilisation=None if busy is None else fraction(busy / 100),
        sm_utilisation=fraction(most(gauges(points, SM_ACTIVE))),
    )


def _gpu(point: Point) -> tuple[str, str]:
    """One GPU, or one slice of it; a page may show it once per container that uses it."""
    labels = point.labels
    return labels.get("UUID") or labels.get("gpu", ""), labels.get("GPU_I_ID", "")


def _label(point: Point, label: str) -> str | None:
    if label in point.labels:
        return point.labels[label]
    return next((value for name, value in point.labels.items() if name.lower() == label.lower()), None)
