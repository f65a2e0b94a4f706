"""Every served path, in many spellings, and everything else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.model.names import Dialect, Family
from extproc.model.values import Target
from extproc.request.paths import target

SERVED = [
    ("/v1/chat/completions", Family.OPENAI, Dialect.OPENAI_CHAT, None),
    ("/v1/completions", Family.OPENAI, Dialect.OPENAI_COMPLETIONS, None),
    ("/v1/responses", Family.OPENAI, Dialect.OPENAI_RESPONSES, None),
    ("/v1/embeddings", Family.OPENAI, Dialect.OPENAI_EMBEDDINGS, None),
    ("/v1/messages", Family.ANTHROPIC, Dialect.ANTHROPIC_MESSAGES, None),
    ("/completion", Family.LLAMACPP, Dialect.LLAMACPP_COMPLETION, None),
    ("/completions", Family.LLAMACPP, Dialect.LLAMACPP_COMPLETION, None),
    ("/v2/models/m/infer", Family.TRITON, Dialect.TRITON_INFER, "m"),
    ("/v2/models/m/generate", Family.TRITON, Dialect.TRITON_GENERATE, "m"),
    ("/v2/models/m/generate_stream", Family.TRITON, Dialect.TRITON_GENERATE, "m"),
    ("/v2/models/m/versions/1/infer", Family.TRITON, Dialect.TRITON_INFER, "m"),
    ("/v2/models/m/versions/12/generate", Family.TRITON, Dialect.TRITON_GENERATE, "m"),
    ("/v2/models/m/versions/1/generate_stream", Family.TRITON, Dialect.TRITON_GENERATE, "m"),
]
SPELLINGS = [
    "{}",
    "{}/",
    "{}//",
    "{}?",
    "{}?a=b",
    "{}?a=/v1/models",
    "{}/?a=b&c=%2F",
    "{}?a=b?c=d",
    "{}#fragment",
    "{}?a#b",
]


@pytest.mark.parametrize(("path", "family", "dialect", "model"), SERVED, ids=[case[0] for case in SERVED])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_served(path: str, family: Family, dialect: Dialect, model: str | None, spelling: str) -> None:
    assert target(spelling.format(path)) == Target(family, dialect, model)


@pytest.mark.parametrize(("path", "family", "dialect", "model"), SERVED, ids=[case[0] for case in SERVED])
@pytest.mark.parametrize("more", [";x=1", "%3Bx=1", ";", "/;x", "%20", "%20/", "%09;a%20"])
def test_what_a_lenient_engine_may_not_read(
    path: str, family: Family, dialect: Dialect, model: str | None, more: str
) -> None:
    """Whoever drops it serves the path: it is judged."""
    assert target(path + more) == Target(family, dialect, model)


@pytest.mark.parametrize(("path", "family", "dialect", "model"), SERVED, ids=[case[0] for case in SERVED])
def test_escaped_letters_and_slashes(path: str, family: Family, dialect: Dialect, model: str | None) -> None:
    expected = Target(family, dialect, model)
    for at, letter in enumerate(path[1:], 1):
        for escape in (f"%{ord(letter):02X}", f"%{ord(letter):02x}"):
            assert target(path[:at] + escape + path[at + 1 :]) == expected
    assert target("/" + "".join(f"%{ord(letter):02x}" for letter in path[1:])) == expected
    assert target(path + "%2F") == expected


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v2/models/llama%2F70b/infer", "llama/70b"),
        ("/v2/models/a%20b/infer", "a b"),
        ("/v2/models/%E6%A8%A1/infer", "模"),
        ("/v2/models/%FF/infer", "\ufffd"),
        ("/v2/models/a%2525b/infer", "a%25b"),
        ("/v2/models/versions/infer", "versions"),
        ("/v2/models/a.b-c_d/versions/x/infer", "a.b-c_d"),
    ],
)
def test_model_names(path: str, model: str) -> None:
    assert target(path) == Target(Family.TRITON, Dialect.TRITON_INFER, model)


UNREAD = [
    ("/v1/models", Family.OPENAI),
    ("/v1/models/m", Family.OPENAI),
    ("/v1/audio/speech", Family.OPENAI),
    ("/v1/chat", Family.OPENAI),
    ("/v1/chat/completionsx", Family.OPENAI),
    ("/v1/chat/completions/x", Family.OPENAI),
    ("/v1//chat/completions", Family.OPENAI),
    ("/v1/Chat/Completions", Family.OPENAI),
    ("/v1/messages/count_tokens", Family.ANTHROPIC),
    ("/v2", Family.TRITON),
    ("/v2/health/ready", Family.TRITON),
    ("/v2/models/m", Family.TRITON),
    ("/v2/models/m/ready", Family.TRITON),
    ("/v2/models//infer", Family.TRITON),
    ("/v2/models/m/infer/x", Family.TRITON),
    ("/v2/models/m/versions/infer", Family.TRITON),
    ("/v2/models/a/b/infer", Family.TRITON),
    ("/v2/repository/models/m/load", Family.TRITON),
    ("/tokenize", Family.LLAMACPP),
    ("/health", Family.LLAMACPP),
    ("/", Family.LLAMACPP),
    ("", Family.LLAMACPP),
    ("*", Family.LLAMACPP),
    ("?", Family.LLAMACPP),
    ("/slots", Family.LLAMACPP),
    ("/V1/chat/completions", Family.LLAMACPP),
    ("//v1/chat/completions", Family.LLAMACPP),
    ("/v1%252Fchat%252Fcompletions", Family.LLAMACPP),
]


@pytest.mark.parametrize(("path", "family"), UNREAD)
def test_unread(path: str, family: Family) -> None:
    assert target(path) == Target(family, None)


@settings(deadline=None)
@given(st.text(st.sampled_from("/v12chatompleins%2F?#.\udcff\x00 中"), max_size=40) | st.text(max_size=40))
def test_any_text_is_some_target(path: str) -> None:
    found = target(path)
    assert found.family in Family
    assert (found.model is not None) == (found.dialect in (Dialect.TRITON_INFER, Dialect.TRITON_GENERATE))
