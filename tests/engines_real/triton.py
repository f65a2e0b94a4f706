"""A real tritonserver on loopback with the models of deploy/triton: started, slowed, killed, started again.

The binary of the pytriton wheel is run directly: pytriton's own `Triton` class takes five seconds to start and has
no config.pbtxt, so neither priorities nor queue policies could be tested as they are deployed.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.engines_real.installed import ROOT, venv
from tests.engines_real.server import EngineServer
from tests.ports import free_port

MODELS = ROOT / "deploy" / "triton" / "models"
WHOLE, STREAM = "text", "text_stream"
INSTANCES = 4  # of WHOLE: batches of up to 8 at once
SHARED_MEMORY = Path("/dev/shm")


class TritonServer(EngineServer):
    """Its answers call it `name`. `kill()` leaves no shared memory; a start forgets the delays set before."""

    ready_s = 35.0
    # About one start in a hundred ends with boost's lock_exception while the instances are made side by side.
    attempts = 3
    health_path = "/v2/health/ready"

    def choose_ports(self) -> None:
        self.http_port, self.grpc_port, self.metrics_port = free_port(), free_port(), free_port()

    @property
    def name(self) -> str:
        """`address:http_port`, as endpoints are called."""
        return f"127.0.0.1:{self.http_port}"

    @property
    def grpc_address(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self.metrics_port}/metrics"

    def set_delay(self, delay_ms: float) -> None:
        """From here on a batch takes this long, and so does each word of a stream."""
        self.generate("delay", set_delay_ms=str(delay_ms), delay_ms=0)

    def generate(self, text: str, *, model: str = WHOLE, **fields: Any) -> dict[str, Any]:
        """POST generate straight to this server; one answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=30)
        try:
            connection.request("POST", f"/v2/models/{model}/generate", json.dumps({"text_input": text, **fields}))
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        assert "error" not in answer, answer
        return answer

    def shared_memory(self) -> list[Path]:
        """Regions between the server and its models' processes."""
        return list(SHARED_MEMORY.glob(f"{self._region}*"))

    def clear(self) -> None:
        for region in self.shared_memory():
            region.unlink(missing_ok=True)

    @property
    def _region(self) -> str:
        return f"triton_{self.http_port}_"

    def command(self) -> list[str]:
        server = Path(_ask("sysconfig.get_path('purelib')")) / "pytriton" / "tritonserver"
        return [
            str(server / "bin" / "tritonserver"),
            f"--model-repository={MODELS}",
            f"--backend-directory={server / 'backends'}",
            f"--backend-config=python,shm-region-prefix-name={self._region}",
            "--http-address=127.0.0.1",
            f"--http-port={self.http_port}",
            "--grpc-address=127.0.0.1",
            f"--grpc-port={self.grpc_port}",
            "--metrics-address=127.0.0.1",
            f"--metrics-port={self.metrics_port}",
            "--metrics-interval-ms=500",
            "--metrics-config=summary_latencies=true",  # quantiles of latency
            "--allow-gpu-metrics=false",  # looking for a GPU takes a second
            "--model-control-mode=explicit",  # models are loaded and unloaded by request, with other configurations
            "--load-model=*",
            "--exit-timeout-secs=5",
        ]

    def environment(self) -> dict[str, str]:
        # The models' processes are to load the library of the Python that made the venv, not another one's.
        return {
            **os.environ,
            "LD_LIBRARY_PATH": _ask("sysconfig.get_config_var('LIBDIR')"),
            "PATH": f"{venv('triton') / 'bin'}:{os.environ['PATH']}",
            "SERVER_NAME": self.name,
            "TMPDIR": str(self.folder),
        }


def _ask(expression: str) -> str:
    """Of the venv's Python, which may be another version than this one."""
    command = [str(venv("triton") / "bin" / "python"), "-c", f"import sysconfig; print({expression})"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
