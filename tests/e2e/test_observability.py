"""`extproc up --observability`: a real Prometheus and Alertmanager see a real run; no panel is empty, and a slow
engine reaches whoever is on call."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from extproc.dashboards import PAGES
from tests.e2e.asking import ask, chat
from tests.e2e.faulty import FaultyEngine, engine
from tests.e2e.running import get, until
from tests.ports import free_port

pytestmark = [pytest.mark.envoy, pytest.mark.timeout(300)]

CHAT = "/v1/chat/completions"
LOAD_S = 60.0
TEXTS = (
    "Where is my order #12345678?",
    "How far is the moon?",
    "Write a slogan for a tea shop",
    "退款什么时候到账",
)
CONFIG: dict[str, Any] = {
    "usage": {"enabled": True},
    "telemetry": {"interval_s": 1, "timeout_s": 0.5},
    "lengths": {"min_samples": 20, "window": 500},
    "drift": {"interval_s": 5},
    "alerts": {"window_s": 30, "for_s": 0, "p99_s": {"warning": 0.2, "critical": 0.3}},
}


PAGES_OF_ENGINES = Path(__file__).resolve().parents[1] / "engines" / "pages"
DRAFTED = """\
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="tiny"} 100
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="tiny"} 55
"""


class QuietHandler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Served:
    """A small server of the test's own, whatever the path."""

    def __init__(self, handler: type[QuietHandler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class EnginePage(Served):
    """The stand-in's own page, and what only engines with GPUs and batches have: counters of captured pages, as if
    they went on like this each second."""

    GROWING = (
        *("vllm:iteration_tokens", "vllm:spec_decode"),
        *("nv_inference_count", "nv_inference_exec", "nv_inference_request_duration"),
    )

    def __init__(self, page: str) -> None:
        begun = time.monotonic()
        captured = "".join((PAGES_OF_ENGINES / name).read_text() for name in ("vllm_metrics.txt", "triton.txt"))
        lines = (captured + DRAFTED).splitlines()
        growing = [line for line in lines if line.startswith(self.GROWING)]

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                seconds = time.monotonic() - begun
                own = [
                    line for line in get(page).decode().splitlines() if not line.startswith("nv_inference_count")
                ]
                pairs = [line.rpartition(" ") for line in growing]
                body = "\n".join(
                    [*own, *(f"{name} {float(value) * seconds}" for name, _, value in pairs), ""]
                ).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        super().__init__(Handler)


SCENARIO = """
gpus:
  - labels: {Hostname: "127.0.0.1", gpu: "0"}
    points: [{at_s: 0, memory_used: 4000, memory_free: 20000, utilisation: 60, sm_active: 0.7}]
"""
FRAGMENTED = 'label_replace(0.1 + time() % 10 / 100 + 0 * vllm:kv_cache_usage_perc, "host", "127.0.0.1", "", "")'


class OnCall(Served):
    """A webhook that keeps what Alertmanager posts."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        outer = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.alerts += json.loads(body)["alerts"]
                self.send_response(200)
                self.end_headers()

        super().__init__(Handler)


class Desk:
    """Everything up; `port` is Envoy's."""

    def __init__(
        self, folder: Path, running: FaultyEngine, on_call: OnCall, engine_page: EnginePage, gpus: str
    ) -> None:
        self.folder = folder
        self.port, self.prometheus = free_port(), f"127.0.0.1:{free_port()}"
        config = folder / "extproc.yaml"
        host, _, port = running.url.removeprefix("http://").rpartition(":")
        place = {"address": host, "http_port": int(port), "metrics_url": f"{engine_page.url}metrics"}
        pool = {"name": "big", "engine": "vllm", "endpoints": [place]}
        queries = {"url": f"http://{self.prometheus}", "label": "host", "queries": {"fragmentation": FRAGMENTED}}
        telemetry = CONFIG["telemetry"] | {"dcgm": [{"url": gpus, "label": "Hostname"}], "prometheus": queries}
        config.write_text(yaml.safe_dump({"pools": [pool], **CONFIG, "telemetry": telemetry}))
        options = ("--port", str(self.port), "--admin-port", str(free_port()), "--state-dir", str(folder / "state"))
        watching = ("--prometheus", self.prometheus, "--alertmanager", f"127.0.0.1:{free_port()}")
        command = (
            sys.executable,
            "-m",
            "extproc",
            "up",
            "--config",
            str(config),
            *options,
            "--observability",
            *watching,
        )
        self.log = folder / "log"
        with self.log.open("w") as out:
            self._process = subprocess.Popen(
                (*command, "--alerts-to", on_call.url), stdout=out, stderr=subprocess.STDOUT
            )
        until(lambda: "Ctrl-C ends" in self._printed(), within_s=40, what="up")

    def _printed(self) -> str:
        text = self.log.read_text()
        assert self._process.poll() is None, text
        return text

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(timeout=30) == 0, self.log.read_text()

    def query(self, expression: str) -> list[Any]:
        asked = urllib.parse.urlencode({"query": expression})
        answer = json.loads(get(f"http://{self.prometheus}/api/v1/query?{asked}"))
        assert answer["status"] == "success", answer
        found: list[Any] = answer["data"]["result"]
        return found


def load(port: int, seconds: float) -> int:
    """What every panel needs something of: all tiers, streams, what is passed and what is refused."""
    ends, sent = time.monotonic() + seconds, 0
    with ThreadPoolExecutor(4) as pool:
        while time.monotonic() < ends:
            sent += sum(1 for _ in pool.map(lambda text: ask(port, CHAT, chat(text * 3)), TEXTS))
            ask(port, CHAT, b"{no json")
            ask(port, CHAT, chat("x " * 4000))
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5).close()
            time.sleep(0.05)
    return sent


@pytest.fixture
def on_call() -> Iterator[OnCall]:
    made = OnCall()
    yield made
    made.stop()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[FaultyEngine]:
    made = engine(tmp_path / "engine")
    yield made
    made.stop()


@pytest.fixture
def engine_page(running: FaultyEngine) -> Iterator[EnginePage]:
    made = EnginePage(f"{running.url}/__metrics")
    yield made
    made.stop()


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "gpus.yaml").write_text(SCENARIO)
    port = free_port()
    command = (
        sys.executable,
        "-m",
        "extproc.standin.gpu_exporter",
        "--scenario",
        str(tmp_path / "gpus.yaml"),
        "--port",
        str(port),
    )
    process = subprocess.Popen(command)
    yield f"http://127.0.0.1:{port}/metrics"
    process.terminate()
    process.wait(timeout=10)


