"""What the shipped configuration lets through, by a real Envoy and an engine that records every byte.

The sidecar is dead in most of these: whatever holds here holds by Envoy's configuration alone.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from extproc.cli.envoy_config import Pipe
from tests.envoy_config.stub_sidecar import BODY, Seen, StubSidecar, carry_on, change, metadata, reject
from tests.real_envoy import Answer, RealEnvoy, Received, RecordingUpstream, ok, plan, talk

pytestmark = pytest.mark.envoy

LIMIT = 100_000
WEBSOCKET = (
    b"upgrade: websocket\r\nconnection: Upgrade\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"
)
HIDDEN = b"POST /v2/repository/index HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


@pytest.fixture(scope="module")
def engine() -> Iterator[RecordingUpstream]:
    upstream = RecordingUpstream()
    yield upstream
    upstream.stop()


@pytest.fixture(autouse=True)
def fresh(engine: RecordingUpstream) -> None:
    engine.requests.clear()
    engine.stray, engine.answer = b"", ok


@pytest.fixture(scope="module")
def envoy(engine: RecordingUpstream) -> Iterator[RealEnvoy]:
    """The shipped policy: open on failure, unknown paths rejected."""
    with RealEnvoy(plan(engine.port, extra_paths=("/version", "/docs/*"))) as running:
        yield running


@pytest.fixture(scope="module")
def lenient(engine: RecordingUpstream) -> Iterator[RealEnvoy]:
    """Unknown paths pass: the management rules stand alone."""
    with RealEnvoy(plan(engine.port, unknown_paths="pass")) as running:
        yield running


@pytest.fixture(scope="module")
def closed(engine: RecordingUpstream) -> Iterator[RealEnvoy]:
    with RealEnvoy(plan(engine.port, fail_open=False)) as running:
        yield running


@pytest.fixture(scope="module")
def sidecar() -> Iterator[StubSidecar]:
    with tempfile.TemporaryDirectory() as folder:
        stub = StubSidecar(f"{folder}/s.sock", lambda phase, _: carry_on(phase))
        yield stub
        stub.stop()


@pytest.fixture(scope="module")
def judged(engine: RecordingUpstream, sidecar: StubSidecar) -> Iterator[RealEnvoy]:
    with RealEnvoy(
        plan(engine.port, ext_proc=Pipe(sidecar.path), max_body_bytes=LIMIT, fail_open=False)
    ) as running:
        yield running


def ask(path: str | bytes, method: str = "GET", headers: bytes = b"", body: bytes | None = None) -> bytes:
    target = path if isinstance(path, bytes) else path.encode("latin-1")
    length = b"" if body is None else b"content-length: %d\r\n" % len(body)
    start = method.encode() + b" " + target + b" HTTP/1.1\r\nhost: x\r\n"
    ending = b"" if b"pgrade" in headers else b"connection: close\r\n"
    return start + ending + headers + length + b"\r\n" + (body or b"")


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def error(answer: bytes) -> dict[str, Any]:
    """Of an OpenAI-shaped error that says it is JSON."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    found = json.loads(body)["error"]
    assert set(found) == {"message", "type", "param", "code"}
    assert isinstance(found, dict)
    return found


def only(engine: RecordingUpstream) -> Received:
    assert len(engine.requests) == 1
    return engine.requests[0]


# ── management paths ─────────────────────────────────────────────────────────────────────────────

