"""Pools as the config names them: what is right, and every mistake with its path."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extproc.errors import ConfigError, Problem
from extproc.model.names import Engine
from extproc.model.topology import Endpoint, Role
from extproc.pools import (
    MAX_ENDPOINTS,
    EndpointConfig,
    Hardware,
    Pool,
    PoolLimits,
    endpoint,
    metrics_url,
    parse_endpoints,
    problems,
    specs,
    unique,
)
from extproc.settings import load

SHIPPED = load("")
URL = "http://10.0.0.1:8000"
LONG = {"address": "10.0.0.1", "http_port": 8000}


def told(**pool: Any) -> list[tuple[str, str]]:
    """The mistakes of a config with this one pool, below `pools.0`."""
    whole = {"name": "a", "engine": "vllm"} | pool
    with pytest.raises(ConfigError) as refusal:
        load(yaml.safe_dump({"pools": [whole]}))
    found = [(problem.path, problem.message) for problem in refusal.value.problems]
    assert all(path.startswith("pools.0") for path, _ in found)
    return [(path.removeprefix("pools.0").removeprefix("."), message) for path, message in found]


def only(**pool: Any) -> Pool:
    """The one pool of a config."""
    loaded = load(yaml.safe_dump({"pools": [{"name": "a", "engine": "vllm"} | pool]}))
    return loaded.pools[0]


# ── where endpoints come from ────────────────────────────────────────────────────────────────────

SOURCES: dict[str, Any] = {
    "endpoints": [URL],
    "endpoints_file": "a.yaml",
    "endpoints_dns": {"host": "vllm.internal", "http_port": 8000},
}


@pytest.mark.parametrize("source", SOURCES)
def test_one_source(source: str) -> None:
    assert getattr(only(**{source: SOURCES[source]}), source) is not None


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["endpoints", "endpoints_file"],
        ["endpoints", "endpoints_dns"],
        ["endpoints_file", "endpoints_dns"],
        [*SOURCES],
    ],
)
def test_never_none_and_never_more(given: list[str]) -> None:
    assert told(**{source: SOURCES[source] for source in given}) == [
        ("", "allowed: exactly one of endpoints, endpoints_file, endpoints_dns")
    ]


def test_only_what_stands_in_the_config_is_listed() -> None:
    assert only(endpoints=[URL]).listed() == (Endpoint("10.0.0.1", 8000),)
    assert only(endpoints_file="a.yaml").listed() == ()
    assert only(endpoints_dns=SOURCES["endpoints_dns"]).listed() == ()


@pytest.mark.parametrize(
    ("dns", "path"),
    [
        ({"host": "h"}, "http_port"),
        ({"http_port": 1}, "host"),
        ({"host": "h", "http_port": 0}, "http_port"),
        ({"host": "h", "http_port": 1, "grpc_port": 65536}, "grpc_port"),
        ({"host": "h", "http_port": 1, "metrics_port": "9"}, "metrics_port"),
        ({"host": "a b", "http_port": 1}, "host"),
        ({"host": "http://h", "http_port": 1}, "host"),
        ({"host": "h", "http_port": 1, "port": 2}, "port"),
    ],
)
def test_a_mistake_in_a_dns_source(dns: dict[str, Any], path: str) -> None:
    assert [found for found, _ in told(endpoints_dns=dns)] == [f"endpoints_dns.{path}"]


# ── an endpoint ──────────────────────────────────────────────────────────────────────────────────

GOOD = {
    "http://127.0.0.1:8000": Endpoint("127.0.0.1", 8000),
    "http://engine": Endpoint("engine", 80),
    "https://engine": Endpoint("engine", 443, tls=True),
    "https://engine:8443/": Endpoint("engine", 8443, tls=True),
    "http://[::1]:65535": Endpoint("::1", 65535),
    "HTTP://Engine:1": Endpoint("engine", 1),
}


@pytest.mark.parametrize("url", GOOD)
def test_a_url(url: str) -> None:
    assert endpoint(url) == GOOD[url]
    assert only(endpoints=[url]).listed() == (GOOD[url],)


BAD = [
    *("", "engine:8000", "ftp://h:1", "http://", "http://:80", "http://h:99999", "http://h:-1", "http://h:x"),
    *("http://h:0", "http://h:1/v1", "http://h:1?x=1", "http://h:1#x", "http://user:word@h:1", "http://[::1"),
]


@pytest.mark.parametrize("url", BAD)
def test_no_url(url: str) -> None:
    assert told(endpoints=[URL, url]) == [
        (
            "endpoints.1",
            "allowed: http://host:port or https://host:port (ports 1 to 65535), without a path or user",
        )
    ]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (LONG, Endpoint("10.0.0.1", 8000)),
        (LONG | {"address": "[::1]"}, Endpoint("::1", 8000)),
        (LONG | {"address": "fd00::1"}, Endpoint("fd00::1", 8000)),
        (LONG | {"address": "triton-0.triton"}, Endpoint("triton-0.triton", 8000)),
        (LONG | {"metrics_url": "http://h:1/m?x=1"}, Endpoint("10.0.0.1", 8000, None, "http://h:1/m?x=1")),
        (LONG | {"grpc_port": 8001}, Endpoint("10.0.0.1", 8000, 8001)),
    ],
)
def test_a_longer_form(given: dict[str, Any], found: Endpoint) -> None:
    assert endpoint(EndpointConfig.model_validate(given)) == found
    assert only(engine="triton", endpoints=[given]).listed() == (found,)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({}, ["address", "http_port"]),
        ({"address": "h"}, ["http_port"]),
        (LONG | {"http_port": 0}, ["http_port"]),
        (LONG | {"http_port": 70000}, ["http_port"]),
        (LONG | {"http_port": "8000"}, ["http_port"]),
        (LONG | {"grpc_port": 0}, ["grpc_port"]),
        (LONG | {"address": "h/x"}, ["address"]),
        (LONG | {"address": ""}, ["address"]),
        (LONG | {"address": "a:1"}, ["address"]),
        (LONG | {"address": "10.0.0.1:80"}, ["address"]),
        (LONG | {"address": "[::1"}, ["address"]),
        (LONG | {"address": "[h]"}, ["address"]),
        (LONG | {"address": "h\n"}, ["address"]),
        (LONG | {"address": "http://h"}, ["address"]),
        (LONG | {"metrics_url": "/metrics"}, ["metrics_url"]),
        (LONG | {"metrics_url": "ftp://h/metrics"}, ["metrics_url"]),
        (LONG | {"port": 1}, ["port"]),
        (LONG | {"port": 1, "grpc_port": 0}, ["grpc_port", "port"]),
    ],
)
def test_a_mistake_in_a_longer_form_is_told_once_and_at_its_key(given: dict[str, Any], path: list[str]) -> None:
    assert [found for found, _ in told(endpoints=[URL, given])] == [f"endpoints.1.{each}" for each in path]


@pytest.mark.parametrize("given", [5, None, [URL], True])
def test_neither_form(given: Any) -> None:
    assert [path for path, _ in told(endpoints=[given])] == ["endpoints.0"]


@pytest.mark.parametrize("given", [[], "http://h:1", {"a": 1}, [URL] * (MAX_ENDPOINTS + 1)])
def test_no_list(given: Any) -> None:
    assert [path for path, _ in told(endpoints=given)] == ["endpoints"]


# ── lists from elsewhere ─────────────────────────────────────────────────────────────────────────


def test_a_files_list() -> None:
    tree = {"endpoints": [URL, LONG | {"address": "b", "grpc_port": 8001}, "http://c"]}
    assert parse_endpoints(tree) == (
        Endpoint("10.0.0.1", 8000),
        Endpoint("b", 8000, 8001),
        Endpoint("c", 80),
    )


def test_a_file_may_name_one_twice() -> None:
    """A generator's slip is no reason to keep an old list: the first is taken."""
    tree = {"endpoints": [URL, LONG | {"metrics_url": "http://h/m"}]}
    assert parse_endpoints(tree) == (Endpoint("10.0.0.1", 8000),)


