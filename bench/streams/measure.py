"""Streams through both variants, and what they cost the sidecar while they open, stay open and end."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.bodies import PATH, body
from bench.errors import CannotMeasure
from bench.processes import answers, cpu_s, free_port, rss_mb, running
from bench.streams.native import program
from bench.variants import NONE, OURS_FAST, Variant, variant

BODY = "2 KB"

WARM_UP_REQUESTS = 50
IDLE_S = 10.0
"""How long the idle sidecar is watched: some intervals of its own looks at the engines."""

CLOSED_WITHIN_S = 10.0
LATE_S = 20.0
"""After the last stream should have ended, the client gives up."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """`spread_s`: over which the streams start. `apart`: one variant after the other, else at the same time."""

    streams: int = 1000
    seconds: float = 30.0
    rate: float = 5.0
    spread_s: float = 2.0
    apart: bool = False

    @property
    def events(self) -> int:
        """Of one stream."""
        return round(self.seconds * self.rate)


class Spread(msgspec.Struct, frozen=True):
    """Of one kind of duration, in ms."""

    p50: float
    p99: float
    max: float


class Seen(msgspec.Struct, frozen=True):
    """What the client saw of one variant, in ms: the time between two events of a stream here (`spacing_ms`) and
    where they were sent (`sent_spacing_ms`), their way (`delay_ms`), and from connecting to the first event.
    `held_`: only while all streams are open, which leaves out the rush of opening them."""

    port: int
    streams: int
    complete: int
    judged: int
    events: int
    error: str
    spacing_ms: Spread
    sent_spacing_ms: Spread
    delay_ms: Spread
    first_ms: Spread
    held_spacing_ms: Spread
    held_delay_ms: Spread


class _Printed(msgspec.Struct, frozen=True):
    targets: list[Seen]


@dataclass(frozen=True, slots=True)
class Look:
    """At a moment, in CPU seconds and MB. The sidecar's figures are None where there is none."""

    at: float
    envoy_s: float
    envoy_mb: float
    sidecar_s: float | None
    sidecar_mb: float | None


class Looks(NamedTuple):
    """Before the first stream, when all are open, when the first one ends, after the last one."""

    before: Look
    opened: Look
    ending: Look
    after: Look


@dataclass(frozen=True, slots=True)
class Held:
    """llm_streams_open; `during`: when all are open. Envoy may end its own to the sidecar with the judgement."""

    before: int
    during: int
    after: int


@dataclass(frozen=True, slots=True)
class Result:
    """One variant. `idle_share`: of a core, by the sidecar without any stream."""

    name: str
    seen: Seen
    looks: Looks
    idle_share: float
    held: Held | None
    failed_open: int

    @property
    def errors(self) -> int:
        """Streams that are incomplete, or not judged as the variant's name says."""
        wanted = self.seen.streams if self.name == OURS_FAST else 0
        return self.seen.streams - self.seen.complete + abs(self.seen.judged - wanted) + self.failed_open

    @property
    def envoy_us(self) -> float:
        """CPU per event, all of Envoy's over all of the run."""
        return 1e6 * (self.looks.after.envoy_s - self.looks.before.envoy_s) / max(1, self.seen.events)

    @property
    def held_us(self) -> float | None:
        """Sidecar CPU per open stream and second, above the idle sidecar's."""
        start, end = self.looks.opened, self.looks.ending
        used, seconds = self._used(start, end), end.at - start.at
        return None if used is None else 1e6 * used / (self.seen.streams * seconds)

    @property
    def opened_us(self) -> float | None:
        """Sidecar CPU per stream for all that is done once: its judgement and its end."""
        at = self.looks
        opening, closing = self._used(at.before, at.opened), self._used(at.ending, at.after)
        return None if opening is None or closing is None else 1e6 * (opening + closing) / self.seen.streams

    def _used(self, start: Look, end: Look) -> float | None:
        if start.sidecar_s is None or end.sidecar_s is None:
            return None
        return end.sidecar_s - start.sidecar_s - self.idle_share * (end.at - start.at)


@dataclass(slots=True)
class _Watched:
    """A variant and what is read off it while the client runs."""

    one: Variant
    idle_share: float = 0.0
    held: tuple[int, ...] = ()
    looks: tuple[Look, ...] = ()

    def look(self) -> None:
        sidecar = self.one.sidecar
        self.looks += (
            Look(
                at=time.monotonic(),
                envoy_s=cpu_s(self.one.envoy.pid),
                envoy_mb=rss_mb(self.one.envoy.pid),
                sidecar_s=cpu_s(sidecar.pid) if sidecar else None,
                sidecar_mb=rss_mb(sidecar.pid) if sidecar else None,
            ),
        )

    def count(self) -> None:
        if self.one.sidecar:
            self.held += (streams_open(self.one.metrics),)

    def result(self, seen: Seen) -> Result:
        return Result(
            self.one.name,
            seen,
            Looks(*self.looks),
            idle_share=self.idle_share,
            held=Held(*self.held) if self.held else None,
            failed_open=self.one.failed_open(),
        )


