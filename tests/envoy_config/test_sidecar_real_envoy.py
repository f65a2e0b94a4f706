"""What Envoy takes from a sidecar, and what it answers in its place when it is slow, dead or refuses."""

from __future__ import annotations

import json
import time

import pytest

from tests.envoy_config.messages import CHUNKED, LIMIT, ask, error, only, status
from tests.envoy_config.stub_sidecar import (
    BODY,
    HEADERS,
    Script,
    Seen,
    StubSidecar,
    carry_on,
    change,
    metadata,
    reject,
)
from tests.real_envoy import RealEnvoy, RecordingUpstream, plan, talk

pytestmark = pytest.mark.envoy


def test_an_h2c_offer_is_ignored_and_the_request_judged(
    judged: RealEnvoy, sidecar: StubSidecar, engine: RecordingUpstream
) -> None:
    offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
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
    sidecar.script = route_by
    sent = b"authorization: mine\r\ncookie: c\r\nx-other: 1\r\nx-forwarded-for: 9.9.9.9\r\nx-llm-pool: fake\r\n"
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
    unread = {"x-other", "cookie", "authorization", "x-forwarded-for", "x-llm-pool"}
    assert not unread & {name for name, _ in seen.headers}
    assert {":method", ":path", "content-length", "x-request-id"} <= {n for n, _ in seen.headers}


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
    sidecar.script = lambda phase, _: reject(code, body, headers, details) if phase == BODY else carry_on(phase)
    post = ask("/v1/completions", "POST", body=b"{}").replace(b"connection: close\r\n", b"")
    answer = talk(judged.port, post + post, answers=2)
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
    big = b"x" * (LIMIT + 65536 + 1)
    post = ask("/v1/completions", "POST", body=big)
    if chunked:
        post = ask("/v1/completions", "POST", CHUNKED) + b"%x\r\n" % len(big) + big + b"\r\n0\r\n\r\n"
    answer = talk(judged.port, post)
    assert status(answer) == 413
    assert "limits.max_body_bytes" in error(answer)["message"]
    assert engine.requests == []


def test_a_body_at_envoys_limit_passes(judged: RealEnvoy, sidecar: StubSidecar, engine: RecordingUpstream) -> None:
    body = b"x" * (LIMIT + 65536)
    assert status(talk(judged.port, ask("/v1/completions", "POST", body=body))) == 200
    assert only(engine).body == body


BROKEN: dict[str, Script] = {
    "the answer to another message": lambda phase, _: carry_on(BODY if phase == HEADERS else HEADERS),
    "a body without its length": lambda phase, _: change(phase, {"x-llm-tier": "a"}, body=b"longer than before"),
    "a header with a line break": lambda phase, _: change(phase, {"x-llm-tier": "a\nb"}),
    "no answer in the message": lambda phase, _: b"",
    "no protobuf": lambda phase, _: b"\x0a\x05ab",
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_sidecar_is_503_when_closed(
    judged: RealEnvoy, sidecar: StubSidecar, engine: RecordingUpstream, fault: str
) -> None:
    sidecar.script = lambda phase, seen: (
        BROKEN[fault](phase, seen) if phase == BODY or fault.startswith("the answer") else carry_on(phase)
    )
    answer = talk(judged.port, ask("/v1/completions", "POST", body=b"{}"))
    assert (status(answer), error(answer)["code"]) == (503, "sidecar_unavailable")
    assert engine.requests == []


def test_a_sidecar_that_hangs_is_504_when_closed(
    judged: RealEnvoy, sidecar: StubSidecar, engine: RecordingUpstream
) -> None:
    def sleep(phase: int, _: Seen) -> bytes:
        time.sleep(2.3)
        return carry_on(phase)

    sidecar.script = sleep
    answer = talk(judged.port, ask("/v1/completions", "POST", body=b"{}"))
    assert (status(answer), error(answer)["code"]) == (504, "sidecar_unavailable")
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