MANAGEMENT = ["/v2/repository/index", "/v2/repository/models/m/load", "/v2/repository/models/m/unload", "/v2/repository/r/index", "/v2/repository/r/models/m/load", "/v2/logging", "/v2/trace/setting", "/v2/models/m/trace/setting", "/v2/models/m/versions/1/trace/setting", "/v2/systemsharedmemory/status", "/v2/systemsharedmemory/region/r/register", "/v2/systemsharedmemory/unregister", "/v2/cudasharedmemory/region/r/register", "/v2/cudasharedmemory/status", "/metrics", "/slots", "/slots/0", "/props", "/lora-adapters", "/models/load", "/models/unload", "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/sleep", "/wake_up", "/is_sleeping", "/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache", "/collective_rpc", "/server_info", "/start_profile", "/stop_profile", "/pause", "/resume", "/is_paused", "/abort_requests", "/scale_elastic_ep", "/is_scaling_elastic_ep", "/update_weights", "/init_weight_transfer_engine", "/init_weights_update_group", "/start_weight_update", "/finish_weight_update", "/weight_checker", "/load", "/invocations", "/inference/v1/generate", "/fault_tolerance/apply", "/get_world_size", "/v1/models/m/load", "/v1/models/org/m/unload", "/v1/models/load"]

PLAIN_TRICKS = [
    lambda p: p + "/",
    lambda p: p + "?x=1",
    lambda p: p + ";x=1",
    lambda p: p + "/.",
    lambda p: p + "/x/..",
    lambda p: "/" + p,
    lambda p: "/." + p,
    lambda p: "/x/.." + p,
    lambda p: "/../.." + p,
    lambda p: p.upper(),
    lambda p: p.replace("/", "//"),
    lambda p: p.replace("/", "/./"),
    lambda p: "/" + p[1:].replace("/", "%2F"),
    lambda p: "/" + p[1:].replace("/", "%5c"),
    lambda p: "/" + p[1:].replace("/", "\\"),
    lambda p: "%2F" + p,
    lambda p: "/%2e" + p,
    lambda p: "/x/%2e%2E" + p,
    lambda p: "/x/..;" + p,
    lambda p: "/" + f"%{ord(p[1]):02x}" + p[2:],
    lambda p: p[:-1] + f"%{ord(p[-1]):02X}",
    lambda p: p[:-1] + f"%25{ord(p[-1]):02x}",
    lambda p: re.sub("[a-z]", lambda c: f"%{ord(c[0]):02x}", p),
    lambda p: p + "%0a",
    lambda p: p + "%00",
    lambda p: p + "%20",
    lambda p: p + "%3fx",
    lambda p: p + "%23",
    lambda p: p + "#x",
    lambda p: p + "\x7f",
    lambda p: "http://other" + p,
]


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_management_paths_are_answered_403(envoy: RealEnvoy, engine: RecordingUpstream, method: str) -> None:
    for path in MANAGEMENT:
        answer = talk(envoy.port, ask(path, method, body=b"{}"))
        assert status(answer) == 403, path
        if method != "HEAD":
            assert error(answer)["code"] == "management_path"
    assert engine.requests == []


@pytest.mark.parametrize("policy", ["envoy", "lenient"])
def test_no_spelling_of_a_management_path_arrives(
    policy: str, request: pytest.FixtureRequest, engine: RecordingUpstream
) -> None:
    port = request.getfixturevalue(policy).port
    for path in MANAGEMENT:
        for trick in PLAIN_TRICKS:
            answer = talk(port, ask(trick(path), "POST", body=b"{}"))
            assert status(answer) in (307, 400, 403, 404), trick(path)
    assert engine.requests == []


def test_an_escaped_slash_is_redirected_to_a_path_that_is_refused(envoy: RealEnvoy) -> None:
    answer = talk(envoy.port, ask("/v2%2Frepository%2Findex", "POST"))
    assert status(answer) == 307
    assert b"\r\nlocation: /v2/repository/index\r\n" in answer


def test_an_engine_under_a_prefix_hides_its_management_paths_too(
    lenient: RealEnvoy, engine: RecordingUpstream
) -> None:
    for path in (
        "/llama/slots",
        "/a/b/metrics",
        "/triton/v2/repository/index",
        "/x/v1/load_lora_adapter",
        "/v1;/x",
    ):
        assert status(talk(lenient.port, ask(path))) == 403, path
    assert engine.requests == []


