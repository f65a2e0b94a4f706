"""A stack of its own name and ports, from a clone: brought up, asked, hurt, and taken down with all it made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "extproc-trial"
BUILD_S, HEALTHY_S, SOON_S = 1500.0, 180.0, 60.0
LABEL = f"label=com.docker.compose.project={PROJECT}"


def run(*command: str, cwd: Path | None = None, timeout_s: float = 120.0, **environment: str) -> str:
    """A command's standard output; what it said fails the test where it failed."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout_s,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def compose_command() -> list[str]:
    """Current Compose where there is one, else 1.29."""
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return ["docker", "compose"] if plugin.returncode == 0 else ["docker-compose"]


def has_image(image: str) -> bool:
    """Whether it is here, or comes when asked for."""
    found = subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False)
    if found.returncode == 0:
        return True
    return (
        subprocess.run(
            ["docker", "pull", "--quiet", image], capture_output=True, timeout=300, check=False
        ).returncode
        == 0
    )


class Stack:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.ports = {name: free_port() for name in ("ENVOY_PORT", "ADMIN_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")}
        self.services: dict[str, dict[str, Any]] = yaml.safe_load((home / "docker-compose.yml").read_text())[
            "services"
        ]
        self.lasting = sorted(set(self.services) - {"prepare", "load"})
        if not has_image(self.services["grafana"]["image"]):
            self.lasting.remove("grafana")

    def compose(self, *arguments: str, timeout_s: float = 180.0) -> str:
        ports = {name: str(port) for name, port in self.ports.items()}
        return run(*compose_command(), "-p", PROJECT, *arguments, cwd=self.home, timeout_s=timeout_s, **ports)

    def types(self, line: str) -> str:
        """Run a command of a page, in this stack."""
        for known, name in (("10000", "ENVOY_PORT"), ("9902", "ADMIN_PORT")):
            line = line.replace(f"127.0.0.1:{known}", f"127.0.0.1:{self.ports[name]}")
        command = " ".join([*compose_command(), "-p", PROJECT])
        ports = {name: str(port) for name, port in self.ports.items()}
        return run("sh", "-c", line.replace("docker compose", command), cwd=self.home, **ports)

    def up(self) -> None:
        self.compose("build", timeout_s=BUILD_S)
        self.compose("up", "-d", *self.lasting, timeout_s=HEALTHY_S)
        self.wait("every service is healthy", self.all_healthy, HEALTHY_S)

    def down(self) -> None:
        self.compose("--profile", "load", "down", "-v", "--remove-orphans")

    def container(self, service: str) -> str:
        return run(
            "docker", "ps", "-aq", "--filter", LABEL, "--filter", f"label=com.docker.compose.service={service}"
        ).strip()

    def state(self, service: str) -> str:
        """healthy, starting, unhealthy, exited …"""
        state = json.loads(run("docker", "inspect", "-f", "{{json .State}}", self.container(service)))
        return str(state["Health"]["Status"] if state["Status"] == "running" else state["Status"])

    def all_healthy(self) -> bool:
        return all(self.state(service) == "healthy" for service in self.lasting)

    def kill(self, service: str) -> None:
        run("docker", "kill", self.container(service))

    def start(self, service: str) -> None:
        run("docker", "start", self.container(service))
        self.wait(f"{service} is healthy", lambda: self.state(service) == "healthy")

    def inside(self, service: str, script: str) -> str:
        return run("docker", "exec", self.container(service), "sh", "-c", script)

    def left(self) -> list[str]:
        """Containers, volumes and networks of this stack that exist."""
        kinds = (("ps", "-aq"), ("volume", "ls", "-q"), ("network", "ls", "-q"))
        return [each for kind in kinds for each in run("docker", *kind, "--filter", LABEL).split()]

    def wait(self, what: str, done: Callable[[], bool], most_s: float = SOON_S) -> None:
        deadline = time.monotonic() + most_s
        while not done():
            assert time.monotonic() < deadline, f"not within {most_s:g} s: {what}\n{self.told()}"
            time.sleep(0.5)

    def told(self) -> str:
        """How every service is, and the last lines it wrote."""
        return self.compose("ps") + self.compose("logs", "--tail", "15")

    def url(self, port: str, path: str) -> str:
        return f"http://127.0.0.1:{self.ports[port]}{path}"

    def page(self, port: str, path: str) -> Any:
        with urllib.request.urlopen(self.url(port, path), timeout=10) as answer:
            return json.load(answer)

    def ask(self, text: str = "Where is my order #12345678?") -> dict[str, Any]:
        """What Triton answered, through Envoy, with `status` beside it."""
        body = json.dumps({"text_input": text}).encode()
        request = urllib.request.Request(self.url("ENVOY_PORT", "/v2/models/text/generate"), body)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return {"status": answer.status, **json.load(answer)}
        except urllib.error.HTTPError as error:
            return {"status": error.code}
        except OSError as error:
            return {"status": 0, "error": str(error)}


def clone(into: Path) -> Path:
    """What is committed, and nothing else."""
    home = into / "clone"
    run("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(home))
    return home


def missing_tools() -> list[str]:
    return [tool for tool in ("docker", "git") if shutil.which(tool) is None]