@pytest.fixture
def desk(running: FaultyEngine, on_call: OnCall, engine_page: EnginePage, gpus: str) -> Iterator[Desk]:
    folder = Path(tempfile.mkdtemp(prefix="desk-"))  # short: sockets lie in it
    made = Desk(folder, running, on_call, engine_page, gpus)
    yield made
    made.stop()
    shutil.rmtree(folder)


def empty(desk: Desk) -> set[str]:
    return {
        f"{page.title}: {panel.title}: {query.expr}"
        for page in PAGES
        for panel in page.panels
        for query in panel.queries
        if not desk.query(query.expr.replace("$__rate_interval", "30s"))
    }


ONLY_IN_TROUBLE = {"errors", "alerts firing", "incidents"}


def test_no_panel_is_empty_and_a_slow_engine_pages(desk: Desk, running: FaultyEngine, on_call: OnCall) -> None:
    assert load(desk.port, LOAD_S) > 100
    freeze = ("baseline", "freeze", "--state-dir", str(desk.folder / "state"))
    subprocess.run((sys.executable, "-m", "extproc", *freeze), check=True, capture_output=True)
    load(desk.port, 15)
    missing = empty(desk)
    assert {each.split(": ")[1] for each in missing} <= ONLY_IN_TROUBLE, "\n".join(missing)
    assert all(float(each["value"][1]) == 1 for each in desk.query("up")), "every target is up"
    assert not any(map(pages, on_call.alerts))

    running.fail(delay_ms=900, status=500, share=0.1)
    load(desk.port, 12)
    told = until(lambda: [each for each in on_call.alerts if pages(each)], within_s=40, what="the page")
    assert told[0]["annotations"]["summary"].startswith("P99 of pool big is ")
    until(lambda: not empty(desk) & missing, within_s=20, what="what only trouble fills")


def pages(alert: dict[str, Any]) -> bool:
    labels = alert["labels"]
    return (labels["alertname"], labels["severity"], labels.get("pool")) == ("LlmP99High", "critical", "big")
