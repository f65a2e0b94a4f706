"""OpenAI chat completions."""

from __future__ import annotations

import pytest

from extproc.model.names import Engine, Field
from tests.decide.worlds import chat, decided, pools, refused

BODY = (
    b'{ "model" : "m", "messages":[ {"role":"system","content":"s"},'
    b' {"role":"user","content":"order \\u0023\\u00312345 \\ud83d\\ude00"} ],'
    b'"seed":9007199254740993, "temperature" : 1E0, "logit_bias":{"50256":-1E2},\n"x":0.1000,"max_tokens":1e5 }'
)


def test_a_strict_request_byte_by_byte() -> None:
    found = decided(BODY)
    assert found.sent == BODY.replace(b" 1E0", b" 0.3").replace(
        b'"max_tokens":1e5 ', b'"max_tokens":120,"top_p":0.85 '
    )
    assert found.headers["content-length"] == str(len(found.sent)).encode()


@pytest.mark.parametrize("engine", [Engine.VLLM, Engine.LLAMACPP])
def test_an_empty_object_gets_its_fields(engine: Engine) -> None:
    assert decided(b"{}", over=pools(engine)).sent == b'{"temperature":0.7,"max_tokens":256}'


@pytest.mark.parametrize("stream", [True, False, None])
def test_the_clients_stream_is_kept(stream: bool | None) -> None:
    assert decided(chat(stream=stream)).json["stream"] is stream


def test_no_limit_by_minus_one_is_llamacpps_own_word() -> None:
    status, error = refused(chat(n_predict=-1), over=pools(Engine.LLAMACPP))
    assert (status, error["param"]) == (400, "n_predict")


def test_the_older_key_is_respelled_though_its_value_stays() -> None:
    found = decided(chat(max_output_tokens=9))
    assert found.json["max_tokens"] == 9
    assert "max_output_tokens" not in found.json
    change = found.changes[Field.MAX_TOKENS]
    assert (change.before, change.after, change.rule) == (9, 9, "length.spelling")


def test_two_spellings_of_one_key_are_one() -> None:
    for body in (b'{"max_tokens":5,"max_tokens":99999}', b'{"max_tokens":5,"\\u006dax_tokens":99999}'):
        found = decided(body)
        assert found.sent == b'{"max_tokens":256,"temperature":0.7}'
    for body in (b'{"max_tokens":99999,"max_tokens":5}', b'{"\\u006dax_tokens":99999,"max_tokens":5}'):
        assert decided(body).sent == b'{"max_tokens":5,"temperature":0.7}'