def respell(path: str, dice: random.Random) -> str:
    """One random spelling: letters escaped once or twice or in capitals, slashes in every disguise."""
    slashes = [
        "/",
        "/",
        "/",
        "//",
        "/./",
        "/x/../",
        "/%2e/",
        "/x/%2E%2e/",
        "%2f",
        "\\",
        "%5C",
        ";x/",
        "/;/../",
    ]
    tails = [
        "",
        "",
        "/",
        "//",
        "/.",
        "/..;/",
        ";a=b",
        "?a",
        "%0a",
        "%0d%0a",
        "%09",
        "%20",
        "%7f",
        "%2f",
        "%",
        ".",
        "%2e",
    ]
    out = ""
    for char in path:
        if char == "/":
            out += dice.choice(slashes)
        else:
            out += dice.choice(
                [char] * 12 + [char.upper(), f"%{ord(char):02x}", f"%{ord(char):02X}", f"%25{ord(char):02x}"]
            )
    return (out if out.startswith("/") else "/" + out) + dice.choice(tails)


def as_an_engine_might_read(path: str) -> str:
    """More generous than any engine: unescaped to the end, no empty segments, no parameters, no case."""
    path = path.split("?", maxsplit=1)[0]
    for _ in range(4):
        path = unquote(path)
    segments = (segment.split(";")[0].strip() for segment in path.replace("\\", "/").lower().split("/"))
    found: list[str] = []
    for segment in segments:
        if segment == "..":
            found = found[:-1]
        elif segment not in ("", "."):
            found.append(segment)
    return "/" + "/".join(found)


def test_random_spellings_of_management_paths_never_arrive(
    lenient: RealEnvoy, engine: RecordingUpstream
) -> None:
    dice = random.Random(20261130)
    for path in MANAGEMENT * 20:
        talk(lenient.port, ask(respell(path, dice), dice.choice(["GET", "POST"]), body=b"{}"))
    arrived = {each.path: as_an_engine_might_read(each.path) for each in engine.requests}
    assert {read: spelled for spelled, read in arrived.items() if read in MANAGEMENT} == {}


@pytest.mark.parametrize(
    "path",
    [
        "/v2/models/metrics/infer",
        "/v2/models/load/generate",
        "/v2/models/trace/infer",
        "/v1/models",
        "/v1/models/loader",
        "/v1/loads",
        "/v2/models/repository",
    ],
)
def test_names_that_only_look_like_management_are_served(
    envoy: RealEnvoy, engine: RecordingUpstream, path: str
) -> None:
    assert status(talk(envoy.port, ask(path))) == 200
    assert only(engine).path == path


# ── served and unknown paths ─────────────────────────────────────────────────────────────────────

SERVED = {
    "anthropic": "/v1/messages /v1/messages/count_tokens",
    "openai": "/v1 /v1/chat/completions /v1/completions /v1/responses /v1/embeddings /v1/models /v1/models/a/b",
    "triton": "/v2 /v2/health/live /v2/health/ready /v2/models/m /v2/models/m/versions/1 /v2/models/m/ready"
    " /v2/models/m/config /v2/models/m/infer /v2/models/m/generate /v2/models/m/generate_stream"
    " /v2/models/m/versions/3/infer /v2/models/a%20b%3A%e4%bd%a0+@!/infer /v2/models/a:b,c(d)/versions/2/config",
    "llamacpp": "/completion /completions /tokenize /detokenize /health",
}


@pytest.mark.parametrize("family", SERVED)
def test_served_paths_arrive_as_sent(envoy: RealEnvoy, engine: RecordingUpstream, family: str) -> None:
    for path in SERVED[family].split():
        for spelled in (path, path + "/", path + "?a=%2F&b=;"):
            assert status(talk(envoy.port, ask(spelled, "POST", body=b"{}"))) == 200, spelled
            assert engine.requests[-1].path == spelled
            assert engine.requests[-1].body == b"{}"