def test_a_file_cannot_bring_tls() -> None:
    """It belongs to the cluster, which follows from the config."""
    with pytest.raises(ConfigError) as refusal:
        parse_endpoints({"endpoints": [URL, "https://c"]})
    assert [problem.path for problem in refusal.value.problems] == ["endpoints"]


@pytest.mark.parametrize(
    ("tree", "paths"),
    [
        (None, [""]),
        ("", [""]),
        ([URL], [""]),
        ({}, ["endpoints"]),
        ({"endpoints": [], "more": 1}, ["endpoints", "more"]),
        ({"endpoints": [URL] * (MAX_ENDPOINTS + 1)}, ["endpoints"]),
        ({"endpoints": ["h:1"]}, ["endpoints.0"]),
        (
            {"endpoints": [URL, "x", LONG | {"http_port": 0, "x": 1}, 5]},
            ["endpoints.1", "endpoints.2.http_port", "endpoints.2.x", "endpoints.3"],
        ),
    ],
)
def test_every_mistake_of_a_file_is_told_at_once(tree: Any, paths: list[str]) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_endpoints(tree)
    assert [problem.path for problem in refusal.value.problems] == paths
    told = [problem.message for problem in refusal.value.problems]
    assert all(message.startswith(("allowed: ", "unknown key", "Field required")) for message in told)


