"""The sidecar dies, hangs or cannot be reached: what the config says happens, and nothing else."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.e2e.asking import CHAT, STRICT, Answer, Load, Raw, ask, chat
from tests.e2e.holding import HoldingEngine, Stream
from tests.e2e.running import Engine, Stack
from tests.ports import free_port

BODY = json.dumps(chat(STRICT, temperature=1)).encode()


@pytest.fixture(scope="module")
def open_stack(engine: Engine, transport: str) -> Iterator[Stack]:
    with Stack(engine=engine, changes={"failure_mode": "open", "transport": transport}) as running:
        yield running


@pytest.fixture(scope="module")
def closed_stack(engine: Engine, transport: str) -> Iterator[Stack]:
    with Stack(engine=engine, changes={"failure_mode": "closed", "transport": transport}) as running:
        yield running


@pytest.fixture(autouse=True)
def alive_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """A sidecar that a test has killed is back for the next one."""
    yield
    used = {
        *request.fixturenames,
        getattr(request.node, "callspec", None) and request.node.callspec.params.get("name"),
    }
    for name in ("open_stack", "closed_stack", "held_open", "held_closed"):
        if name in used:
            sidecar = request.getfixturevalue(name).sidecar
            if sidecar.running.process.poll() is not None:
                sidecar.start()


def is_judged(answer: Answer) -> bool:
    temperature = answer.params["temperature"]
    assert temperature in (0.3, 1)
    assert ("x-llm-tier" in answer.seen) == (temperature == 0.3)
    return bool(temperature == 0.3)


def one(stack: Stack) -> Answer:
    return ask(stack.port, CHAT, BODY)


# ── killed under load ────────────────────────────────────────────────────────────────────────────


async def test_killed_under_load_no_request_fails_when_open(open_stack: Stack) -> None:
    async with Load(open_stack.port, keep=True) as load:
        await load.more(200)
        await asyncio.to_thread(open_stack.sidecar.kill)
        await load.more(200)
        await asyncio.to_thread(open_stack.sidecar.start)
        await load.more(200)
    assert load.tally.errors == []
    assert set(load.tally.statuses) == {200}
    temperatures = [answer["received"]["params"]["temperature"] for answer in load.tally.answers]
    assert set(temperatures) == {0.3, 1}
    assert set(temperatures[-100:]) == {0.3}


async def test_killed_under_load_requests_are_answered_503_when_closed(closed_stack: Stack) -> None:
    async with Load(closed_stack.port, keep=True) as load:
        await load.more(200)
        await asyncio.to_thread(closed_stack.sidecar.kill)
        await load.more(200)
        refused = load.tally.statuses.get(503, 0)
        await asyncio.to_thread(closed_stack.sidecar.start)
        (await asyncio.to_thread(one, closed_stack)).params  # noqa: B018
        await load.more(200)
    assert load.tally.errors == []
    assert set(load.tally.statuses) == {200, 503}
    assert refused > 100
    assert {answer["received"]["params"]["temperature"] for answer in load.tally.answers} == {0.3}


def test_dead_and_closed_is_an_error_in_json_and_the_engine_sees_nothing(closed_stack: Stack) -> None:
    closed_stack.sidecar.kill()
    answer = one(closed_stack)
    answer.error(503, "sidecar_unavailable")
    assert closed_stack.engine.received(answer.request_id) == []
    ask(closed_stack.port, "/v1/models", method="GET").error(503, "sidecar_unavailable")
    closed_stack.sidecar.start()
    assert is_judged(one(closed_stack))


def test_dead_and_open_every_request_passes_unjudged_until_it_is_back(open_stack: Stack) -> None:
    open_stack.sidecar.kill()
    assert not is_judged(one(open_stack))
    assert ask(open_stack.port, "/v1/models", method="GET").status == 200
    open_stack.sidecar.start()
    assert is_judged(one(open_stack))


# ── hanging ──────────────────────────────────────────────────────────────────────────────────────


def test_hanging_and_open_passes_after_the_time_limit(open_stack: Stack) -> None:
    assert is_judged(one(open_stack))
    open_stack.sidecar.running.signal(signal.SIGSTOP)
    started = time.monotonic()
    try:
        assert not is_judged(one(open_stack))
    finally:
        open_stack.sidecar.running.signal(signal.SIGCONT)
    assert 0.5 < time.monotonic() - started < 5
    assert is_judged(one(open_stack))


def test_hanging_and_closed_is_refused_after_the_time_limit(closed_stack: Stack) -> None:
    assert is_judged(one(closed_stack))
    closed_stack.sidecar.running.signal(signal.SIGSTOP)
    started = time.monotonic()
    try:
        one(closed_stack).error(504, "sidecar_unavailable")
    finally:
        closed_stack.sidecar.running.signal(signal.SIGCONT)
    assert 0.5 < time.monotonic() - started < 5
    assert is_judged(one(closed_stack))


# ── killed in the middle of a request ────────────────────────────────────────────────────────────


def slow_upload(stack: Stack) -> Answer:
    """The sidecar has answered the headers and dies before the body is complete."""
    with Raw(stack.port) as client:
        client.send(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (CHAT.encode(), len(BODY)))
        client.send(BODY[:20])
        while stack.sidecar.count("llm_streams_open") < 1:
            time.sleep(0.01)
        stack.sidecar.kill()
        client.send(BODY[20:])
        return client.answer()


def test_killed_in_mid_upload_and_open_passes_whole(open_stack: Stack) -> None:
    answer = slow_upload(open_stack)
    assert not is_judged(answer)
    assert open_stack.engine.body(answer.received) == BODY


def test_killed_in_mid_upload_and_closed_is_503(closed_stack: Stack) -> None:
    slow_upload(closed_stack).error(503, "sidecar_unavailable")


@pytest.fixture(scope="module")
def held_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def held_open(held_port: int, transport: str) -> Iterator[Stack]:
    changes = {"shutdown_grace_s": 1, "transport": transport}
    with Stack(engine_url=f"http://127.0.0.1:{held_port}", changes=changes) as running:
        yield running


@pytest.fixture(scope="module")
def held_closed(held_port: int, transport: str) -> Iterator[Stack]:
    changes = {"failure_mode": "closed", "shutdown_grace_s": 1, "transport": transport}
    with Stack(engine_url=f"http://127.0.0.1:{held_port}", changes=changes) as running:
        yield running


@pytest.mark.parametrize("name", ["held_open", "held_closed"])
@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_a_stream_goes_on_to_its_end_without_the_sidecar(
    request: pytest.FixtureRequest, transport: str, held_port: int, name: str, end: str
) -> None:
    stack: Stack = request.getfixturevalue(name)
    async with HoldingEngine(held_port) as engine:
        streams = [await Stream(stack.port, BODY).open() for _ in range(5)]
        await asyncio.to_thread(getattr(stack.sidecar, end))
        engine.release.set()
        async with asyncio.timeout(10):
            await asyncio.gather(*(stream.rest() for stream in streams))
    assert engine.judged == 5
    assert [stream.is_complete() for stream in streams] == [True] * 5


# ── the socket ───────────────────────────────────────────────────────────────────────────────────


def test_a_missing_socket(open_stack: Stack, closed_stack: Stack) -> None:
    for stack in (open_stack, closed_stack):
        stack.sidecar.kill()
        stack.sidecar.socket.unlink()
    assert not is_judged(one(open_stack))
    one(closed_stack).error(503, "sidecar_unavailable")
    for stack in (open_stack, closed_stack):
        stack.sidecar.start()
        assert is_judged(one(stack))


def test_a_file_in_the_sockets_place(open_stack: Stack, closed_stack: Stack) -> None:
    for stack in (open_stack, closed_stack):
        stack.sidecar.kill()
        stack.sidecar.socket.unlink()
        stack.sidecar.socket.write_text("no socket")
    try:
        assert not is_judged(one(open_stack))
        one(closed_stack).error(503, "sidecar_unavailable")
    finally:
        for stack in (open_stack, closed_stack):
            stack.sidecar.socket.unlink()
            stack.sidecar.start()
            assert is_judged(one(stack))


def test_a_connection_outlives_its_socket_file(open_stack: Stack) -> None:
    assert is_judged(one(open_stack))
    open_stack.sidecar.socket.unlink()
    assert is_judged(one(open_stack))
    open_stack.sidecar.kill()


def test_a_second_sidecar_does_not_take_the_socket(open_stack: Stack) -> None:
    command = [sys.executable, "-m", "extproc", "serve", "--config", str(open_stack.config), "--admin-port"]
    command += [str(free_port()), "--state-dir", str(open_stack.sidecar.state_dir)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert second.returncode == 1
    assert "another process listens there" in second.stderr
    assert is_judged(one(open_stack))