def test_each_family_has_its_route(envoy: RealEnvoy) -> None:
    for family, paths in SERVED.items():
        talk(envoy.port, ask(paths.split()[0] + "?route=" + family))
    time.sleep(0.3)
    lines = [json.loads(line) for line in envoy.access_log.read_text().splitlines()]
    assert [line["route"] for line in lines[-4:]] == list(SERVED)
    assert not any("route=" in line["path"] for line in lines if line["path"])


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/foo",
        "/v2/models",
        "/v2/models/m/stats",
        "/V1/chat/completions",
        "/chat/completions",
        "/v3/x",
        "/v2/models/a/b/infer",
        "/v2/health/dead",
        "/versions",
    ],
)
def test_an_unknown_path_is_answered_404_naming_the_key(
    envoy: RealEnvoy, engine: RecordingUpstream, path: str
) -> None:
    answer = talk(envoy.port, ask(path))
    assert status(answer) == 404
    assert "unknown_paths" in error(answer)["message"]
    assert engine.requests == []


def test_extra_paths_pass(envoy: RealEnvoy, engine: RecordingUpstream) -> None:
    for path in ("/version", "/docs/", "/docs/a/b?c"):
        assert status(talk(envoy.port, ask(path))) == 200
        assert engine.requests[-1].path == path
    assert status(talk(envoy.port, ask("/docs/metrics"))) == 403


def test_unknown_paths_pass_where_configured(lenient: RealEnvoy, engine: RecordingUpstream) -> None:
    assert status(talk(lenient.port, ask("/anything/at%20all", "POST", body=b"x"))) == 200
    assert (only(engine).path, only(engine).body) == ("/anything/at%20all", b"x")


# ── headers ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/version"])
def test_decision_and_caller_headers_never_reach_an_engine(
    envoy: RealEnvoy, engine: RecordingUpstream, path: str
) -> None:
    names = ["X-LLM-Tier", "x-llm-pool", "x-llm-priority", "x-llm-tenant", "x-llm-params", "x-llm-anything"]
    names += ["x-caller-token", "x-business-label", "x-request-class", "x-tenant", "x-envoy-retry-on"]
    names += ["X-Param-Temperature", "x-param-top-p", "x-param-max-tokens", "x-envoy-upstream-rq-timeout-ms"]
    spoofed = b"".join(f"{name}: critical\r\n{name}: 1\r\n".encode() for name in names)
    assert status(talk(envoy.port, ask(path, "POST", spoofed, b"{}"))) == 200
    assert not {name for name, _ in only(engine).headers} & {name.lower() for name in names}


def test_bytes_and_duplicates_survive(envoy: RealEnvoy, engine: RecordingUpstream) -> None:
    engine.answer = lambda _: (
        b"HTTP/1.1 200 OK\r\nset-cookie: a\r\nset-cookie: b\r\nx-raw: \xff\r\nserver: mine\r\ncontent-length: 0\r\n\r\n"
    )
    sent = b"x-multi: \xff\xfe\r\nx-multi: two\r\nx-request-id: mine\r\nauthorization: Bearer s\r\n"
    answer = talk(envoy.port, ask("/v1/models", headers=sent))
    assert only(engine).values("x-multi") == [b"\xff\xfe", b"two"]
    assert only(engine).values("x-request-id") == [b"mine"]
    assert only(engine).values("authorization") == [b"Bearer s"]
    for line in (b"set-cookie: a", b"set-cookie: b", b"x-raw: \xff", b"server: mine"):
        assert line in answer.split(b"\r\n")


def test_headers_named_by_connection_are_not_forwarded(envoy: RealEnvoy, engine: RecordingUpstream) -> None:
    data = (
        b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close, x-foo\r\nx-foo: 1\r\nkeep-alive: 5\r\n\r\n"
    )
    assert status(talk(envoy.port, data)) == 200
    assert not {"x-foo", "connection", "keep-alive"} & {name for name, _ in only(engine).headers}


