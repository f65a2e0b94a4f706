"""Several processes judge, one does the rest: each may be killed at any time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.tree import sockets
from tests.e2e.asking import Load
from tests.e2e.running import Engine, Stack, until

WORKERS = 2
SECONDS = float(os.environ.get("WORKERS_SECONDS", "12"))
"""How long they are killed; a minute and more by hand."""


@pytest.fixture
def many(engine: Engine, transport: str) -> Iterator[Stack]:
    with Stack(engine=engine, changes={"workers": WORKERS, "transport": transport}) as running:
        until(lambda: len(workers(running)) == WORKERS, what="workers")
        yield running


def workers(stack: Stack) -> list[int]:
    """Pids of the processes that listen for requests."""
    return [pid for pid in children(stack) if listens(pid, "extproc-")]


def control(stack: Stack) -> list[int]:
    return [pid for pid in children(stack) if listens(pid, "workers.sock")]


def children(stack: Stack) -> list[int]:
    parent = stack.sidecar.running.pid
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def listens(pid: int, name: str) -> bool:
    return any(f"/{name}" in path for path in sockets(pid))


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def judged(load: Load) -> list[dict[str, Any]]:
    """What the engine says of requests that were judged; the others went through untouched."""
    reports = [answer["received"] for answer in load.tally.answers]
    return [report for report in reports if "x-llm-tier" in report["headers"]]


def request_ids(reports: list[dict[str, Any]]) -> list[str]:
    return [report["headers"]["x-request-id"][0] for report in reports]


def audited(stack: Stack) -> Counter[str]:
    """Audit records of the field that every request of the load has changed, by request."""
    written = (stack.sidecar.state_dir / "audit.jsonl").read_text()
    lines = written[: written.rfind("\n") + 1].splitlines()
    return Counter(each["request_id"] for each in map(json.loads, lines) if each["field"] == "temperature")


def all_audited(stack: Stack, ids: list[str]) -> None:
    """Exactly once each."""

    def missing() -> set[str]:
        return set(ids) - audited(stack).keys()

    until(lambda: not missing(), what="audit records of all requests")
    found = audited(stack)
    assert {found[i] for i in ids} == {1}


async def test_both_judge_and_one_counts(many: Stack) -> None:
    async with Load(many.port, keep=True) as load:
        await load.more(300)
    assert load.tally.errors == []
    assert len(judged(load)) == load.tally.done
    all_audited(many, request_ids(judged(load)))
    until(lambda: many.sidecar.count("llm_requests_total") == load.tally.done, what="all are counted")
    until(lambda: many.sidecar.count("llm_decision_seconds_count") == load.tally.done)
    assert many.sidecar.count("llm_streams_open") == 0
    connected = [line for line in many.envoy.admin("/clusters").splitlines() if "llm_ext_proc" in line]
    totals = [int(line.rpartition("::")[2]) for line in connected if "rq_total" in line]
    assert len(totals) == WORKERS
    assert min(totals) > 50


async def test_killed_again_and_again_no_request_fails(many: Stack) -> None:
    async with Load(many.port, keep=True) as load:
        until_s = asyncio.get_running_loop().time() + SECONDS
        kills = 0
        while asyncio.get_running_loop().time() < until_s:
            await load.more(50)
            pids = workers(many)
            os.kill(pids[kills % len(pids)], signal.SIGKILL)
            kills += 1
            await asyncio.sleep(2)
    assert kills >= 4
    assert load.tally.errors == []
    assert set(load.tally.statuses) == {200}
    unjudged = load.tally.done - len(judged(load))
    assert unjudged <= 16 * kills, "more than what was in flight"
    all_audited(many, request_ids(judged(load)))


async def test_one_that_hangs_is_replaced(many: Stack) -> None:
    """Its socket still takes connections: only whoever watches it can tell."""
    hung = workers(many)[0]
    os.kill(hung, signal.SIGSTOP)
    await asyncio.to_thread(until, lambda: hung not in workers(many) and len(workers(many)) == WORKERS, within_s=30)
    await asyncio.to_thread(until, lambda: many.sidecar.count("llm_workers", state="ready") == WORKERS, within_s=20)
    async with Load(many.port, keep=True) as load:
        await load.more(100)
    assert (load.tally.errors, len(judged(load))) == ([], load.tally.done)


async def test_without_the_control_process_workers_go_on(many: Stack) -> None:
    async with Load(many.port, keep=True) as load:
        await load.more(100)
        (pid,) = control(many)
        os.kill(pid, signal.SIGKILL)
        await load.more(100)
        await asyncio.to_thread(until, lambda: control(many) not in ([], [pid]), within_s=20)
        await asyncio.to_thread(until, many.sidecar._is_ready, within_s=20)
        await load.more(100)
    assert load.tally.errors == []
    assert len(judged(load)) == load.tally.done
    all_audited(many, request_ids(judged(load)))
    assert list(many.sidecar.state_dir.glob("audit.*.jsonl*")) == []
    until(lambda: many.sidecar.count("llm_requests_total") >= 100, what="counted again")
    # Envoy follows again, and the endpoints are weighed.
    until(lambda: many.sidecar.count("llm_xds_streams_open") == 1, what="Envoy follows")
    until(lambda: many.sidecar.count("llm_endpoint_weight") > 0, what="weights")


async def test_a_snapshot_reaches_all_and_each_request_sees_one(many: Stack) -> None:
    async with Load(many.port, keep=True) as load:
        await load.more(50)
        for name in ("second", "third"):
            await asyncio.to_thread(many.reload, parameter_set=name)
            at = load.tally.done
            await load.more(100)
            seen = {report["headers"]["x-llm-params"][0].partition("@")[0] for report in judged(load)[at + 32 :]}
            assert seen == {name}
    assert load.tally.errors == []


def test_asked_to_end_it_ends_all(many: Stack) -> None:
    pids = [*workers(many), *control(many)]
    assert many.sidecar.stop() == 0
    assert not [pid for pid in pids if alive(pid)]


def test_the_supervisor_killed_takes_all_along(many: Stack) -> None:
    pids = [*workers(many), *control(many)]
    many.sidecar.kill()
    until(lambda: not [pid for pid in pids if alive(pid)], what="orphans end")
    many.sidecar.start()
