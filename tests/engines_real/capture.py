"""Writes the metrics pages of the real engines under some work to tests/engines/pages, without their HELP lines.

`python -m tests.engines_real.capture`, after a change of an engine's version.
"""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from tests.engines_real import clients
from tests.engines_real.installed import ROOT
from tests.engines_real.llamacpp import SLOTS, LlamaCppServer
from tests.engines_real.server import EngineServer, until
from tests.engines_real.triton import WHOLE, TritonServer

PAGES = ROOT / "tests" / "engines" / "pages"


def main() -> None:
    for name, server, work in (
        ("triton", TritonServer(), _triton),
        ("llamacpp", LlamaCppServer(), _llamacpp),
    ):
        with ExitStack() as ending:
            ending.callback(server.stop)
            server.start()
            page = work(server)
        lines = [line for line in page.splitlines() if not line.startswith("# HELP")]
        (PAGES / f"{name}.txt").write_text("\n".join(lines) + "\n")
        print(f"{len(lines)} lines of {name}")


def _triton(server: EngineServer) -> str:
    assert isinstance(server, TritonServer)
    clients.generate(server.http_port, 100)
    for _ in range(3):
        server.generate("one two", model="text_stream", max_tokens=1)
    with ThreadPoolExecutor() as pool:
        pool.submit(clients.generate, server.http_port, 200, workers=200, delay_ms=500)
        return until(
            lambda: _if_waiting(server.metrics(), f'pending_request_count{{model="{WHOLE}"'), what="a queue"
        )


def _llamacpp(server: EngineServer) -> str:
    with ThreadPoolExecutor(3 * SLOTS) as pool:
        _complete(server, 20)
        for _ in range(3 * SLOTS):
            pool.submit(_complete, server, 900)
        return until(lambda: _if_waiting(server.metrics(), "requests_deferred"), what="a queue")


def _if_waiting(page: str, family: str) -> str:
    """The page, if the gauge is above 0."""
    lines = [line for line in page.splitlines() if family in line and not line.startswith("#")]
    return page if lines and float(lines[0].split()[-1]) > 0 else ""


def _complete(server: EngineServer, tokens: int) -> None:
    body = json.dumps({"prompt": "hello", "n_predict": tokens, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"{server.url}/completion", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


if __name__ == "__main__":
    main()
