"""What the engines' servers have in common: a process of ours on free ports, ready, asked to end, or killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.ports import free_port

T = TypeVar("T")

END_S = 15.0


def get(url: str, *, timeout_s: float = 10.0) -> str:
    """Raises OSError where nobody answers, HTTPError (one of them) for 400 and above."""
    with urllib.request.urlopen(url, timeout=timeout_s) as answer:
        return str(answer.read().decode())


def until(found: Callable[[], T], *, within_s: float = 20.0, what: str) -> T:
    """The first truthy result."""
    deadline = time.monotonic() + within_s
    while not (result := found()):
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}, last: {result!r}"
        time.sleep(0.02)
    return result


class EngineServer:
    """Not running until `start()`. A subclass says how it is started and where it tells its health and metrics."""

    ready_s = 30.0
    attempts = 1
    health_path = "/health"

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="engine-"))
        self.log_path = self.folder / "server.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.choose_ports()

    def choose_ports(self) -> None:
        self.http_port = free_port()

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def metrics_url(self) -> str:
        return f"{self.url}/metrics"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, *, new_ports: bool = False) -> None:
        """Returns when it is ready; on the ports it had, unless new ones are asked for."""
        assert not self.is_running, "already running"
        if new_ports:
            self.choose_ports()
        for _ in range(self.attempts):
            if self._start():
                return
        raise AssertionError(f"{type(self).__name__} is not ready:\n{self.log_path.read_text()[-4000:]}")

    def _start(self) -> bool:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        ready = False
        try:
            ready = self._becomes_ready()
        finally:
            if not ready:
                self.kill()
        return ready

    def _becomes_ready(self) -> bool:
        deadline = time.monotonic() + self.ready_s
        while not self.is_ready():
            if not self.is_running or time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def is_ready(self) -> bool:
        try:
            get(f"{self.url}{self.health_path}", timeout_s=2)
        except OSError:
            return False
        return True

    def ask_to_end(self) -> None:
        """Returns at once; most engines answer first what is in flight."""
        if self.is_running and self.process is not None:
            self.process.terminate()

    def stop(self) -> None:
        """Asked to end, killed if it does not."""
        self.ask_to_end()
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_S)
            self.kill()

    def kill(self) -> None:
        """As in a crash: what is in flight is not answered. Its own children, a session of theirs, go with it."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # the session has ended
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(END_S)
        self.clear()

    def clear(self) -> None:
        """Removes what a killed process leaves behind."""

    def metrics(self) -> str:
        return get(self.metrics_url)
