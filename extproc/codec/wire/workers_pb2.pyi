from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Told(_message.Message):
    __slots__ = ("snapshot", "taken")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    taken: Taken
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., taken: _Optional[_Union[Taken, _Mapping]] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("generation", "settings", "secrets", "protection")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    PROTECTION_FIELD_NUMBER: _ClassVar[int]
    generation: int
    settings: bytes
    secrets: bytes
    protection: bytes
    def __init__(self, generation: _Optional[int] = ..., settings: _Optional[bytes] = ..., secrets: _Optional[bytes] = ..., protection: _Optional[bytes] = ...) -> None: ...

class Taken(_message.Message):
    __slots__ = ("batch",)
    BATCH_FIELD_NUMBER: _ClassVar[int]
    batch: int
    def __init__(self, batch: _Optional[int] = ...) -> None: ...

class Said(_message.Message):
    __slots__ = ("hello", "applied", "batch")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    applied: Applied
    batch: Batch
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., applied: _Optional[_Union[Applied, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("worker", "pid", "generation")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    worker: int
    pid: int
    generation: int
    def __init__(self, worker: _Optional[int] = ..., pid: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class Applied(_message.Message):
    __slots__ = ("generation", "error")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    generation: int
    error: str
    def __init__(self, generation: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("number", "counted", "observed", "open", "audit", "again", "seconds")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    number: int
    counted: _containers.RepeatedCompositeFieldContainer[Counted]
    observed: _containers.RepeatedCompositeFieldContainer[Observed]
    open: int
    audit: _containers.RepeatedScalarFieldContainer[bytes]
    again: _containers.RepeatedScalarFieldContainer[bytes]
    seconds: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, number: _Optional[int] = ..., counted: _Optional[_Iterable[_Union[Counted, _Mapping]]] = ..., observed: _Optional[_Iterable[_Union[Observed, _Mapping]]] = ..., open: _Optional[int] = ..., audit: _Optional[_Iterable[bytes]] = ..., again: _Optional[_Iterable[bytes]] = ..., seconds: _Optional[_Iterable[float]] = ...) -> None: ...

class Delta(_message.Message):
    __slots__ = ("counted", "observed")
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_FIELD_NUMBER: _ClassVar[int]
    counted: _containers.RepeatedCompositeFieldContainer[Counted]
    observed: _containers.RepeatedCompositeFieldContainer[Observed]
    def __init__(self, counted: _Optional[_Iterable[_Union[Counted, _Mapping]]] = ..., observed: _Optional[_Iterable[_Union[Observed, _Mapping]]] = ...) -> None: ...

class Counted(_message.Message):
    __slots__ = ("family", "labels", "count")
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    family: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    count: int
    def __init__(self, family: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., count: _Optional[int] = ...) -> None: ...

class Observed(_message.Message):
    __slots__ = ("family", "labels", "counts", "total")
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    family: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    counts: _containers.RepeatedScalarFieldContainer[int]
    total: float
    def __init__(self, family: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., counts: _Optional[_Iterable[int]] = ..., total: _Optional[float] = ...) -> None: ...
