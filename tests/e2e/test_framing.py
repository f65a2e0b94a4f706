"""Bodies, lengths, headers and paths: what arrives at the engine is well-formed whatever a client sends."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from tests.e2e.asking import CHAT, CREATIVE, NORMAL, STRICT, Answer, Raw, ask, chat, chunked, new_id
from tests.e2e.running import Engine, Stack, until
from tests.real_envoy import Received, RecordingUpstream

KIB, MIB = 1 << 10, 1 << 20
LIMIT = 16 * MIB

MULTI = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nset-cookie: a=1; Path=/\r\nset-cookie: b=\xff\r\n"
    b"x-odd: \xe9\xff\r\ncontent-length: 2\r\n\r\n{}"
)


@pytest.fixture(scope="module")
def upstream() -> Iterator[RecordingUpstream]:
    """An engine that keeps every byte of a request."""
    running = RecordingUpstream(lambda _: MULTI)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def raw(upstream: RecordingUpstream, transport: str) -> Iterator[Stack]:
    """The system in front of it; encoded bodies pass here."""
    changes = {"encoded_bodies": "pass", "transport": transport}
    with Stack(engine_url=f"http://127.0.0.1:{upstream.port}", changes=changes) as running:
        yield running


def last(upstream: RecordingUpstream) -> Received:
    return upstream.requests[-1]


def padded(size: int) -> bytes:
    """A strict chat of exactly this many bytes."""
    empty = json.dumps(chat(STRICT, temperature=1, pad="")).encode()
    return empty[:-2] + b"x" * (size - len(empty)) + b'"}'


def upload(port: int, data: bytes) -> Answer:
    """Reads while it writes, as a client must that wants to see an early answer."""
    with Raw(port, timeout=60) as client:

        def send() -> None:
            with suppress(OSError):
                client.send(data)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        answer = client.answer()
        with suppress(OSError):
            client.socket.shutdown(2)
        sender.join(10)
        return answer


def with_length(body: bytes, path: str = CHAT) -> bytes:
    return b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(body)) + body


def in_chunks(body: bytes, path: str = CHAT, size: int = 65_536) -> bytes:
    return chunked(path, *(body[at : at + size] for at in range(0, len(body), size)))


FRAMINGS = pytest.mark.parametrize("framed", [with_length, in_chunks])


# ── lengths ──────────────────────────────────────────────────────────────────────────────────────


@FRAMINGS
@pytest.mark.parametrize(
    ("body", "grows"),
    [
        (b'{"prompt":"order #12345678","temperature":1.' + b"0" * 25 + b',"top_p":0.5,"n_predict":100000000}', -1),
        (b'{"prompt":"order #12345678 ' + b"x" * 71 + b'"}', 1),
    ],
)
def test_the_engine_gets_the_length_of_the_changed_body(
    raw: Stack,
    upstream: RecordingUpstream,
    body: bytes,
    grows: int,
    framed: Any,
) -> None:
    assert 99 <= len(body) <= 104
    answer = upload(raw.port, framed(body, "/completion"))
    assert answer.status == 200
    got = last(upstream)
    assert (len(got.body) > len(body)) == (grows > 0)
    assert len(got.body) != len(body)
    assert json.loads(got.body)["temperature"] == 0.3
    assert json.loads(got.body)["n_predict"] == 120
    assert got.values("content-length") == [b"%d" % len(got.body)]
    assert got.values("transfer-encoding") == []


@FRAMINGS
def test_a_body_that_nothing_changes_keeps_its_bytes(raw: Stack, upstream: RecordingUpstream, framed: Any) -> None:
    body = b'{ "prompt" : "order #12345678" , "temperature":0.1, "n_predict": 7 }'
    upload(raw.port, framed(body, "/completion"))
    assert last(upstream).body == body
    assert last(upstream).values("x-llm-tier") == [b"strict"]


@FRAMINGS
@pytest.mark.parametrize(
    "size",
    [
        32 * KIB - 1,
        32 * KIB,
        32 * KIB + 1,
        MIB,
        MIB + 1,
        int(3.9 * MIB),
        4 * MIB,
        int(4.1 * MIB),
        LIMIT,
    ],
)
def test_bodies_up_to_the_limit_are_judged_whole(stack: Stack, size: int, framed: Any) -> None:
    body = padded(size)
    assert len(body) == size
    answer = upload(stack.port, framed(body))
    assert answer.params["temperature"] == 0.3
    assert answer.seen.get("content-length", [str(answer.received["body_bytes"])]) == [
        str(answer.received["body_bytes"])
    ]
    got = stack.engine.body(answer.received)
    start = body.index(b'"pad"')
    end = len(body) - 1
    assert (
        hashlib.sha256(body[start:end]).digest()
        == hashlib.sha256(got[got.index(b'"pad"') :][: end - start]).digest()
    )
    stack.engine.clear()


@FRAMINGS
@pytest.mark.parametrize("size", [LIMIT + 1, LIMIT + 65_537, 20 * MIB])
def test_larger_bodies_are_refused_and_never_reach_the_engine(stack: Stack, size: int, framed: Any) -> None:
    stack.engine.clear()
    error = upload(stack.port, framed(padded(size))).error(413, "body_too_large")
    assert "max_body_bytes" in error["message"]
    assert stack.engine.received() == []


def test_memory_stays_bounded_under_large_bodies(stack: Stack) -> None:
    body = with_length(padded(LIMIT))
    before = stack.sidecar.running.rss_bytes()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: upload(stack.port, body).status, range(16)))
    assert answers == [200] * 16
    stack.engine.clear()
    growth = stack.sidecar.running.rss_bytes() - before
    assert growth < 256 * MIB, f"{growth / MIB:.0f} MiB after 16 bodies of 16 MiB, 4 at a time"


# ── requests without a body, odd endings ─────────────────────────────────────────────────────────


def test_a_chunked_body_of_only_the_last_chunk(raw: Stack, upstream: RecordingUpstream) -> None:
    assert upload(raw.port, chunked(CHAT)).status == 200
    assert last(upstream).body == b""
    assert last(upstream).values("x-llm-priority") == [b"normal"]


def test_a_post_of_length_zero(raw: Stack, upstream: RecordingUpstream) -> None:
    assert upload(raw.port, with_length(b"")).status == 200
    assert last(upstream).body == b""
    assert last(upstream).values("content-length") == [b"0"]
    assert last(upstream).values("x-llm-priority") == [b"normal"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_requests_without_a_body(front: int, engine: Engine, method: str) -> None:
    answer = ask(front, "/v1/models", method=method)
    assert answer.status == 200
    assert bool(answer.body) == (method == "GET")
    assert engine.one(answer.request_id)["headers"]["x-llm-pool"] == ["engine-1"]


def test_a_get_with_a_body_is_not_judged(raw: Stack, upstream: RecordingUpstream) -> None:
    with Raw(raw.port) as client:
        client.send(b"GET %s HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}" % CHAT.encode())
        assert client.answer(method="GET").status == 200
    assert last(upstream).body == b"{}"
    assert last(upstream).values("x-llm-tier") == []


def test_trailers_after_the_body_are_read_and_go_no_further(raw: Stack, upstream: RecordingUpstream) -> None:
    count = len(upstream.requests)
    body = json.dumps(chat(STRICT, temperature=1)).encode()
    trailers = b"x-llm-pool: engine-3\r\nx-checksum: 1\r\n"
    with Raw(raw.port) as client:
        client.send(chunked(CHAT, body, headers=b"trailer: x-checksum\r\n", trailers=trailers))
        assert client.answer().status == 200
        client.send(with_length(body))
        assert client.answer().status == 200
    assert len(upstream.requests) == count + 2
    for got in upstream.requests[count:]:
        assert json.loads(got.body)["temperature"] == 0.3
        assert got.values("x-llm-pool") == [b"engine-1"]
        assert got.values("x-checksum") == []


async def test_a_websocket_passes_and_echoes(stack: Stack) -> None:
    async with aiohttp.ClientSession(stack.url) as client, client.ws_connect("/v1/realtime") as socket:
        for number in range(3):
            await socket.send_str(f"message {number}")
            assert await socket.receive_str(timeout=5) == f"message {number}"
        await socket.send_bytes(b"\xff" * 70_000)
        assert await socket.receive_bytes(timeout=5) == b"\xff" * 70_000


@pytest.mark.parametrize(
    "body", [b"[1]", b"{", b"\xff\xfe", b'{"temperature":"hot"}', b'{"model":7}', b"[" * 10_000]
)
def test_a_refusal_of_the_body_leaves_the_connection_usable(stack: Stack, body: bytes) -> None:
    with Raw(stack.port) as client:
        client.send(with_length(body))
        refusal = client.answer()
        assert refusal.status == 400
        assert refusal.json()["error"]["type"] == "invalid_request_error"
        assert refusal.values("content-type") == ["application/json"]
        assert refusal.values("connection") == []
        client.send(in_chunks(json.dumps(chat(STRICT)).encode()))
        assert client.answer().params["temperature"] == 0.3


def test_a_client_that_leaves_in_mid_upload_leaves_nothing_behind(stack: Stack) -> None:
    stack.engine.clear()
    for _ in range(20):
        with Raw(stack.port) as client:
            client.send(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{" % CHAT.encode())
    until(lambda: stack.sidecar.count("llm_streams_open") == 0, what="no open stream")
    assert stack.engine.received() == []


# ── headers ──────────────────────────────────────────────────────────────────────────────────────


def test_odd_bytes_and_repeated_headers_survive_both_ways(raw: Stack, upstream: RecordingUpstream) -> None:
    body = json.dumps(chat(STRICT)).encode()
    headers = (
        b"x-multi: one\r\nx-multi: two\r\nx-odd: a\xffb\r\nx-user-id: \xff\xfe\r\nauthorization: Bearer \xe9\r\n"
    )
    with Raw(raw.port) as client:
        client.send(with_length(body).replace(b"host: x\r\n", b"host: x\r\n" + headers))
        answer = client.answer()
    assert answer.status == 200
    assert answer.values("set-cookie") == ["a=1; Path=/", "b=\xff"]
    assert answer.values("x-odd") == ["\xe9\xff"]
    got = last(upstream)
    assert got.values("x-multi") == [b"one", b"two"]
    assert got.values("x-odd") == [b"a\xffb"]
    assert got.values("x-user-id") == [b"\xff\xfe"]
    assert got.values("authorization") == [b"Bearer \xe9"]
    assert got.values("x-llm-tier") == [b"strict"]


def test_no_hop_by_hop_header_of_ours(raw: Stack, upstream: RecordingUpstream) -> None:
    body = json.dumps(chat(STRICT)).encode()
    nominated = b"connection: x-foo, x-llm-tier, x-llm-priority\r\nx-foo: 1\r\nkeep-alive: timeout=5\r\n"
    with Raw(raw.port) as client:
        client.send(with_length(body).replace(b"host: x\r\n", b"host: x\r\n" + nominated))
        answer = client.answer()
    assert answer.status == 200
    got = last(upstream)
    hop_by_hop = ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade")
    assert [name for name, _ in got.headers if name in hop_by_hop] == []
    assert got.values("x-llm-tier") == [b"strict"]
    assert got.values("x-llm-priority") == [b"normal"]
    assert answer.values("x-llm-tier") == []


# ── encoded bodies and content types ─────────────────────────────────────────────────────────────

PLAIN = json.dumps(chat(STRICT, temperature=1)).encode()
ENCODED = [
    ("gzip", gzip.compress(PLAIN, mtime=0)),
    ("GZIP", gzip.compress(PLAIN, mtime=0)),
    ("zstd", b"\x28\xb5\x2f\xfd" + PLAIN),
    ("deflate", zlib.compress(PLAIN)),
    ("br", PLAIN),
    ("gzip", PLAIN),  # a lie
    ("identity, gzip", gzip.compress(PLAIN, mtime=0)),
    ("", PLAIN),
]


@pytest.mark.parametrize(("encoding", "body"), ENCODED)
def test_an_encoded_body_is_refused(stack: Stack, encoding: str, body: bytes) -> None:
    answer = ask(stack.port, CHAT, body, {"content-encoding": encoding})
    answer.error(415, "encoded_body")
    assert stack.engine.received(answer.request_id) == []


def test_two_encoding_headers_are_refused(front: int) -> None:
    headers = [("content-encoding", "identity"), ("content-encoding", "gzip")]
    ask(front, CHAT, gzip.compress(PLAIN, mtime=0), headers).error(415, "encoded_body")


def test_identity_is_no_encoding(front: int) -> None:
    assert ask(front, CHAT, PLAIN, {"content-encoding": "identity"}).params["temperature"] == 0.3


@pytest.mark.parametrize(("encoding", "body"), [each for each in ENCODED if each[0]])
def test_an_encoded_body_passes_untouched_where_configured(
    raw: Stack, upstream: RecordingUpstream, encoding: str, body: bytes
) -> None:
    assert ask(raw.port, CHAT, body, {"content-encoding": encoding}).status == 200
    got = last(upstream)
    assert got.body == body
    assert got.values("content-encoding") == [encoding.encode()]
    assert got.values("x-llm-priority") == [b"normal"]
    assert got.values("x-llm-tier") == []


def test_a_bomb_grows_no_memory(stack: Stack, raw: Stack, upstream: RecordingUpstream) -> None:
    bomb = gzip.compress(bytes(MIB)) * 1024  # a gibibyte in a mebibyte
    before = stack.sidecar.running.rss_bytes(), raw.sidecar.running.rss_bytes()
    ask(stack.port, CHAT, bomb, {"content-encoding": "gzip"}).error(415, "encoded_body")
    assert ask(raw.port, CHAT, bomb, {"content-encoding": "gzip"}).status == 200
    assert last(upstream).body == bomb
    after = stack.sidecar.running.rss_bytes(), raw.sidecar.running.rss_bytes()
    assert max(now - then for now, then in zip(after, before, strict=True)) < 16 * MIB


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "multipart/form-data; boundary=x", ""])
def test_a_body_is_judged_by_its_content_not_by_its_type(front: int, kind: str) -> None:
    answer = ask(front, CHAT, PLAIN, {"content-type": kind})
    assert answer.params["temperature"] == 0.3
    assert answer.seen["content-type"] == [kind]


# ── paths ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "arrives"),
    [
        ("/v1/chat/completions?a=b&c=%2F", "/v1/chat/completions?a=b&c=%2F"),
        ("/v1/chat/completions/", "/v1/chat/completions/"),
        ("//v1//chat///completions", "/v1/chat/completions"),
        ("/v1/./chat/x/../completions", "/v1/chat/completions"),
        ("/v1/%63hat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions?", "/v1/chat/completions?"),
    ],
)
def test_every_spelling_of_a_judged_path_is_judged(
    raw: Stack, upstream: RecordingUpstream, path: str, arrives: str
) -> None:
    assert ask(raw.port, path, PLAIN).status == 200
    assert last(upstream).path == arrives
    assert json.loads(last(upstream).body)["temperature"] == 0.3


@pytest.mark.parametrize("path", ["/v1/chat%2Fcompletions", "/v1%2fchat/completions", "/v1\\chat%5ccompletions"])
def test_an_escaped_slash_never_gets_a_body_past_unjudged(
    raw: Stack, upstream: RecordingUpstream, path: str
) -> None:
    count = len(upstream.requests)
    with Raw(raw.port) as client:
        client.send(with_length(PLAIN, path))
        answer = client.answer()
    if answer.status == 307:
        assert answer.values("location")[0].endswith("/v1/chat/completions")
    else:
        assert answer.status == 200
    assert [json.loads(got.body)["temperature"] for got in upstream.requests[count:]] in ([], [0.3])
    assert len(upstream.requests) == count or answer.status == 200


@pytest.mark.parametrize("path", ["/v1/Chat/Completions", "/v1/chat/completionsx", "/v1/chats/completions"])
def test_a_path_that_is_not_a_judged_one_passes_untouched(
    raw: Stack, upstream: RecordingUpstream, path: str
) -> None:
    assert ask(raw.port, path, PLAIN).status == 200
    assert last(upstream).body == PLAIN


def test_unknown_paths_are_answered_in_json(stack: Stack) -> None:
    answer = ask(stack.port, "/elsewhere", PLAIN)
    answer.error(404, "unknown_path")
    assert stack.engine.received(answer.request_id) == []


# ── HTTP/2 ───────────────────────────────────────────────────────────────────────────────────────


def curl_http2(port: int, body: bytes) -> tuple[int, bytes]:
    command = ["curl", "-s", "--http2-prior-knowledge", "-w", "\n%{http_code}", "--data-binary", "@-"]
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{port}{CHAT}"], input=body, capture_output=True, timeout=30, check=True
    )
    answer, _, code = done.stdout.rpartition(b"\n")
    return int(code), answer


def test_http2_is_judged_as_http1_is(front: int) -> None:
    code, answer = curl_http2(front, PLAIN)
    assert code == 200
    assert json.loads(answer)["received"]["params"]["temperature"] == 0.3
    code, answer = curl_http2(front, b"[1]")
    assert (code, json.loads(answer)["error"]["type"]) == (400, "invalid_request_error")
    assert curl_http2(front, padded(LIMIT))[0] == 200


# ── one id, many requests ────────────────────────────────────────────────────────────────────────


def test_requests_with_one_id_at_the_same_time_are_judged_each_by_itself(stack: Stack) -> None:
    request_id = new_id()
    texts = [(STRICT, 0.3), (NORMAL, 0.7), (CREATIVE, 0.9)] * 20

    def temperature(text: str) -> float:
        return float(ask(stack.port, CHAT, chat(text), {"x-request-id": request_id}).params["temperature"])

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(temperature, [text for text, _ in texts])) == [wanted for _, wanted in texts]
    assert len(stack.engine.received(request_id)) == len(texts)
