"""The measured processes: started, awaited, read, and ended by their own pid."""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.errors import CannotMeasure

ROOT = Path(__file__).resolve().parents[1]
READY_S = 20.0
END_S = 5.0


class Process:
    """A child with its log in a file."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name = name
        self._log = log
        with log.open("wb") as sink:
            self._child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
        self.pid = self._child.pid

    def await_ready(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self._child.poll() is not None:
                raise CannotMeasure(f"{self.name} ended with {self._child.returncode}: {self.last_line()}")
            if ready():
                return
            time.sleep(0.05)
        raise CannotMeasure(f"{self.name} was not ready within {READY_S:g} s: {self.last_line()}")

    def last_line(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"

    def stop(self) -> None:
        if self._child.poll() is not None:
            return
        self._child.terminate()
        try:
            self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


@contextlib.contextmanager
def running(name: str, command: list[str], log: Path, ready: Callable[[], bool]) -> Iterator[Process]:
    process = Process(name, command, log)
    try:
        process.await_ready(ready)
        yield process
    finally:
        process.stop()


def cpu_s(pid: int) -> float:
    """CPU seconds of all threads of a process, user and system, ended threads too.

    From the kernel's clock of the process, in ns: the sum utime + stime of /proc/PID/stat, whose ticks of
    10 ms are 2 % of a round.
    """
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e9


def rss_mb(pid: int) -> float:
    return resident_mb(Path(f"/proc/{pid}/status").read_text())


def resident_mb(status: str) -> float:
    """VmRSS of a /proc/PID/status, in MB of 1024 KB."""
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise CannotMeasure("the process has ended: it has no VmRSS")


def free_port() -> int:
    """Below the ephemeral range, so that no outgoing connection takes it before it is bound."""
    while True:
        port = random.randint(20000, 32000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def answers(port: int) -> bool:
    """Whether an HTTP server is healthy."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def accepts(path: Path) -> bool:
    """Whether somebody listens on a unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


class _OverPipe(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("admin", timeout=5)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(5)
        self.sock.connect(str(self._path))


def admin(path: Path, url: str) -> str:
    """A page of Envoy's admin interface; "" while it does not answer."""
    connection = _OverPipe(path)
    try:
        connection.request("GET", url)
        return connection.getresponse().read().decode()
    except OSError:
        return ""
    finally:
        connection.close()
