"""Keeps what answers were like by scenario, and what follows for the next ones. Used from the event loop's
thread."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
from msgspec import Struct

from extproc.lengths import Answer, LengthsConfig, moved, target, worth_telling
from extproc.model.telemetry import UsageSample
from extproc.parameters import Scenario

log = logging.getLogger("extproc.loops.lengths")

CUT = frozenset({"", "length", "max_tokens", "max_output_tokens", "limit"})
"""How engines say that a limit ended the answer. One that says nothing may have been left by its client."""


class Estimate(Struct, frozen=True):
    """`tokens` granted; `samples`: answers that were counted, since ever."""

    tokens: float
    samples: int


class _Scenario:
    __slots__ = ("answers", "fresh", "samples", "tokens")

    def __init__(self, tokens: float, samples: int, window: int) -> None:
        self.tokens = tokens
        self.samples = samples
        self.answers: deque[Answer] = deque(maxlen=window)
        self.fresh = False


class LengthWatch:
    """`save` writes estimates; `kept` is what it wrote before."""

    def __init__(self, kept: bytes | None, *, save: Callable[[bytes], object]) -> None:
        self._save = save
        self._known = decode(kept)
        self._scenarios: dict[str, _Scenario] = {}
        self._config: LengthsConfig | None = None
        self._light: Collection[str] = ()
        self._starts: dict[str, int] = {}
        self.told: Mapping[str, int] = {}
        """Tokens by scenario, of those that are learnt."""

    def configure(
        self,
        config: LengthsConfig,
        scenarios: Mapping[str, Scenario],
        *,
        default: int,
        whitelist: Iterable[str],
        light: Collection[str],
    ) -> None:
        """Scenarios that left are forgotten; one that is whitelisted is bounded by its model's cap alone."""
        names = scenarios.keys() - set(whitelist)
        starts = {name: scenarios[name].length or default for name in sorted(names)}
        if self._config is None or config.window != self._config.window:
            self._scenarios.clear()
        self._config, self._light = config, light
        for name, start in starts.items():
            if name not in self._scenarios or self._starts.get(name) != start:
                self._scenarios[name] = self._begin(name, start, config)
        self._scenarios = {name: self._scenarios[name] for name in starts}
        self._starts = starts
        learnt = {name: each for name, each in self._scenarios.items() if each.samples >= config.min_samples}
        self.told = {name: round(each.tokens) for name, each in learnt.items()} if config.enabled else {}

    def _begin(self, name: str, start: int, config: LengthsConfig) -> _Scenario:
        known = self._known.get(name)
        if known is None or (self._starts and self._starts.get(name) != start):
            return _Scenario(float(start), 0, config.window)
        return _Scenario(min(known.tokens, float(config.most)), known.samples, config.window)

    def record(self, sample: UsageSample) -> None:
        """One answer, where it tells how long the scenario's answers are."""
        known = self._scenarios.get(sample.scenario)
        if known is None or sample.pool in self._light or not _tells(sample):
            return
        known.answers.append(Answer(sample.output_tokens, sample.finish_reason in CUT))
        known.samples += 1
        known.fresh = True

    def step(self) -> bool:
        """Whether any estimate moved by so much that requests are to be told."""
        config = self._config
        if config is None or not config.enabled:
            return False
        news = dict(self.told)
        for name, each in self._scenarios.items():
            if each.fresh and len(each.answers) >= config.min_samples:
                each.fresh = False
                each.tokens = moved(each.tokens, target(each.answers, each.tokens, config), config)
                if name not in news or worth_telling(news[name], each.tokens, config):
                    news[name] = round(each.tokens)
        if news == self.told:
            return False
        self.told = news
        self.keep()
        return True

    def keep(self) -> None:
        """Estimates and counts, as they are now."""
        self._save(msgspec.json.encode(self.estimates()))

    def estimates(self) -> dict[str, Estimate]:
        """Of every scenario, also of those that are still at their start."""
        return {name: Estimate(round(each.tokens, 1), each.samples) for name, each in self._scenarios.items()}


def _tells(sample: UsageSample) -> bool:
    """Not where it failed, and not by counted events: one may hold several tokens, and lengths would only sink."""
    return not sample.estimated and sample.finish_reason != "error" and sample.output_tokens >= 0


def decode(kept: bytes | None) -> Mapping[str, Estimate]:
    """Nothing where the file is missing or broken, which is said in one line: lengths begin at their start."""
    if kept is None:
        return {}
    try:
        found = msgspec.json.decode(kept, type=dict[str, Estimate])
    except msgspec.MsgspecError as error:
        log.error("learnt lengths are not readable, they begin anew: %s", error)
        return {}
    return {name: each for name, each in found.items() if each.tokens >= 1 and each.samples >= 0}