ENDPOINTS = st.builds(Endpoint, st.sampled_from("abc"), st.integers(1, 3), st.none() | st.integers(1, 2))


@given(st.lists(ENDPOINTS))
def test_each_address_and_port_once_as_its_first_is_given(given: list[Endpoint]) -> None:
    found = unique(given)
    keys = [each.key for each in given]
    assert [each.key for each in found] == list(dict.fromkeys(keys))
    assert all(each is given[keys.index(each.key)] for each in found)
    assert unique(iter(given)) == found == unique(found)


# ── metrics ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "engine", "url"),
    [
        (Endpoint("10.0.0.1", 8000), Engine.VLLM, "http://10.0.0.1:8000/metrics"),
        (Endpoint("h", 8080), Engine.LLAMACPP, "http://h:8080/metrics"),
        (Endpoint("h", 8000, 8001), Engine.TRITON, "http://h:8002/metrics"),
        (Endpoint("::1", 8000), Engine.VLLM, "http://[::1]:8000/metrics"),
        (Endpoint("h", 443, tls=True), Engine.VLLM, "https://h:443/metrics"),
        (Endpoint("h", 1, metrics_url="http://other:9/x"), Engine.TRITON, "http://other:9/x"),
        (Endpoint("10.0.0.1", 8000, hostname="h"), Engine.VLLM, "http://10.0.0.1:8000/metrics"),
    ],
)
def test_where_metrics_are(given: Endpoint, engine: Engine, url: str) -> None:
    assert metrics_url(given, engine) == url


# ── defaults ─────────────────────────────────────────────────────────────────────────────────────


def test_what_a_pool_leaves_out_comes_from_the_defaults() -> None:
    (spec,) = specs([only(endpoints=[URL])], SHIPPED.pool_defaults, SHIPPED.variants)
    assert (spec.name, spec.engine, spec.role) == ("a", Engine.VLLM, Role.STABLE)
    assert (spec.max_concurrency, spec.max_requests, spec.max_acceptable_p99_s) == (64, 4096, 1.8)
    assert (spec.variant, spec.accuracy, spec.hardware) == ("fp16", 1.0, "")


def test_what_a_pool_says_wins() -> None:
    pool = only(
        endpoints=[URL],
        role="light",
        limits={"max_concurrency": 3, "max_requests": 9},
        max_acceptable_p99_ms=250,
        variant="awq-4bit",
        hardware={"generation": "a100", "memory_gb": 80},
    )
    (spec,) = specs([pool], SHIPPED.pool_defaults, SHIPPED.variants)
    assert (spec.role, spec.max_concurrency, spec.max_requests) == (Role.LIGHT, 3, 9)
    assert spec.max_acceptable_p99_s == 0.25
    assert (spec.variant, spec.accuracy, spec.hardware) == ("awq-4bit", 0.982, "a100/80GB")
    assert pool.limits == PoolLimits(max_concurrency=3, max_requests=9)
    assert pool.hardware == Hardware(generation="a100", memory_gb=80)


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"role": "spare"}, "role"),
        ({"limits": {"max_concurrency": 3}}, "limits.max_requests"),
        ({"limits": {"max_concurrency": 0, "max_requests": 1}}, "limits.max_concurrency"),
        ({"max_acceptable_p99_ms": 0}, "max_acceptable_p99_ms"),
        ({"hardware": {"generation": "a100"}}, "hardware.memory_gb"),
        ({"hardware": {"generation": "a100", "memory_gb": 0}}, "hardware.memory_gb"),
        ({"tokenizer": ""}, "tokenizer"),
        ({"name": "A b"}, "name"),
        ({"engine": "tgi"}, "engine"),
    ],
)
def test_a_mistake_in_a_pool(more: dict[str, Any], path: str) -> None:
    assert [found for found, _ in told(endpoints=[URL], **more)] == [path]


# ── between pools ────────────────────────────────────────────────────────────────────────────────


