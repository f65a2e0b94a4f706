"""The real engines, started once for all tests that ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.engines_real.installed import require
from tests.engines_real.llamacpp import LlamaCppServer
from tests.engines_real.triton import TritonServer

Tritons = tuple[TritonServer, TritonServer]
DELAY_MS = 10.0


@pytest.fixture(scope="session")
def running_tritons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tritons]:
    require("triton")
    pair = (TritonServer(tmp_path_factory.mktemp("triton")), TritonServer(tmp_path_factory.mktemp("triton")))
    with ExitStack() as ending:
        for server in pair:
            ending.callback(server.stop)
            server.start()
        for server in pair:
            ending.callback(server.ask_to_end)  # both at once: each takes five seconds
        yield pair


@pytest.fixture
def tritons(running_tritons: Tritons) -> Tritons:
    """Both running and as fast as each other, whatever the test before did to them."""
    for server in running_tritons:
        if not server.is_running:
            server.start()
        server.set_delay(DELAY_MS)
    return running_tritons


@pytest.fixture(scope="session")
def llamacpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppServer]:
    require("llamacpp")
    server = LlamaCppServer(tmp_path_factory.mktemp("llamacpp"))
    with ExitStack() as ending:
        ending.callback(server.stop)
        server.start()
        yield server
