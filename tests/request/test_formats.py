"""Every dialect has a reader, and no bytes break one."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extproc.model.commands import Command, Continue, RecordDecision, RecordReject, Reject
from extproc.model.names import Dialect, Engine
from extproc.request.formats import READERS
from tests.decide.worlds import ask, pools
from tests.request.json_texts import EXAMPLES
from tests.request.test_json_object import MALFORMED, MARKER

PATHS = {
    Dialect.OPENAI_CHAT: "/v1/chat/completions",
    Dialect.OPENAI_COMPLETIONS: "/v1/completions",
    Dialect.OPENAI_RESPONSES: "/v1/responses",
    Dialect.OPENAI_EMBEDDINGS: "/v1/embeddings",
    Dialect.ANTHROPIC_MESSAGES: "/v1/messages",
    Dialect.TRITON_GENERATE: "/v2/models/m/generate",
    Dialect.TRITON_INFER: "/v2/models/m/infer",
    Dialect.LLAMACPP_COMPLETION: "/completion",
}
ALL = pools(*Engine, by_priority=True)


def test_every_dialect_has_a_reader_and_a_path_here() -> None:
    assert READERS.keys() == set(Dialect) == PATHS.keys()


def check(commands: list[Command]) -> None:
    """One answer: a decision whose body is JSON, or a refusal in the client's own terms."""
    record, answer = commands[-2:]
    if isinstance(answer, Reject):
        assert isinstance(record, RecordReject)
        assert 400 <= answer.status < 500
        assert json.loads(answer.body)["error"]["code"] == record.reason
        return
    assert isinstance(record, RecordDecision)
    assert isinstance(answer, Continue)
    assert len({change.field for change in record.decision.changes}) == len(record.decision.changes)


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("body", [case[1] for case in MALFORMED if case[1]], ids=[c[0] for c in MALFORMED if c[1]])
def test_a_malformed_body_is_refused_without_its_content(
    dialect: Dialect, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        commands = ask(body, PATHS[dialect], over=ALL)
    record, answer = commands[-2:]
    assert isinstance(record, RecordReject)
    assert isinstance(answer, Reject)
    assert (answer.status, answer.reason) == (400, "invalid_json")
    assert MARKER.encode() not in answer.body
    assert MARKER not in caplog.text
    assert MARKER not in repr(record)
    check(commands)


@settings(max_examples=EXAMPLES // 20 + 65, deadline=None)
@given(body=st.binary(min_size=1, max_size=60))
@pytest.mark.parametrize("dialect", Dialect)
def test_any_bytes(dialect: Dialect, body: bytes) -> None:
    check(ask(body, PATHS[dialect], over=ALL))


SCRAPS = st.sampled_from(
    [
        *[
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            '"',
            "\\",
            "0",
            "1",
            "-",
            ".",
            "e",
            "E",
            "null",
            "true",
            "false",
            "1e400",
            "-0.0",
            "{}",
            "[]",
            '""',
            '"x"',
            "\\u0061",
            "\\ud83d\\ude00",
        ],
        '"max_tokens"',
        '"temperature":',
        '"parameters":{',
        '"messages":[{"role":"user","content":',
        '"inputs":[{"name":"max_tokens","shape":[1],"datatype":"INT32","data":[',
        '"text_input":',
        " ",
        "\n",
        "é",
        "\x00",
    ]
)


@settings(max_examples=EXAMPLES // 20 + 65, deadline=None)
@given(body=st.lists(SCRAPS, max_size=14).map("".join), braced=st.booleans())
@pytest.mark.parametrize("dialect", Dialect)
def test_any_scraps_of_json(dialect: Dialect, body: str, braced: bool) -> None:
    check(ask((f"{{{body}}}" if braced else body or " ").encode(), PATHS[dialect], over=ALL))


KEYS = st.sampled_from(
    [
        "model",
        "messages",
        "prompt",
        "input",
        "text_input",
        "inputs",
        "parameters",
        "temperature",
        "top_p",
        "top_k",
        "max_tokens",
        "n_predict",
        "n",
        "max_completion_tokens",
        "max_output_tokens",
        "best_of",
        "num_beams",
        "stream",
        "priority",
        "role",
        "content",
        "type",
        "text",
        "name",
        "shape",
        "datatype",
        "data",
        "binary_data_size",
        "outputs",
        "mirostat",
        "x",
    ]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(["user", "text", "INT32", "FP32", "BYTES", "max_tokens", "temperature", "text_input"]),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)


@settings(max_examples=EXAMPLES // 20 + 45, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=st.dictionaries(KEYS, VALUES, max_size=6))
@pytest.mark.parametrize("dialect", Dialect)
def test_any_document(dialect: Dialect, body: dict[str, Any]) -> None:
    check(ask(json.dumps(body).encode(), PATHS[dialect], over=ALL))
