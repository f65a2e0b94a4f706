"""The three processes of a running system: stand-in engine, sidecar, Envoy. Each is ended by its own pid."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml

from extproc.deployment import plan
from extproc.resources.bootstrap import following
from extproc.resources.plan import Plan
from extproc.resources.template import load_overlay, load_template
from extproc.settings import load
from extproc.trust import tenant_name
from tests.ports import free_port
from tests.real_envoy import RealEnvoy

T = TypeVar("T")

TOKENS = ("first-caller-token-3f1c", "second-caller-token-9a07")
SHOP_KEY = "sk-shop-4471"
SHOP = tenant_name(SHOP_KEY.encode())

RULES = [
    {
        "name": "order_number",
        "pattern": r"(?i)\border\s*#?\s*\d{6,}",
        "tier": "strict",
        "scenario": "order_query",
    },
    {"name": "contract", "pattern": r"(?i)\bcontract clause\b", "tier": "strict", "scenario": "legal"},
    {"name": "slogan", "pattern": r"(?i)\bslogan\b", "tier": "creative", "scenario": "copywriting"},
]

TENSORS = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "beams": "beam_width",
    "text": "text_input",
}

MODELS = [
    {"name": "tiny", "match": ["tiny*"], "context_window": 200},  # cap: 130 tokens
    {
        "name": "ranked",
        "match": ["ranked*"],
        "triton": {"generate_place": "parameters", "generate_priority": True, "tensors": TENSORS},
    },
]


def until(found: Callable[[], T], *, within_s: float = 10.0, what: str = "") -> T:
    """The first truthy result; AssertionError with the last one after `within_s`."""
    deadline = time.monotonic() + within_s
    while not (result := found()):
        assert time.monotonic() < deadline, f"not within {within_s} s: {what or found}, last: {result!r}"
        time.sleep(0.02)
    return result


def get(url: str, *, method: str = "GET", timeout: float = 10.0) -> bytes:
    request = urllib.request.Request(url, method=method)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return bytes(answer.read())


class Running:
    """A child process with its output in a file."""

    def __init__(self, command: list[str], log: Path, **options: Any) -> None:
        self.log_path = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **options
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def rss_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)

    def stop(self, *, within_s: float = 10.0) -> int:
        """Asked to end, then killed; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(within_s)
            except subprocess.TimeoutExpired:
                self.kill()
        return int(self.process.returncode)


class Engine(Running):
    """The stand-in engine, and what it received."""

    def __init__(self, folder: Path, *, delay_ms: float = 0.0) -> None:
        command = [sys.executable, "-m", "extproc.standin", "--port", str(port := free_port())]
        self.url = f"http://127.0.0.1:{port}"
        super().__init__([*command, "--delay-ms", str(delay_ms)], folder / "engine.log")
        until(lambda: "stand-in engine on" in self.log() or self._ended(), what="stand-in engine")

    def _ended(self) -> None:
        assert self.process.poll() is None, self.log()

    def received(self, request_id: str | None = None) -> list[dict[str, Any]]:
        """Reports, oldest first; with an id only those of that request."""
        everything: list[dict[str, Any]] = json.loads(get(f"{self.url}/__received"))
        # The sidecar's own health checks and looks at metrics are not requests of a client.
        reports = [each for each in everything if each["headers"].get("user-agent") != ["extproc"]]
        if request_id is None:
            return reports
        return [each for each in reports if request_id in each["headers"].get("x-request-id", [])]

    def one(self, request_id: str) -> dict[str, Any]:
        found = self.received(request_id)
        assert len(found) == 1, f"{len(found)} requests with the id {request_id}"
        return found[0]

    def body(self, report: Mapping[str, Any]) -> bytes:
        """The bytes of a body as they arrived."""
        return get(f"{self.url}/__received/body/{report['body_sha256']}")

    def clear(self) -> None:
        get(f"{self.url}/__received", method="DELETE")


