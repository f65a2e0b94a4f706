"""What each step of one request costs in this process, without Envoy and without sockets.

Each step gets the arguments it has in a real request: one run through the servicer is recorded, and every step
is then repeated by itself. CPU time of the thread, the median of many batches.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import Mock, patch

from bench.bodies import PATH, Body, body
from bench.canned import CannedStream
from bench.variants import config_text
from extproc import judge
from extproc.app import Recorder
from extproc.codec import ext_proc as codec
from extproc.codec.wire import ext_proc_pb2 as pb
from extproc.decide import pipeline
from extproc.edge.audit_file import AuditFile
from extproc.edge.ext_proc import ExtProcServicer
from extproc.model.commands import RecordDecision
from extproc.model.names import Dialect
from extproc.recorded import Recorded
from extproc.request.classify.pick import classify
from extproc.request.document import Writing
from extproc.request.formats import READERS
from extproc.settings import Secrets, Settings, load, snapshot

STEPS = (
    "codec in",
    "parse",
    "classify",
    "decide",
    "mutate",
    "codec out",
    "metrics, audit",
    "whole request",
    "transport fast",
)
BATCHES = 25
BATCH_S = 0.004

Step = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Steps:
    """µs per step for one body. `whole request` is all of the servicer, both phases, less gRPC; `transport fast` is
    that again with the HTTP/2 and gRPC around it."""

    body: str
    us: dict[str, float]


def micro(labels: tuple[str, ...], folder: Path, config: Path | None, say: Callable[[str], None]) -> list[Steps]:
    results = []
    with recording(folder, config) as (recorder, file, settings):
        for label in labels:
            say(f"steps of a {label} request")
            results.append(_steps(body(label), servicer(settings, recorder), recorder, file))
    return results


@contextlib.contextmanager
def recording(folder: Path, config: Path | None) -> Iterator[tuple[Recorder, AuditFile, Settings]]:
    """What records as the program does, into `folder`."""
    settings = load(config_text(8000, config).encode())
    audit = settings.audit
    file = AuditFile(folder / "audit.jsonl", max_bytes=audit.max_bytes, keep=2, max_pending=audit.max_pending)
    with contextlib.closing(file):
        yield Recorder(Recorded(), file), file, settings


def servicer(settings: Settings, recorder: Recorder) -> ExtProcServicer:
    """With a world of its own, so that the first request of each is decided and not remembered."""
    world = snapshot(settings, Secrets(tokens=[], tenant_keys=[]), generation=1)
    return ExtProcServicer(current=lambda: world, recorder=recorder, wall=time.time, timer=time.perf_counter)


def _steps(chat: Body, servicer: ExtProcServicer, recorder: Recorder, file: AuditFile) -> Steps:
    messages = (headers_message(len(chat.data)), body_message(chat.data))
    calls = _record(servicer, recorder, messages)
    reading, context = calls["parse"].args, calls["decide"].args[0]
    read = READERS[Dialect.OPENAI_CHAT]
    document, changes = read(*reading), pipeline.changes(context)
    edits = document.edits(changes, Writing(context.engine, context.profile.triton))
    answers = [call.args[0] for call in calls["codec out"]]
    verdict = calls["classify"]
    us = {
        "codec in": cpu_us(lambda: [codec.event(message) for message in messages]),
        "parse": cpu_us(lambda: read(*reading)),
        "classify": cpu_us(lambda: classify(*verdict.args, **verdict.kwargs)),
        "decide": cpu_us(lambda: pipeline.changes(context)),
        "mutate": cpu_us(lambda: document.written(edits)),
        "codec out": cpu_us(lambda: [codec.continued(answer) for answer in answers]),
        "metrics, audit": recording_us(lambda: _recorded(recorder, calls["record"].args[0]), file),
        "whole request": cpu_us(lambda: _answered(servicer, messages)),
        "transport fast": cpu_us(CannedStream(servicer, messages)),
    }
    assert tuple(us) == STEPS
    return Steps(chat.label, us)


def _record(servicer: ExtProcServicer, recorder: Recorder, messages: tuple[bytes, bytes]) -> dict[str, Any]:
    """The calls one real request makes, by step."""
    read, decided = Mock(wraps=READERS[Dialect.OPENAI_CHAT]), Mock(wraps=recorder.decided)
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.dict(READERS, {Dialect.OPENAI_CHAT: read}))
        stack.enter_context(patch.object(recorder, "decided", decided))
        spy = {
            name: stack.enter_context(patch.object(module, function, wraps=getattr(module, function)))
            for name, module, function in (
                ("classify", judge, "classify"),
                ("decide", pipeline, "changes"),
                ("codec out", codec, "continued"),
            )
        }
        _answered(servicer, messages)
    one = {name: mock.call_args for name, mock in {**spy, "parse": read, "record": decided}.items()}
    return one | {"codec out": spy["codec out"].call_args_list}


def _answered(servicer: ExtProcServicer, messages: tuple[bytes, bytes]) -> None:
    call = servicer.open()
    for message in messages:
        call.answer(message)
    call.ended("completed")


def _recorded(recorder: Recorder, record: RecordDecision) -> None:
    """What the servicer reports of one request in two messages."""
    recorder.stream_opened()
    recorder.decided(record)
    recorder.decision_seconds(0.0001)
    recorder.decision_seconds(0.0001)
    recorder.stream_ended("completed")


def cpu_us(step: Step) -> float:
    """CPU µs of one call: the median of batches that are long against the clock."""
    repeat = _repeats(step)
    return median(_timed(step, repeat, time.thread_time_ns) for _ in range(BATCHES))


def recording_us(step: Step, file: AuditFile) -> float:
    """With the CPU of the thread that writes the audit file: until all is on disk."""

    def drained() -> None:
        for _ in range(500):
            step()
        while file.pending:
            time.sleep(0.001)

    return median(_timed(drained, 1, time.process_time_ns) / 500 for _ in range(7))


def _repeats(step: Step) -> int:
    step()
    return max(1, int(BATCH_S * 1e6 / max(1.0, _timed(step, 10, time.thread_time_ns))))


def _timed(step: Step, repeat: int, clock: Callable[[], int]) -> float:
    started = clock()
    for _ in range(repeat):
        step()
    return (clock() - started) / repeat / 1000


def headers_message(length: int) -> bytes:
    """What Envoy sends first: the headers it forwards, the attribute that is asked for, the body mode."""
    request = pb.ProcessingRequest()
    for key, value in _headers(length):
        header = request.request_headers.headers.headers.add()
        header.key, header.raw_value = key, value
    group = request.attributes["envoy.filters.http.ext_proc"]
    group.fields["source.address"].string_value = "127.0.0.1:40000"
    request.protocol_config.request_body_mode = pb.BodySendMode.BUFFERED
    return request.SerializeToString()


def _headers(length: int) -> Iterator[tuple[str, bytes]]:
    yield ":method", b"POST"
    yield ":path", PATH.encode()
    yield "content-type", b"application/json"
    yield "content-length", str(length).encode()
    yield "x-request-id", b"6f1c1b9e-7d0a-4c3b-9d57-0f6f0e8a4b11"


def body_message(data: bytes) -> bytes:
    request = pb.ProcessingRequest()
    request.request_body.body = data
    request.request_body.end_of_stream = True
    return request.SerializeToString()
