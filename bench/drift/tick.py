"""What one look costs, and what requests feel of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from bench.drift.methods import _sample
from extproc.edge import secrets
from extproc.judge import Arrival, judge
from extproc.loops.drift import DriftWatch, Work, evaluated
from extproc.model.values import Caller
from extproc.request.headers import Headers
from extproc.request.paths import target
from extproc.settings import load, snapshot

KEYS, SAMPLES = 50, 100_000
REQUESTS_EVERY_S = 0.002


def watched(keys: int = KEYS, samples: int = SAMPLES) -> DriftWatch:
    """So many triples with so many answers in their windows, and a baseline each."""
    random = np.random.default_rng(3)
    watch = DriftWatch(
        None, load(b"{}").drift, pool_of=lambda cluster: cluster, save=lambda _: None, report=lambda _: None
    )
    for _ in range(2):
        values = random.lognormal(-1.2, 0.5, samples)
        for number, value in enumerate(values):
            sample = _sample(float(value), "512" if number % 5 else "8192", "default@1")
            sample = msgspec.structs.replace(sample, cluster=f"pool-{number % keys}")
            watch.record((sample,), active="default@1", last_good="default@1", now=1000 + 50 * number / samples)
        if not watch.baselines.kept:
            watch.freeze(wall=0.0, now=1050.0)
    return watch


def cpu_ms(watch: DriftWatch, times: int = 10) -> tuple[float, float]:
    """(on the event loop, in the thread) for one look."""
    evaluated(watch.views(last_good="default@1", now=1050))
    begun = time.process_time()
    for _ in range(times):
        work = watch.views(last_good="default@1", now=1050)
    copied = time.process_time()
    for _ in range(times):
        evaluated(work)
    return 1000 * (copied - begun) / times, 1000 * (time.process_time() - copied) / times


async def felt_ms(watch: DriftWatch, seconds: float, *, look: Callable[[Work], Any] | None) -> list[float]:
    """How late decisions are that are due every 2 ms, while somebody looks as often as configured."""
    settings = load(b"{}")
    every_s = settings.drift.interval_s
    current = snapshot(settings, secrets.read(settings), generation=1)
    caller = Caller(False, "", "anonymous", None, None, {})
    arrival = Arrival(target("/v1/chat/completions"), caller, Headers(()), "/v1/chat/completions")
    body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "word " * 400}]})
    late: list[float] = []
    begun, looked, looking = time.perf_counter(), 0.0, None
    due = begun
    while (due := due + REQUESTS_EVERY_S) < begun + seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        judge(body, arrival, current)
        now = time.perf_counter()
        late.append(1000 * (now - due))
        if look is not None and now - looked >= every_s and (looking is None or looking.done()):
            looked = now
            looking = asyncio.ensure_future(asyncio.to_thread(look, watch.views(last_good="default@1", now=1050)))
        if now > due + 0.05:
            due = now  # a pause of the machine is not paid back by a burst
    if looking is not None:
        await looking
    return late
