"""Running it: one command, signals, what stands in its way, and config that changes while it runs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from tests.e2e.asking import CHAT, CREATIVE, NORMAL, STRICT, TRUSTED, Load, Raw, ask, chat
from tests.e2e.running import Engine, Running, Sidecar, Stack, settings_tree, swap_config, until, write_config
from tests.e2e.speaking import METHOD, body, headers
from tests.ports import free_port

EXTPROC = [sys.executable, "-m", "extproc"]
REPOSITORY = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY)}


def extproc(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, for as long as it runs by itself."""
    return subprocess.run(
        [*EXTPROC, *arguments],
        cwd=cwd,
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def assert_one_clear_line(done: subprocess.CompletedProcess[str], *words: str, code: int = 1) -> None:
    assert done.returncode == code, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("extproc: ")
    assert all(word in lines[0] for word in words), lines[0]


def processes_in(folder: Path) -> list[int]:
    """Processes whose working directory this is."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            here = (each / "cwd").resolve(strict=True) == folder.resolve()
            is_zombie = (each / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if here and not is_zombie:
            found.append(int(each.name))
    return found


# ── extproc up ───────────────────────────────────────────────────────────────────────────────────


class Up(Running):
    """`extproc up` in an empty directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "empty"
        self.folder.mkdir()
        self.port = free_port()
        command = [*EXTPROC, "up", "--port", str(self.port), "--admin-port", str(free_port())]
        super().__init__(command, folder / "up.log", cwd=self.folder, env=ENVIRONMENT)
        until(self._is_up, within_s=30, what="the banner")

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self.log()
        return "Ctrl-C ends all of it." in self.log()

    def curls(self) -> list[str]:
        return [line for line in self.log().splitlines() if line.startswith("curl ")]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = Up(tmp_path_factory.mktemp("up"))
    yield running
    running.stop()


def run_curl(line: str) -> str:
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=20, check=True)
    return str(yaml.safe_load(done.stdout)["choices"][0]["message"]["content"])


def test_up_says_what_listens_where(up: Up) -> None:
    assert f"http://127.0.0.1:{up.port}" in up.log()
    assert "audit.jsonl" in up.log()
    assert len(up.curls()) == 3


def test_up_prints_curl_lines_that_work(up: Up) -> None:
    for line in up.curls():
        assert "temperature=" in run_curl(line)
        assert "tier=" in run_curl(line)


def test_the_curl_lines_of_up_show_the_three_tiers(up: Up) -> None:
    tiers = [re.search(r"tier=(\w+)", run_curl(line))[1] for line in up.curls()]  # type: ignore[index]
    assert tiers == ["strict", "normal", "creative"]


def test_up_keeps_its_files_in_one_directory(up: Up) -> None:
    assert [each.name for each in up.folder.iterdir()] == [".extproc"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_up_and_everything_it_started(tmp_path: Path, number: int) -> None:
    running = Up(tmp_path)
    assert len(processes_in(running.folder)) == 3  # itself, Envoy, the stand-in
    run_curl(running.curls()[0])
    running.signal(number)
    assert running.process.wait(10) == 0
    assert processes_in(running.folder) == []
    assert "Traceback" not in running.log()


def test_up_ends_when_envoy_does(tmp_path: Path) -> None:
    running = Up(tmp_path)
    (envoy,) = (p for p in processes_in(running.folder) if "envoy" in Path(f"/proc/{p}/exe").readlink().name)
    os.kill(envoy, signal.SIGKILL)
    assert running.process.wait(15) == 1
    assert processes_in(running.folder) == []
    assert running.log().splitlines()[-1].startswith("extproc: Envoy ended")


# ── what stands in the way ───────────────────────────────────────────────────────────────────────


@pytest.fixture
def taken() -> Iterator[int]:
    """A port somebody listens on."""
    with socket.create_server(("127.0.0.1", free_port())) as server:
        yield server.getsockname()[1]


def test_up_on_a_taken_port(tmp_path: Path, taken: int) -> None:
    done = extproc("up", "--port", str(taken), "--admin-port", str(free_port()), cwd=tmp_path)
    assert_one_clear_line(done, str(taken), "--port")
    assert processes_in(tmp_path) == []


def test_up_on_a_taken_admin_port(tmp_path: Path, taken: int) -> None:
    done = extproc("up", "--port", str(free_port()), "--admin-port", str(taken), cwd=tmp_path)
    assert_one_clear_line(done, str(taken))
    assert processes_in(tmp_path) == []


def test_serve_on_a_taken_admin_port(tmp_path: Path, taken: int) -> None:
    assert_one_clear_line(extproc("serve", "--admin-port", str(taken), cwd=tmp_path), str(taken))


def test_serve_on_a_taken_tcp_port(tmp_path: Path, taken: int) -> None:
    arguments = ("serve", "--admin-port", str(free_port()), "--listen", f"127.0.0.1:{taken}")
    assert_one_clear_line(extproc(*arguments, cwd=tmp_path), str(taken))


def test_a_socket_file_left_behind_is_no_obstacle(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "extproc.sock"))
    write_config(tmp_path / "extproc.yaml", {})
    sidecar = Sidecar(tmp_path / "extproc.yaml", tmp_path)
    assert sidecar.stop() == 0


