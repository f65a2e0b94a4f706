"""Two real tritonservers behind the real Envoy: slowing one moves the traffic, over HTTP and gRPC alike."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.e2e.following import Following, envoy_weights
from tests.e2e.running import until
from tests.engines_real.clients import OpenStream, generate, grpc_infer
from tests.engines_real.fixtures import Tritons
from tests.engines_real.triton import TritonServer

INTERVAL_S = 1.0
HEALTH_S = 1.0
POOL = "text"


def endpoint(server: TritonServer) -> dict[str, object]:
    return {
        "address": "127.0.0.1",
        "http_port": server.http_port,
        "grpc_port": server.grpc_port,
        "metrics_url": server.metrics_url,
    }


def key(server: TritonServer) -> str:
    return f"127.0.0.1:{server.http_port}"


@pytest.fixture
def world(tritons: Tritons) -> Iterator[Following]:
    pool = {
        "name": POOL,
        "engine": "triton",
        "endpoints": [endpoint(server) for server in tritons],
        "max_acceptable_p99_ms": 400,
    }
    with Following([pool], weights={"window_s": 10, "lb_policy": "ROUND_ROBIN"}) as running:
        yield running


def shares(world: Following, tritons: Tritons) -> tuple[int, int]:
    """The weights in Envoy itself, for both of the pool's clusters."""
    over_http = envoy_weights(world.envoy, POOL)
    over_grpc = envoy_weights(world.envoy, f"{POOL}-grpc")
    first, second = (over_http[key(server)] for server in tritons)
    assert [over_grpc[f"127.0.0.1:{server.grpc_port}"] for server in tritons] == [first, second]
    return first, second


def warm(world: Following, tritons: Tritons) -> None:
    """Enough requests that both endpoints' latency is known and counts."""
    assert not generate(world.envoy.port, 120).failures
    until(
        lambda: all(row["terms"]["latency"]["reading"] for row in world.weights(POOL).values()),
        what="latency of both",
    )


def test_slowing_one_moves_the_traffic_over_http_and_grpc(world: Following, tritons: Tritons) -> None:
    slow, fast = tritons
    warm(world, tritons)
    slow.set_delay(200)
    assert not generate(world.envoy.port, 100).failures
    begun = time.monotonic()
    until(lambda: shares(world, tritons)[0] < shares(world, tritons)[1] * 0.7, what="weights in Envoy", within_s=5)
    took_s = time.monotonic() - begun
    assert took_s < 2 * INTERVAL_S + 0.5, (
        f"{took_s:.1f} s"
    )  # half a second for the access log and the look at Envoy
    assert world.weights(POOL)[key(slow)]["moved_by"] == "latency"
    # No further weighing: the split is to stand while it is measured.
    world.reload(telemetry={"interval_s": 3600, "timeout_s": 0.5})
    time.sleep(INTERVAL_S)
    settled = shares(world, tritons)
    over_http = generate(world.envoy.port, 400)
    over_grpc = grpc_infer(world.envoy.port, 400)
    assert settled == shares(world, tritons), "the split moved while it was measured"
    expected = settled[1] / sum(settled)
    assert not over_http.failures and not over_grpc.failures
    assert over_http.share(fast.name) == pytest.approx(expected, abs=0.03)
    assert over_grpc.share(fast.name) == pytest.approx(expected, abs=0.03)


async def test_a_stream_held_open_goes_on_while_weights_change(world: Following, tritons: Tritons) -> None:
    async with OpenStream(world.envoy.port) as stream:
        words = [word async for word in stream.ask("one two three", max_tokens=3)]
        tritons[0].set_delay(200)
        again = [word async for word in stream.ask("four five", max_tokens=2)]
    assert ["".join(words), "".join(again)] == ["one two three", "four five"]
    assert len(stream.servers) == 1


def test_killing_one_costs_the_requests_in_flight_at_most(world: Following, tritons: Tritons) -> None:
    dying, _ = tritons
    warm(world, tritons)
    dying.kill()
    killed_at = time.monotonic()
    split = generate(world.envoy.port, 300)
    assert len(split.failures) <= 8, split.failures  # eight clients: so many were in flight
    assert split.servers[dying.name] == 0
    until(lambda: envoy_weights(world.envoy, POOL)[key(dying)] == 0, within_s=10, what="draining")
    took_s = time.monotonic() - killed_at
    assert world.weights(POOL)[key(dying)]["reason"] == "draining"
    assert took_s < 2 * HEALTH_S + 1.0, f"{took_s:.1f} s"  # a check may just have passed; then two must fail
    assert not generate(world.envoy.port, 100).failures
