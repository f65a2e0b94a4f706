import json

import msgspec

from extproc.standin.replies import Stream, encode, encode_events, openai_error

REPORT = msgspec.Raw(b'{"path":"/p"}')


def test_an_answer_carries_the_report() -> None:
    assert json.loads(encode({"a": 1}, REPORT)) == {"a": 1, "received": {"path": "/p"}}


def test_the_first_event_of_a_stream_carries_the_report() -> None:
    stream = Stream([("start", {"n": 1}), ("", {"n": 2})], done=True)
    assert list(encode_events(stream, REPORT)) == [
        b'event: start\ndata: {"n":1,"received":{"path":"/p"}}\n\n',
        b'data: {"n":2}\n\n',
        b"data: [DONE]\n\n",
    ]


def test_only_a_stream_that_says_so_ends_with_done() -> None:
    assert list(encode_events(Stream([("", {})]), REPORT)) == [b'data: {"received":{"path":"/p"}}\n\n']


def test_an_error_is_shaped_as_openai_does() -> None:
    error = openai_error(404, "no", "not_found")
    assert error.status == 404
    assert error.document["error"]["code"] == "not_found"
