"""The config: the shipped one, a user's over it, and every mistake told at once."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extproc.errors import ConfigError
from extproc.settings import (
    NEEDS_RESTART,
    SecretRef,
    Secrets,
    Settings,
    changed_needing_restart,
    defaults_text,
    load,
    merged,
    snapshot,
)

SHIPPED = load("")


def problems(text: bytes | str) -> dict[str, str]:
    with pytest.raises(ConfigError) as refusal:
        load(text)
    found = refusal.value.problems
    assert len({problem.path for problem in found}) == len(found)
    return {problem.path: problem.message for problem in found}


# --- what is right


@pytest.mark.parametrize("text", ["", "{}", "# nothing\n", "---\n", "null", b"", b"\xef\xbb\xbf{}"])
def test_the_shipped_config_is_right_as_it_stands(text: bytes | str) -> None:
    assert load(text) == SHIPPED


def test_the_shipped_config_over_itself_is_itself() -> None:
    assert load(defaults_text()) == SHIPPED


def test_the_block_of_the_parameters_is_taken_as_it_stands() -> None:
    loaded = load(
        """
inference_params:
  max_tokens: {default: 256, streaming_threshold: 200, whitelist: ["legal"]}
  temperature: {strict: 0.3, normal: 0.7, creative: 0.9}
  batch: {min_size: 2, max_size: 8, timeout_ms: 50}
"""
    )
    assert loaded == SHIPPED
    assert loaded.parameters().version() == SHIPPED.parameters().version()


def test_shipped_values() -> None:
    assert (SHIPPED.unknown_paths, SHIPPED.encoded_bodies, SHIPPED.failure_mode) == ("reject", "reject", "open")
    assert (SHIPPED.limits.max_body_bytes, SHIPPED.limits.max_keys) == (16 << 20, 4096)
    assert SHIPPED.listeners.model_dump() == {
        "ext_proc": "unix:extproc.sock",
        "control": "unix:control.sock",
        "admin": "127.0.0.1:9902",
        "metrics": None,
        "envoy": "127.0.0.1:10000",
        "envoy_admin": "unix:envoy-admin.sock",
    }
    assert (SHIPPED.trust.tokens, SHIPPED.trust.sources, SHIPPED.trust.identities) == ([], [], [])
    assert (SHIPPED.tenants.keys, SHIPPED.tenants.classes, SHIPPED.pools) == ([], {}, [])
    assert SHIPPED.engines.vllm.schedules_by_priority is False
    assert [(m.name, m.match, m.context_window, m.max_output_tokens) for m in SHIPPED.models] == [
        ("llama-70b", ["*70b*", "*70B*"], 32768, 2048)
    ]


def test_every_default_listens_on_loopback_or_a_socket() -> None:
    for address in SHIPPED.listeners.model_dump().values():
        assert address is None or address.startswith(("127.0.0.1:", "unix:"))


# --- merging


def test_mappings_merge_and_lists_are_replaced() -> None:
    loaded = load(
        """