# ── framing ──────────────────────────────────────────────────────────────────────────────────────

CHUNKED = b"transfer-encoding: chunked\r\n"


@pytest.mark.parametrize("policy", ["envoy", "judged"])
@pytest.mark.parametrize(
    ("method", "headers", "payload", "body"),
    [
        ("GET", b"", b"", b""),
        ("HEAD", b"", b"", b""),
        ("POST", b"content-length: 0\r\n", b"", b""),
        ("POST", b"content-length: 2\r\n", b"{}", b"{}"),
        ("POST", CHUNKED, b"0\r\n\r\n", b""),
        ("POST", CHUNKED, b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", b"{}"),
        ("POST", CHUNKED, b"2\r\n{}\r\n0\r\nx-trailer: 1\r\nx-llm-tier: strict\r\n\r\n", b"{}"),
    ],
)
def test_framing(
    policy: str,
    request: pytest.FixtureRequest,
    engine: RecordingUpstream,
    method: str,
    headers: bytes,
    payload: bytes,
    body: bytes,
) -> None:
    port = request.getfixturevalue(policy).port
    answer = talk(port, ask("/v1/chat/completions", method, headers) + payload)
    assert status(answer) == 200
    assert only(engine).line == f"{method} /v1/chat/completions HTTP/1.1"
    assert only(engine).body == body
    assert b"x-trailer" not in only(engine).head


@pytest.mark.parametrize(
    "data",
    [
        b"garbage\r\n\r\n",
        b"GET /v1/models HTTP/1.0\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\n\r\n",
        b"CONNECT x:80 HTTP/1.1\r\nhost: x:80\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        b"GET /v1/x HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 300 + b"\r\n",
    ],
)
def test_a_broken_request_is_refused_in_json(
    envoy: RealEnvoy, engine: RecordingUpstream, data: bytes
) -> None:
    answer = talk(envoy.port, data, timeout=0.5)
    assert 400 <= status(answer) <= 501
    assert error(answer)["code"] == "request_refused"
    assert engine.requests == []


# ── upgrades ─────────────────────────────────────────────────────────────────────────────────────


def switching(_: Received) -> bytes:
    return b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\r\n"


def refusing(_: Received) -> bytes:
    return b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}"


@pytest.mark.parametrize("policy", ["envoy", "judged", "closed"])
def test_a_websocket_passes_without_the_sidecar(
    policy: str, request: pytest.FixtureRequest, engine: RecordingUpstream
) -> None:
    engine.answer = switching
    port = request.getfixturevalue(policy).port
    answer = talk(port, ask("/v1/realtime", headers=WEBSOCKET) + b"frames", timeout=0.5)
    assert status(answer) == 101
    assert answer.endswith(b"frames")
    assert only(engine).values("sec-websocket-key")


@pytest.mark.parametrize("headers", [WEBSOCKET, b"upgrade: other\r\nconnection: upgrade\r\n"])
def test_only_a_get_upgrades(envoy: RealEnvoy, engine: RecordingUpstream, headers: bytes) -> None:
    answer = talk(envoy.port, ask("/v1/chat/completions", "POST", headers, b"{}"), timeout=0.5)
    assert status(answer) in (400, 403)
    assert error(answer)["code"] in ("bad_upgrade", "request_refused")
    assert engine.requests == []


def test_an_upgrade_announces_no_body(envoy: RealEnvoy, engine: RecordingUpstream) -> None:
    data = ask("/v1/realtime", headers=WEBSOCKET, body=HIDDEN)
    assert error(talk(envoy.port, data, timeout=0.5))["code"] == "bad_upgrade"
    assert engine.requests == []


