"""Messages between the control process and its workers come back as they were."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extproc.codec.grpc_messages import PREFIX, Messages
from extproc.codec.workers import (
    MAX_MESSAGE_BYTES,
    Applied,
    Batch,
    Hello,
    SnapshotTold,
    Taken,
    delta_bytes,
    read_delta,
    read_said,
    read_told,
    said,
    snapshot_of,
    snapshot_told,
    told,
)
from extproc.model.names import Engine
from extproc.recorded import Counted, Delta, Observed
from extproc.settings import Secrets, Settings, load, snapshot
from tests.decide.worlds import pools
from tests.e2e.running import MODELS, RULES

NUMBERS = st.integers(0, (1 << 64) - 1)
LABELS = st.lists(st.text(st.characters(codec="utf-8"))).map(tuple)
COUNTED = st.builds(Counted, st.text(st.characters(codec="utf-8")), LABELS, NUMBERS)
OBSERVED = st.builds(
    Observed, st.text(max_size=3), LABELS, st.lists(NUMBERS).map(tuple), st.floats(allow_nan=False)
)
DELTAS = st.builds(
    Delta, st.lists(COUNTED).map(tuple), st.lists(OBSERVED).map(tuple), st.integers(-(1 << 63), (1 << 63) - 1)
)
LINES = st.binary().map(lambda line: line.replace(b"\n", b"") + b"\n")


def unframed(data: bytes) -> bytes:
    (message,) = Messages(MAX_MESSAGE_BYTES).feed(data)
    assert len(message) == len(data) - PREFIX
    return message


@given(
    st.one_of(
        st.builds(Hello, st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1), NUMBERS),
        st.builds(Applied, NUMBERS, st.text(st.characters(codec="utf-8"))),
        st.builds(
            Batch,
            NUMBERS,
            DELTAS,
            st.lists(LINES).map(tuple),
            st.lists(st.binary()).map(tuple),
            st.lists(st.floats(allow_nan=False)).map(tuple),
        ),
    )
)
def test_what_a_worker_says(message: Hello | Applied | Batch) -> None:
    assert read_said(unframed(said(message))) == message


@given(DELTAS)
def test_a_delta_in_bytes(delta: Delta) -> None:
    data = delta_bytes(delta)
    assert read_delta(data) == msgspec.structs.replace(delta, open=0)
    assert delta_bytes(delta) == data and read_delta(bytes(bytearray(data))) is read_delta(data)


@pytest.mark.parametrize("data", [b"\xff\xff", b"\x0a\x7fx"])
def test_bytes_that_are_no_delta(data: bytes) -> None:
    with pytest.raises(ValueError):
        read_delta(data)


@given(st.one_of(st.builds(SnapshotTold, NUMBERS, st.binary(), st.binary()), st.builds(Taken, NUMBERS)))
def test_what_a_worker_is_told(message: SnapshotTold | Taken) -> None:
    assert read_told(unframed(told(message))) == message


@pytest.mark.parametrize("read", [read_said, read_told])
@given(data=st.binary())
def test_garbage_is_a_message_or_a_value_error(read: Any, data: bytes) -> None:
    try:
        read(data)
    except ValueError as error:
        assert str(error).startswith(("no message of ours", "a message that", "an audit record"))


@pytest.mark.parametrize("read", [read_said, read_told])
def test_an_empty_message_says_nothing(read: Any) -> None:
    with pytest.raises(ValueError, match="a message that"):
        read(b"")


@pytest.mark.parametrize("record", [b"", b"{}", b"{}\n{}\n", b"\n\n", b"{}\n "])
def test_an_audit_record_is_one_line(record: bytes) -> None:
    message = Batch(1, Delta((), (), 0), (b"{}\n", record))
    with pytest.raises(ValueError, match="an audit record that is no line"):
        read_said(unframed(said(message)))


# ── snapshots ────────────────────────────────────────────────────────────────────────────────────

RICH: dict[str, Any] = {
    "parameter_set": "spring",
    "models": MODELS,
    "extra_models": [{"name": "qwen", "match": ["qwen*"], "pool": "a"}],
    "classify": {"rules": RULES},
    "pools": [
        {"name": "a", "engine": "vllm", "endpoints": ["http://h:1", {"address": "10.0.0.1", "http_port": 2}]},
        {"name": "b", "engine": "triton", "endpoints_dns": {"host": "h", "http_port": 1, "grpc_port": 2}},
        {"name": "c", "engine": "llamacpp", "endpoints_file": "c.yaml"},
        {
            "name": "d",
            "engine": "vllm",
            "endpoints": ["https://api.h"],
            "limits": {"max_concurrency": 8, "max_requests": 99},
        },
    ],
    "trust": {
        "tokens": [{"env": "A"}, {"file": "/b"}],
        "sources": ["10.0.0.0/8", "::1/128"],
        "identities": ["spiffe://x/y"],
    },
    "tenants": {
        "key_header": "x-api-key",
        "keys": [{"env": "K"}],
        "classes": {"0123456789abcdef": "critical"},
    },
    "telemetry": {"prometheus": {"url": "http://p:9090", "label": "instance", "queries": {}}},
    "unknown_paths": "pass",
    "failure_mode": "closed",
    "workers": "auto",
    "listeners": {"metrics": "0.0.0.0:9", "ext_proc": "127.0.0.1:9000"},
    "shutdown_grace_s": 0.1,
}

CONFIGS = {
    "shipped": "",
    "engines": pools(Engine.VLLM, Engine.TRITON, Engine.LLAMACPP),
    "unicode": "classify: {extra_rules: [{name: contract_zh, pattern: '合同|\\\\bcafé', tier: strict, scenario: legal}]}\n",
    **{key: yaml.safe_dump({"pools": RICH["pools"], key: value}) for key, value in RICH.items()},
    "rich": yaml.safe_dump(RICH),
}


def loaded(text: str) -> Settings:
    try:
        return load(text)
    except ValueError as error:
        pytest.fail(str(error))


@pytest.mark.parametrize("text", CONFIGS.values(), ids=CONFIGS)
def test_settings_come_back_equal(text: str) -> None:
    settings = loaded(text)
    message = read_told(unframed(told(snapshot_told(settings, Secrets(tokens=[], tenant_keys=[]), 7))))
    assert isinstance(message, SnapshotTold)
    found, _ = snapshot_of(message)
    assert found == settings
    assert found.model_dump() == settings.model_dump()
    assert repr(found) == repr(settings)  # down to 1 and 1.0
    assert message.generation == 7


SHIPPED = load("")


@given(st.lists(st.binary()), st.lists(st.binary()))
def test_secrets_are_bytes(tokens: list[bytes], keys: list[bytes]) -> None:
    secrets = Secrets(tokens=tokens, tenant_keys=keys)
    _, found = snapshot_of(snapshot_told(SHIPPED, secrets, 1))
    assert found == secrets


NONE = snapshot_told(SHIPPED, Secrets(tokens=[], tenant_keys=[]), 1)


def test_a_snapshot_is_the_same_on_both_sides() -> None:
    settings = loaded(CONFIGS["rich"])
    secrets = Secrets(tokens=[b"\xff\x00", "é".encode()], tenant_keys=[b"\xfe"])
    ours, theirs = (
        snapshot(*given, generation=3)
        for given in ((settings, secrets), snapshot_of(snapshot_told(settings, secrets, 3)))
    )
    assert (ours.generation, ours.parameter_set) == (theirs.generation, theirs.parameter_set)
    assert (ours.trust, ours.tenants, ours.limits) == (theirs.trust, theirs.tenants, theirs.limits)


@pytest.mark.parametrize(
    ("settings", "secrets"),
    [
        (b"", NONE.secrets),
        (b"{}", NONE.secrets),
        (b"\xff", NONE.secrets),
        (b'{"nonsense": 1}', NONE.secrets),
        (NONE.settings, b""),
        (NONE.settings, b"{}"),
        (NONE.settings, b"[]"),
        (NONE.settings, b'{"tokens": ["no base64!"], "tenant_keys": []}'),
        (NONE.settings, b'{"tokens": [], "tenant_keys": [], "more": []}'),
    ],
)
def test_what_is_no_snapshot(settings: bytes, secrets: bytes) -> None:
    with pytest.raises(ValueError):
        snapshot_of(SnapshotTold(1, settings, secrets))