inference_params: {temperature: {strict: 0.1}, max_tokens: {whitelist: [payment]}}
scenarios: {general: {length: 77}, gifts: {tier: creative}}
models: []
"""
    )
    temperature = loaded.inference_params.temperature
    assert (temperature.strict, temperature.normal, temperature.creative) == (0.1, 0.7, 0.9)
    assert loaded.inference_params.max_tokens.whitelist == ["payment"]
    assert loaded.inference_params.max_tokens.default == 256
    assert (loaded.scenarios["general"].tier, loaded.scenarios["general"].length) == ("normal", 77)
    assert loaded.scenarios.keys() == SHIPPED.scenarios.keys() | {"gifts"}
    assert loaded.models == []


@pytest.mark.parametrize(
    ("base", "over", "result"),
    [
        ({}, {}, {}),
        ({"a": 1}, {}, {"a": 1}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
        ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": 1}}),
        ({"a": {"b": 1}}, {"a": 5}, {"a": 5}),
        ({"a": 5}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": [{"b": 1}]}, {"a": [{"c": 1}]}, {"a": [{"c": 1}]}),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {"d": 2}}}, {"a": {"b": {"c": 1, "d": 2}}}),
    ],
)
def test_merged(base: dict[str, Any], over: dict[str, Any], result: dict[str, Any]) -> None:
    before = yaml.safe_dump(base)
    assert merged(base, over) == result
    assert yaml.safe_dump(base) == before


TREES: st.SearchStrategy[Any] = st.recursive(
    st.integers() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), TREES, max_size=3)


@given(MAPPINGS, MAPPINGS, MAPPINGS)
def test_merging_laws(one: dict[str, Any], two: dict[str, Any], three: dict[str, Any]) -> None:
    assert merged(one, {}) == merged({}, one) == merged(one, one) == one
    assert merged(merged(one, two), two) == merged(one, two)
    assert merged(one, two).keys() == one.keys() | two.keys()
    kept = [key for key in one if key not in two]
    assert {key: merged(merged(one, two), three)[key] for key in kept if key not in three} == {
        key: one[key] for key in kept if key not in three
    }


# --- mistakes

MISTAKES: list[tuple[str, str, str, str]] = [
    ("unknown_at_top", "nonsense: 1", "nonsense", "unknown key"),
    ("unknown_inside", "limits: {max_body: 1}", "limits.max_body", "unknown key"),
    ("unknown_deep", "inference_params: {batch: {min: 1}}", "inference_params.batch.min", "unknown key"),
    (
        "unknown_in_list",
        "pools: [{name: a, engine: vllm, endpoints: ['http://h:1'], x: 1}]",
        "pools.0.x",
        "unknown key",
    ),
    ("a_unit", "limits: {max_body_bytes: 16MiB}", "limits.max_body_bytes", "allowed: a valid integer"),
    ("a_duration", "shutdown_grace_s: 30s", "shutdown_grace_s", "allowed: a valid number"),
    ("a_string_number", "limits: {max_keys: '99'}", "limits.max_keys", "allowed: a valid integer"),
    ("a_fraction", "limits: {max_keys: 99.5}", "limits.max_keys", "allowed: a valid integer"),
    (
        "too_small",
        "limits: {max_body_bytes: 10}",
        "limits.max_body_bytes",
        "allowed: greater than or equal to 1024",
    ),
    ("too_large", "shutdown_grace_s: 3601", "shutdown_grace_s", "allowed: less than or equal to 3600"),
    ("not_finite", "shutdown_grace_s: .inf", "shutdown_grace_s", "allowed: a finite number"),
    ("a_word", "unknown_paths: maybe", "unknown_paths", "allowed: 'pass' or 'reject'"),
    ("a_boolean_word", "failure_mode: on", "failure_mode", "allowed: 'open' or 'closed'"),
    (
        "an_engine",
        "pools: [{name: a, engine: tgi, endpoints: ['http://h:1']}]",
        "pools.0.engine",
        "allowed: 'triton', 'vllm' or 'llamacpp'",
    ),
    ("missing", "pools: [{name: a, endpoints: ['http://h:1']}]", "pools.0.engine", "Field required"),
    (
        "no_endpoints",
        "pools: [{name: a, engine: vllm}]",
        "pools.0",
        "allowed: exactly one of endpoints, endpoints_file, endpoints_dns",
    ),
    (
        "a_network",
        "trust: {sources: [10.0.0.1/8]}",
        "trust.sources.0",
        "allowed: an IP network such as 10.1.0.0/16 or ::1/128",
    ),
    ("a_secret_in_clear", "trust: {tokens: [s3cret]}", "trust.tokens.0", ""),
    ("a_secret_value", "trust: {tokens: [{value: s3cret}]}", "trust.tokens.0.value", "unknown key"),
    (
        "a_secret_twice",
        "trust: {tokens: [{env: A, file: /b}]}",
        "trust.tokens.0",
        "allowed: exactly one of env, file",
    ),
    ("a_secret_nowhere", "tenants: {keys: [{}]}", "tenants.keys.0", "allowed: exactly one of env, file"),
    ("an_address", "listeners: {ext_proc: extproc.sock}", "listeners.ext_proc", "allowed: unix:PATH or HOST:PORT"),
    (
        "an_address_without_path",
        "listeners: {ext_proc: 'unix:'}",
        "listeners.ext_proc",
        "allowed: unix:PATH or HOST:PORT",
    ),
    ("a_port", "listeners: {ext_proc: '127.0.0.1:65536'}", "listeners.ext_proc", "allowed: unix:PATH or HOST:PORT"),
    ("no_host", "listeners: {ext_proc: ':80'}", "listeners.ext_proc", "allowed: unix:PATH or HOST:PORT"),
    ("a_control_address", "listeners: {control: 9000}", "listeners.control", "allowed: a valid string"),
    (
        "neutral_before_stale",
        "telemetry: {stale_after_intervals: 6}",
        "telemetry.neutral_after_intervals",
        "allowed: above stale_after_intervals (6)",
    ),
    ("no_term", "weights: {memory: 0, latency: 0}", "weights", "allowed: at least one of memory, latency above 0"),
    ("slow_health", "health: {interval_s: 0.5}", "health.timeout_s", "allowed: at most interval_s (0.5)"),
    (
        "an_unknown_term",
        "telemetry: {prometheus: {url: 'http://p:9090', label: instance, queries: {qps: up}}}",
        "telemetry.prometheus.queries.qps",
        "no such term; allowed: memory, kv_usage, gpu_utilisation, sm_utilisation, running, waiting, p99_s, p999_s, "
        "ttft_p99_s, fragmentation, prefix_hit_rate",
    ),
    ("no_socket_here", "listeners: {admin: 'unix:a.sock'}", "listeners.admin", "allowed: HOST:PORT"),
    ("no_socket_for_metrics", "listeners: {metrics: 'unix:a.sock'}", "listeners.metrics", "allowed: HOST:PORT"),
    ("a_path", "extra_paths: [v1/x]", "extra_paths.0", "allowed: a path, or a prefix ending in *"),
    (
        "a_star_inside",
        "extra_paths: ['/a', '/v1/*/x']",
        "extra_paths.1",
        "allowed: a path, or a prefix ending in *",
    ),
    ("a_header", "tenants: {key_header: X-Key}", "tenants.key_header", ""),
    (
        "a_class",
        "tenants: {classes: {shop: high}}",
        "tenants.classes.shop",
        "allowed: 'critical', 'normal' or 'best-effort'",
    ),
    ("a_list", "models: {name: a}", "models", "allowed: a valid list"),
    ("emptied", "limits: null", "limits", ""),
    ("no_pattern", "models: [{name: a, match: []}]", "models.0.match", ""),
    ("a_name", "parameter_set: Two Words", "parameter_set", ""),
    ("a_number_for_a_name", "parameter_set: 12", "parameter_set", "allowed: a valid string"),
    ("a_place", "default_model: {triton: {generate_place: body}}", "default_model.triton.generate_place", ""),
]


@pytest.mark.parametrize(
    ("text", "path", "message"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES]
)
def test_a_mistake_is_told_with_its_path_and_what_is_allowed(text: str, path: str, message: str) -> None:
    found = problems(text)
    assert list(found) == [path]
    assert found[path]
    if message:
        assert found[path] == message
    assert "s3cret" not in found[path]


TWO_POOLS = """
pools:
  - {name: chat, engine: vllm, endpoints: ['http://h:1']}
  - {name: spare, engine: vllm, endpoints: ['http://h:2'], role: canary}
