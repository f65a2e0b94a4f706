"""Free TCP ports for servers that tests start."""

from __future__ import annotations

import random
import socket

_GIVEN: set[int] = set()


def free_port() -> int:
    """Below the ephemeral range (32768), so that no outgoing connection takes it; never the same one twice."""
    while True:
        port = random.randint(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _GIVEN:
            _GIVEN.add(port)
            return port
