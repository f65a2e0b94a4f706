"""The whole sidecar as a control plane: restarts, an Envoy without it, pools at run time, telemetry that goes away."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from extproc.deployment import plan
from extproc.resources.bootstrap import from_files
from extproc.resources.template import load_overlay, load_template
from extproc.settings import load
from tests.e2e.asking import Load, ask, chat
from tests.e2e.following import Following, envoy_weights
from tests.e2e.running import Engine, Running, following_envoy, until
from tests.ports import free_port
from tests.real_envoy import RealEnvoy

HELLO = chat("What is the capital of France?")


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, Engine]]:
    pair = tuple(Engine(tmp_path_factory.mktemp("engine")) for _ in range(2))
    yield pair  # type: ignore[misc]
    for engine in pair:
        engine.stop()


def pool(*engines: Engine, name: str = "chat", **more: Any) -> dict[str, Any]:
    return {"name": name, "engine": "vllm", "endpoints": [at(engine) for engine in engines], **more}


def at(engine: Engine) -> dict[str, Any]:
    port = int(engine.url.rpartition(":")[2])
    return {"address": "127.0.0.1", "http_port": port, "metrics_url": f"{engine.url}/__metrics"}


def key(engine: Engine) -> str:
    return engine.url.removeprefix("http://")


async def test_killed_and_started_again_under_load_no_request_fails(engines: tuple[Engine, Engine]) -> None:
    with Following([pool(*engines)]) as world:
        async with Load(world.envoy.port, workers=4) as load_:
            for _ in range(4):
                await load_.more(50)
                await asyncio.to_thread(world.sidecar.kill)
                await load_.more(50)
                await asyncio.to_thread(world.sidecar.start)
                await asyncio.to_thread(until, lambda: world.sidecar.count("llm_xds_streams_open") == 1)
            await load_.more(50)
    assert load_.tally.errors == [] and set(load_.tally.statuses) == {200}


def test_an_envoy_that_starts_first_is_ready_when_the_sidecar_is(engines: tuple[Engine, Engine]) -> None:
    with Following([pool(*engines)]) as world:
        world.sidecar.stop()
        late = following_envoy(world.config, world.state_dir, ready=False)
        try:
            time.sleep(3)  # past every first-fetch time-out
            with pytest.raises(urllib.error.HTTPError, match="503"):
                late.admin("/ready")
            world.sidecar.start()
            late.await_ready()
            assert ask(late.port, body=HELLO).status == 200
        finally:
            late.stop()


def test_envoy_boots_without_a_sidecar_from_what_it_left_and_follows_it_again(
    engines: tuple[Engine, Engine],
) -> None:
    with Following([pool(*engines)]) as world:
        folder = str(world.state_dir / "xds")
        until((world.state_dir / "xds" / "rds.json").exists)
        world.sidecar.stop()
        begun = time.monotonic()
        alone = RealEnvoy(
            plan(load(world.config.read_bytes()), world.state_dir, ()),
            made=lambda wanted: from_files(load_template(), load_overlay(), wanted, folder),
        )
        try:
            assert ask(alone.port, body=HELLO).status == 200
            assert time.monotonic() - begun < 3, "seconds from nothing to an answer"
            assert set(envoy_weights(alone, "chat")) == {key(engine) for engine in engines}
            world.sidecar.start()
            world.reload(pools=[pool(engines[0])])
            until(lambda: set(envoy_weights(alone, "chat")) == {key(engines[0])}, what="followed by file")
            assert ask(alone.port, body=HELLO).decided("tier") == "normal"
        finally:
            alone.stop()


async def test_pools_come_and_go_under_load(engines: tuple[Engine, Engine]) -> None:
    first, second = engines
    one, other = pool(first, name="one"), pool(second, name="other")
    with Following([one]) as world:
        async with Load(world.envoy.port, workers=4) as load_:
            for pools in ([one, other], [other, one], [other], [one], [one, other]):
                await load_.more(30)
                await asyncio.to_thread(world.reload, pools=pools)
            await load_.more(30)
    assert load_.tally.errors == [] and set(load_.tally.statuses) == {200}


def test_a_file_of_endpoints_is_followed(engines: tuple[Engine, Engine], tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    file.write_text(yaml.safe_dump({"endpoints": [at(engine) for engine in engines]}))
    with Following([{"name": "chat", "engine": "vllm", "endpoints_file": str(file)}]) as world:
        assert set(envoy_weights(world.envoy, "chat")) == {key(engine) for engine in engines}
        file.write_text(yaml.safe_dump({"endpoints": [at(engines[1])]}))
        until(lambda: set(envoy_weights(world.envoy, "chat")) == {key(engines[1])}, what="one endpoint left")
        file.write_text("endpoints: [{address: 127.0.0.1, http_po")
        until(lambda: world.sidecar.count("llm_endpoint_source_failures_total") > 0, what="the mistake is counted")
        assert set(envoy_weights(world.envoy, "chat")) == {key(engines[1])}
        assert ask(world.envoy.port, body=HELLO).status == 200


def test_two_envoys_see_what_is_theirs(engines: tuple[Engine, Engine]) -> None:
    pools = [pool(engines[0], name="one"), pool(engines[1], name="two")]
    view = {"node_id": "llm-edge-*", "node_cluster": "*", "pools": ["two"]}
    with Following(pools, xds={"views": [view]}, default_pool="two") as world:
        assert envoy_weights(world.envoy, "one") == {}
        assert set(envoy_weights(world.envoy, "two")) == {key(engines[1])}
        another = world.another_envoy()
        assert world.sidecar.count("llm_xds_streams_open") == 2
        assert ask(another.port, body=HELLO).decided("pool") == "two"


# ── telemetry that goes away ─────────────────────────────────────────────────────────────────────

INTERVAL_S = 0.5
NEUTRAL_S = 6 * INTERVAL_S


class Exporter(Running):
    """The GPU exporter with one GPU, of this endpoint; memory in percent of 100 MiB."""

    def __init__(self, folder: Path, endpoint: str, used: float) -> None:
        point = {"at_s": 0, "memory_used": used, "memory_free": 100 - used, "utilisation": used}
        scenario = folder / "gpus.yaml"
        scenario.write_text(yaml.safe_dump({"gpus": [{"labels": {"endpoint": endpoint}, "points": [point]}]}))
        self.port = free_port()
        command = [sys.executable, "-m", "extproc.standin.gpu_exporter", "--port", str(self.port)]
        super().__init__([*command, "--scenario", str(scenario)], folder / "exporter.log")


@pytest.fixture
def measured(engines: tuple[Engine, Engine], tmp_path: Path) -> Iterator[tuple[Following, list[Exporter]]]:
    """Two endpoints, each with an exporter of its own: the first is full, the second is idle."""
    exporters = []
    for number, share in enumerate((90.0, 10.0)):
        (folder := tmp_path / str(number)).mkdir()
        exporters.append(Exporter(folder, key(engines[number]), share))
    sources = [{"url": f"http://127.0.0.1:{each.port}/metrics", "label": "endpoint"} for each in exporters]
    bare = [
        {"address": "127.0.0.1", "http_port": int(key(each).rpartition(":")[2]), "metrics_url": None}
        for each in engines
    ]
    telemetry = {"interval_s": INTERVAL_S, "timeout_s": 0.3, "dcgm": sources}
    with Following(
        [{"name": "chat", "engine": "vllm", "endpoints": bare}],
        telemetry=telemetry,
        weights={"latency": 0.0, "window_s": 5},
    ) as world:
        yield world, exporters
    for each in exporters:
        each.stop()


async def test_a_frozen_exporter_fades_and_draws_no_herd(
    measured: tuple[Following, list[Exporter]], engines: tuple[Engine, Engine]
) -> None:
    world, exporters = measured
    idle = key(engines[1])
    await asyncio.to_thread(until, lambda: world.share("chat", idle) > 0.85, what="the idle one has most")
    async with Load(world.envoy.port, workers=2) as load_:
        exporters[1].signal(signal.SIGSTOP)
        await asyncio.sleep(NEUTRAL_S)
        await asyncio.to_thread(
            until, lambda: world.share("chat", idle) < 0.65, what="fades to what the others say"
        )
        row = world.weights("chat")[idle]
        assert row["terms"]["memory"]["freshness"] in ("fading", "neutral")
        assert world.sidecar.count("llm_telemetry_stale", endpoint=idle) == 1
        assert world.share("chat", idle) <= 0.65
        exporters[1].signal(signal.SIGCONT)
        await asyncio.to_thread(until, lambda: world.share("chat", idle) > 0.85, what="believed again")
    assert load_.tally.errors == [] and set(load_.tally.statuses) == {200}


async def test_without_any_telemetry_the_last_good_weights_stay(
    measured: tuple[Following, list[Exporter]], engines: tuple[Engine, Engine]
) -> None:
    world, exporters = measured
    idle = key(engines[1])
    await asyncio.to_thread(until, lambda: world.share("chat", idle) > 0.85, what="the idle one has most")
    async with Load(world.envoy.port, workers=2) as load_:
        for each in exporters:
            each.kill()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            await load_.more(20)
            await asyncio.sleep(0.5)
        assert world.share("chat", idle) > 0.6
        assert {row["reason"] for row in world.weights("chat").values()} == {"last_good"}
    assert load_.tally.errors == [] and set(load_.tally.statuses) == {200}


# ── the command ──────────────────────────────────────────────────────────────────────────────────


def test_the_command_shows_what_envoy_has(engines: tuple[Engine, Engine]) -> None:
    with Following([pool(*engines)]) as world:
        command = [sys.executable, "-m", "extproc", "weights", "--admin", f"127.0.0.1:{world.sidecar.admin_port}"]
        shown = json.loads(subprocess.check_output([*command, "--json"], timeout=20))
        rows = {row["endpoint"]: row["weight"] for row in shown["pools"][0]["endpoints"]}
        assert rows == envoy_weights(world.envoy, "chat")
        table = subprocess.check_output(command, timeout=20, text=True)
        assert all(key(engine) in table for engine in engines)


# ── usage ────────────────────────────────────────────────────────────────────────────────────────


def test_tokens_of_answers_are_counted_where_it_is_asked_for(engines: tuple[Engine, Engine]) -> None:
    with Following([pool(engines[0])], usage={"enabled": True}) as world:
        assert ask(world.envoy.port, body=HELLO).status == 200
        assert ask(world.envoy.port, body=HELLO | {"stream": True}).status == 200
        until(
            lambda: world.sidecar.count("llm_requests_with_usage_total", scenario="general") == 2,
            what="two answers",
        )
        assert world.sidecar.count("llm_tokens_total", kind="output", scenario="general") > 0
        assert world.sidecar.count("llm_usage_answers_total", outcome="skipped") == 0


def test_nothing_is_observed_by_default(engines: tuple[Engine, Engine]) -> None:
    with Following([pool(engines[0])]) as world:
        assert ask(world.envoy.port, body=HELLO).status == 200
        assert world.envoy.stats("http.llm.ext_proc.usage.").get("streams_started", 0) == 0
