"""The last requests the stand-in received: reports of many, bodies of a few."""

from __future__ import annotations

from collections import OrderedDict, deque

from extproc.standin.receipt import Received

MAX_REPORTS = 10_000
MAX_BODIES = 64
MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_HELD_BYTES = 256 * 1024 * 1024
"""Of all held bodies together: 64 of the largest would be 2 GiB."""


class Memory:
    """Bounded in number and in bytes; the oldest go first.

    Reports are held encoded. Rejected: holding them as dicts, a quarter of a million objects whose garbage
    collection would show in a benchmark as latency.
    """

    def __init__(self, *, max_held_bytes: int = MAX_HELD_BYTES) -> None:
        self._reports: deque[bytes] = deque(maxlen=MAX_REPORTS)
        self._bodies: OrderedDict[str, bytes] = OrderedDict()
        self._held_bytes = 0
        self._max_held_bytes = max_held_bytes

    def keep(self, received: Received) -> None:
        """Remember one request."""
        self._reports.append(bytes(received.report()))
        if received.body and len(received.body) <= MAX_BODY_BYTES:
            self._keep_body(received.sha256, received.body)

    def _keep_body(self, sha256: str, body: bytes) -> None:
        if sha256 in self._bodies:
            self._bodies.move_to_end(sha256)
            return
        self._bodies[sha256] = body
        self._held_bytes += len(body)
        while len(self._bodies) > MAX_BODIES or self._held_bytes > self._max_held_bytes:
            _, gone = self._bodies.popitem(last=False)
            self._held_bytes -= len(gone)

    def reports(self) -> bytes:
        """All reports as one JSON list, oldest first."""
        return b"[" + b",".join(self._reports) + b"]"

    def body(self, sha256: str) -> bytes | None:
        """The raw bytes of a body still held."""
        return self._bodies.get(sha256)

    def clear(self) -> int:
        """Forget everything; how many requests that were."""
        count = len(self._reports)
        self._reports.clear()
        self._bodies.clear()
        self._held_bytes = 0
        return count
