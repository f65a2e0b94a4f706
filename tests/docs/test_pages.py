"""Every command of README and docs is run, in the order it stands there, on free ports."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from extproc.settings import load
from tests.collector import Collector
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(sh|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GOES_ON = re.compile(r"make up|extproc serve")
START_S = 30.0

pytestmark = pytest.mark.envoy


@dataclass
class Reader:
    """Somebody who follows a page in a checkout, typing what it says."""

    home: Path
    ports: dict[str, str] = field(default_factory=dict)
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def types(self, line: str) -> str:
        """Run one command; what it printed. Servers are left running; an older one is ended first."""
        command = self._on_free_ports(line)
        if GOES_ON.search(command):
            return self._starts(command)
        done = subprocess.run(
            command, shell=True, cwd=self.home, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _starts(self, command: str) -> str:
        self.leaves()
        log = self.home / "printed"
        with log.open("w") as out:
            process = subprocess.Popen(
                command, shell=True, cwd=self.home, stdout=out, stderr=subprocess.STDOUT, text=True,
                start_new_session=True,
            )  # fmt: skip
        self.running.append(process)
        deadline = time.monotonic() + START_S
        while "audit " not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        return log.read_text()

    def leaves(self) -> None:
        """Ctrl-C."""
        for process in self.running:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(timeout=30)
        self.running.clear()

    def _on_free_ports(self, line: str) -> str:
        for known in ("10000", "9902", "8000"):
            line = line.replace(f"127.0.0.1:{known}", f"127.0.0.1:{self._port(known)}")
        ports = f"--port {self._port('10000')} --admin-port {self._port('9902')}"
        if line.startswith("make up"):
            return f'{line[:-1]} {ports}"' if "ARGS" in line else f'{line} ARGS="{ports}"'
        return f"{line} --admin-port {self._port('9902')}" if "extproc serve" in line else line

    def _port(self, known: str) -> str:
        return self.ports.setdefault(known, str(free_port()))


@pytest.fixture(scope="session")
def developed() -> None:
    """Up to date, so that no `make` of a reader installs the package anew, from where that reader is."""
    subprocess.run(["make", "-C", str(ROOT), "dev"], check=True, capture_output=True)


@pytest.fixture
def reader(tmp_path: Path, developed: None) -> Iterator[Reader]:
    for name in (
        "Makefile",
        "pyproject.toml",
        "constraints.txt",
        "README.md",
        "extproc",
        "envoy",
        "deploy",
        ".venv",
    ):
        (tmp_path / name).symlink_to(ROOT / name)
    reader = Reader(tmp_path)
    yield reader
    reader.leaves()


def blocks(page: str) -> list[tuple[str, str]]:
    found = [(kind, text.strip()) for kind, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))]
    assert found, f"{page} has no block to check"
    return found


def commands(page: str) -> list[str]:
    return [text for kind, text in blocks(page) if kind == "sh"]


def yaml_blocks(page: str) -> list[str]:
    return [text for kind, text in blocks(page) if kind == "yaml"]


def test_readme(reader: Reader) -> None:
    up, curl, audit, explain, containers, own_engine, test = commands("README.md")

    assert "Ctrl-C ends all of it." in reader.types(up)
    answer = reader.types(curl)
    for effect in ("temperature=0.3", "max_tokens=120", "top_p=0.85", "priority=0", "tier=strict"):
        assert effect in answer
    assert "scenario=order_query" in answer
    # Audit lines are written in batches, within a moment of the answer.
    deadline = time.monotonic() + START_S
    while '"field":"temperature"' not in reader.types(audit):
        assert time.monotonic() < deadline, "no audit line"
    assert "copywriting" in reader.types(explain)

    engine = _standin(reader)
    reader.types(own_engine)
    assert '"temperature":0.3' in reader.types(curl)
    engine.terminate()
    engine.wait(timeout=10)
    # `make test-compose` types these.
    assert set(containers.splitlines()) <= set(commands("docs/compose.md"))
    # This run is what `make test` runs.
    assert "pytest" in reader.types(test.replace("make", "make -n"))


def test_configuration_page(reader: Reader) -> None:
    check, up = commands("docs/configuration.md")
    (reader.home / "my.yaml").write_text(yaml_blocks("docs/configuration.md")[0])

    assert "valid, parameter set default@" in reader.types(check)
    assert "admin" in reader.types(up)


def test_trusted_callers_page(reader: Reader) -> None:
    (explain,) = commands("docs/trusted-callers.md")

    printed = reader.types(explain)

    assert "legal" in printed
    assert "override" in printed
    assert load(yaml_blocks("docs/trusted-callers.md")[0]).trust.tokens[0].env == "CALLER_TOKEN"


def test_envoy_page(reader: Reader) -> None:
    serve, render = commands("docs/envoy.md")
    (reader.home / "pools.yaml").write_text(yaml_blocks("docs/envoy.md")[0])

    assert "run/extproc.sock" in reader.types(serve)
    assert (reader.home / "run/extproc.sock").is_socket()
    reader.types(render)
    envoy = next((ROOT / ".venv").glob("lib/python*/site-packages/envoy/_bin/envoy"), None) or shutil.which("envoy")
    assert "OK" in reader.types(f"{envoy} --mode validate -c envoy.json 2>&1 | tail -n 1")


def test_weights_page(reader: Reader) -> None:
    up, weights = commands("docs/weights.md")
    first = yaml_blocks("docs/weights.md")[0]
    for known in ("8000", "8100"):
        first = first.replace(f"127.0.0.1:{known}", f"127.0.0.1:{reader._port(known)}")
    (reader.home / "pools.yaml").write_text(first)
    engines = [_standin(reader, known) for known in ("8000", "8100")]
    try:
        reader.types(up)
        table = reader.types(f"{weights} --admin 127.0.0.1:{reader._port('9902')}")
    finally:
        for engine in engines:
            engine.terminate()
            engine.wait(timeout=10)
    assert all(f"127.0.0.1:{reader._port(known)}" in table for known in ("8000", "8100"))
    assert load(yaml_blocks("docs/weights.md")[1]).telemetry.prometheus is not None


def test_protection_page(reader: Reader) -> None:
    up, status, curl, listed, freeze, pin, unpin = commands("docs/protection.md")
    reader.types(up)
    admin = f"--admin 127.0.0.1:{reader._port('9902')}"
    assert "fallback/engine-1" in reader.types(f"{status} {admin}")
    assert "temperature" in reader.types(curl)
    assert "default@" in reader.types(f"{listed} {admin}")
    time.sleep(1)  # Envoy collects its log for a moment
    assert "baseline of default@" in reader.types(freeze)
    assert "pinned" in reader.types(pin) and "not pinned" in reader.types(unpin)
    light = load(yaml_blocks("docs/protection.md")[0]).pools[1]
    assert (light.role, light.served_model) == ("light", "tiny")


def test_intent_page(reader: Reader) -> None:
    explain, judge, label, adapt, learn = commands("docs/intent.md")
    texts = [
        ("my parcel is late", "order_query"),
        ("send it back", "returns"),
        ("a poem", "creative"),
        ("hi", "normal"),
    ]
    lines = [f"{text} {number}\t{said}" for text, said in texts for number in range(8)]
    (reader.home / "my-rows.tsv").write_text("\n".join(lines) + "\n")
    (reader.home / ".extproc").mkdir()
    kept = [
        f'{{"text": "what {n}", "tier": "normal", "scenario": "general", "confidence": 0.5}}' for n in range(12)
    ]
    (reader.home / ".extproc" / "unsure.1.jsonl").write_text("\n".join(kept) + "\n")

    printed = reader.types(explain)
    assert "order_query" in printed and "heard" in printed
    assert "most likely tier" in reader.types(judge)
    assert "12 of 12 texts" in reader.types(label)
    table = reader.home / "to-label.tsv"
    table.write_text(table.read_text().replace("\t\t", "\tstrict\t"))
    assert "are few" in reader.types(adapt)
    assert "sha256" in reader.types(f"{learn} --no-utterances")
    keep, own = (load(block).intent for block in yaml_blocks("docs/intent.md"))
    assert keep.keep_unsure and own.model == "my-intent.npz"


def test_status_page_page(reader: Reader) -> None:
    (traffic,) = commands("docs/status-page.md")
    reader.types("make up")
    assert '"overrides"' in reader.types(traffic)


def test_tracing_page(reader: Reader) -> None:
    check, *_ = commands("docs/tracing.md")
    check, up, curl, metrics = check.splitlines()
    (reader.home / "traced.yaml").write_text(yaml_blocks("docs/tracing.md")[0])
    with Collector() as collector:
        known = "http://127.0.0.1:4318/v1/traces"
        text = (reader.home / "traced.yaml").read_text()
        assert known in text
        (reader.home / "traced.yaml").write_text(text.replace(known, collector.url))
        assert "valid, parameter set default@" in reader.types(check)
        reader.types(up)
        assert "tier=strict" in reader.types(curl)
        deadline = time.monotonic() + START_S
        while 'result="exported"} 1.0' not in reader.types(metrics.replace(" | grep llm_trace_spans", "")):
            assert time.monotonic() < deadline, "no span"
            time.sleep(0.1)
        reader.types(metrics)
        (span,) = collector.spans()
        assert span.parent_span_id.hex() in curl


def test_dashboards_page(reader: Reader) -> None:
    rules, dashboards = commands("docs/dashboards.md")
    (reader.home / "my.yaml").write_text(yaml_blocks("docs/dashboards.md")[0])
    reader.types(rules)
    assert "> 1.2" in (reader.home / "extproc-rules.yml").read_text()
    assert reader.types(dashboards).count(".json") == 5


@pytest.mark.parametrize(("page", "what"), [("docs/metrics.md", "metrics"), ("docs/config-reference.md", "config")])
def test_reference_pages(reader: Reader, page: str, what: str) -> None:
    assert reader.types(f".venv/bin/extproc reference {what}") == (ROOT / page).read_text(encoding="utf-8")


def test_runbooks_page(reader: Reader) -> None:
    weights, readings, status, memory, page = commands("docs/runbooks.md")
    reader.types("make up")
    admin = f"--admin 127.0.0.1:{reader._port('9902')}"
    assert "engine-1" in reader.types(f"{weights} {admin}")
    time.sleep(6)  # telemetry comes every five seconds
    assert "llm_endpoint_telemetry" in reader.types(readings)
    assert "pool" in reader.types(f"{status} {admin}")
    assert "llm_endpoint_reading" in reader.types(memory)
    assert '"weight"' in reader.types(page)


def test_operations_page(reader: Reader) -> None:
    pages = [line for block in commands("docs/operations.md") for line in block.splitlines()]
    reader.types("make up")

    ready, snapshot, metrics = (reader.types(line) for line in pages)

    assert "ready" in ready
    assert '"generation"' in snapshot
    assert "llm_streams_open" in metrics


def test_istio_page(reader: Reader) -> None:
    (render,) = commands("docs/istio.md")
    pod, config = map(yaml.safe_load, yaml_blocks("docs/istio.md"))

    reader.types(render)

    printed = yaml.safe_load((reader.home / "envoyfilter.yaml").read_text())
    selected = printed["spec"]["workloadSelector"]["labels"].items()
    assert selected <= pod["spec"]["template"]["metadata"]["labels"].items()
    assert load(yaml.safe_dump(config).encode()).listeners.ext_proc == "0.0.0.0:9905"


def test_kubernetes_page(reader: Reader) -> None:
    ((taken, check),) = [block.splitlines() for block in commands("docs/kubernetes.md")]

    reader.types(taken)

    assert "valid, parameter set default@" in reader.types(check)


@pytest.mark.parametrize("page", ["docs/compose.md", "docs/failures.md"])
def test_pages_about_the_stack_name_its_services(page: str) -> None:
    """Their commands are typed by `make test-compose`."""
    services = set(yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"])
    lines = [line for block in commands(page) for line in block.splitlines()]
    named = re.findall(r"docker compose (?:kill|start|exec -T|--profile load up -d) ([a-z0-9-]+)", "\n".join(lines))

    assert named and set(named) <= services


def test_benchmarks_page(reader: Reader) -> None:
    (bench,) = commands("docs/benchmarks.md")
    (reader.home / "bench").symlink_to(ROOT / "bench")
    # The whole run takes minutes; one round passes every step.
    assert "no-op" in reader.types(f'{bench} ARGS="--quick --rounds 1 --soak 0"')


def test_every_page_is_linked_and_tested() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    linked = set(re.findall(r"docs/([a-z-]+\.md)", (ROOT / "README.md").read_text()))
    tested = set(re.findall(r'"docs/([a-z-]+\.md)"', Path(__file__).read_text()))
    assert pages == linked == tested


def _standin(reader: Reader, known: str = "8000") -> subprocess.Popen[bytes]:
    port = reader._port(known)
    command = [str(ROOT / ".venv/bin/python"), "-m", "extproc.standin", "--port", port]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process
