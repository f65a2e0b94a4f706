"""What a client says about itself has no effect and goes no further; what a trusted caller says has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.asking import CHAT, NORMAL, STRICT, Answer, Raw, ask, chat
from tests.e2e.running import TOKENS, Engine, Stack, until

DECISIONS = ["tier", "scenario", "priority", "params", "tenant", "pool", "continuation", "canary"]
CALLER = {
    "x-business-label": "recommendation",
    "x-request-class": "critical",
    "x-tenant": "vip",
    "x-param-temperature": "2",
    "x-param-top-p": "0.11",
    "x-param-max-tokens": "4444",
}


@pytest.fixture(scope="module")
def dead(engine: Engine) -> Iterator[Stack]:
    """The same system whose sidecar is gone; requests pass unjudged."""
    with Stack(engine=engine) as running:
        running.sidecar.kill()
        yield running


def assert_untouched_by(answer: Answer, *, tier: str = "strict") -> None:
    """Judged as any other client, and nothing of the caller's headers left."""
    assert answer.params["temperature"] == 0.3
    assert answer.params["max_tokens"] == 120
    assert answer.params["priority"] == 0
    assert answer.decided("tier") == tier
    assert answer.decided("priority") == "normal"
    assert answer.decided("tenant") == "anonymous"
    assert_gone(answer)


def assert_gone(answer: Answer) -> None:
    names = ("x-caller-token", *CALLER)
    assert not [name for name in answer.seen if name in names or name.startswith("x-param-")]


@pytest.mark.parametrize("spell", [str.lower, str.title, str.upper])
def test_decision_headers_of_a_client_are_dropped(front: int, spell) -> None:  # type: ignore[no-untyped-def]
    forged = [(spell(f"x-llm-{name}"), value) for name in DECISIONS for value in ("critical", "engine-3")]
    answer = ask(front, CHAT, chat(STRICT), forged)
    assert_untouched_by(answer)
    decided = {name: values for name, values in answer.seen.items() if name.startswith("x-llm-")}
    assert all(len(values) == 1 for values in decided.values())
    assert set(decided) == {
        f"x-llm-{name}" for name in ("tier", "scenario", "priority", "params", "tenant", "model", "pool")
    }
    assert answer.decided("pool") == "engine-1"


@pytest.mark.parametrize(
    "proof",
    [
        [],
        [("x-caller-token", "wrong")],
        [("x-caller-token", "")],
        [("x-caller-token", TOKENS[0]), ("x-caller-token", TOKENS[0])],
        [("x-caller-token", TOKENS[0]), ("x-caller-token", "wrong")],
        [("x-caller-token", f"{TOKENS[0]}, {TOKENS[1]}")],
        [("x-caller-token", TOKENS[0].upper())],
        [("x-caller-token", f"Bearer {TOKENS[0]}")],
        [("x-forwarded-for", "10.9.1.1")],
        [("x-forwarded-for", "10.9.1.1, 10.9.1.1"), ("x-real-ip", "10.9.1.1")],
        [("forwarded", "for=10.9.1.1"), ("x-envoy-external-address", "10.9.1.1")],
        [("x-forwarded-client-cert", "URI=spiffe://mesh/ns/shop/sa/web")],
    ],
)
def test_without_proof_a_caller_is_a_client(front: int, proof: list[tuple[str, str]]) -> None:
    assert_untouched_by(ask(front, CHAT, chat(STRICT), [*CALLER.items(), *proof]))


def test_values_that_would_be_refused_are_ignored_without_proof(front: int) -> None:
    headers = {"x-param-temperature": "hot", "x-request-class": "urgent", "x-tenant": "a b"}
    assert_untouched_by(ask(front, CHAT, chat(STRICT), headers))


@pytest.mark.parametrize("token", TOKENS)
def test_with_either_token_they_have_effect_and_go_no_further(front: int, token: str) -> None:
    answer = ask(front, CHAT, chat(STRICT), {**CALLER, "x-caller-token": token})
    assert (answer.params["temperature"], answer.params["top_p"]) == (2, 0.11)
    assert (answer.params["max_tokens"], answer.params["priority"]) == (4444, -10)
    assert (answer.decided("tier"), answer.decided("scenario")) == ("creative", "recommendation")
    assert (answer.decided("tenant"), answer.decided("priority")) == ("vip", "critical")
    assert_gone(answer)


def test_a_repeated_statement_of_a_trusted_caller_is_no_statement(front: int) -> None:
    headers = [("x-caller-token", TOKENS[0]), ("x-param-temperature", "2"), ("x-param-temperature", "1")]
    answer = ask(front, CHAT, chat(STRICT), headers)
    assert answer.params["temperature"] == 0.3
    assert_gone(answer)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_they_go_no_further_on_paths_that_are_not_read(stack: Stack, method: str) -> None:
    path = "/v1/audio/transcriptions" if method == "POST" else "/v1/models"
    headers = [("x-llm-pool", "engine-3"), *CALLER.items(), ("x-caller-token", "wrong")]
    answer = ask(stack.port, path, b"{}" if method == "POST" else None, headers, method=method)
    seen = stack.engine.one(answer.request_id)["headers"]
    assert seen["x-llm-pool"] == ["engine-1"]
    assert seen["x-llm-priority"] == ["normal"]
    assert not set(seen) & {"x-caller-token", *CALLER}


def test_any_other_parameter_header_goes_no_further_either(front: int) -> None:
    answer = ask(front, CHAT, chat(STRICT), {"x-param-top-k": "1", "x-param-seed": "1"})
    assert not [name for name in answer.seen if name.startswith("x-param-")]


def test_they_go_no_further_with_an_upgrade(stack: Stack) -> None:
    request_id = "upgraded-with-a-token"
    with Raw(stack.port) as client:
        client.send(
            b"GET /v1/realtime HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"x-llm-pool: engine-3\r\nx-llm-tier: strict\r\nx-caller-token: "
            + TOKENS[0].encode()
            + b"\r\nx-tenant: vip\r\nx-request-id: "
            + request_id.encode()
            + b"\r\n\r\n"
        )
        assert client.answer(method="GET").status == 101
    seen = until(lambda: stack.engine.received(request_id))[0]["headers"]
    assert not [name for name in seen if name.startswith(("x-llm-", "x-tenant", "x-caller"))]


@pytest.mark.parametrize("token", [None, "wrong", TOKENS[0]])
def test_they_go_no_further_while_the_sidecar_is_dead(dead: Stack, token: str | None) -> None:
    forged = [(f"X-LLM-{name}", value) for name in DECISIONS for value in ("critical", "engine-3")]
    proof = [] if token is None else [("x-caller-token", token)]
    answer = ask(dead.port, CHAT, chat(NORMAL, temperature=1.7), [*forged, *CALLER.items(), *proof])
    assert answer.params == {"model": "demo", "temperature": 1.7}
    assert not [name for name in answer.seen if name.startswith("x-llm-")]
    assert_gone(answer)
    line = dead.access(answer.request_id)
    assert (line["cluster"], line["route"]) == ("engine-1", "openai")


def test_a_dead_sidecar_leaves_every_family_on_its_default_pool(dead: Stack) -> None:
    paths = {
        "/v1/messages": "engine-1",
        "/v1/embeddings": "engine-1",
        "/v2/models/m/generate": "engine-2",
        "/completion": "engine-3",
    }
    for path, pool in paths.items():
        answer = ask(dead.port, path, {"x": 1})
        assert answer.params["x"] == 1
        assert dead.access(answer.request_id)["cluster"] == pool