@pytest.mark.parametrize("answer", [refusing, ok])
@pytest.mark.parametrize("headers", [WEBSOCKET, WEBSOCKET + CHUNKED])
def test_bytes_behind_a_refused_upgrade_are_no_second_request(
    envoy: RealEnvoy, engine: RecordingUpstream, answer: Answer, headers: bytes
) -> None:
    engine.answer = answer
    talk(envoy.port, ask("/v1/realtime", headers=headers) + HIDDEN, timeout=0.5)
    talk(envoy.port, ask("/v1/realtime", headers=headers) + HIDDEN, timeout=0.5)
    assert {each.path for each in engine.requests} == {"/v1/realtime"}


@pytest.mark.parametrize("path", ["/slots", "/v2/logging", "/nothing"])
def test_an_upgrade_opens_no_other_path(envoy: RealEnvoy, engine: RecordingUpstream, path: str) -> None:
    assert status(talk(envoy.port, ask(path, headers=WEBSOCKET), timeout=0.5)) in (403, 404)
    assert engine.requests == []


def test_an_h2c_offer_is_ignored_and_the_request_judged(
    judged: RealEnvoy, sidecar: StubSidecar, engine: RecordingUpstream
) -> None:
    offer = (
        b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
    )
    sidecar.script, sidecar.seen = lambda phase, _: carry_on(phase), []
    assert status(talk(judged.port, ask("/v1/completions", "POST", offer, b"{}"), timeout=0.5)) == 200
    assert sidecar.seen[0].body == only(engine).body == b"{}"


# ── with a sidecar, and with a dead one ──────────────────────────────────────────────────────────


def route_by(phase: int, _: Seen) -> bytes:
    if phase != BODY:
        return carry_on(phase)
    wanted = {"x-llm-pool": "engine-1", "x-llm-priority": "critical", "content-length": "4"}
    forbidden = {":path": "/metrics", "authorization": "stolen", "connection": "close", "host": "evil"}
    changed = change(phase, wanted | forbidden, body=b"abcd", remove=("cookie",))
    return changed + metadata({"tier": "strict", "tenant": "acme"})


def test_the_sidecars_answer_is_routed_by_and_bounded(
    judged: RealEnvoy, sidecar: StubSidecar, engine: RecordingUpstream
) -> None:
    sidecar.script, sidecar.seen = route_by, []
    sent = (
        b"authorization: mine\r\ncookie: c\r\nx-other: 1\r\nx-forwarded-for: 9.9.9.9\r\nx-llm-pool: fake\r\n"
    )
    assert status(talk(judged.port, ask("/v1/completions?q=1", "POST", sent, b"{}"))) == 200
    got = only(engine)
    assert (got.path, got.body, got.values("content-length")) == ("/v1/completions?q=1", b"abcd", [b"4"])
    assert (got.values("authorization"), got.values("cookie"), got.values("host")) == (
        [b"mine"],
        [b"c"],
        [b"x"],
    )
    time.sleep(0.3)
    line = json.loads(judged.access_log.read_text().splitlines()[-1])
    assert (line["route"], line["tier"], line["tenant"]) == ("pool-critical", "strict", "acme")
    assert line["path"] == "/v1/completions"
    seen = sidecar.seen[0]
    assert seen.attributes["source.address"].startswith(b"127.0.0.1:")
    assert not {"x-other", "cookie", "x-forwarded-for", "x-llm-pool"} & {name for name, _ in seen.headers}
    assert {":method", ":path", "authorization", "content-length", "x-request-id"} <= {
        n for n, _ in seen.headers
    }


def test_a_pool_that_does_not_exist_is_503(judged: RealEnvoy, sidecar: StubSidecar) -> None:
    sidecar.script = lambda phase, _: change(phase, {"x-llm-pool": "nowhere"})
    answer = talk(judged.port, ask("/v1/completions", "POST", body=b"{}"))
    assert (status(answer), error(answer)["code"]) == (503, "engine_unavailable")


