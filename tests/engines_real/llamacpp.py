"""A real llama.cpp server on loopback with a tiny model of random weights."""

from __future__ import annotations

from pathlib import Path

from tests.engines_real.installed import venv
from tests.engines_real.server import EngineServer

SLOTS = 4
MODEL = "tiny-random"
LAUNCHER = Path(__file__).with_name("llamacpp_server.py")


class LlamaCppServer(EngineServer):
    """Serves `SLOTS` requests at once, later ones wait."""

    def command(self) -> list[str]:
        home = venv("llamacpp")
        return [str(home / "bin" / "python"), str(LAUNCHER), str(home / "tiny.gguf"), str(self.http_port), MODEL]