def test_a_file_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "extproc.sock").write_text("precious")
    done = extproc("serve", "--state-dir", str(tmp_path), "--admin-port", str(free_port()), cwd=tmp_path)
    assert_one_clear_line(done, "extproc.sock", "no socket")
    assert (tmp_path / "extproc.sock").read_text() == "precious"


@pytest.mark.parametrize("command", ["serve", "up"])
def test_a_state_directory_that_cannot_be_made(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("")
    done = extproc(command, "--state-dir", str(tmp_path / "file" / "below"), cwd=tmp_path)
    assert_one_clear_line(done, str(tmp_path / "file" / "below"))
    assert processes_in(tmp_path) == []


def test_an_audit_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").mkdir()
    done = extproc("serve", "--state-dir", str(tmp_path), "--admin-port", str(free_port()), cwd=tmp_path)
    assert_one_clear_line(done, "audit.jsonl")


def test_a_socket_path_that_is_too_long(tmp_path: Path) -> None:
    long = tmp_path / ("d" * 100)
    done = extproc("serve", "--state-dir", str(long), "--admin-port", str(free_port()), cwd=tmp_path)
    assert_one_clear_line(done, "longer than 107 bytes")


def test_up_without_envoy(tmp_path: Path) -> None:
    assert_one_clear_line(extproc("up", cwd=tmp_path, ENVOY_BIN="/nowhere/envoy"), "/nowhere/envoy")
    assert processes_in(tmp_path) == []


def test_up_with_an_envoy_that_does_not_start(tmp_path: Path) -> None:
    ports = ("--port", str(free_port()), "--admin-port", str(free_port()))
    done = extproc("up", *ports, cwd=tmp_path, ENVOY_BIN="/bin/false")
    assert_one_clear_line(done, "Envoy ended with code 1")
    assert processes_in(tmp_path) == []


def test_a_missing_config_file(tmp_path: Path) -> None:
    for arguments in (("serve", "--config", "gone.yaml"), ("up", "--config", "gone.yaml"), ("check", "gone.yaml")):
        assert_one_clear_line(extproc(*arguments, cwd=tmp_path), "gone.yaml")


def test_every_mistake_of_a_config_is_printed(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("unknwon: 1\ninference_params:\n  temperature: {strict: warm}\n")
    for arguments in (("serve", "--config", "bad.yaml"), ("up", "--config", "bad.yaml"), ("check", "bad.yaml")):
        done = extproc(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        lines = done.stderr.splitlines()
        assert len(lines) == 2, done.stderr
        assert any("unknwon" in line for line in lines)
        assert any("inference_params.temperature.strict" in line for line in lines)


def test_a_secret_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("trust: {tokens: [{env: NO_SUCH_TOKEN}, {file: /nowhere/token}]}\n")
    done = extproc("serve", "--config", "c.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "NO_SUCH_TOKEN" in done.stderr
    assert "/nowhere/token" in done.stderr
    assert "Traceback" not in done.stderr


def test_check_says_which_parameter_set_a_valid_file_makes(stack: Stack, tmp_path: Path) -> None:
    done = extproc("check", str(stack.config), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert ask(stack.port, CHAT, chat(STRICT)).decided("params") in done.stdout


# ── draining ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def draining(tmp_path: Path) -> Iterator[Sidecar]:
    write_config(tmp_path / "extproc.yaml", settings_tree("http://127.0.0.1:1", tmp_path) | {"shutdown_grace_s": 3})
    sidecar = Sidecar(tmp_path / "extproc.yaml", tmp_path)
    yield sidecar
    sidecar.running.kill()


def readiness(sidecar: Sidecar) -> str:
    """The status line of /readyz."""
    with socket.create_connection(("127.0.0.1", sidecar.admin_port), timeout=5) as connection:
        connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        return connection.makefile("rb").read().decode()


@pytest.mark.parametrize("idle", [50, 0])
async def test_active_streams_finish_within_the_grace_time(draining: Sidecar, idle: int) -> None:
    async with grpc.aio.insecure_channel(f"unix:{draining.socket}") as channel:
        open_stream = channel.stream_stream(METHOD)
        idles = [open_stream() for _ in range(idle)]
        actives = [open_stream() for _ in range(20)]
        for call in actives:
            await call.write(headers())
            assert await call.read() is not grpc.aio.EOF  # type: ignore[attr-defined]
        until(lambda: draining.count("llm_streams_open") == idle + 20, what="all streams")
        started = time.monotonic()
        draining.running.signal(signal.SIGTERM)
        until(lambda: "draining" in readiness(draining), what="not ready")
        for call in actives:
            await call.write(body())
            assert b"temperature" in await call.read()
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF  # type: ignore[attr-defined]
            assert await call.code() is grpc.StatusCode.OK
        code = await asyncio.to_thread(draining.running.process.wait, 10)
        took = time.monotonic() - started
        assert len(idles) == idle
    assert code == 0
    assert took < (5 if idle else 2), f"{took:.1f} s, with a grace time of 3 s"
    assert "Traceback" not in draining.running.log()


def test_every_audit_record_is_written_before_the_end(draining: Sidecar) -> None:
    with grpc.insecure_channel(f"unix:{draining.socket}") as channel:
        for _ in range(200):
            list(channel.stream_stream(METHOD)(iter([headers(), body()])))
    assert draining.stop() == 0
    assert len((draining.state_dir / "audit.jsonl").read_text().splitlines()) == 200 * 4


# ── reload ───────────────────────────────────────────────────────────────────────────────────────


def with_strict(temperature: float, **more: Any) -> dict[str, Any]:
    return {"inference_params": {"temperature": {"strict": temperature}}, **more}


def strict_temperature(stack: Stack) -> float:
    return float(ask(stack.port, CHAT, chat(STRICT)).params["temperature"])


@pytest.fixture(scope="module")
def reloading(engine: Engine) -> Iterator[Stack]:
    with Stack(engine=engine) as running:
        yield running


@pytest.fixture(scope="module")
def mounted(engine: Engine) -> Iterator[Stack]:
    """Its config is a link into a directory that is swapped."""
    with Stack(engine=engine, save=swap_config) as running:
        yield running


@pytest.mark.parametrize("name", ["reloading", "mounted"])
def test_a_saved_config_changes_the_next_request(request: pytest.FixtureRequest, engine: Engine, name: str) -> None:
    stack: Stack = request.getfixturevalue(name)
    for temperature in (0.21, 0.22):
        before = stack.sidecar.count("llm_config_generation")
        label = ask(stack.port, CHAT, chat(STRICT)).decided("params")
        stack.reload(**with_strict(temperature))
        assert strict_temperature(stack) == temperature
        assert ask(stack.port, CHAT, chat(STRICT)).decided("params") != label
        assert stack.sidecar.count("llm_config_generation") == before + 1


def test_a_file_written_in_place_is_noticed(reloading: Stack) -> None:
    before = reloading.sidecar.count("llm_config_generation")
    reloading.config.write_text(yaml.safe_dump(reloading.tree | with_strict(0.19)))
    until(lambda: reloading.sidecar.count("llm_config_generation") > before)
    assert strict_temperature(reloading) == 0.19


def test_an_invalid_file_keeps_the_old_one_and_says_so(reloading: Stack) -> None:
    reloading.reload(**with_strict(0.23))
    generation = reloading.sidecar.count("llm_config_generation")
    reloading.save(**with_strict(7.5, unknown_key=1))
    until(lambda: reloading.sidecar.count("llm_config_reloads_total", result="invalid") >= 1)
    assert reloading.sidecar.count("llm_config_last_reload_success") == 0
    assert reloading.sidecar.count("llm_config_generation") == generation
    assert strict_temperature(reloading) == 0.23
    assert "unknown_key" in reloading.sidecar.running.log()
    reloading.reload(**with_strict(0.24))
    assert reloading.sidecar.count("llm_config_last_reload_success") == 1
    assert strict_temperature(reloading) == 0.24


def test_keys_that_need_a_restart_are_named_and_the_others_are_in_force(reloading: Stack) -> None:
    reloading.reload(**with_strict(0.26, unknown_paths="pass"))
    assert "only after a restart: unknown_paths" in reloading.sidecar.running.log()
    assert strict_temperature(reloading) == 0.26
    reloading.reload()


def test_a_rotated_token_is_noticed(reloading: Stack) -> None:
    headers = {"x-caller-token": "rotated-token-55", "x-tenant": "vip"}
    assert ask(reloading.port, CHAT, chat(NORMAL), headers).decided("tenant") == "anonymous"
    path = reloading.folder / "token-0"
    beside = path.with_name("token-new")
    beside.write_text("rotated-token-55\n")
    beside.replace(path)
    until(lambda: ask(reloading.port, CHAT, chat(NORMAL), headers).decided("tenant") == "vip")
    old = {**TRUSTED, "x-tenant": "vip"}
    assert ask(reloading.port, CHAT, chat(NORMAL), old).decided("tenant") == "anonymous"


def test_a_trusted_network_is_the_connections_own(reloading: Stack) -> None:
    said = {"x-param-temperature": "1.5", "x-forwarded-for": "10.9.1.1"}
    assert ask(reloading.port, CHAT, chat(CREATIVE), said).params["temperature"] == 0.9
    reloading.reload(trust=reloading.tree["trust"] | {"sources": ["127.0.0.0/8"]})
    answer = ask(reloading.port, CHAT, chat(CREATIVE), said)
    assert answer.params["temperature"] == 1.5
    assert "x-param-temperature" not in answer.seen
    reloading.reload()


def test_a_request_keeps_the_generation_it_began_with(reloading: Stack) -> None:
    """Its body comes after the reload."""
    reloading.reload(**with_strict(0.14, parameter_set="older"))
    content = json.dumps(chat(STRICT)).encode()
    with Raw(reloading.port) as client:
        client.send(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (CHAT.encode(), len(content)))
        until(lambda: reloading.sidecar.count("llm_streams_open") == 1, what="the headers are there")
        reloading.reload(**with_strict(0.15, parameter_set="newer"))
        client.send(content)
        answer = client.answer()
    assert answer.params["temperature"] == 0.14
    assert answer.decided("params").startswith("older@")
    assert strict_temperature(reloading) == 0.15


async def test_every_request_under_reloads_belongs_to_one_generation(reloading: Stack) -> None:
    """Label and value of one parameter set travel together."""
    sets = {"first": 0.11, "second": 0.12, "third": 0.13}
    reloading.reload(**with_strict(0.11, parameter_set="first"))
    async with Load(reloading.port, workers=8, keep=True) as load:
        for name, temperature in list(sets.items())[1:] + list(sets.items()) + list(sets.items()):
            changed = with_strict(temperature, parameter_set=name)
            await asyncio.to_thread(reloading.reload, **changed)
            await load.more(30)
    assert load.tally.errors == []
    assert set(load.tally.statuses) == {200}
    pairs = set()
    for answer in load.tally.answers:
        (label,) = answer["received"]["headers"]["x-llm-params"]
        pairs.add((label.partition("@")[0], answer["received"]["params"]["temperature"]))
    assert pairs == set(sets.items())