def streams_open(metrics: str) -> int:
    """llm_streams_open on a sidecar's page of metrics."""
    with urllib.request.urlopen(metrics, timeout=10) as page:
        for line in page.read().decode().splitlines():
            if line.startswith("llm_streams_open "):
                return int(float(line.split()[1]))
    raise CannotMeasure(f"there is no llm_streams_open on {metrics}")


def measure(plan: Plan, folder: Path, say: Say) -> list[Result]:
    """Both variants. `folder` must exist and be short enough for socket paths."""
    data = body(BODY).data.replace(b'"stream":false', b'"stream":true ')
    (folder / "body").write_bytes(data)
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(_engine(plan, folder))
        watched = []
        for index, name in enumerate((NONE, OURS_FAST)):
            one = stack.enter_context(variant(name, folder / f"v{index}", port, None))
            watched.append(_Watched(one))
            for _ in range(WARM_UP_REQUESTS):
                _check(one, data)
        _idle(watched, min(IDLE_S, plan.seconds), say)
        groups = [[each] for each in watched] if plan.apart else [watched]
        return [result for group in groups for result in _run(group, plan, folder, say)]


@contextlib.contextmanager
def _engine(plan: Plan, folder: Path) -> Iterator[int]:
    port = free_port()
    command = [str(program()), "engine", str(port)]
    command += ["--events-per-s", f"{plan.rate:g}", "--seconds", f"{plan.seconds:g}"]
    with running("the engine", command, folder / "engine.log", lambda: answers(port)):
        yield port


def _check(one: Variant, data: bytes) -> None:
    """Open a stream and leave it; CannotMeasure where it is not judged as the variant's name says."""
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=10)
    connection.request("POST", PATH, data, {"content-type": "application/json"})
    answer = connection.getresponse()
    answer.close()
    connection.close()
    judged = answer.headers.get("x-judged") == "1"
    if answer.status != 200 or judged != (one.name == OURS_FAST):
        raise CannotMeasure(f"{one.name}: a stream came as {answer.status}, {judged=}")


def _idle(watched: Sequence[_Watched], seconds: float, say: Say) -> None:
    """What the sidecar uses anyway, for its looks at the engines."""
    say(f"idle for {seconds:g} s")
    for each in watched:
        _await_closed(each)
        each.look()
    time.sleep(seconds)
    for each in watched:
        each.look()
        start, end = each.looks
        each.idle_share = ((end.sidecar_s or 0) - (start.sidecar_s or 0)) / (end.at - start.at)
        each.looks = ()


def _run(group: Sequence[_Watched], plan: Plan, folder: Path, say: Say) -> list[Result]:
    say(f"{plan.streams:,} streams each: {', '.join(each.one.name for each in group)}")
    for each in group:
        each.count()
        each.look()
    with _client(group, plan, folder) as client:
        assert client.stdout is not None
        _await(client, "open")
        for each in group:
            each.count()
            each.look()
        say("all are open")
        _await(client, "ending")
        for each in group:
            each.look()
        printed = client.stdout.readline()
    if not printed:
        raise CannotMeasure("the client ended without figures")
    for each in group:
        _await_closed(each)
        each.look()
        each.count()
    seen = {one.port: one for one in msgspec.json.decode(printed, type=_Printed).targets}
    return [each.result(seen[each.one.port]) for each in group]


@contextlib.contextmanager
def _client(group: Sequence[_Watched], plan: Plan, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    limit = plan.spread_s + plan.seconds + LATE_S
    command = [str(program()), "client", *(str(each.one.port) for each in group)]
    command += ["--streams", str(plan.streams), "--events", str(plan.events), "--body", str(folder / "body")]
    command += ["--spread", f"{plan.spread_s:g}", "--limit", f"{limit:g}"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as client:
        try:
            yield client
        finally:
            client.kill()


def _await(client: subprocess.Popen[bytes], phase: str) -> None:
    assert client.stdout is not None
    line = client.stdout.readline().decode().strip()
    if line != phase:
        raise CannotMeasure(f"the client says {line!r} where {phase!r} is due")


def _await_closed(each: _Watched) -> None:
    deadline = time.monotonic() + CLOSED_WITHIN_S
    while each.one.sidecar and streams_open(each.one.metrics) and time.monotonic() < deadline:
        time.sleep(0.1)
