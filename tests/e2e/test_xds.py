"""The real Envoy follows: weights under load, refusals, restarts, changes of everything, and files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from extproc.codec.xds import encode
from extproc.edge.xds_files import XdsFiles
from extproc.model.xds import Kind, Resources
from tests.e2e.ads import (
    ADS,
    Clients,
    ControlPlane,
    Envoy,
    Upstream,
    assignment,
    bootstrap,
    cluster,
    from_files,
    until,
    world,
)

TEMPLATE = Path(__file__).parents[2] / "envoy" / "envoy.yaml"


@dataclass
class Followed:
    """Three engines, a control plane and an Envoy that serves all three equally."""

    engines: tuple[Upstream, ...]
    control: ControlPlane
    envoy: Envoy

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(engine.port for engine in self.engines)

    def pool(self, *weights: int) -> dict[int, int]:
        return dict(zip(self.ports, weights, strict=True))


@pytest.fixture
async def followed(tmp_path: Path) -> AsyncIterator[Followed]:
    async with AsyncExitStack() as stack:
        engines = tuple([await stack.enter_async_context(Upstream()) for _ in range(3)])
        control = await stack.enter_async_context(ControlPlane(tmp_path / "control.sock"))
        control.publish(world({"pool": dict.fromkeys((each.port for each in engines), 1)}, to="pool"))
        envoy = await stack.enter_async_context(Envoy(bootstrap(control.socket), tmp_path))
        await envoy.serves()
        yield Followed(engines, control, envoy)


# ── weights ──────────────────────────────────────────────────────────────────────────────────────


async def test_weights_are_followed_under_load_without_a_dropped_connection(followed: Followed) -> None:
    shares = [(1, 1, 1), (600, 300, 100), (10, 20, 970), (100, 100, 800), (600, 300, 100)]
    async with Clients(followed.envoy.port) as clients:
        await clients.more(100)
        for share in shares[1:]:
            wanted = followed.pool(*share)
            await followed.control.accepted(world({"pool": wanted}, to="pool"))
            assert await followed.envoy.weights("pool") == wanted
            total = sum(share)
            answered = await clients.more(total)
            for port, weight in wanted.items():
                expected = weight * answered.total() / total
                assert abs(answered[port] - expected) <= 6, (share, answered)
        assert clients.failed == 0
        assert [engine.closed for engine in followed.engines] == [0, 0, 0]
        assert all(engine.opened <= 4 for engine in followed.engines), "one a client at most"
    assert followed.control.notes.nacks == []
    eds = [seconds for kind, seconds in followed.control.notes.acks if kind is Kind.EDS]
    assert len(eds) == len(shares)


async def test_two_hundred_pushes_in_a_second(followed: Followed) -> None:
    """Envoy gets the latest, skips what it had no time for, and no request notices."""
    async with Clients(followed.envoy.port) as clients:
        for number in range(1, 201):
            followed.control.publish(world({"pool": followed.pool(number, 201, 7)}, to="pool"))
            await asyncio.sleep(0.005)
        await until(lambda: followed.control.notes.acks[-1][0] is Kind.EDS, what="the last answer")
        await clients.more(50)
        assert clients.failed == 0
    assert await followed.envoy.weights("pool") == followed.pool(200, 201, 7)
    assert followed.control.notes.pushes[Kind.CDS] == 1, "a weight is no change of a cluster"


async def test_an_unchanged_world_is_not_pushed(followed: Followed) -> None:
    before = followed.control.notes.pushes.total()
    for _ in range(5):
        followed.control.publish(world({"pool": followed.pool(1, 1, 1)}, to="pool"))
        await asyncio.sleep(0.02)
    assert followed.control.notes.pushes.total() == before


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_bad_push_is_refused_reported_and_survived(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    """`check` would have refused both: here Envoy has to."""
    notes = followed.control.notes
    async with Clients(followed.envoy.port) as clients:
        await followed.control.accepted(world({"pool": followed.pool(1, 0, 1)}, to="pool"))
        (refusal,) = notes.nacks
        assert refusal[:2] == (Kind.EDS, "llm-1 (llm)")
        assert "LoadBalancingWeight" in refusal[2]
        assert await followed.envoy.weights("pool") == followed.pool(1, 1, 1)

        await followed.control.accepted(world({"pool": followed.pool(3, 2, 1)}, to="pool"))
        assert await followed.envoy.weights("pool") == followed.pool(3, 2, 1)

        bad = {"pool": followed.pool(3, 2, 1), "new": followed.pool(1, 1, 1)}
        await followed.control.accepted(world(bad, to="new", connect_timeout="-1s"))
        assert notes.nacks[1][0] is Kind.CDS
        assert "Expected positive duration" in notes.nacks[1][2]
        await asyncio.sleep(0.2)
        assert len(notes.nacks) == 2, "what was refused is not sent again"

        await followed.control.accepted(world(bad, to="new"))
        assert len(notes.nacks) == 2
        assert await followed.envoy.weights("new") == followed.pool(1, 1, 1)
        await clients.more(100)
        assert clients.failed == 0
    errors = [
        record.getMessage()
        for record in caplog.records
        if record.name == "extproc.xds" and record.levelno >= logging.ERROR
    ]
    assert len(errors) == 2
    assert all(reason in line for line, (_, _, reason) in zip(errors, notes.nacks, strict=True))


async def test_one_bad_pool_does_not_hold_back_the_weights_of_another(followed: Followed) -> None:
    pools = {"pool": followed.pool(1, 1, 1), "other": followed.pool(1, 1, 1)}
    await followed.control.accepted(world(pools, to="pool"))
    await followed.control.accepted(
        world({"pool": followed.pool(5, 6, 7), "other": followed.pool(1, 0, 1)}, to="pool")
    )
    await until(lambda: len(followed.control.notes.nacks) == 2, what="refused together, and alone")
    for _ in range(100):
        if await followed.envoy.weights("pool") == followed.pool(5, 6, 7):
            break
        await asyncio.sleep(0.01)
    assert await followed.envoy.weights("pool") == followed.pool(5, 6, 7)
    assert await followed.envoy.weights("other") == followed.pool(1, 1, 1)


# ── changes of everything ────────────────────────────────────────────────────────────────────────


async def test_a_changed_cluster_is_there_at_once_and_loses_no_request(followed: Followed) -> None:
    async with Clients(followed.envoy.port) as clients:
        for most in (100, 200, 300, 400, 500):
            breakers = {"thresholds": [{"max_requests": most}]}
            await followed.control.accepted(
                world({"pool": followed.pool(1, 1, 1)}, to="pool", circuit_breakers=breakers)
            )
            await clients.more(20)
        assert clients.failed == 0
    slowest = max(seconds for kind, seconds in followed.control.notes.acks if kind is Kind.CDS)
    assert slowest < 2, "a cluster that waited for its endpoints would take as long as its first fetch may"
    stats = await followed.envoy.stats("cluster_manager.cluster_modified")
    assert stats["cluster_manager.cluster_modified"] == 5


async def test_traffic_moves_from_cluster_to_cluster_and_no_request_is_stranded(followed: Followed) -> None:
    """Each change takes the cluster away that all requests go to, and brings another."""
    a, b, _ = followed.ports
    async with Clients(followed.envoy.port) as clients:
        for number in range(20):
            name, port = f"pool-{number}", (a, b)[number % 2]
            await followed.control.accepted(world({name: {port: 1}}, to=name))
            await until(lambda name=name: followed.control.board.current.of(Kind.CDS).by_name.keys() == {name})
            await clients.more(20)
        assert clients.failed == 0
    assert followed.control.notes.nacks == []
    names = {name.split(".")[1] for name in await followed.envoy.stats("cluster.pool.*membership_total")}
    assert names == {"pool-19"}, "what left is gone"


async def test_a_cluster_without_endpoints_is_answered(followed: Followed) -> None:
    pools = {"pool": followed.pool(1, 1, 1), "empty": {}}
    resources = world(pools, to="pool")
    without = {name: each for name, each in resources.of(Kind.EDS).items() if name != "empty"}
    await followed.control.accepted(Resources(1, {**resources.by_kind, Kind.EDS: without}))
    stats = await followed.envoy.stats("warming_clusters|cluster.empty.membership_total")
    assert stats == {"cluster_manager.warming_clusters": 0, "cluster.empty.membership_total": 0}


CLOSED = "cluster.pool.upstream_cx_destroy"


async def test_runtime_trips_a_breaker_without_a_new_cluster(followed: Followed) -> None:
    pool = {"pool": followed.pool(1, 1, 1)}
    async with Clients(followed.envoy.port) as clients:
        await clients.more(50)
        closed = await followed.envoy.stats(CLOSED)
        await followed.control.accepted(
            world(pool, to="pool", layer={"circuit_breakers.pool.default.max_requests": 0})
        )
        await until(lambda: clients.statuses[503], what="refused requests")
        await followed.control.accepted(world(pool, to="pool"))
        await clients.more(20)
        before = clients.failed
        await clients.more(200)
        assert clients.failed == before
        # More may be opened, where two requests meet at one engine; none may go.
        assert await followed.envoy.stats(CLOSED) == closed
    assert followed.control.notes.pushes[Kind.CDS] == 1


async def test_envoy_takes_every_route_and_cluster_that_is_shipped(followed: Followed) -> None:
    template = yaml.safe_load(TEMPLATE.read_text())
    manager = template["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    shipped = {each["name"]: each for each in template["static_resources"]["clusters"]}
    by_eds = {
        name: {key: value for key, value in each.items() if key != "load_assignment"}
        | {"type": "EDS", "eds_cluster_config": {"eds_config": ADS}}
        for name, each in shipped.items()
    }
    resources = {
        Kind.CDS: {"pool": cluster("pool"), **by_eds},
        Kind.EDS: {"pool": assignment("pool", followed.pool(1, 1, 1))}
        | {name: {**each["load_assignment"], "cluster_name": name} for name, each in shipped.items()},
        Kind.RDS: {"llm": {**manager["route_config"], "name": "llm"}},
    }
    await followed.control.accepted(Resources(1, resources))
    assert followed.control.notes.nacks == []
    pages = await followed.envoy.admin("/config_dump")
    assert "pool-critical" in pages
    assert (await followed.envoy.stats("cluster_manager.active_clusters"))["cluster_manager.active_clusters"] >= 4


# ── who starts and ends when ─────────────────────────────────────────────────────────────────────


async def test_twenty_restarts_of_the_control_plane_fail_no_request(followed: Followed) -> None:
    """Each begins with nothing, and says nothing before it knows something."""
    notes, pool = followed.control.notes, followed.pool(3, 2, 1)
    async with Clients(followed.envoy.port) as clients:
        for _ in range(20):
            await followed.control.stop()
            await clients.more(5)
            await followed.control.start()
            await until(lambda: notes.open == 1, what="Envoy back")
            await clients.more(5)
            await followed.control.accepted(world({"pool": pool}, to="pool"))
        await clients.more(600)
        assert clients.failed == 0
        assert [engine.closed for engine in followed.engines] == [0, 0, 0]
    assert notes.nacks == []
    assert await followed.envoy.weights("pool") == pool
    stats = await followed.envoy.stats("cluster_manager.cluster_(modified|removed)|cluster.pool.update_no_rebuild")
    assert stats["cluster_manager.cluster_modified"] == stats["cluster_manager.cluster_removed"] == 0
    assert stats["cluster.pool.update_no_rebuild"] >= 19, "told the same again, Envoy rebuilds nothing"


async def test_envoy_before_the_control_plane(tmp_path: Path) -> None:
    control = ControlPlane(tmp_path / "control.sock")
    async with Upstream() as engine, Envoy(bootstrap(control.socket), tmp_path) as envoy:
        await asyncio.sleep(0.5)
        async with control:
            control.publish(world({"pool": {engine.port: 1}}, to="pool"))
            await envoy.serves()


async def test_a_second_envoy_has_another_view(followed: Followed, tmp_path: Path) -> None:
    a, b, c = followed.ports
    control = followed.control
    control.views["edge"] = encode(world({"pool": {c: 1}}, to="pool"))
    async with Envoy(bootstrap(control.socket, node_cluster="edge"), tmp_path) as second:
        await second.serves()
        assert control.notes.open == 2
        async with Clients(second.port) as theirs, Clients(followed.envoy.port) as ours:
            assert set(await theirs.more(30)) == {c}
            assert set(await ours.more(30)) == {a, b, c}
            control.publish(world({"pool": {a: 1, b: 1}}, to="pool"))
            await until(lambda: len([1 for kind, _ in control.notes.acks if kind is Kind.EDS]) == 3)
            await ours.more(10)
            assert set(await ours.more(30)) == {a, b}
            assert set(await theirs.more(30)) == {c}


# ── files ────────────────────────────────────────────────────────────────────────────────────────


async def test_envoy_boots_from_files_with_no_control_plane_and_follows_them(tmp_path: Path) -> None:
    async with Upstream() as one, Upstream() as two:
        failures: list[None] = []
        files = XdsFiles(tmp_path / "xds", on_failure=lambda: failures.append(None))
        files.write(world({"pool": {one.port: 1, two.port: 1}}, to="pool"))
        async with Envoy(from_files(tmp_path / "xds"), tmp_path) as envoy:
            assert await envoy.serves() < 3
            async with Clients(envoy.port) as clients:
                await clients.more(20)
                files.write(world({"pool": {one.port: 7, two.port: 3}}, to="pool"))
                await until_weights(envoy, "pool", {one.port: 7, two.port: 3})
                answered = await clients.more(200)
                assert abs(answered[one.port] - 0.7 * answered.total()) <= 6
                assert [one.closed, two.closed] == [0, 0]

                files.write(world({"pool": {one.port: 7, two.port: 3}, "new": {two.port: 1}}, to="pool"))
                await until_weights(envoy, "new", {two.port: 1})
                files.write(world({"pool": {one.port: 7, two.port: 3}, "new": {two.port: 1}}, to="new"))
                for _ in range(100):
                    if set(await clients.more(20)) == {two.port}:
                        break
                assert set(await clients.more(20)) == {two.port}
                assert clients.failed == 0
    assert failures == []


async def until_weights(envoy: Envoy, name: str, wanted: dict[int, int]) -> None:
    for _ in range(300):
        if await envoy.weights(name) == wanted:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(await envoy.weights(name))