"""
TWO_STABLE = TWO_POOLS.replace("spare", "code").replace(", role: canary", "")

CROSS: list[tuple[str, str, str, str]] = [
    (
        "whitelist",
        "inference_params: {max_tokens: {whitelist: [legal, nope]}}",
        "inference_params.max_tokens.whitelist.1",
        "no scenario 'nope'; allowed: general, order_query, returns, payment, legal, recommendation, copywriting",
    ),
    (
        "rule",
        "classify: {rules: [{name: a, pattern: x, tier: strict, scenario: nope}]}",
        "classify.rules.0.scenario",
        "no scenario 'nope'; allowed: general, order_query, returns, payment, legal, recommendation, copywriting",
    ),
    (
        "default",
        "classify: {default_scenario: nope}",
        "classify.default_scenario",
        "no scenario 'nope'; allowed: general, order_query, returns, payment, legal, recommendation, copywriting",
    ),
    (
        "tier_name",
        "scenarios: {strict: {tier: strict}}",
        "scenarios.strict",
        "a tier has this name; labels could not tell them apart",
    ),
    (
        "two_rules",
        "classify: {rules: [{name: a, pattern: x, tier: strict}, {name: a, pattern: y, tier: normal}]}",
        "classify.rules",
        "the name 'a' stands twice",
    ),
    (
        "two_pools",
        "pools: [{name: a, engine: vllm, endpoints: ['http://h:1']}, {name: a, engine: triton, endpoints: ['http://h:2']}]",
        "pools.1.name",
        "the name 'a' stands twice",
    ),
    (
        "own_cluster",
        "pools: [{name: llm_x, engine: vllm, endpoints: ['http://h:1']}]",
        "pools.0.name",
        "names starting with llm_ are taken by our own clusters",
    ),
    (
        "pool_of_a_model",
        "models: [{name: a, match: [a], pool: nope}]",
        "models.0.pool",
        "no stable pool 'nope'; allowed: none",
    ),
    (
        "pool_of_an_extra_model",
        TWO_POOLS + "extra_models: [{name: a, match: [a], pool: nope}]",
        "extra_models.0.pool",
        "no stable pool 'nope'; allowed: chat",
    ),
    (
        "pool_that_is_not_stable",
        TWO_POOLS + "models: [{name: a, match: [a], pool: chat}, {name: b, match: [b], pool: spare}]",
        "models.1.pool",
        "no stable pool 'spare'; allowed: chat",
    ),
    (
        "pool_that_is_not_stable_by_default",
        TWO_POOLS + "pool_defaults: {role: light}\nmodels: [{name: a, match: [a], pool: chat}]",
        "models.0.pool",
        "no stable pool 'chat'; allowed: none",
    ),
    (
        "default_pool",
        TWO_POOLS + "default_pool: nope",
        "default_pool",
        "no stable pool 'nope'; allowed: chat, first, none",
    ),
    (
        "default_pool_that_is_not_stable",
        TWO_POOLS + "default_pool: spare",
        "default_pool",
        "no stable pool 'spare'; allowed: chat, first, none",
    ),
    (
        "a_pattern_of_two_pools",
        TWO_STABLE + "models: [{name: a, match: [x, 'm*'], pool: chat}, {name: b, match: ['m*', y], pool: code}]",
        "models.1.match",
        "'m*' names two pools, 'chat' and 'code'",
    ),
    (
        "a_pattern_of_two_pools_in_two_lists",
        TWO_STABLE
        + "models: [{name: a, match: [m], pool: chat}]\nextra_models: [{name: b, match: [m], pool: code}]",
        "models.0.match",
        "'m' names two pools, 'code' and 'chat'",
    ),
    (
        "a_view",
        TWO_STABLE + "xds: {views: [{node_id: '*', node_cluster: '*', pools: [chat, nope]}]}",
        "xds.views.0.pools",
        "no pool 'nope'; allowed: chat, code",
    ),
    (
        "a_view_of_nothing",
        "xds: {views: [{node_id: '*', node_cluster: '*', pools: [nope]}]}",
        "xds.views.0.pools",
        "no pool 'nope'; allowed: none",
    ),
    (
        "an_accuracy_floor",
        "accuracy_floors: {nope: 0.9}",
        "accuracy_floors.nope",
        "no scenario 'nope'; allowed: general, order_query, returns, payment, legal, recommendation, copywriting",
    ),
    (
        "a_variant",
        TWO_STABLE + "pool_defaults: {variant: int2}",
        "pool_defaults.variant",
        "no variant 'int2'; allowed: fp16, awq-4bit, gptq-4bit, mixed",
    ),
    (
        "batch",
        "inference_params: {batch: {min_size: 9}}",
        "inference_params.batch.min_size",
        "allowed: at most max_size (8)",
    ),
    (
        "line",
        "inference_params: {coupling: {line: [{temperature: 0.5, top_p: 0.8}, {temperature: 0.3, top_p: 0.9}]}}",
        "inference_params.coupling.line",
        "allowed: ascending temperatures",
    ),
    (
        "line_twice",
        "inference_params: {coupling: {line: [{temperature: 0.5, top_p: 0.8}, {temperature: 0.5, top_p: 0.9}]}}",
        "inference_params.coupling.line",
        "allowed: ascending temperatures",
    ),
]


@pytest.mark.parametrize(("text", "path", "message"), [case[1:] for case in CROSS], ids=[case[0] for case in CROSS])
def test_keys_that_contradict_each_other(text: str, path: str, message: str) -> None:
    assert problems(text) == {path: message}


@pytest.mark.parametrize("default", ["first", "none", "chat", "code"])
def test_a_default_pool(default: str) -> None:
    assert load(TWO_STABLE + f"default_pool: {default}").default_pool == default


def test_patterns_that_lead_to_one_pool() -> None:
    """Twice to the same, or one of them to none of its own."""
    load(TWO_STABLE + "models: [{name: a, match: [m], pool: chat}, {name: b, match: [m], pool: chat}]")
    load(TWO_STABLE + "models: [{name: a, match: [m], pool: chat}, {name: b, match: [m]}]")


def test_pools_of_a_loaded_config_have_their_defaults() -> None:
    loaded = load(TWO_POOLS + "pool_defaults: {max_acceptable_p99_ms: 900, variant: mixed}")
    assert [(spec.name, spec.role, spec.max_acceptable_p99_s) for spec in loaded.pool_specs()] == [
        ("chat", "stable", 0.9),
        ("spare", "canary", 0.9),
    ]
    facts = snapshot(loaded, Secrets(tokens=[], tenant_keys=[]), generation=1).registry.pools
    assert [(pool.variant, pool.accuracy) for pool in facts] == [("mixed", 0.995)] * 2


def test_several_mistakes_are_told_at_once() -> None:
    found = problems(
        """
