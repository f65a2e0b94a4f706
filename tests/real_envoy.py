"""The real Envoy with the shipped configuration, for tests: started on free ports, stopped by its own pid.

with RealEnvoy(plan(engine_port=upstream.port)) as envoy:
    http.client.HTTPConnection("127.0.0.1", envoy.port)
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace

from extproc.cli.envoy_binary import find_envoy
from extproc.model.names import Engine
from extproc.resources.bootstrap import render
from extproc.resources.plan import EngineCluster, Pipe, Plan, Served, Tcp
from extproc.resources.template import dump, load_template
from tests.ports import free_port

NOBODY = Pipe("/nonexistent/extproc.sock")
"""A sidecar that is dead."""


def plan(engine_port: int, *, ext_proc: Tcp | Pipe = NOBODY, control: Tcp | Pipe = NOBODY, **changes: Any) -> Plan:
    """One llama.cpp engine called engine-1 on loopback: it speaks most families."""
    engine = EngineCluster("engine-1", Engine.LLAMACPP, (Served("127.0.0.1", engine_port),))
    return Plan(**{"engines": (engine,), "ext_proc": (ext_proc,), "control": control, **changes})


def talk(port: int, data: bytes, *, answers: int = 1, timeout: float = 3.0) -> bytes:
    """Send bytes, return what comes back: whole answers, or all until a close or `timeout` seconds of silence.

    Not simply until the close, because Envoy waits a second for the client to close first.
    """
    received = b""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(timeout)
        try:
            connection.sendall(data)
            while not _whole(received, answers, headless=data.startswith(b"HEAD")) and (
                block := connection.recv(65536)
            ):
                received += block
        except OSError:
            pass
    return received


def _whole(received: bytes, answers: int, *, headless: bool) -> bool:
    """Whether so many answers with a declared length have arrived; other framings are never whole."""
    for _ in range(answers):
        head, end, rest = received.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: (\d+)", head)
        if not end or length is None:
            return False
        size = 0 if headless else int(length[1])
        if len(rest) < size:
            return False
        received = rest[size:]
    return True


class RealEnvoy:
    """Runs from construction until `stop()`. Ports and log of the plan are replaced by free ones and a file;
    `made` renders the configuration, `adjust` may change it before it is written. Not `ready`: do not wait."""

    def __init__(
        self,
        wanted: Plan,
        *,
        adjust: Callable[[dict[str, Any]], None] | None = None,
        made: Callable[[Plan], dict[str, Any]] = lambda plan: render(load_template(), plan),
        ready: bool = True,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="envoy-"))
        self.port, self.admin_port = free_port(), free_port()
        self.access_log = self.folder / "access.log"
        self.plan = replace(
            wanted,
            listener=Tcp("127.0.0.1", self.port),
            admin=Tcp("127.0.0.1", self.admin_port),
            access_log_path=str(self.access_log),
        )
        config = made(self.plan)
        if adjust is not None:
            adjust(config)
        written = self.folder / "envoy.yaml"
        written.write_text(dump(config), encoding="utf-8")
        self._log = (self.folder / "envoy.log").open("wb")
        command = [str(find_envoy()), "-c", str(written), "--use-dynamic-base-id", "-l", "warning"]
        command += ["--concurrency", "1", "--file-flush-interval-msec", "50"]
        self.process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        try:
            if ready:
                self.await_ready()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(5)
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def admin(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def stats(self, prefix: str) -> dict[str, int]:
        """Counters and gauges whose name starts with `prefix`, without it."""
        lines = (line.partition(": ") for line in self.admin("/stats").splitlines())
        return {
            name.removeprefix(prefix): int(value)
            for name, _, value in lines
            if name.startswith(prefix) and value.isdigit()
        }

    def log(self) -> str:
        return (self.folder / "envoy.log").read_text(errors="replace")

    def await_ready(self) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"Envoy ended with {self.process.returncode}:\n{self.log()}")
            try:
                if self.admin("/ready").startswith("LIVE"):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.02)
        raise RuntimeError(f"Envoy did not become ready:\n{self.log()}")


@dataclass(frozen=True)
class Received:
    """One request as an engine got it, byte for byte."""

    head: bytes
    body: bytes

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode("latin-1")

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        lines = self.head.split(b"\r\n")[1:]
        return [(n.decode("latin-1").lower(), v.strip()) for n, _, v in (x.partition(b":") for x in lines)]

    def values(self, name: str) -> list[bytes]:
        return [value for key, value in self.headers if key == name]


Answer = Callable[[Received], bytes]


def ok(_: Received) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class RecordingUpstream:
    """An engine that keeps the bytes of every request of a client; the sidecar's health checks and looks at metrics
    are none. `answer` is the whole response; after a 101 the connection echoes. Sockets, no HTTP library: a library
    would tidy up what the tests are about."""

    def __init__(self, answer: Answer = ok) -> None:
        self.answer = answer
        self.requests: list[Received] = []
        self.stray = b""  # bytes on an upgraded connection
        self._server = socket.create_server(("127.0.0.1", free_port()))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            try:
                while (request := _read_request(stream)) is not None:
                    if request.values("user-agent") != [b"extproc"]:
                        self.requests.append(request)
                    answer = self.answer(request)
                    connection.sendall(answer)
                    if answer.startswith(b"HTTP/1.1 101"):
                        self._echo(connection)
                        return
            except OSError:
                return

    def _echo(self, connection: socket.socket) -> None:
        while data := connection.recv(65536):
            self.stray += data
            connection.sendall(data)


def _read_request(stream: Any) -> Received | None:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return None
        head += line
    bare = Received(head[:-4], b"")
    if b"chunked" in b"".join(bare.values("transfer-encoding")):
        return Received(bare.head, _read_chunks(stream))
    length = int((bare.values("content-length") or [b"0"])[0])
    return Received(bare.head, stream.read(length))


def _read_chunks(stream: Any) -> bytes:
    body = b""
    while size := int(stream.readline().split(b";")[0], 16):
        body += stream.read(size)
        stream.readline()
    while stream.readline() not in (b"\r\n", b""):
        pass
    return body
