"""Breakers, fallback and panic through the real Envoy: engines fail, are left alone, and heal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.asking import CHAT, TRUSTED, ask, chat
from tests.e2e.faulty import FaultyEngine, Guarded, ask_many, engine, served_by, steady
from tests.e2e.running import until
from tests.engines_real.llamacpp import LlamaCppServer

CRITICAL = {**TRUSTED, "x-request-class": "critical"}


@pytest.fixture
def big(tmp_path: Path) -> Iterator[FaultyEngine]:
    running = engine(tmp_path / "big")
    yield running
    running.stop()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[FaultyEngine]:
    running = engine(tmp_path / "other")
    yield running
    running.stop()


def stable(name: str, url: str, kind: str = "vllm") -> dict[str, object]:
    return {"name": name, "engine": kind, "endpoints": [url]}


def light(url: str) -> dict[str, object]:
    return {
        "name": "light",
        "engine": "llamacpp",
        "endpoints": [url],
        "role": "light",
        "served_model": "tiny-random",
    }


def test_a_failing_slow_engine_is_relieved_by_a_light_model_until_it_heals(
    big: FaultyEngine, llamacpp: LlamaCppServer
) -> None:
    pools = [stable("big", big.url), light(f"http://127.0.0.1:{llamacpp.http_port}")]
    # The engine must not be shut as well: this is about answers that are bad, not about a pool that is dead.
    shut_later = {"breakers": {"pool": {"trip": [{"error_rate": 0.9}]}}}
    with Guarded(pools, protection=shut_later) as world:
        assert {served_by(answer) for answer in ask_many(world.port, 30)} == {"200"}
        big.fail(status=503, share=0.5, delay_ms=900)
        with steady(lambda: served_by(ask(world.port, CHAT, chat("hello"))), clients=4):
            until(lambda: world.breaker("fallback/big") == "open", within_s=30, what="fallback")
            until(lambda: world.breaker("parameters") != "closed", what="parameters")

        big.clear()
        long_text = "What I want to know is this: " + "one thing after the other, " * 80
        answers = ask_many(world.port, 200, clients=2, text=long_text)
        relieved = [each for each in answers if served_by(each) == "200 fallback_breaker"]
        assert len(relieved) >= 0.99 * len(answers) - len(big.received()), [served_by(each) for each in answers]
        assert len(big.received()) <= 0.05 * len(answers) + 1
        usage = relieved[0].json()["usage"]
        assert usage["prompt_tokens"] < 400, "a byte is a token to a model of random weights"
        records = world.sidecar.audit(relieved[0].request_id)
        cut = next(each for each in records if each["field"] == "prompt_tokens")
        assert cut["from"] > 600 and 100 <= cut["to"] <= 128
        assert (cut["rule"], cut["reason"]) == ("fallback.prompt", "fallback_breaker")
        assert "one thing" not in json.dumps(records)

        big.heal()
        with steady(lambda: served_by(ask(world.port, CHAT, chat("hello"))), clients=4) as came:
            until(lambda: world.breaker("fallback/big") == "closed", within_s=60, what="healed")
            until(lambda: world.breaker("parameters") == "closed", within_s=60, what="parameters healed")
        assert not [result for result in came if not result.startswith("200")], came
        states = [each["state"] for each in world.incidents() if each["subject"] == "fallback/big"]
        assert states[0] == "open" and states[-1] == "closed" and "half_open" in states
        assert served_by(ask(world.port, CHAT, chat("hello"))) == "200"


@pytest.mark.parametrize("status", [400, 429])
def test_what_clients_get_wrong_opens_nothing(big: FaultyEngine, other: FaultyEngine, status: int) -> None:
    with Guarded([stable("big", big.url), stable("other", other.url)]) as world:
        big.fail(status=status, share=1.0, delay_ms=5)
        assert {answer.status for answer in ask_many(world.port, 50)} == {status}
        until(lambda: world.sidecar.count("llm_request_outcomes_total", outcome="client_error") >= 50, what="log")
        assert {each["state"] for each in world.status()["breakers"]} == {"closed"}
        assert world.incidents() == []


def test_a_shut_pool_refuses_default_traffic_and_serves_what_is_critical(
    big: FaultyEngine, other: FaultyEngine
) -> None:
    with Guarded([stable("big", big.url), stable("other", other.url)]) as world:
        assert {answer.status for answer in ask_many(world.port, 30)} == {200}
        before = world.envoy.stats("")
        big.fail(status=503)
        ask_many(world.port, 40)
        until(lambda: world.breaker("pool/big") == "open", what="open")
        big.heal()
        shut = until(
            lambda: next((a for a in [ask(world.port, CHAT, chat("x"))] if a.values("x-envoy-overloaded")), None),
            what="an answer of Envoy's breaker",
        )
        assert shut.status == 503
        assert {a.status for a in ask_many(world.port, 20, headers=CRITICAL)} == {200}
        with steady(lambda: str(ask(world.port, CHAT, chat("x")).status), clients=2):
            until(lambda: world.breaker("pool/big") == "closed", within_s=60, what="closed again")
        assert {answer.status for answer in ask_many(world.port, 20)} == {200}
        after = world.envoy.stats("")
        for counter in ("cluster_manager.cluster_modified", "cluster.big.upstream_cx_destroy_with_active_rq"):
            assert after[counter] == before[counter], counter
        assert after["cluster.big.upstream_rq_active_overflow"] > before["cluster.big.upstream_rq_active_overflow"]


def test_several_workers_all_follow(big: FaultyEngine, other: FaultyEngine) -> None:
    """Each judges by the same snapshot, and tells the same of what it did."""
    pools = [stable("big", big.url), light(other.url)]
    with Guarded(pools, workers=2) as world:
        assert {answer.status for answer in ask_many(world.port, 30)} == {200}
        big.fail(status=503)
        ask_many(world.port, 40)
        until(lambda: world.breaker("pool/big") != "closed", what="open")
        until(lambda: served_by(ask(world.port, CHAT, chat("x"))) == "200 pool_breaker", what="followed")
        came = {served_by(answer) for answer in ask_many(world.port, 60, clients=3)}
        assert came <= {"200 pool_breaker", "503"} and "200 pool_breaker" in came, came
        until(lambda: world.sidecar.count("llm_fallbacks_total", reason="pool_breaker") >= 50, what="counted")
        big.heal()
        with steady(lambda: served_by(ask(world.port, CHAT, chat("x"))), clients=3):
            until(lambda: world.breaker("pool/big") == "closed", within_s=60, what="closed again")
            until(lambda: world.breaker("fallback/big") == "closed", within_s=60, what="fallback too")
        until(lambda: {served_by(answer) for answer in ask_many(world.port, 20)} == {"200"}, what="followed back")


def test_without_a_light_pool_for_its_api_a_request_is_told_so(big: FaultyEngine, other: FaultyEngine) -> None:
    pools = [stable("big", big.url, "triton"), light(other.url)]
    with Guarded(pools) as world:
        body = {"text_input": "hello", "max_tokens": 8}
        path = "/v2/models/m/generate"
        big.fail(status=503)
        for _ in range(25):
            ask(world.port, path, body)
        until(lambda: world.breaker("pool/big") == "open", what="open")
        refused = until(
            lambda: next((a for a in [ask(world.port, path, body)] if a.values("retry-after")), None),
            what="refusal",
        )
        refused.error(503, "no_fallback_for_dialect")


def panicked(world: Guarded, big: FaultyEngine) -> None:
    """The only pool fails until it is the panic pool; then it is well, and serves."""
    big.fail(status=503)
    with steady(lambda: str(ask(world.port, CHAT, chat("x")).status)):
        until(lambda: world.status()["panic"] == "big", what="panic")
    big.heal()
    until(lambda: ask(world.port, CHAT, chat("x")).status == 200, what="served all the same")


def test_the_least_bad_serves_when_every_pool_is_open(big: FaultyEngine) -> None:
    with Guarded([stable("big", big.url)]) as world:
        panicked(world, big)
        assert "panic" in {each["kind"] for each in world.incidents()}


def test_the_only_pool_refuses_nobody_while_it_heals(big: FaultyEngine) -> None:
    with Guarded([stable("big", big.url)]) as world:
        panicked(world, big)
        with steady(lambda: str(ask(world.port, CHAT, chat("x")).status), clients=4) as came:
            until(lambda: world.breaker("pool/big") == "closed", within_s=60, what="closed again")
        assert set(came) == {"200"}, came
        breaker = [each for each in world.incidents() if each["kind"] == "breaker"]
        states = [each["state"] for each in breaker if each["subject"] == "pool/big"]
        assert "half_open" in states and states[-1] == "closed", "it was tried out meanwhile"


def test_an_open_breaker_outlives_the_sidecar(big: FaultyEngine, other: FaultyEngine) -> None:
    long = {"breakers": {"pool": {"open_s": 600, "max_open_s": 600}}}
    with Guarded([stable("big", big.url), stable("other", other.url)], protection=long) as world:
        big.fail(status=503)
        ask_many(world.port, 40)
        until(lambda: world.breaker("pool/big") == "open", what="open")
        waited = next(each for each in world.status()["breakers"] if each["name"] == "pool/big")["next_probe_in_s"]
        world.sidecar.kill()
        big.heal()
        world.sidecar.start()
        state = next(each for each in world.status()["breakers"] if each["name"] == "pool/big")
        assert state["state"] == "open"
        assert state["next_probe_in_s"] < waited, "time that passed counts"
        until(lambda: ask(world.port, CHAT, chat("x")).values("x-envoy-overloaded"), what="shut in Envoy")