nonsense: 1
limits: {max_body_bytes: 16MiB, max_key: 5}
inference_params: {temperature: {strict: '0.3', normal: 3}, max_tokens: {whitelist: legal}}
pools: [{name: a, engine: tgi, endpoints: []}]
failure_mode: shut
"""
    )
    assert found.keys() == {
        "nonsense",
        "limits.max_body_bytes",
        "limits.max_key",
        "inference_params.temperature.strict",
        "inference_params.temperature.normal",
        "inference_params.max_tokens.whitelist",
        "pools.0.engine",
        "pools.0.endpoints",
        "failure_mode",
    }


def test_scenarios_nobody_defines_are_told_beside_wrong_shapes() -> None:
    found = problems(
        "nonsense: 1\ninference_params: {max_tokens: {whitelist: [leagl]}}\naccuracy_floors: {nope: 0.9}\n"
        "classify: {default_scenario: z, extra_rules: [{name: a, pattern: x, tier: strict, scenario: gone}]}"
    )
    assert found.keys() == {
        "nonsense",
        "inference_params.max_tokens.whitelist.0",
        "accuracy_floors.nope",
        "classify.default_scenario",
        "classify.extra_rules.0.scenario",
    }


@pytest.mark.parametrize("value", ["100000", "0", "x", "1.5", "true", "[1]"])
def test_workers_are_told_in_one_line(value: str) -> None:
    assert problems(f"workers: {value}") == {"workers": "allowed: auto, or 1 to 256"}


@pytest.mark.parametrize("value", ["''", "' '", "'spiffe://a '"])
def test_an_identity_nobody_has_is_refused(value: str) -> None:
    """The empty one is that of every peer without a certificate."""
    found = problems(f"trust: {{identities: [spiffe://a, {value}]}}")
    assert found == {"trust.identities.1": "allowed: a URI SAN or a subject, without blanks around it"}


def test_several_contradictions_are_told_at_once() -> None:
    found = problems(
        "inference_params: {batch: {min_size: 9}, max_tokens: {whitelist: [x, y]}}\nclassify: {default_scenario: z}"
    )
    assert found.keys() == {
        "inference_params.batch.min_size",
        "inference_params.max_tokens.whitelist.0",
        "inference_params.max_tokens.whitelist.1",
        "classify.default_scenario",
    }


TWICE = [
    ("at_top", "failure_mode: open\nfailure_mode: closed", "failure_mode", 2),
    ("the_same_value", "failure_mode: open\n\nfailure_mode: open", "failure_mode", 3),
    ("inside", "limits:\n  max_keys: 99\n  max_keys: 99", "limits.max_keys", 3),
    ("in_flow", "limits: {max_keys: 99, max_keys: 98}", "limits.max_keys", 1),
    ("in_a_list", "models:\n  - {name: a, match: [a]}\n  - {name: b, name: c, match: [b]}", "models.1.name", 3),
    ("quoted", "failure_mode: open\n'failure_mode': closed", "failure_mode", 2),
]


@pytest.mark.parametrize(("text", "path", "line"), [case[1:] for case in TWICE], ids=[case[0] for case in TWICE])
def test_a_key_that_stands_twice(text: str, path: str, line: int) -> None:
    found = problems(text)
    assert list(found.values()) == [f"the key stands twice (line {line})"]
    assert next(iter(found)).rpartition(".")[2] == path.rpartition(".")[2]


@pytest.mark.parametrize(("text", "path", "line"), [case[1:] for case in TWICE], ids=[case[0] for case in TWICE])
def test_a_key_that_stands_twice_is_told_with_its_whole_path(text: str, path: str, line: int) -> None:
    assert list(problems(text)) == [path]


NOT_YAML: list[tuple[str, bytes | str]] = [
    ("two_colons", "a: b: c"),
    ("tab", "a:\n\tb: 1"),
    ("open_bracket", "pools: [1, 2"),
    ("open_quote", "a: 'b"),
    ("two_documents", "a: 1\n---\nb: 2"),
    ("alias_of_nothing", "a: *b"),
    ("a_python_object", "a: !!python/object/apply:os.system [true]"),
    ("an_unknown_tag", "a: !mine 1"),
    ("nul", b"a: \x00"),
    ("not_utf8", b"a: \xff\xfe\xfd"),
]


@pytest.mark.parametrize("text", [case[1] for case in NOT_YAML], ids=[case[0] for case in NOT_YAML])
def test_not_yaml(text: bytes | str) -> None:
    found = problems(text)
    assert list(found) == [""]
    assert found[""].startswith("not YAML: ")
    assert len(found[""]) < 200


def test_where_it_stops_being_yaml() -> None:
    assert problems("a: 1\nb: c: d") == {"": "not YAML: line 2, column 5: mapping values are not allowed here"}


ODD: list[tuple[str, bytes | str]] = [
    ("a_list", "- a"),
    ("a_string", "hello"),
    ("a_number", "5"),
    ("an_impossible_date", "parameter_set: 2024-13-45"),
    ("a_number_that_is_none", "parameter_set: !!int abc"),
    ("a_list_for_a_key", "? [a]\n: b"),
    ("a_mapping_for_a_key", "{{a: 1}: 2}"),
    ("a_number_for_a_key", "1: 2"),
    ("itself_inside", "pools: &a [*a]"),
    ("itself_inside_a_mapping", "limits: &a {max_keys: *a}"),
    ("itself_inside_where_mappings_merge", "inference_params: &a {max_tokens: *a}"),
    ("nested_too_deeply", "a: " + "[" * 5000 + "]" * 5000),
]


@pytest.mark.parametrize("text", [case[1] for case in ODD], ids=[case[0] for case in ODD])
def test_odd_yaml_is_a_mistake_and_no_crash(text: bytes | str) -> None:
    assert problems(text)


def test_a_merge_key_is_yaml() -> None:
    loaded = load(
        """
