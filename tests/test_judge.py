"""One body from reading to writing; and that what is remembered of earlier ones shows nowhere."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extproc import snapshot as snapshot_module
from extproc.errors import ClientFault
from extproc.judge import Arrival, Judged, judge
from extproc.model.names import Engine, Field, RequestClass
from extproc.model.protection import ParameterAccess, PoolAccess, Protection
from extproc.model.values import Caller
from extproc.request.headers import Headers
from extproc.request.paths import target
from extproc.snapshot import Memory, Snapshot, protected
from tests.decide.worlds import CHAT, pools, world
from tests.request.json_texts import EXAMPLES

ALL = pools(*Engine, by_priority=True) + (
    "inference_params: {lowest_latency: {paths: ['/v1/chat/completions?fast'], models: [quick]}}\n"
    "tenants: {classes: {shop: best-effort}}\n"
    "models: [{name: large, match: ['*70b*'], max_output_tokens: 2048}, {name: own, match: [own], pool: llamacpp}]\n"
)
NOBODY = Caller(False, "", "anonymous", None, None, {})


def cold() -> Snapshot:
    return msgspec.structs.replace(world(ALL), memory=Memory())


def arrival(path: str = CHAT, caller: Caller = NOBODY) -> Arrival:
    return Arrival(target(path), caller, Headers(()), path)


def told(judging: Any) -> Judged | tuple[int, str, str | None]:
    """What is judged, or why it is refused."""
    try:
        judged: Judged = judging()
    except ClientFault as fault:
        return fault.status, fault.message, fault.param
    return judged


def test_a_judged_body() -> None:
    judged = judge(b'{"max_tokens":999,"x":1E2}', arrival(), cold())
    assert judged.body == b'{"max_tokens":256,"x":1E2,"temperature":0.7,"priority":0}'
    assert [(c.field, c.after) for c in judged.outcome.decision.changes] == [
        (Field.TEMPERATURE, 0.7),
        (Field.MAX_TOKENS, 256),
        (Field.PRIORITY, 0),
    ]
    assert dict(judged.body_headers)["content-length"] == str(len(judged.body)).encode()
    assert judged.outcome.metadata["pool"] == "vllm"


def test_an_unchanged_body_is_none() -> None:
    judged = judge(b'{"max_tokens":9,"temperature":0.5,"priority":0}', arrival(), cold())
    assert judged.body is None
    assert "content-length" not in dict(judged.body_headers)


# Neighbours: each differs from another in one thing that a decision depends on, or in none.
VALUES = ["0", "0.0", "-0.0", "1", "1.0", "true", "false", "null", '"x"', '"1"', "[1]", "5", "1E2", "300", "1e400"]
KEYS = [
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "n_predict",
    "n",
    "num_beams",
    "top_k",
    "stream",
    "priority",
    "seed",
]
TEXTS = ["order #12345", "order #54321", "a slogan", "a contract", "hello", ""]
MODELS = [
    "",
    '"model":null,',
    '"model":"m",',
    '"model":"a-70b",',
    '"model":"quick",',
    '"model":"own",',
    '"model":5,',
]
PATHS = [
    CHAT,
    f"{CHAT}?fast",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/messages",
    "/completion",
    "/v2/models/m/generate",
    "/v2/models/a-70b/generate",
    "/v2/models/m/infer",
]
CALLERS = [
    NOBODY,
    Caller(False, "", "shop", None, None, {}),
    Caller(True, "token", "shop", None, RequestClass.CRITICAL, {}),
    Caller(True, "token", "anonymous", "legal", None, {}),
    Caller(True, "token", "anonymous", "creative", None, {}),
    Caller(True, "token", "anonymous", None, None, {Field.MAX_TOKENS: 7}),
    Caller(True, "token", "anonymous", None, None, {Field.MAX_TOKENS: 8, Field.TEMPERATURE: 0.0}),
    Caller(True, "token", "anonymous", None, None, {Field.TOP_P: 1.0}),
]
MEMBERS = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)), max_size=3)


def rendered(model: str, text: str, members: list[tuple[str, str]], nested: bool) -> bytes:
    fields = ",".join(f'"{key}":{value}' for key, value in members)
    if nested:
        fields = f'"parameters":{{{fields}}}'
    prompt = f'"messages":[{{"role":"user","content":"{text}"}}],"prompt":"{text}","input":"{text}","text_input":"{text}"'
    return f"{{{model}{prompt}{',' if fields else ''}{fields}}}".encode()


BODIES = st.builds(rendered, st.sampled_from(MODELS), st.sampled_from(TEXTS), MEMBERS, st.booleans())


@settings(max_examples=EXAMPLES // 10 + 20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    bodies=st.lists(BODIES, min_size=1, max_size=3), paths=st.sets(st.sampled_from(PATHS), min_size=1, max_size=2)
)
def test_earlier_requests_show_nowhere(bodies: list[bytes], paths: set[str]) -> None:
    """Every body on every path by every caller, twice, among each other and each alone."""
    warm = cold()
    requests = [(body, arrival(path, who)) for body in bodies for path in sorted(paths) for who in CALLERS]
    for body, came in requests * 2:
        alone = told(lambda body=body, came=came: judge(body, came, cold()))
        among = told(lambda body=body, came=came: judge(body, came, warm))
        assert repr(among) == repr(alone), "0, 0.0 and false are equal, and are not the same"


@pytest.mark.parametrize("paths", [(CHAT, f"{CHAT}?fast"), (f"{CHAT}?fast", CHAT)])
def test_the_fast_path_is_told_apart(paths: tuple[str, str]) -> None:
    warm = cold()
    hot = [judge(b"{}", arrival(path), warm).outcome.decision.changes[0].after for path in paths]
    assert hot == [0 if "fast" in path else 0.7 for path in paths]


NEIGHBOURS = [
    (b'{"temperature":0}', b'{"temperature":0.0}'),
    (b'{"priority":0}', b'{"priority":0.0}'),
    (b'{"priority":0}', b'{"priority":false}'),
    (b'{"max_tokens":1}', b'{"max_tokens":1.0}'),
    (b'{"top_p":1}', b'{"top_p":true}'),
    (b'{"max_tokens":5}', b'{"max_completion_tokens":5}'),
    (b'{"model":"m"}', b'{"model":null}'),
    (b'{"model":"m"}', b'{"model":"\\u006d"}'),
    (b'{"top_k":1,"temperature":0}', b'{"temperature":0,"top_k":1}'),
    (b'{"max_tokens":5,"max_tokens":5}', b'{"max_tokens":5}'),
    (b"{}", b'{"parameters":{}}'),
]


@pytest.mark.parametrize(("one", "other"), NEIGHBOURS, ids=[one.decode() for one, _ in NEIGHBOURS])
@pytest.mark.parametrize("path", [CHAT, "/completion", "/v2/models/m/generate"])
def test_neighbours_are_told_apart(path: str, one: bytes, other: bytes) -> None:
    for first, second in ((one, other), (other, one)):
        warm = cold()
        told(lambda first=first, warm=warm: judge(first, arrival(path), warm))
        among = told(lambda second=second, warm=warm: judge(second, arrival(path), warm))
        alone = told(lambda second=second: judge(second, arrival(path), cold()))
        assert repr(among) == repr(alone)


def test_a_refusal_is_not_remembered_as_an_outcome() -> None:
    warm = cold()
    for _ in range(2):
        with pytest.raises(ClientFault):
            judge(b'{"temperature":"x"}', arrival(), warm)
    assert judge(b'{"temperature":0.5}', arrival(), warm).outcome.decision.changes


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_module, "MAX_REMEMBERED", 10)
    warm = cold()
    for number in range(1, 300):
        judged = judge(b'{"max_tokens":%d}' % number, arrival(), warm)
        assert judged.outcome.decision.max_tokens == min(number, 256)
        assert len(warm.memory._known) <= 10


@pytest.mark.parametrize("size", [10, 500, 100_000])
def test_a_long_value_is_judged_like_a_short_one(size: int) -> None:
    body = b'{"temperature":0,"top_k":"' + b"x" * size + b'"}'
    for _ in range(2):
        judged = judge(body, arrival(), warm := cold())
        assert judged.body == b'{"temperature":0,"top_p":1.0,"max_tokens":256,"priority":0}'
        assert all(size < 1000 for size in map(len, map(repr, warm.memory._known)))


# ── while something is open ──────────────────────────────────────────────────────────────────────

GUARDED = """
pools:
  - {name: big, engine: vllm, endpoints: ["http://a:1"]}
  - {name: light, engine: llamacpp, endpoints: ["http://b:1"], role: light, served_model: tiny}
