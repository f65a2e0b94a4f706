"""What Envoy itself says of the weights, while the load runs."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from msgspec import Struct

from bench.processes import admin

EVERY_S = 0.5


class Weights(Struct, frozen=True):
    """Seconds from the start, and the weight of each engine by port; 0 = takes no requests."""

    at_s: float
    by_port: dict[int, int]


class Watch:
    """Looks at `/clusters` every half second between `start` and `stop`."""

    def __init__(self, pipe: Path, cluster: str, start_at: float) -> None:
        self.seen: list[Weights] = []
        self._pipe = pipe
        self._cluster = cluster
        self._start_at = start_at
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            found = weights(admin(self._pipe, "/clusters"), self._cluster)
            if found:
                self.seen.append(Weights(time.monotonic() - self._start_at, found))


def weights(page: str, cluster: str) -> dict[int, int]:
    """By port, out of Envoy's `/clusters`."""
    found: dict[int, int] = {}
    unhealthy: set[int] = set()
    for line in page.splitlines():
        match line.split("::"):
            case [name, address, "weight", value] if name == cluster:
                found[int(address.rpartition(":")[2])] = int(value)
            case [name, address, "health_flags", value] if name == cluster and value != "healthy":
                unhealthy.add(int(address.rpartition(":")[2]))
    return {port: 0 if port in unhealthy else weight for port, weight in found.items()}


def pushes(pipe: Path, cluster: str) -> int:
    """Endpoint assignments that changed something, as Envoy counts them."""
    page = admin(pipe, f"/stats?filter=^cluster.{cluster}.update_")
    counts = {line.rpartition(": ")[0].rpartition(".")[2]: line.rpartition(": ")[2] for line in page.splitlines()}
    return int(counts.get("update_success", 0)) - int(counts.get("update_no_rebuild", 0))