models:
  - &base {name: a, match: [a], context_window: 1000}
  - {<<: *base, name: b, match: [b]}
"""
    )
    assert [(model.name, model.context_window) for model in loaded.models] == [("a", 1000), ("b", 1000)]


# --- secrets


def test_secrets_are_never_in_a_dump() -> None:
    loaded = load("trust: {tokens: [{env: CALLER}, {file: /run/t}]}\ntenants: {keys: [{env: KEY}]}")
    assert loaded.trust.model_dump()["tokens"] == [{"env": "CALLER", "file": None}, {"env": None, "file": "/run/t"}]
    built = snapshot(loaded, Secrets(tokens=[b"s3cret-a", b"s3cret-b"], tenant_keys=[b"s3cret-c"]), generation=1)
    for text in (repr(loaded), loaded.model_dump_json(), repr(built), built.parameters.model_dump_json()):
        assert "s3cret" not in text


@pytest.mark.parametrize("given_fields", [{}, {"env": "A", "file": "b"}])
def test_a_reference_names_one_place(given_fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="exactly one of env, file"):
        SecretRef.model_validate(given_fields)


# --- restarts


@pytest.mark.parametrize(
    ("over", "keys"),
    [
        ("", ()),
        ("inference_params: {max_tokens: {default: 1}}", ()),
        ("trust: {identities: [a]}", ()),
        ("encoded_bodies: pass", ()),
        ("unknown_paths: pass", ("unknown_paths",)),
        ("extra_paths: [/x]", ("extra_paths",)),
        ("failure_mode: closed", ("failure_mode",)),
        ("limits: {max_body_bytes: 2048}", ("limits",)),
        ("listeners: {admin: '127.0.0.1:1'}", ("listeners",)),
        ("audit: {keep: 1}", ("audit",)),
        ("shutdown_grace_s: 1", ("shutdown_grace_s",)),
        ("pools: [{name: a, engine: vllm, endpoints: ['http://h:1']}]", ()),
        ("weights: {max_step: 0.5}", ()),
        ("usage: {enabled: true}", ("usage",)),
        ("shutdown_grace_s: 1\nfailure_mode: closed", ("failure_mode", "shutdown_grace_s")),
    ],
)
def test_what_needs_a_restart(over: str, keys: tuple[str, ...]) -> None:
    assert changed_needing_restart(SHIPPED, load(over)) == keys
    assert changed_needing_restart(load(over), SHIPPED) == keys


def test_what_needs_a_restart_exists_and_is_marked() -> None:
    assert set(NEEDS_RESTART) <= Settings.model_fields.keys()
    text = defaults_text().decode()
    for key in NEEDS_RESTART:
        at = text.index(f"\n{key}:")
        block = text[text.rindex("\n\n", 0, at + 1) :].lstrip("\n").partition("\n\n")[0]
        assert "(restart)" in block, key


# --- the shipped file explains itself


def leaves() -> list[tuple[int, str]]:
    """Line number and name of every key of the shipped file whose value is no mapping."""
    found: list[tuple[int, str]] = []

    def walk(node: yaml.Node, path: str) -> None:
        if not isinstance(node, yaml.MappingNode):
            return
        for key, value in node.value:
            name = f"{path}{key.value}"
            if isinstance(value, yaml.MappingNode) and value.value and not value.flow_style:
                walk(value, f"{name}.")
            else:
                found.append((key.start_mark.line, name))

    root = yaml.compose(defaults_text(), Loader=yaml.SafeLoader)
    assert root is not None
    walk(root, "")
    return found


LINES = defaults_text().decode().splitlines()


@pytest.mark.parametrize(("line", "name"), leaves(), ids=[name for _, name in leaves()])
def test_every_key_is_explained_on_its_line_or_above(line: int, name: str) -> None:
    """A comment on the line, or above it in the block it belongs to."""
    if re.search(r"\s# \S", LINES[line]):
        return
    above = LINES[:line]
    for text in reversed(above):
        if re.search(r"(^|\s)# \S", text):
            return
        assert text.strip(), f"{name}: nothing explains it up to the empty line above"
    pytest.fail(f"{name}: nothing explains it")


def test_leaves_cover_the_settings() -> None:
    assert {name.partition(".")[0] for _, name in leaves()} == Settings.model_fields.keys()
