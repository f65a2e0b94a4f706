from __future__ import annotations

import asyncio
import gzip
import hashlib
import socket

import aiohttp
import pytest

from extproc.standin import server
from extproc.standin.server import start


async def test_what_was_received_is_remembered_and_forgotten(http: aiohttp.ClientSession) -> None:
    async with http.post("/v1/chat/completions?a=b", data=b'{"temperature": 1E0}') as answer:
        received = (await answer.json())["received"]
    async with http.get("/nowhere") as answer:
        assert answer.status == 404
    async with http.get("/__received") as answer:
        reports = await answer.json()
    assert reports[0] == received
    assert [(report["method"], report["path"], report["query"]) for report in reports] == [
        ("POST", "/v1/chat/completions", "a=b"),
        ("GET", "/nowhere", ""),
    ]
    async with http.get(f"/__received/body/{received['body_sha256']}") as answer:
        assert await answer.read() == b'{"temperature": 1E0}'
    async with http.delete("/__received") as answer:
        assert await answer.json() == {"cleared": 2}
    async with http.get("/__received") as answer:
        assert await answer.json() == []
    async with http.get(f"/__received/body/{received['body_sha256']}") as answer:
        assert answer.status == 404


async def test_a_chunked_body_is_read_whole(http: aiohttp.ClientSession) -> None:
    async def pieces():
        for _ in range(40):
            yield b"x" * 100_000

    async with http.post("/v1/images/edits", data=pieces()) as answer:
        document = await answer.json()
    assert document["bytes"] == 4_000_000
    assert document["sha256"] == hashlib.sha256(b"x" * 4_000_000).hexdigest()
    assert document["received"]["headers"]["transfer-encoding"] == ["chunked"]


async def test_a_compressed_body_is_hashed_as_sent(http: aiohttp.ClientSession) -> None:
    body = gzip.compress(b'{"temperature": 0.4}')
    async with http.post("/v1/chat/completions", data=body, headers={"Content-Encoding": "gzip"}) as answer:
        received = (await answer.json())["received"]
    assert received["body_sha256"] == hashlib.sha256(body).hexdigest()
    assert received["params"] == {"temperature": 0.4}


async def test_a_body_at_the_limit_is_taken_and_one_above_it_is_not(monkeypatch) -> None:
    monkeypatch.setattr(server, "MAX_BODY_BYTES", 1000)
    runner = await start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as http:
            async with http.post("/v1/images/edits", data=b"x" * 1000) as answer:
                assert answer.status == 200
            async with http.post("/v1/images/edits", data=b"x" * 1001) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (413, "body_too_large")
            async with http.get("/__received") as answer:
                assert [report["body_bytes"] for report in await answer.json()] == [1000, 0]
    finally:
        await runner.cleanup()


async def test_large_headers_and_odd_bytes(engine: str) -> None:
    host, port = engine.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /health HTTP/1.1\r\nHost: e\r\nX-Odd: \xff\xe9\r\nX-Long: %s\r\n" % (b"l" * 60_000))
    writer.write(b"Connection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200")
    assert '"x-odd":["ÿé"]'.encode() in answer
    assert b"l" * 60_000 in answer


@pytest.mark.parametrize("path", ["/v1/realtime?model=m", "/v1/other"])
async def test_websocket_frames_are_echoed(http: aiohttp.ClientSession, path: str) -> None:
    async with http.ws_connect(path) as ws:
        await ws.send_str("订单")
        assert await ws.receive_str(timeout=5) == "订单"
        await ws.send_bytes(b"\x00\xff")
        assert await ws.receive_bytes(timeout=5) == b"\x00\xff"
    async with http.get("/__received") as answer:
        (report,) = await answer.json()
    assert report["path"] == path.split("?", maxsplit=1)[0]
    assert report["headers"]["upgrade"] == ["websocket"]


async def test_a_websocket_outside_v1_is_not_accepted(http: aiohttp.ClientSession) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await http.ws_connect("/realtime")
    assert caught.value.status == 404


async def test_words_are_streamed_apart(free_port: int) -> None:
    """With a delay between them the first event is here long before the last."""
    runner = await start("127.0.0.1", free_port, delay_s=0.1)
    loop = asyncio.get_running_loop()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{free_port}") as http:
            started = loop.time()
            async with http.post("/completion", json={"stream": True, "temperature": 0.5}) as answer:
                first = await answer.content.readuntil(b"\n\n")
                first_at = loop.time()
                async with http.get("/__received") as reports:
                    assert len(await reports.json()) == 1
                rest = await answer.content.read()
            ended = loop.time()
        assert b'"stand-in: "' in first
        assert rest.count(b"data: ") == 2
        assert ended - started >= 0.2
        assert ended - first_at >= 0.1
    finally:
        await runner.cleanup()


async def test_a_plain_answer_waits_for_the_delay(free_port: int) -> None:
    runner = await start("127.0.0.1", free_port, delay_s=0.1)
    loop = asyncio.get_running_loop()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{free_port}") as http:
            started = loop.time()
            async with http.get("/health") as answer:
                await answer.read()
        assert loop.time() - started >= 0.1
    finally:
        await runner.cleanup()


async def test_two_engines_remember_apart(engine: str, http: aiohttp.ClientSession) -> None:
    runner = await start("127.0.0.1", 0)
    try:
        async with http.get("/health"):
            pass
        async with aiohttp.ClientSession() as other:
            url = f"http://127.0.0.1:{runner.addresses[0][1]}/__received"
            async with other.get(url) as answer:
                assert await answer.json() == []
    finally:
        await runner.cleanup()


async def test_a_taken_port_is_an_os_error(free_port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port))
        taken.listen()
        with pytest.raises(OSError, match=str(free_port)):
            await start("127.0.0.1", free_port)


async def test_an_open_websocket_does_not_keep_it_from_ending(free_port: int) -> None:
    runner = await start("127.0.0.1", free_port)
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{free_port}") as http,
        http.ws_connect("/v1/realtime") as ws,
    ):
        await asyncio.wait_for(runner.cleanup(), timeout=10)
        assert (await ws.receive(timeout=5)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/completion", "/v2/models/m/generate"]
)
async def test_values_of_absurd_types_and_depths_are_answered(http: aiohttp.ClientSession, path: str) -> None:
    deep = b"[" * 900 + b"]" * 900
    keys = b"model temperature top_p n max_tokens id stream_options messages prompt input text_input".split()
    body = b"{%s}" % b",".join(b'"%s":%s' % (key, deep) for key in keys)
    for sent in (body, b'{"parameters":%s,"generation":{"x":%s}}' % (body, deep)):
        async with http.post(path, data=sent) as answer:
            assert (answer.status, (await answer.json())["received"]["body_bytes"]) == (200, len(sent))
