"""Answers in, lengths out; what survives a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from extproc.loops.lengths import LengthWatch, decode
from extproc.model.telemetry import UsageSample
from extproc.settings import load


def usage(tokens: int, **changes: Any) -> UsageSample:
    usual: dict[str, Any] = {
        "model": "m",
        "scenario": "order_query",
        "tier": "strict",
        "tenant": "t",
        "pool": "big",
        "prompt_tokens": 10,
        "output_tokens": tokens,
        "finish_reason": "stop",
        "estimated": False,
    }
    return UsageSample(**(usual | changes))


class World:
    def __init__(self, kept: bytes | None = None, text: str = "") -> None:
        self.saved: list[bytes] = []
        self.watch = LengthWatch(kept, save=self.saved.append)
        self.configure(text)

    def configure(self, text: str) -> None:
        settings = load(text)
        rules = settings.inference_params.max_tokens
        self.watch.configure(
            settings.lengths, settings.scenarios, default=rules.default, whitelist=rules.whitelist, light={"light"}
        )

    def learn(self, count: int, *samples: UsageSample, steps: int = 20) -> None:
        for _ in range(count):
            for each in samples:
                self.watch.record(each)
        for _ in range(steps):
            self.watch.step()
            for each in samples:
                self.watch.record(each)


def test_it_starts_where_the_config_says_and_tells_nothing_yet() -> None:
    world = World()
    found = world.watch.estimates()
    assert (found["order_query"].tokens, found["returns"].tokens, found["recommendation"].tokens) == (120, 210, 350)
    assert found["payment"].tokens == 256 and "legal" not in found, "the model's cap alone bounds it"
    world.learn(79, usage(50))
    assert world.watch.told == {}, "too few"


def test_it_moves_in_steps_to_what_is_seen() -> None:
    world = World()
    world.learn(200, usage(300), steps=1)
    assert world.watch.told == {"order_query": 150}
    world.learn(0, usage(300))
    assert world.watch.told == {"order_query": 360}
    assert world.watch.estimates()["order_query"].samples > 200


def test_nothing_new_changes_nothing() -> None:
    world = World()
    for _ in range(200):
        world.watch.record(usage(300))
    assert world.watch.step() and len(world.saved) == 1
    assert not world.watch.step() and world.watch.told == {"order_query": 150} and len(world.saved) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"scenario": "nobody"},
        {"scenario": ""},
        {"pool": "light"},
        {"finish_reason": "error"},
        {"output_tokens": -1},
        {"estimated": True},
        {"estimated": True, "finish_reason": "length"},
        {"estimated": True, "finish_reason": ""},
    ],
)
def test_what_tells_nothing(changes: dict[str, Any]) -> None:
    world = World()
    world.learn(200, usage(300, **{"output_tokens": 300} | changes))
    assert world.watch.told == {}


def test_cut_answers_raise_it_to_the_bound_and_no_further() -> None:
    world = World(text="lengths: {most: 1000}")
    for _ in range(60):
        limit = world.watch.told.get("order_query", 120)
        world.learn(100, usage(limit, finish_reason="length"), steps=1)
    assert world.watch.told == {"order_query": 1000}


class Live:
    """Answers of `lengths`, each cut where the length told at its moment says, fifty between two steps."""

    def __init__(self, sample: Callable[[int, int, bool], UsageSample]) -> None:
        self._sample = sample
        self._random = np.random.default_rng(1)
        self.world = World()

    def answer(self, count: int, scale: float = 1.0) -> None:
        for number in range(count):
            limit = self.world.watch.told.get("order_query", 120)
            length = int(scale * self._random.lognormal(5.6, 0.35))
            self.world.watch.record(self._sample(length, limit, self._random.uniform() < 0.5))
            if number % 50 == 49:
                self.world.watch.step()

    @property
    def tokens(self) -> float:
        return self.world.watch.estimates()["order_query"].tokens


WANTED = 1.2 * float(np.exp(5.6 + 1.6449 * 0.35))
"""The true P95 of Live's answers and the headroom."""


def ends(length: int, limit: int) -> str:
    return "length" if length > limit else "stop"


def counted(length: int, limit: int, _: bool = False) -> UsageSample:
    return usage(min(length, limit), finish_reason=ends(length, limit))


def left_by_half(length: int, limit: int, leaves: bool) -> UsageSample:
    return usage(min(length, limit) // 4, finish_reason="") if leaves else counted(length, limit)


@pytest.mark.parametrize("sample", [counted, left_by_half])
def test_it_finds_the_p95_and_follows_a_shift(sample: Callable[[int, int, bool], UsageSample]) -> None:
    live = Live(sample)
    live.answer(2000)
    assert live.tokens == pytest.approx(WANTED, rel=0.15)
    live.answer(3000, scale=2)
    assert live.tokens == pytest.approx(2 * WANTED, rel=0.15)
    live.answer(3000, scale=0.5)
    assert live.tokens == pytest.approx(0.5 * WANTED, rel=0.15)


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(
            lambda length, limit, _: usage(
                -(-min(length, limit) // 4), finish_reason=ends(length, limit), estimated=True
            ),
            id="four tokens in an event",
        ),
        pytest.param(
            lambda length, limit, _: usage(min(length, limit), finish_reason="", estimated=True),
            id="a stream that says nothing of its end",
        ),
        pytest.param(
            lambda length, limit, _: usage(min(length, limit) // 4, finish_reason=""),
            id="everybody leaves at a quarter",
        ),
    ],
)
def test_what_says_too_little_never_shortens_answers(sample: Callable[[int, int, bool], UsageSample]) -> None:
    live = Live(sample)
    live.answer(2000)
    assert live.tokens >= 120


def test_it_outlives_a_restart() -> None:
    world = World()
    world.learn(200, usage(300))
    told = world.watch.told
    world.learn(50, usage(300), steps=0)
    world.watch.keep()
    again = World(world.saved[-1])
    assert again.watch.told == told
    assert again.watch.estimates()["order_query"].samples == world.watch.estimates()["order_query"].samples


def test_a_new_start_in_the_config_begins_anew() -> None:
    world = World()
    world.learn(200, usage(300))
    world.configure("scenarios: {order_query: {tier: strict, length: 90}}")
    assert world.watch.estimates()["order_query"].tokens == 90 and world.watch.told == {}


def test_switched_off() -> None:
    world = World()
    world.learn(200, usage(300))
    world.configure("lengths: {enabled: false}")
    assert world.watch.told == {} and not world.watch.step()


@pytest.mark.parametrize("kept", [None, b"", b"[]", b'{"x": 1}', b'{"order_query": {"tokens": -1, "samples": 5}}'])
def test_a_broken_file_is_no_estimate(kept: bytes | None) -> None:
    assert decode(kept) == {}
    assert World(kept).watch.told == {}