inference_params: {temperature: {normal: 0.55}}
"""


def guarded(protection: Protection) -> Snapshot:
    return protected(world(GUARDED), protection, 2)


def asked(protection: Protection, text: str = "hello", request_id: bytes = b"a") -> Judged:
    body = msgspec.json.encode({"model": "big-one", "messages": [{"role": "user", "content": text}]})
    given = arrival()
    headers = Headers((("x-request-id", request_id),))
    return judge(body, Arrival(given.target, given.caller, headers, given.path), guarded(protection))


SHUT = Protection(pools={"big": PoolAccess(0.0, "pool_breaker")}, light=("light",))


def test_a_light_pools_request_has_its_models_name_and_the_end_of_its_prompt() -> None:
    judged = asked(SHUT, "word " * 400 + "the end")
    body = msgspec.json.decode(judged.body or b"")
    assert body["model"] == "tiny" and body["messages"][0]["content"].endswith("the end")
    assert len(body["messages"][0]["content"]) <= 128 * 3
    headers = dict(judged.outcome.headers)
    assert (headers["x-llm-pool"], headers["x-llm-fallback"]) == (b"light", b"pool_breaker")
    assert judged.outcome.metadata["fallback"] == "pool_breaker"
    records = [msgspec.json.decode(b"{" + tail) for tail in judged.outcome.audit]
    told = {each["field"]: (each["from"], each["to"], each["rule"]) for each in records}
    assert told["model"] == ("big-one", "tiny", "fallback.model")
    assert told["prompt_tokens"] == (669, 128, "fallback.prompt")
    assert b"word" not in b"".join(judged.outcome.audit)


def test_two_prompts_are_cut_each_by_itself_though_all_else_is_remembered() -> None:
    snapshot = guarded(SHUT)
    ends = []
    for end in ("first", "second"):
        body = msgspec.json.encode({"messages": [{"role": "user", "content": "x" * 500 + end}]})
        ends.append(msgspec.json.decode(judge(body, arrival(), snapshot).body or b"")["messages"][0]["content"])
    assert ends[0].endswith("first") and ends[1].endswith("second")


def test_safe_parameters_while_dynamic_ones_are_off() -> None:
    off = Protection(parameters=ParameterAccess(0.0, "parameter_breaker"))
    judged = asked(off)
    assert msgspec.json.decode(judged.body or b"")["temperature"] == 0.7, "the shipped one"
    assert judged.outcome.decision.parameter_set.startswith("safe@")
    assert asked(Protection()).outcome.decision.parameter_set.startswith("small@")


def test_a_share_of_requests_tries_out_what_is_half_open() -> None:
    half = Protection(
        pools={"big": PoolAccess(0.05, "pool_breaker")},
        parameters=ParameterAccess(0.05, "parameter_breaker"),
        light=("light",),
    )
    snapshot = guarded(half)
    body = msgspec.json.encode({"messages": [{"role": "user", "content": "hello"}]})
    probes = 0
    for number in range(2000):
        given = arrival()
        headers = Headers((("x-request-id", b"3f0c8c1e-%d" % number),))
        judged = judge(body, Arrival(given.target, given.caller, headers, given.path), snapshot)
        decision = judged.outcome.decision
        assert decision.probe is (decision.pool == "big")
        assert decision.probe is decision.parameter_set.startswith("small@")
        probes += decision.probe
    assert 60 <= probes <= 140
    assert len(snapshot.memory._known) <= 2, "what fares alike is decided once"


def test_lengths_are_told_apart() -> None:
    assert asked(Protection(), "x").outcome.metadata["length"] == "512"
    assert asked(Protection(), "x" * 3000).outcome.metadata["length"] == "8192"
