"""Headers, framing and upgrades through a real Envoy, down to the bytes an engine gets."""

from __future__ import annotations

import pytest

from tests.envoy_config.messages import CHUNKED, HIDDEN, WEBSOCKET, ask, error, only, status
from tests.real_envoy import Answer, RealEnvoy, Received, RecordingUpstream, ok, talk

pytestmark = pytest.mark.envoy


# ── headers ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/version"])
def test_decision_and_caller_headers_never_reach_an_engine(
    envoy: RealEnvoy, engine: RecordingUpstream, path: str
) -> None:
    names = ["X-LLM-Tier", "x-llm-pool", "x-llm-priority", "x-llm-tenant", "x-llm-params", "x-llm-anything"]
    names += ["x-caller-token", "x-business-label", "x-request-class", "x-tenant", "x-envoy-retry-on"]
    names += [
        "X-Param-Temperature",
        "x-param-top-p",
        "x-param-max-tokens",
        "x-param-unheard-of",
        "x-envoy-upstream-rq-timeout-ms",
    ]
    names += ["x_llm_pool", "X-LLM_tier", "x_tenant", "x_caller_token", "x-caller_token", "x-param_max-tokens"]
    spoofed = b"".join(f"{name}: critical\r\n{name}: 1\r\n".encode() for name in names)
    assert status(talk(envoy.port, ask(path, "POST", spoofed, b"{}"))) == 200
    assert not {name for name, _ in only(engine).headers} & {name.lower() for name in names}


def test_bytes_and_duplicates_survive(envoy: RealEnvoy, engine: RecordingUpstream) -> None:
    engine.answer = lambda _: (
        b"HTTP/1.1 200 OK\r\nset-cookie: a\r\nset-cookie: b\r\nx-raw: \xff\r\nserver: mine\r\n"
        b"content-length: 0\r\n\r\n"
    )
    sent = b"x-multi: \xff\xfe\r\nx-multi: two\r\nx-request-id: mine\r\nauthorization: Bearer s\r\n"
    answer = talk(envoy.port, ask("/v1/models", headers=sent))
    assert only(engine).values("x-multi") == [b"\xff\xfe", b"two"]
    assert only(engine).values("x-request-id") == [b"mine"]
    assert only(engine).values("authorization") == [b"Bearer s"]
    for line in (b"set-cookie: a", b"set-cookie: b", b"x-raw: \xff", b"server: mine"):
        assert line in answer.split(b"\r\n")


def test_headers_named_by_connection_are_not_forwarded(envoy: RealEnvoy, engine: RecordingUpstream) -> None:
    data = b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close, x-foo\r\nx-foo: 1\r\nkeep-alive: 5\r\n\r\n"
    assert status(talk(envoy.port, data)) == 200
    assert not {"x-foo", "connection", "keep-alive"} & {name for name, _ in only(engine).headers}


# ── framing ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", ["envoy", "judged"])
@pytest.mark.parametrize(
    "case",
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
    case: tuple[str, bytes, bytes, bytes],
) -> None:
    method, headers, payload, body = case
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
        b"CONNECT x:80 HTTP/1.1\r\nhost: x:80\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        b"GET /v1/x HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 300 + b"\r\n",
    ],
)
def test_a_broken_request_is_refused_in_json(envoy: RealEnvoy, engine: RecordingUpstream, data: bytes) -> None:
    answer = talk(envoy.port, data + HIDDEN, answers=2, timeout=0.2)
    assert answer.count(b"HTTP/1.1 ") == 1  # nothing behind it is read
    assert 400 <= status(answer) <= 501
    assert error(answer)["code"] == "request_refused"
    assert engine.requests == []


def test_a_request_without_host_is_refused_and_its_connection_goes_on(envoy: RealEnvoy) -> None:
    answer = talk(envoy.port, b"GET /v1/models HTTP/1.1\r\n\r\n" + ask("/v1/models"), answers=2)
    assert error(answer.split(b"HTTP/1.1 200")[0])["code"] == "request_refused"
    assert b"HTTP/1.1 200 OK" in answer


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