class Sidecar:
    """`extproc serve` with a config file; may be killed and started again on the same socket."""

    def __init__(self, config: Path, state_dir: Path) -> None:
        self.config, self.state_dir = config, state_dir
        self.admin_port = free_port()
        self.socket = state_dir / "extproc.sock"
        self.running: Running
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "extproc", "serve", "--config", str(self.config)]
        command += ["--state-dir", str(self.state_dir), "--admin-port", str(self.admin_port)]
        self.running = Running(command, self.state_dir / "sidecar.log")
        until(self._is_ready, within_s=20, what=f"sidecar: {self.running.log()}")

    def _is_ready(self) -> bool:
        assert self.running.process.poll() is None, self.running.log()
        try:
            return self.admin("/readyz") == "ready\n"
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        self.running.kill()

    def stop(self) -> int:
        return self.running.stop()

    def admin(self, path: str) -> str:
        return get(f"http://127.0.0.1:{self.admin_port}{path}").decode()

    def metrics(self) -> dict[str, float]:
        """Samples by name with labels, as the exposition spells them."""
        lines = (line for line in self.admin("/metrics").splitlines() if line and line[0] != "#")
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def count(self, name: str, **labels: str) -> float:
        """The sum of all samples of `name` that carry these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        samples = self.metrics().items()
        return sum(v for n, v in samples if n.split("{")[0] == name and all(each in n for each in wanted))

    def audit(self, request_id: str) -> list[dict[str, Any]]:
        """Records of one request, when nothing waits to be written any more."""
        until(lambda: self.count("llm_audit_pending") == 0, what="audit written")
        lines = (self.state_dir / "audit.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["request_id"] == request_id]


def settings_tree(engine_url: str, folder: Path) -> dict[str, Any]:
    """A config with three pools at one engine, two caller tokens, a tenant's key and a few rules."""
    for number, token in enumerate(TOKENS):
        (folder / f"token-{number}").write_text(f"{token}\n")
    (folder / "shop-key").write_text(SHOP_KEY)
    pools = [("engine-1", "vllm"), ("engine-2", "triton"), ("engine-3", "llamacpp")]
    return {
        "parameter_set": "e2e",
        "classify": {"rules": RULES},
        "models": MODELS,
        "pools": [
            {"name": name, "engine": kind, "endpoints": [engine_url], "schedules_by_priority": True}
            for name, kind in pools
        ],
        "trust": {
            "tokens": [{"file": str(folder / f"token-{number}")} for number in range(len(TOKENS))],
            "sources": ["10.9.0.0/16"],
        },
        "tenants": {
            "keys": [{"file": str(folder / "shop-key")}],
            "classes": {"vip": "critical", "batch": "best-effort", SHOP: "critical"},
        },
    }


def write_config(path: Path, tree: Mapping[str, Any]) -> None:
    """As an editor saves: a new file, renamed over the old one."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(yaml.safe_dump(dict(tree), sort_keys=False, allow_unicode=True))
    beside.replace(path)


def swap_config(path: Path, tree: Mapping[str, Any]) -> None:
    """As Kubernetes updates a mounted ConfigMap: a new directory, and the link `..data` swapped to it."""
    version = path.parent / f"..{time.monotonic_ns()}"
    version.mkdir()
    (version / path.name).write_text(yaml.safe_dump(dict(tree), sort_keys=False, allow_unicode=True))
    link = path.parent / "..data_tmp"
    link.symlink_to(version.name)
    link.replace(path.parent / "..data")
    if not path.is_symlink():
        path.symlink_to(Path("..data") / path.name)


def follows(wanted: Plan) -> dict[str, Any]:
    return following(load_template(), load_overlay(), wanted)


def following_envoy(config: Path, state_dir: Path, *, ready: bool = True) -> RealEnvoy:
    """An Envoy that is told everything by the sidecar of this state directory."""
    return RealEnvoy(plan(load(config.read_bytes()), state_dir, ()), made=follows, ready=ready)


class Assembly:
    """A sidecar with a config file and what else was started, stopped in the reverse order."""

    config: Path
    tree: Mapping[str, Any]
    sidecar: Sidecar

    def __init__(self, prefix: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=prefix))
        self._stops: list[Callable[[], object]] = [lambda: shutil.rmtree(self.folder, ignore_errors=True)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        while self._stops:
            self._stops.pop()()

    def reload(self, **changes: Any) -> None:
        """Save the config with these top-level keys replaced, and wait until it is in force."""
        before = self.sidecar.count("llm_config_generation")
        self.save(**changes)
        until(lambda: self.sidecar.count("llm_config_generation") > before, what="the next generation")

    def save(self, **changes: Any) -> None:
        write_config(self.config, {**self.tree, **changes})


class Stack(Assembly):
    """Engine, sidecar and Envoy, configured by one file.

    `changes` are laid over the config's top level; `save` writes the config. An engine that is given is
    somebody else's to stop.
    """

    def __init__(
        self,
        *,
        engine: Engine | None = None,
        engine_url: str = "",
        changes: Mapping[str, Any] | None = None,
        save: Callable[[Path, Mapping[str, Any]], None] = write_config,
    ) -> None:
        super().__init__("e2e-")
        try:
            if engine is None and not engine_url:
                engine = Engine(self.folder)
                self._stops.append(engine.stop)
            self._engine = engine
            self.config = self.folder / "config" / "extproc.yaml"
            self.config.parent.mkdir()
            self.tree = settings_tree(engine.url if engine else engine_url, self.folder) | dict(changes or {})
            self._save = save
            self._save(self.config, self.tree)
            state_dir = self.folder / "state"
            state_dir.mkdir()
            self.sidecar = Sidecar(self.config, state_dir)
            self._stops.append(self.sidecar.stop)
            self.envoy = following_envoy(self.config, state_dir)
            self._stops.append(self.envoy.stop)
        except BaseException:
            self.stop()
            raise

    def save(self, **changes: Any) -> None:
        self._save(self.config, self.tree | changes)

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "this stack talks to an engine of the test's own"
        return self._engine

    @property
    def port(self) -> int:
        return self.envoy.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.envoy.port}"

    def access(self, request_id: str) -> dict[str, Any]:
        """The access log line of one request."""

        def line() -> dict[str, Any] | None:
            text = self.envoy.access_log.read_text() if self.envoy.access_log.exists() else ""
            whole = text[: text.rfind("\n") + 1].splitlines()
            return next((e for e in map(json.loads, whole) if e["request_id"] == request_id), None)

        return until(line, what=f"access log line of {request_id}")
