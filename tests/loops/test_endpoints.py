"""Where endpoints are: files while they are written, names whose answers vary, sources that fail, pools that change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from extproc.loops import endpoints as module
from extproc.loops.endpoints import Endpoints, preferred
from extproc.model.topology import Endpoint
from extproc.pools import Pool
from extproc.settings import load

FILE = "chat.yaml"


def pools(*given: dict[str, Any]) -> list[Pool]:
    named = [{"name": f"p{at}", "engine": "vllm"} | pool for at, pool in enumerate(given)]
    return load(yaml.safe_dump({"pools": named})).pools


IN_FILE = pools({"endpoints_file": FILE})
LISTED = pools({"endpoints": ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]})


def listing(*urls: Any) -> bytes:
    return yaml.safe_dump({"endpoints": list(urls)}).encode()


def urls(count: int) -> list[str]:
    return [f"http://10.0.0.{at + 1}:8000" for at in range(count)]


class World:
    """Files and names that a test changes as it likes, and all that is told."""

    def __init__(self) -> None:
        self.files: dict[str, bytes | OSError] = {}
        self.names: dict[str, list[str] | Exception] = {}
        self.reads: list[str] = []
        self.asked: list[str] = []
        self.changes: list[dict[str, tuple[Endpoint, ...]]] = []
        self.failures: list[tuple[str, str]] = []
        self.hold: asyncio.Event | None = None
        self.endpoints = Endpoints(
            resolve=self.resolve,
            read=self.read,
            changed=lambda: self.changes.append(dict(self.endpoints.current)),
            failed=lambda source, reason: self.failures.append((source, reason)),
        )

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        found = self.files.get(path, FileNotFoundError(2, "No such file or directory"))
        if isinstance(found, OSError):
            raise found
        return found

    async def resolve(self, host: str) -> list[str]:
        self.asked.append(host)
        if self.hold is not None:
            await self.hold.wait()
        found = self.names.get(host, OSError(-2, "Name or service not known"))
        if isinstance(found, Exception):
            raise found
        return list(found)

    async def look(self, content: bytes | None = None, *, times: int = 1) -> list[str]:
        if content is not None:
            self.files[FILE] = content
        for _ in range(times):
            await self.endpoints.look()
        return self.keys()

    def keys(self, pool: str = "p0") -> list[str]:
        return [each.key for each in self.endpoints.current[pool]]


@pytest.fixture
def world() -> World:
    return World()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


# --- listed


async def test_listed_endpoints_are_there_at_once_and_never_change(world: World) -> None:
    await world.endpoints.configure(LISTED)
    assert world.keys() == ["10.0.0.1:8000", "10.0.0.2:8000"]
    await world.look(times=3)
    assert len(world.changes) == 1
    assert (world.reads, world.asked) == ([], [])


# --- a file


async def test_a_file_is_taken_as_it_is_at_the_start(world: World) -> None:
    world.files[FILE] = listing(*urls(3))
    await world.endpoints.configure(IN_FILE)
    assert len(world.keys()) == 3
    assert len(world.changes) == 1


async def test_a_changed_file_counts_once_it_stayed_the_same_for_two_looks(world: World) -> None:
    world.files[FILE] = listing(*urls(3))
    await world.endpoints.configure(IN_FILE)
    assert len(await world.look(listing(*urls(2)))) == 3
    assert len(await world.look()) == 2
    assert len(world.changes) == 2


WHOLE = yaml.safe_dump({"endpoints": [*urls(4), {"address": "engine-5", "http_port": 8000}]}).encode()


@given(st.lists(st.integers(0, len(WHOLE)), min_size=1, max_size=12, unique=True).map(sorted))
@hypothesis_settings(max_examples=60, deadline=None)
def test_a_file_seen_while_it_is_written_changes_nothing(cuts: list[int]) -> None:
    async def run() -> None:
        world = World()
        world.names = {"engine-5": ["10.0.0.5"]}
        world.files[FILE] = before = listing("http://10.9.9.9:1")
        await world.endpoints.configure(IN_FILE)
        await world.look()
        for cut in cuts:
            if WHOLE[:cut] != before:
                assert await world.look(WHOLE[:cut]) == ["10.9.9.9:1"]
            if cut == len(WHOLE):
                break
        assert len(await world.look(WHOLE, times=2)) == 5

    asyncio.run(run())


@pytest.mark.parametrize("cut", range(0, len(WHOLE), 7))
async def test_a_writer_that_stops_midway_is_believed_only_where_it_left_a_valid_file(cut: int) -> None:
    world = World()
    world.files[FILE] = listing("http://10.9.9.9:1")
    await world.endpoints.configure(IN_FILE)
    found = await world.look(WHOLE[:cut], times=3)
    assert found == ["10.9.9.9:1"] or len(found) < 5
    assert found, "a broken file is no empty pool"


async def test_a_config_that_comes_while_the_file_is_written_takes_no_half_of_it(world: World) -> None:
    world.files[FILE] = listing(*urls(3))
    await world.endpoints.configure(IN_FILE)
    world.files[FILE] = listing(*urls(1))
    await world.endpoints.configure(pools({"endpoints_file": FILE}, {"endpoints": ["http://10.0.0.9:1"]}))
    assert len(world.keys("p0")) == 3
    assert world.keys("p1") == ["10.0.0.9:1"]


async def test_two_pools_of_one_file_are_still_one_look(world: World) -> None:
    world.files[FILE] = listing(*urls(3))
    await world.endpoints.configure(pools({"endpoints_file": FILE}, {"endpoints_file": FILE}))
    world.reads.clear()
    assert len(await world.look(listing(*urls(1)))) == 3
    assert world.reads == [FILE]
    await world.look()
    assert len(world.keys("p0")) == len(world.keys("p1")) == 1


async def test_two_looks_at_one_moment_are_two_one_after_the_other(world: World) -> None:
    world.files[FILE] = listing(*urls(3))
    await world.endpoints.configure(IN_FILE)
    world.files[FILE] = listing(*urls(1))
    await asyncio.gather(world.endpoints.configure(IN_FILE), world.endpoints.look())
    assert len(world.changes) <= 2
    assert all(len(each["p0"]) in (1, 3) for each in world.changes)


BROKEN = {
    "not yaml": b"endpoints: [",
    "empty": b"",
    "no endpoints": b"endpoints: []",
    "another key": b"endpoint: [http://10.0.0.1:8000]",
    "a bad port": b"endpoints: ['http://10.0.0.1:99999']",
    "no text": b"\xff\xfe\x00",
    "https": b"endpoints: ['https://10.0.0.1:8000']",
    "too large": b"#" * (1 << 20) + b"\nendpoints: []",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_file_keeps_the_endpoints_and_is_one_line(
    world: World, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    world.files[FILE] = listing(*urls(3))
    await world.endpoints.configure(IN_FILE)
    assert len(await world.look(content, times=5)) == 3
    (line,) = warnings(caplog)
    assert FILE in line
    assert "stay as they were: " in line and not line.endswith(": ")
    assert "\n" not in line
    assert len(world.failures) == 4  # each look that found it broken, the first only found it changed
    assert len(world.changes) == 1


async def test_a_broken_file_is_read_into_endpoints_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    take = module._take
    monkeypatch.setattr(module, "_take", lambda file, content: (parsed.append(content), take(file, content)))
    world.files[FILE] = listing(*urls(3))
    await world.endpoints.configure(IN_FILE)
    await world.look(b"bad: 1", times=5)
    await world.look(listing(*urls(2)), times=5)
    assert len(parsed) == 3


async def test_broken_and_whole_again_is_told_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.files[FILE] = whole = listing(*urls(2))
    await world.endpoints.configure(IN_FILE)
    for content in (b"bad: 1", whole, b"bad: 1"):
        await world.look(content, times=3)
    assert len(warnings(caplog)) == 2
    assert len(world.changes) == 1


async def test_a_file_that_comes_later(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.endpoints.configure(IN_FILE)
    assert world.keys() == []
    await world.look(times=3)
    assert warnings(caplog) == [f"endpoints of {FILE} stay as they were: No such file or directory"]
    assert await world.look(listing(*urls(1))) == []
    assert len(await world.look(listing(*urls(3)))) == 0
    assert len(await world.look()) == 3


async def test_a_file_that_goes_keeps_its_endpoints_and_comes_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.files[FILE] = whole = listing(*urls(3))
    await world.endpoints.configure(IN_FILE)
    for _ in range(2):
        world.files[FILE] = PermissionError(13, "Permission denied")
        assert len(await world.look(times=3)) == 3
        assert len(await world.look(whole, times=2)) == 3
    assert len(warnings(caplog)) == 2
    assert len(world.failures) == 6


async def test_one_address_twice_in_a_file_is_one_endpoint(world: World) -> None:
    world.files[FILE] = listing(*urls(2), *urls(2), {"address": "10.0.0.1", "http_port": 8000, "grpc_port": 8001})
    await world.endpoints.configure(IN_FILE)
    assert world.keys() == ["10.0.0.1:8000", "10.0.0.2:8000"]


async def test_names_in_a_file_are_looked_up(world: World) -> None:
    world.names["engine"] = ["10.0.0.1"]
    world.files[FILE] = listing("http://engine:8000")
    await world.endpoints.configure(IN_FILE)
    assert world.keys() == ["10.0.0.1:8000"]
    world.names["other"] = ["10.0.0.2"]
    assert await world.look(listing("http://engine:8000", "http://other:8000"), times=2) == [
        "10.0.0.1:8000",
        "10.0.0.2:8000",
    ]


# --- names


DNS = pools({"engine": "triton", "endpoints_dns": {"host": "tritons", "http_port": 8000, "grpc_port": 8001}})


async def test_a_name_is_one_endpoint_per_address(world: World) -> None:
    world.names["tritons"] = ["10.0.0.2", "10.0.0.1", "10.0.0.2"]
    await world.endpoints.configure(DNS)
    first, second = world.endpoints.current["p0"]
    assert (first.address, second.address) == ("10.0.0.1", "10.0.0.2")
    assert (first.grpc_port, first.hostname) == (8001, "tritons")
    assert first.metrics_url == "http://10.0.0.1:8002/metrics"


@given(st.permutations(["10.0.0.1", "10.0.0.2", "10.0.0.3", "::1", "10.0.0.2"]))
@hypothesis_settings(max_examples=30, deadline=None)
def test_answers_in_any_order_are_the_same(found: list[str]) -> None:
    assert preferred(found) == ("10.0.0.1", "10.0.0.2", "10.0.0.3")


async def test_answers_in_another_order_are_no_change(world: World) -> None:
    world.names["tritons"] = ["10.0.0.1", "10.0.0.2"]
    await world.endpoints.configure(DNS)
    world.names["tritons"].reverse()
    await world.look(times=2)
    assert len(world.changes) == 1


def test_ipv6_where_there_is_nothing_else() -> None:
    assert preferred(["::2", "::1"]) == ("::1", "::2")
    assert preferred(["::1", "127.0.0.1"]) == ("127.0.0.1",)


async def test_an_ipv6_address_of_a_name(world: World) -> None:
    world.names["tritons"] = ["fd00::1"]
    await world.endpoints.configure(DNS)
    (endpoint,) = world.endpoints.current["p0"]
    assert endpoint.address == "fd00::1"
    assert endpoint.metrics_url == "http://[fd00::1]:8002/metrics"


@pytest.mark.parametrize(
    "problem",
    [OSError(-3, "Temporary failure in name resolution"), UnicodeError("label too long"), TimeoutError(), []],
    ids=["unknown", "no name at all", "late", "without an address"],
)
async def test_a_name_that_is_not_found_keeps_its_addresses_and_is_one_line(
    world: World, caplog: pytest.LogCaptureFixture, problem: Any
) -> None:
    world.names["tritons"] = ["10.0.0.1", "10.0.0.2"]
    await world.endpoints.configure(DNS)
    world.names["tritons"] = problem
    assert len(await world.look(times=3)) == 2
    assert len(warnings(caplog)) == 1
    assert [source for source, _ in world.failures] == ["tritons"] * 3
    world.names["tritons"] = ["10.0.0.3"]
    assert await world.look() == ["10.0.0.3:8000"]
    world.names["tritons"] = problem
    await world.look()
    assert len(warnings(caplog)) == 2


async def test_a_name_that_hangs_holds_up_no_other_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESOLVE_S", 0.05)

    async def resolve(host: str) -> list[str]:
        if host.startswith("hangs"):
            await asyncio.Event().wait()
        return ["10.0.0.1"]

    world.endpoints._resolve = resolve
    hanging = [f"http://hangs-{at}:1" for at in range(module.RESOLVED_AT_ONCE + 3)]
    await world.endpoints.configure(pools({"endpoints": [*hanging, "http://well:8000"]}))
    await world.look(times=2)
    assert world.keys() == ["10.0.0.1:8000"]


async def test_two_names_of_one_address_are_one_endpoint(world: World) -> None:
    world.names = {"a": ["10.0.0.1"], "b": ["10.0.0.1", "10.0.0.2"]}
    await world.endpoints.configure(
        pools({"endpoints": ["http://a:8000", "http://b:8000", "http://10.0.0.2:8000"]})
    )
    assert world.keys() == ["10.0.0.1:8000", "10.0.0.2:8000"]


async def test_one_grpc_address_belongs_to_one_endpoint(world: World) -> None:
    """Envoy would refuse the whole assignment otherwise."""
    given = [{"address": "10.0.0.1", "http_port": port, "grpc_port": 8001} for port in (8000, 8010)]
    await world.endpoints.configure(pools({"engine": "triton", "endpoints": given}))
    assert [each.grpc_port for each in world.endpoints.current["p0"]] == [8001, None]


@pytest.mark.parametrize(
    ("metrics_url", "expected"),
    [
        ("http://node:9400/metrics", "http://10.0.0.1:9400/metrics"),
        ("http://Node/m?a=1", "http://10.0.0.1/m?a=1"),
        ("http://node-exporter:9400/metrics", "http://node-exporter:9400/metrics"),
        ("http://10.9.9.9:9400/metrics", "http://10.9.9.9:9400/metrics"),
        ("https://node:9400/metrics", "https://node:9400/metrics"),  # the certificate is of the name
        (None, "http://10.0.0.1:8000/metrics"),
    ],
)
async def test_metrics_are_where_the_endpoint_is(world: World, metrics_url: str | None, expected: str) -> None:
    world.names["node"] = ["10.0.0.1"]
    given = {"address": "node", "http_port": 8000} | ({"metrics_url": metrics_url} if metrics_url else {})
    await world.endpoints.configure(pools({"endpoints": [given]}))
    (endpoint,) = world.endpoints.current["p0"]
    assert endpoint.metrics_url == expected


async def test_over_tls_metrics_are_asked_for_by_name(world: World) -> None:
    world.names["engine.example"] = ["10.0.0.1"]
    await world.endpoints.configure(pools({"endpoints": ["https://engine.example:8443"]}))
    (endpoint,) = world.endpoints.current["p0"]
    assert (endpoint.address, endpoint.hostname, endpoint.tls) == ("10.0.0.1", "engine.example", True)
    assert endpoint.metrics_url == "https://engine.example:8443/metrics"


async def test_a_name_that_is_an_address_is_not_looked_up(world: World) -> None:
    await world.endpoints.configure(pools({"endpoints_dns": {"host": "[::1]", "http_port": 8000}}))
    assert world.keys() == ["::1:8000"]
    assert world.asked == []


async def test_a_name_of_very_many_addresses_is_bounded(world: World) -> None:
    world.names["tritons"] = [f"10.{at >> 16}.{at >> 8 & 255}.{at & 255}" for at in range(6000)]
    await world.endpoints.configure(DNS)
    assert len(world.keys()) == module.MAX_ENDPOINTS


# --- pools that change


async def test_a_source_that_finds_none_any_more_keeps_what_the_pool_had(world: World) -> None:
    """Not even a valid file of names that nobody knows takes all of a pool away."""
    world.files[FILE] = listing(*urls(3))
    await world.endpoints.configure(IN_FILE)
    assert len(await world.look(listing("http://1:8000"), times=3)) == 3
    await world.endpoints.configure(pools({"endpoints": ["http://unheard-of:8000"]}))
    assert len(world.keys()) == 3
    await world.endpoints.configure(pools({"engine": "llamacpp", "endpoints": ["http://unheard-of:8000"]}))
    assert world.keys() == [], "another engine is another pool"


async def test_pools_that_leave_are_forgotten(world: World) -> None:
    world.files[FILE] = listing(*urls(3))
    await world.endpoints.configure(IN_FILE)
    await world.endpoints.configure(LISTED)
    assert world.keys() == ["10.0.0.1:8000", "10.0.0.2:8000"]
    world.reads.clear()
    await world.look()
    assert world.reads == []
    world.files[FILE] = listing(*urls(1))
    await world.endpoints.configure([])
    await world.endpoints.configure(IN_FILE)
    assert len(world.keys()) == 1, "what an earlier pool read of the file is not believed"


async def test_pools_that_change_while_a_look_is_under_way(world: World) -> None:
    world.names["tritons"] = ["10.0.0.7"]
    await world.endpoints.configure(DNS)
    world.names["tritons"] = ["10.0.0.8"]
    world.hold = asyncio.Event()
    looking = asyncio.create_task(world.endpoints.look())
    await asyncio.sleep(0)
    configuring = asyncio.create_task(world.endpoints.configure(LISTED))
    await asyncio.sleep(0.01)
    assert world.keys() == ["10.0.0.7:8000"]
    world.hold.set()
    await asyncio.gather(looking, configuring)
    assert world.keys() == ["10.0.0.1:8000", "10.0.0.2:8000"]
    assert len(world.changes) == 2, "the look at pools that left told nothing"


async def test_no_pools_at_all(world: World) -> None:
    await world.endpoints.configure([])
    assert world.endpoints.current == {}
    assert world.changes == []


# --- by itself


async def ran(world: World, until: Callable[[], bool]) -> None:
    task = asyncio.create_task(world.endpoints.run(0.001))
    async with asyncio.timeout(5):
        while not until():
            await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_files_are_followed_closely_and_names_when_it_is_their_time(world: World) -> None:
    world.names["tritons"] = ["10.0.0.1"]
    world.files[FILE] = listing(*urls(1))
    both = pools({"endpoints_file": FILE}, DNS[0].model_dump(exclude_none=True, exclude={"name"}, mode="json"))
    await world.endpoints.configure(both, names_s=0.01)
    world.reads.clear()
    world.asked.clear()
    await ran(world, lambda: len(world.asked) == 3)
    assert len(world.reads) >= 25


async def test_a_name_without_an_address_is_looked_up_each_time(world: World) -> None:
    await world.endpoints.configure(DNS, names_s=1e9)
    await ran(world, lambda: len(world.asked) > 3)
    world.names["tritons"] = ["10.0.0.1"]
    await ran(world, lambda: world.keys() == ["10.0.0.1:8000"])
    asked = len(world.asked)
    await world.endpoints.look(names=False)
    assert len(world.asked) == asked


async def test_a_bug_in_a_look_is_not_the_end(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.names["tritons"] = ["10.0.0.1"]
    await world.endpoints.configure(DNS, names_s=0.001)
    world.names["tritons"] = KeyError("x")
    await ran(world, lambda: bool(caplog.records))
    assert caplog.records[0].exc_info is not None
    world.names["tritons"] = ["10.0.0.2"]
    await ran(world, lambda: world.keys() == ["10.0.0.2:8000"])
