"""Messages between the control process and its workers, as values and as bytes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message
from msgspec import Struct
from msgspec.structs import replace

from extproc.codec.grpc_messages import framed
from extproc.codec.wire import workers_pb2 as pb
from extproc.model.protection import CALM, Protection
from extproc.recorded import Counted, Delta, Observed
from extproc.settings import Secrets, Settings

SOCKET = "workers.sock"
"""Of the control process, in the state directory."""

MAX_MESSAGE_BYTES = 64 << 20
"""A snapshot's settings, a batch's audit records."""

MAX_KNOWN_DELTAS = 4096
"""Different ones read once, where they come again."""


class SnapshotTold(Struct, frozen=True):
    """`settings`, `secrets` and `protection` are JSON."""

    generation: int
    settings: bytes
    secrets: bytes
    protection: bytes = b"{}"


class Taken(Struct, frozen=True):
    """Batches up to this number need not be kept any more."""

    batch: int


class Hello(Struct, frozen=True):
    """`generation` 0 = none in force yet."""

    worker: int
    pid: int
    generation: int


class Applied(Struct, frozen=True):
    """`error` empty = in force."""

    generation: int
    error: str


class Batch(Struct, frozen=True):
    """`audit`: JSON lines with their breaks. `again`: of `delta_bytes`. `seconds` that decisions took."""

    number: int
    delta: Delta
    audit: tuple[bytes, ...]
    again: tuple[bytes, ...] = ()
    seconds: tuple[float, ...] = ()


def told(message: SnapshotTold | Taken) -> bytes:
    """With its prefix, as it goes to a worker."""
    if isinstance(message, Taken):
        return framed(pb.Told(taken=pb.Taken(batch=message.batch)).SerializeToString())
    snapshot = pb.Snapshot(
        generation=message.generation,
        settings=message.settings,
        secrets=message.secrets,
        protection=message.protection,
    )
    return framed(pb.Told(snapshot=snapshot).SerializeToString())


def read_told(data: bytes) -> SnapshotTold | Taken:
    """ValueError for anything else."""
    message = _parsed(pb.Told, data)
    kind = message.WhichOneof("told")
    if kind == "snapshot":
        found = message.snapshot
        return SnapshotTold(found.generation, found.settings, found.secrets, found.protection or b"{}")
    if kind == "taken":
        return Taken(message.taken.batch)
    raise ValueError("a message that tells nothing")


def said(message: Hello | Applied | Batch) -> bytes:
    """With its prefix, as it goes to the control process."""
    match message:
        case Hello():
            hello = pb.Hello(worker=message.worker, pid=message.pid, generation=message.generation)
            return framed(pb.Said(hello=hello).SerializeToString())
        case Applied():
            applied = pb.Applied(generation=message.generation, error=message.error)
            return framed(pb.Said(applied=applied).SerializeToString())
        case Batch():
            return framed(pb.Said(batch=_batch(message)).SerializeToString())


def _batch(message: Batch) -> pb.Batch:
    delta = message.delta
    return pb.Batch(
        number=message.number,
        counted=_counted(delta),
        observed=_observed(delta),
        open=delta.open,
        audit=message.audit,
        again=message.again,
        seconds=message.seconds,
    )


def _counted(delta: Delta) -> list[pb.Counted]:
    return [pb.Counted(family=each.family, labels=each.labels, count=each.count) for each in delta.counted]


def _observed(delta: Delta) -> list[pb.Observed]:
    return [
        pb.Observed(family=each.family, labels=each.labels, counts=each.counts, total=each.total)
        for each in delta.observed
    ]


def delta_bytes(delta: Delta) -> bytes:
    """Without its open streams; the same bytes for an equal one."""
    message = pb.Delta(counted=_counted(delta), observed=_observed(delta))
    return message.SerializeToString(deterministic=True)


@lru_cache(MAX_KNOWN_DELTAS)
def read_delta(data: bytes) -> Delta:
    """ValueError for anything else. Mostly the same value for the same bytes."""
    return _delta(_parsed(pb.Delta, data), 0)


def read_said(data: bytes) -> Hello | Applied | Batch:
    """ValueError for anything else."""
    message = _parsed(pb.Said, data)
    kind = message.WhichOneof("said")
    if kind == "hello":
        return Hello(message.hello.worker, message.hello.pid, message.hello.generation)
    if kind == "applied":
        return Applied(message.applied.generation, message.applied.error)
    if kind == "batch":
        found = message.batch
        delta = _delta(found, found.open)
        return Batch(found.number, delta, _lines(found.audit), tuple(found.again), tuple(found.seconds))
    raise ValueError("a message that says nothing")


def _delta(found: pb.Batch | pb.Delta, streams: int) -> Delta:
    counted = [Counted(each.family, tuple(each.labels), each.count) for each in found.counted]
    seen = [Observed(each.family, tuple(each.labels), tuple(each.counts), each.total) for each in found.observed]
    return Delta(tuple(counted), tuple(seen), streams)


def _lines(audit: Iterable[bytes]) -> tuple[bytes, ...]:
    """The audit file counts what it has written by its lines."""
    for each in audit:
        if each.count(b"\n") != 1 or each[-1:] != b"\n":
            raise ValueError("an audit record that is no line")
    return tuple(audit)


M = TypeVar("M", bound=Message)


def _parsed(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ValueError(f"no message of ours: {error}") from None


def snapshot_told(settings: Settings, secrets: Secrets, generation: int) -> SnapshotTold:
    held = msgspec.json.encode({"tokens": secrets.tokens, "tenant_keys": secrets.tenant_keys})
    return SnapshotTold(generation, settings.model_dump_json().encode(), held)


def with_protection(told: SnapshotTold, protection: Protection, generation: int) -> SnapshotTold:
    """The same under another generation, with what the protection loop says."""
    return replace(told, generation=generation, protection=msgspec.json.encode(protection))


def protection_of(message: SnapshotTold) -> Protection:
    """ValueError where it is none."""
    found = msgspec.json.decode(message.protection, type=Protection)
    return CALM if found == CALM else found


def snapshot_of(message: SnapshotTold) -> tuple[Settings, Secrets]:
    """ValueError where they are none."""
    held = msgspec.json.decode(message.secrets, type=dict[str, list[bytes]])
    return Settings.model_validate_json(message.settings), Secrets(**held)