@pytest.mark.parametrize("code", [400, 413, 415, 429, 503])
@pytest.mark.parametrize("details", ["llm_refused", ""])
def test_the_sidecars_own_answer_passes_byte_for_byte(
    judged: RealEnvoy, sidecar: StubSidecar, engine: RecordingUpstream, code: int, details: str
) -> None:
    body = b'{"error": {"message":"mine \xe4\xbd\xa0 100%"} }\n'
    headers = {"content-type": "application/json", "retry-after": "7", "x-llm-reason": "quota"}
    sidecar.script = lambda phase, _: (
        reject(code, body, headers, details) if phase == BODY else carry_on(phase)
    )
    post = ask("/v1/completions", "POST", body=b"{}").replace(b"connection: close\r\n", b"")
    answer = talk(judged.port, post + post, timeout=0.5)
    assert answer.count(body) == 2  # the connection stays usable
    assert answer.count(b"retry-after: 7\r\n") == 2
    assert answer.count(b"content-type: application/json\r\n") == 2
    assert answer.count(b"x-llm-reason: quota\r\n") == 2
    assert status(answer) == code
    assert engine.requests == []


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_above_envoys_limit_is_413_naming_the_key(
    judged: RealEnvoy, sidecar: StubSidecar, engine: RecordingUpstream, chunked: bool
) -> None:
    sidecar.script = lambda phase, _: carry_on(phase)
    big = b"x" * (LIMIT + 65536 + 1)
    post = ask("/v1/completions", "POST", body=big)
    if chunked:
        post = ask("/v1/completions", "POST", CHUNKED) + b"%x\r\n" % len(big) + big + b"\r\n0\r\n\r\n"
    answer = talk(judged.port, post)
    assert status(answer) == 413
    assert "limits.max_body_bytes" in error(answer)["message"]
    assert engine.requests == []


def test_a_body_at_envoys_limit_passes(
    judged: RealEnvoy, sidecar: StubSidecar, engine: RecordingUpstream
) -> None:
    sidecar.script = lambda phase, _: carry_on(phase)
    body = b"x" * (LIMIT + 65536)
    assert status(talk(judged.port, ask("/v1/completions", "POST", body=body))) == 200
    assert only(engine).body == body


def test_a_slow_sidecar_is_503_when_closed(
    judged: RealEnvoy, sidecar: StubSidecar, engine: RecordingUpstream
) -> None:
    def sleep(phase: int, _: Seen) -> bytes:
        time.sleep(1.3)
        return carry_on(phase)

    sidecar.script = sleep
    answer = talk(judged.port, ask("/v1/completions", "POST", body=b"{}"))
    assert (status(answer), error(answer)["code"]) == (503, "sidecar_unavailable")
    assert engine.requests == []


def test_a_dead_sidecar_is_503_when_closed(closed: RealEnvoy, engine: RecordingUpstream) -> None:
    answer = talk(closed.port, ask("/v1/chat/completions", "POST", body=b"{}"))
    assert (status(answer), error(answer)["code"]) == (503, "sidecar_unavailable")
    assert engine.requests == []


def test_a_broken_engine_is_a_json_error(envoy: RealEnvoy, engine: RecordingUpstream) -> None:
    engine.answer = lambda _: b"nonsense\r\n\r\n"
    answer = talk(envoy.port, ask("/v1/models"))
    assert (status(answer), error(answer)["code"]) == (502, "engine_unavailable")
    assert len(engine.requests) == 1  # it was reached, so it is not asked twice


def test_an_absent_engine_is_a_json_error() -> None:
    with RealEnvoy(plan(1)) as running:
        answers = [talk(running.port, ask("/v1/models")) for _ in range(8)]
    assert [(status(each), error(each)["code"]) for each in answers] == [(503, "engine_unavailable")] * 8


def test_the_shipped_file_names_no_python() -> None:
    folder = Path(__file__).resolve().parents[2] / "envoy"
    assert not list(folder.rglob("*.py"))
