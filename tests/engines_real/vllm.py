"""A real vLLM on CPU with a tiny model of random weights: 2.5 GB of packages, so only where it is asked for."""

from __future__ import annotations

import os

from tests.engines_real.installed import venv
from tests.engines_real.server import EngineServer

MODEL = "tiny"
SEQUENCES = 4
KV_BLOCK = 32  # tokens; the CPU backend takes multiples of 32
KV_BYTES = 1_310_720  # 1,280 tokens: one full context and eight blocks, so that a queue and preemption are cheap


class VllmServer(EngineServer):
    """Serves `SEQUENCES` requests at once, by priority."""

    ready_s = 110.0

    def command(self) -> list[str]:
        home = venv("vllm")
        # Not `vllm serve`: the script looks for a distribution called vllm, which the CPU build is not.
        command = [str(home / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server"]
        options = {
            "model": home / "tiny",
            "load-format": "dummy",
            "served-model-name": MODEL,
            "host": "127.0.0.1",
            "port": self.http_port,
            "max-model-len": 1024,
            "max-num-seqs": SEQUENCES,
            "dtype": "bfloat16",
            "scheduling-policy": "priority",
            "block-size": KV_BLOCK,
            "kv-cache-memory-bytes": KV_BYTES,
        }
        return [*command, "--enforce-eager", *(f"--{name}={value}" for name, value in options.items())]

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
        }
