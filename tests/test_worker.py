"""A worker and the control process it belongs to, in one event loop: each may go at any time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from extproc import data_plane
from extproc.codec.workers import SnapshotTold, snapshot_told
from extproc.data_plane import DataPlane, Merging
from extproc.edge import control_link
from extproc.edge.audit_file import AuditFile
from extproc.edge.audit_merge import Spill
from extproc.edge.metrics import Metrics
from extproc.errors import CannotStart
from extproc.recorded import Counted, Delta
from extproc.settings import Secrets, Settings, load
from extproc.worker import Worker
from tests.e2e.speaking import BODY, Peer, body, headers
from tests.edge.test_metrics import value

SETTINGS = load("workers: 2\nshutdown_grace_s: 0\nparameter_set: first\n")
NO_SECRETS = Secrets(tokens=[], tenant_keys=[])


def told(generation: int, settings: Settings = SETTINGS) -> SnapshotTold:
    return snapshot_told(settings, NO_SECRETS, generation)


def named(name: str) -> Settings:
    return SETTINGS.model_copy(update={"parameter_set": name})


class Control:
    """A control process as far as workers know it."""

    def __init__(self, state_dir: Path, first: SnapshotTold) -> None:
        self.metrics = Metrics(version="0")
        self.audit = AuditFile(
            state_dir / "audit.jsonl", max_bytes=1 << 20, keep=1, max_pending=1000, linger_s=0.001
        )
        self.metrics.watch_audit(self.audit)
        self.serving: list[bool] = []
        self.merging = Merging(state_dir / "audit.jsonl", self.audit)
        self.plane = DataPlane(
            SETTINGS,
            state_dir,
            metrics=self.metrics,
            audit=self.audit,
            merging=self.merging,
            told=first,
            ready=self.serving.append,
        )

    def value(self, name: str, **labels: str) -> float | None:
        return value(self.metrics, name, **labels)


@contextlib.asynccontextmanager
async def controlling(state_dir: Path, first: SnapshotTold | None = None) -> AsyncIterator[Control]:
    control = Control(state_dir, first or told(1))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, control.audit.close)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        merging = group.create_task(control.merging.run())
        stack.callback(merging.cancel)
        await control.plane.start(stack)
        yield control
    # As the end of a process does, which closes what it had open.
    for each in tuple(control.plane._workers._everybody):
        each._close()
    await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def working(state_dir: Path, number: int = 1) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(Worker(number, state_dir).run(stop))
        yield
        stop.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_link, "RETRY_S", 0.001)


async def until(found: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not found():
            await asyncio.sleep(0.002)


async def ask(state_dir: Path, number: int = 1) -> str:
    """Judged by this parameter set."""
    async with grpc.aio.insecure_channel(f"unix:{state_dir}/extproc-{number}.sock") as channel:
        peer = Peer(channel)
        await peer.send(headers(), body(BODY))
        await peer.answer()
        judged = (await peer.answer()).request_body.response.header_mutation.set_headers
        (by,) = [each.header.raw_value for each in judged if each.header.key == "x-llm-params"]
        return str(by.decode().partition("@")[0])


def audited(state_dir: Path) -> Counter[str]:
    """Records of a field that every request has changed; no two have the same time."""
    lines = (state_dir / "audit.jsonl").read_text().splitlines()
    return Counter(line for line in lines if json.loads(line)["field"] == "temperature")


# ── both there ───────────────────────────────────────────────────────────────────────────────────


async def test_what_a_worker_judges_the_control_process_counts_and_writes(tmp_path: Path) -> None:
    async with controlling(tmp_path) as control, working(tmp_path, 2), working(tmp_path, 1):
        assert not control.plane.ready
        await control.plane.served()
        await until(lambda: control.value("llm_workers", state="ready") == 2)
        assert control.value("llm_workers", state="expected") == 2
        assert [await ask(tmp_path, number) for number in (1, 2, 1)] == ["first"] * 3
        await until(lambda: control.value("llm_decision_seconds_count") == 3)
        await until(lambda: len(audited(tmp_path)) == 3)
        assert control.value("llm_streams_open") == 0
    assert (control.serving[0], True in control.serving) == (False, True)
    assert set(audited(tmp_path).values()) == {1}
    assert list(tmp_path.glob("audit.worker*")) == []


async def test_a_worker_that_ends_is_gone(tmp_path: Path) -> None:
    async with controlling(tmp_path) as control:
        async with working(tmp_path):
            await control.plane.served()
        await until(lambda: not control.plane.ready)
        await until(lambda: control.value("llm_workers", state="ready") == 0)
        assert control.serving[-1] is False
        async with working(tmp_path):
            await control.plane.served()
            assert await ask(tmp_path) == "first"


async def test_a_new_snapshot_is_in_force_when_it_is_published(tmp_path: Path) -> None:
    async with controlling(tmp_path) as control, working(tmp_path):
        await control.plane.served()
        for generation, name in ((2, "second"), (3, "third")):
            await control.plane.publish(told(generation, named(name)))
            assert await ask(tmp_path) == name


BROKEN = [
    SnapshotTold(2, b"{}", told(2).secrets),
    SnapshotTold(2, told(2).settings, b"[]"),
    SnapshotTold(2, told(2).settings.replace(b'"pattern":"', b'"pattern":"(', 1), told(2).secrets),
]


@pytest.mark.parametrize("broken", BROKEN, ids=["settings", "secrets", "rule"])
async def test_one_that_cannot_be_built_changes_nothing(
    tmp_path: Path, broken: SnapshotTold, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_plane, "APPLIED_S", 3600)
    async with controlling(tmp_path) as control, working(tmp_path):
        await control.plane.served()
        with caplog.at_level(logging.WARNING):
            await control.plane.publish(broken)
        assert "worker 1 keeps generation 1: " in caplog.text
        assert "not every worker follows generation 2 yet" in caplog.text
        assert await ask(tmp_path) == "first"
        await control.plane.publish(told(3, named("third")))
        assert await ask(tmp_path) == "third"


async def test_a_first_one_that_cannot_be_built_is_waited_out(tmp_path: Path) -> None:
    async with controlling(tmp_path, BROKEN[0]) as control, working(tmp_path):
        await until(lambda: control.plane._workers._everybody)
        await control.plane.publish(told(3, named("third")))
        assert await ask(tmp_path) == "third"


# ── alone ────────────────────────────────────────────────────────────────────────────────────────


async def test_without_the_control_process_it_goes_on(tmp_path: Path) -> None:
    """The next one begins at generation 1, as the one before did, and may have another config."""
    async with working(tmp_path):
        async with controlling(tmp_path) as control:
            await control.plane.served()
            await control.plane.publish(told(2, named("second")))
            assert await ask(tmp_path) == "second"
        for _ in range(3):
            assert await ask(tmp_path) == "second"
        assert len(list(tmp_path.glob("audit.worker-1-*.jsonl"))) == 1
        async with controlling(tmp_path, told(1, named("third"))) as control:
            await control.plane.served()
            await until(lambda: len(audited(tmp_path)) == 4)
            await control.plane.publish(told(2, named("fourth")))
            assert await ask(tmp_path) == "fourth"
            await until(lambda: len(audited(tmp_path)) == 5)
            await until(lambda: (control.value("llm_decision_seconds_count") or 0) >= 4)
            await until(lambda: list(tmp_path.glob("audit.worker*")) == [])
    assert set(audited(tmp_path).values()) == {1}


async def test_it_waits_for_a_control_process(tmp_path: Path) -> None:
    async with working(tmp_path):
        await asyncio.sleep(0.01)
        assert not (tmp_path / "extproc-1.sock").exists()
        async with controlling(tmp_path) as control:
            await control.plane.served()
            assert await ask(tmp_path) == "first"


async def test_asked_to_end_before_anybody_is_there(tmp_path: Path) -> None:
    async with working(tmp_path):
        pass


async def test_it_says_in_one_word_why_it_cannot_listen(tmp_path: Path) -> None:
    (tmp_path / "extproc-1.sock").write_text("precious")
    async with controlling(tmp_path):
        with pytest.raises(CannotStart, match=r"extproc-1\.sock: the file is there and is no socket"):
            await Worker(1, tmp_path).run(asyncio.Event())


async def test_one_too_many(tmp_path: Path) -> None:
    """There is no third address; the control process does not know it either, so it is told nothing."""
    stop = asyncio.Event()
    async with controlling(tmp_path) as control, asyncio.TaskGroup() as group:
        group.create_task(Worker(3, tmp_path).run(stop))
        await asyncio.sleep(0.05)
        assert control.plane._workers._everybody == []
        stop.set()
    one = load("workers: 1\n")
    async with controlling(tmp_path, told(1, one)):
        with pytest.raises(CannotStart, match="worker 2 has no address"):
            await Worker(2, tmp_path).run(asyncio.Event())


# ── records of workers come into the audit file ──────────────────────────────────────────────────


def spill(state_dir: Path, worker: int, *records: bytes) -> None:
    sink = Spill(state_dir / "audit.jsonl", worker)
    assert sink.append(records) == 0
    sink.close()


async def test_what_was_left_is_added_at_the_start_also_of_workers_no_longer_there(tmp_path: Path) -> None:
    spill(tmp_path, 1, b'{"n":1}\n')
    spill(tmp_path, 200, b'{"n":2}\n')
    async with controlling(tmp_path):
        await until(lambda: list(tmp_path.glob("audit.worker*")) == [])
    assert sorted((tmp_path / "audit.jsonl").read_text().splitlines()) == ['{"n":1}', '{"n":2}']


async def test_and_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_plane, "MERGE_EVERY_S", 0.01)
    async with controlling(tmp_path):
        for number in range(3):
            spill(tmp_path, 1, b'{"n":%d}\n' % number)
            await until(lambda: list(tmp_path.glob("audit.worker*")) == [])
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 3


async def test_what_cannot_be_read_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "audit.worker-1-0.jsonl").mkdir()
    audit = AuditFile(tmp_path / "audit.jsonl", max_bytes=1 << 20, keep=1, max_pending=1000, linger_s=0)
    merging = Merging(tmp_path / "audit.jsonl", audit)
    assert [merging.once() for _ in range(5)] == [False] * 5
    assert caplog.text.count("audit.worker-1-0.jsonl: Is a directory") == 1
    monkeypatch.setattr(data_plane.audit_merge, "_tail", _fails)
    spill(tmp_path, 2, b'{"n":1}\n')
    assert [merging.once() for _ in range(3)] == [False] * 3
    assert caplog.text.count("unreadable") == 1
    audit.close()


def _fails(_: Path) -> set[bytes]:
    raise OSError(5, "unreadable")


async def test_metrics_of_another_version_are_left_out_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    control = Control(tmp_path, told(1))
    strange = Delta((Counted("unheard_of", (), 1), Counted("passed", ("why",), 1)), (), 0)
    for _ in range(3):
        control.plane.merge(strange)
    assert control.value("llm_passed_total", reason="why") == 3
    assert caplog.text.count("1 series of a worker's metrics are of another version") == 1
    control.audit.close()
