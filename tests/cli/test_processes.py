"""Child processes, and ports that are taken."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from extproc.cli import processes
from extproc.edge import grpc_server
from extproc.errors import CannotStart


async def test_a_child_is_ended_when_the_block_is_left() -> None:
    async with processes.child("sleep", sys.executable, "-c", "import time; time.sleep(60)") as process:
        assert process.returncode is None
    assert process.returncode == -15


async def test_a_child_that_will_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "END_S", 0.2)
    deaf = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
    )
    async with processes.child("deaf", sys.executable, "-c", deaf, capture=True) as process:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    assert process.returncode == -9


async def test_a_child_that_ended_by_itself() -> None:
    async with processes.child("short", sys.executable, "-c", "raise SystemExit(7)") as process:
        assert await process.wait() == 7
    assert process.returncode == 7


async def test_a_child_is_ended_after_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError):
        async with processes.child("sleep", sys.executable, "-c", "import time; time.sleep(60)") as process:
            raise ZeroDivisionError
    assert process.returncode == -15


async def test_a_program_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="cannot start Envoy: No such file or directory"):
        async with processes.child("Envoy", str(tmp_path / "none")):
            pass


async def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(CannotStart, match="cannot start Envoy: Permission denied"):
        async with processes.child("Envoy", str(tmp_path / "f")):
            pass


async def test_an_envoy_that_ends_at_once(tmp_path: Path) -> None:
    program = tmp_path / "envoy"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(CannotStart, match="Envoy ended with code 3"):
        async with processes.envoy(program, tmp_path / "c", tmp_path / "admin"):
            pass


async def test_an_envoy_that_never_gets_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "READY_S", 0.2)
    program = tmp_path / "envoy"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    async with asyncio.timeout(5):
        with pytest.raises(CannotStart, match=r"Envoy was not ready within 0.2 s"):
            async with processes.envoy(program, tmp_path / "c", tmp_path / "admin"):
                pass


async def test_an_admin_interface_that_is_not_ready_yet(tmp_path: Path) -> None:
    answers = iter([b"HTTP/1.1 503 Service Unavailable\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readline()) == b"GET /ready HTTP/1.1\r\n"
        writer.write(next(answers))
        writer.close()

    admin = tmp_path / "admin"

    async def live() -> bool:
        return await processes._is_live(lambda: asyncio.open_unix_connection(str(admin)), "/ready")

    assert await live() is False
    server = await asyncio.start_unix_server(serve, admin)
    async with server:
        assert await live() is False
        assert await live() is True


def test_a_free_port() -> None:
    grpc_server.check_free("127.0.0.1", 0, "--port")


def test_a_taken_port() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CannotStart) as failure:
            grpc_server.check_free("127.0.0.1", port, "--port")
    message = f"cannot listen on 127.0.0.1:{port}: Address already in use (choose with --port)"
    assert str(failure.value) == message


def test_a_host_that_is_unknown() -> None:
    with pytest.raises(CannotStart, match=r"cannot listen on no\.invalid:80: "):
        grpc_server.check_free("no.invalid", 80, "--port")


@pytest.mark.parametrize("port", [-1, 65536, 99999])
def test_a_port_that_is_none(port: int) -> None:
    with pytest.raises(CannotStart, match=f"cannot listen on 127.0.0.1:{port}: "):
        grpc_server.check_free("127.0.0.1", port, "--port")
