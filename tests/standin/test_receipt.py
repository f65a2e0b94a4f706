import gzip
import hashlib
import json

from extproc.standin.receipt import MAX_STRING_CHARS, receive


def report(received) -> dict:
    return json.loads(bytes(received.report()))


def test_the_report_says_what_arrived() -> None:
    body = b'{"model": "m", "temperature": 0.3, "messages": [{"content": "secret"}], "prompt": "secret"}'
    headers = [(b"X-Llm-Tier", b"strict"), (b"Accept", b"a"), (b"accept", b"b")]
    assert report(receive("POST", "/v1/a b", "/v1/a%20b?x=1&y=?", headers, body)) == {
        "path": "/v1/a%20b",
        "query": "x=1&y=?",
        "method": "POST",
        "headers": {"x-llm-tier": ["strict"], "accept": ["a", "b"]},
        "params": {"model": "m", "temperature": 0.3},
        "body_bytes": len(body),
        "body_sha256": hashlib.sha256(body).hexdigest(),
    }


def test_secrets_are_masked_and_everything_else_is_not(request_of) -> None:
    received = request_of(authorization="Bearer k", x_api_key="k", cookie="k", x_tenant="acme")
    headers = report(received)["headers"]
    assert headers == {
        "authorization": ["***"],
        "x-api-key": ["***"],
        "cookie": ["***"],
        "x-tenant": ["acme"],
    }


def test_parameters_are_taken_along_without_text(request_of) -> None:
    body = b'{"text_input": "secret", "stop": ["x"], "parameters": {"priority": 1, "prompt": "secret"}}'
    assert report(request_of(body))["params"] == {"parameters": {"priority": 1}}


def test_long_strings_are_cut(request_of) -> None:
    params = report(request_of(b'{"grammar": "%s"}' % (b"g" * 5000)))["params"]
    assert params == {"grammar": "g" * MAX_STRING_CHARS}


def test_bytes_that_are_no_utf8_survive_as_latin_1() -> None:
    target = b"/v1/\xff?\xe9".decode("utf-8", "surrogateescape")
    received = report(receive("GET", target, target, [(b"x-a", b"\xff\xe9")], b""))
    assert (received["path"], received["query"], received["headers"]) == (
        "/v1/\xff",
        "\xe9",
        {"x-a": ["\xff\xe9"]},
    )


def test_what_can_just_be_parsed_still_gives_a_report(request_of) -> None:
    """The deepest readable document is searched for, since the limit is the interpreter's."""

    def nested(depth: int) -> bytes:
        return b'{"parameters": {"x": %s1%s}}' % (b"[" * depth, b"]" * depth)

    deepest = max(depth for depth in range(1, 1100) if request_of(nested(depth)).document)
    params = report(request_of(nested(deepest)))["params"]
    assert params == {"parameters": {"x": [[[[[[[["..."]]]]]]]]}}


def test_the_hash_is_of_the_bytes_as_sent_and_the_document_of_what_they_hold(request_of) -> None:
    body = gzip.compress(b'{"temperature": 0.5}')
    received = request_of(body, content_encoding="gzip")
    assert received.sha256 == hashlib.sha256(body).hexdigest()
    assert received.params == {"temperature": 0.5}


def test_binary_tensors_behind_the_json_do_not_hide_it(request_of) -> None:
    head = b'{"id": "1"}'
    received = request_of(head + b"\x00\x01", inference_header_content_length=str(len(head)))
    assert received.document == {"id": "1"}


def test_the_report_is_encoded_once(request_of) -> None:
    received = request_of(b'{"a": 1}')
    first = bytes(received.report())
    received.params["late"] = True
    assert bytes(received.report()) == first