def checked(*pools: dict[str, Any], variant: str = "fp16") -> list[Problem]:
    """Mistakes between these pools; each is vLLM at one address unless it says otherwise."""
    made = [
        Pool.model_validate({"name": f"p{number}", "engine": "vllm", "endpoints": [URL]} | pool)
        for number, pool in enumerate(pools)
    ]
    defaults = SHIPPED.pool_defaults.model_copy(update={"variant": variant})
    return list(problems(made, defaults, SHIPPED.variants))


def test_pools_that_agree() -> None:
    assert checked() == []
    assert (
        checked(
            {"model_family": "qwen", "tokenizer": "q2"},
            {"model_family": "qwen", "tokenizer": "q2", "engine": "llamacpp"},
            {"model_family": "qwen"},
            {"model_family": "llama", "tokenizer": "l3"},
            {"tokenizer": "other", "variant": "mixed"},
            {"endpoints": ["https://a", "https://a:8443"]},
            {"engine": "triton", "endpoints": [LONG | {"grpc_port": 8001}]},
        )
        == []
    )


TRITON = {"engine": "triton"}


@pytest.mark.parametrize(
    ("pools", "path", "name"),
    [
        (({"name": "a"}, {}, {"name": "a"}), "pools.2.name", "a"),
        (({"name": "a"} | TRITON, {"name": "a-grpc"}), "pools.1.name", "a-grpc"),
        (({"name": "a-grpc"}, {"name": "a"} | TRITON), "pools.1.name", "a-grpc"),
        (({"name": "a"} | TRITON, {"name": "a"} | TRITON), "pools.1.name", "a"),
    ],
)
def test_a_name_of_a_cluster_stands_twice(pools: tuple[dict[str, Any], ...], path: str, name: str) -> None:
    assert checked(*pools) == [Problem(path, f"the name {name!r} stands twice")]


def test_only_triton_takes_the_second_name() -> None:
    assert checked({"name": "a"}, {"name": "a-grpc"}) == []


@pytest.mark.parametrize("name", ["llm_control", "llm_x"])
def test_a_name_of_our_own_clusters(name: str) -> None:
    assert checked({}, {"name": name}) == [
        Problem("pools.1.name", "names starting with llm_ are taken by our own clusters")
    ]


def test_an_unknown_variant() -> None:
    allowed = "allowed: fp16, awq-4bit, gptq-4bit, mixed"
    assert checked({}, {"variant": "int2"}) == [Problem("pools.1.variant", f"no variant 'int2'; {allowed}")]
    assert checked({}, variant="int2") == [Problem("pool_defaults.variant", f"no variant 'int2'; {allowed}")]


def test_two_tokenizers_in_one_family() -> None:
    assert checked(
        {"model_family": "qwen"},
        {"model_family": "qwen", "tokenizer": "q2"},
        {"model_family": "llama", "tokenizer": "q3"},
        {"model_family": "qwen", "tokenizer": "q3"},
    ) == [Problem("pools.3.tokenizer", "allowed: 'q2', as pool 'p1' of the family 'qwen' has it")]


def test_one_cluster_has_one_transport() -> None:
    assert checked({}, {"endpoints": ["http://a", "https://b"]}) == [
        Problem("pools.1.endpoints", "allowed: all http or all https, one cluster has one transport")
    ]


def test_one_cluster_checks_one_name() -> None:
    assert checked({}, {"endpoints": ["https://a", "https://b"]}) == [
        Problem("pools.1.endpoints", "allowed: one name for all https, one cluster checks one name")
    ]


@pytest.mark.parametrize("twice", [[URL, URL], [URL, LONG], ["http://h", "http://H:80/"]])
def test_an_endpoint_stands_twice(twice: list[Any]) -> None:
    assert checked({}, {"endpoints": twice}) == [Problem("pools.1.endpoints", "an address and port stands twice")]


@pytest.mark.parametrize("engine", [engine for engine in Engine if engine is not Engine.TRITON])
def test_a_grpc_port_is_tritons(engine: Engine) -> None:
    assert checked({"engine": engine.value, "endpoints": [LONG | {"grpc_port": 1}]}) == [
        Problem("pools.0.endpoints", "grpc_port is for the engine triton alone")
    ]


def test_several_mistakes_are_told_at_once() -> None:
    found = checked(
        {"name": "llm_a", "variant": "x"},
        {"name": "llm_a", "endpoints": [URL, URL, "https://b"]},
        variant="y",
    )
    assert [problem.path for problem in found] == [
        "pools.0.name",
        "pools.1.name",
        "pools.1.name",
        "pool_defaults.variant",
        "pools.0.variant",
        "pools.1.endpoints",
        "pools.1.endpoints",
    ]
