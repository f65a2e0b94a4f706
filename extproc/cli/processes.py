"""Child processes of `extproc up`: started in their own session, ended in order by their pid."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

from extproc.cli.supervise import end_with
from extproc.errors import CannotStart

READY_S = 15.0
END_S = 5.0
_URL = re.compile(r"http://\S+")


@contextlib.asynccontextmanager
async def child(name: str, *command: str, capture: bool = False) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child that is asked to end, then killed, when the block is left; it ends too where the parent is killed.
    Ctrl-C reaches only the parent."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if capture else None,
            start_new_session=True,
            preexec_fn=partial(end_with, os.getpid()),
        )
    except OSError as error:
        raise CannotStart(f"cannot start {name}: {error.strerror}") from None
    try:
        yield process
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), END_S)
    except TimeoutError:
        process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def standin() -> AsyncIterator[str]:
    """The stand-in engine on a free port; its URL."""
    command = (sys.executable, "-m", "extproc.standin", "--port", "0")
    async with child("the stand-in engine", *command, capture=True) as process:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), READY_S)
        found = _URL.search(line.decode())
        if found is None:
            raise CannotStart("the stand-in engine did not start")
        yield found[0]


@contextlib.asynccontextmanager
async def envoy(binary: Path, config: Path, admin: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Envoy with this config, ready to serve; `admin` is the socket of its admin interface."""
    # Envoy keeps lines of its access log for ten seconds unless told otherwise.
    quick_log = ("--file-flush-interval-msec", "1000")
    command = (str(binary), "-c", str(config), "--use-dynamic-base-id", "-l", "warning", *quick_log)
    async with child("Envoy", *command) as process:
        await _ready(process, admin)
        yield process


async def _ready(process: asyncio.subprocess.Process, admin: Path) -> None:
    await _answers("Envoy", process, lambda: asyncio.open_unix_connection(str(admin)), "/ready")


async def answers(name: str, process: asyncio.subprocess.Process, address: str, path: str) -> None:
    """Until `http://address/path` says 200; CannotStart where the process ends, or takes too long."""
    host, _, port = address.rpartition(":")
    await _answers(name, process, lambda: asyncio.open_connection(host, int(port)), path)


Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def _answers(name: str, process: asyncio.subprocess.Process, connect: Connect, path: str) -> None:
    deadline = asyncio.get_running_loop().time() + READY_S
    while asyncio.get_running_loop().time() < deadline:
        if process.returncode is not None:
            raise CannotStart(f"{name} ended with code {process.returncode}: its own lines above say why")
        if await _is_live(connect, path):
            return
        await asyncio.sleep(0.05)
    raise CannotStart(f"{name} was not ready within {READY_S:g} s")


async def _is_live(connect: Connect, path: str) -> bool:
    try:
        reader, writer = await connect()
    except OSError:
        return False
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        return b" 200 " in await reader.readline()
    except OSError:
        return False
    finally:
        writer.close()
