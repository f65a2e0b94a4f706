"""Free TCP ports for servers that tests start."""

from __future__ import annotations

import os
import random
import socket

_GIVEN: set[int] = set()

# Processes of one run each have a range of their own: a server that is down for a moment keeps its port.
_COUNT = 12_000 // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_FIRST = 20_000 + _COUNT * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def free_port() -> int:
    """Below the ephemeral range (32768), so that no outgoing connection takes it; never the same one twice."""
    while True:
        port = random.randrange(_FIRST, _FIRST + _COUNT)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _GIVEN:
            _GIVEN.add(port)
            return port
