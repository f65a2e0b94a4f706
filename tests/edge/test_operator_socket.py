"""What an operator changes, over a socket of its own."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from extproc.edge import operator_socket
from extproc.edge.operator_socket import Refused
from extproc.errors import CannotStart


def act(given: Mapping[str, Any]) -> Mapping[str, Any]:
    if given.get("no"):
        raise Refused("not today")
    return {"did": given.get("what")}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    path = tmp_path / "operator.sock"
    path.write_text("left behind")
    runner = await operator_socket.start(operator_socket.application({"/do": act}), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    async with aiohttp.ClientSession("http://operator", connector=aiohttp.UnixConnector(str(path))) as session:
        yield session
    await runner.cleanup()


@pytest.mark.parametrize(
    ("body", "status", "answer"),
    [
        (b'{"what": "x"}', 200, {"did": "x"}),
        (b"", 200, {"did": None}),
        (b'{"no": 1}', 409, {"error": "not today"}),
        (b"[]", 400, {"error": "the body is no JSON object"}),
        (b"{", 400, {"error": "the body is no JSON object"}),
    ],
)
async def test_an_act(client: aiohttp.ClientSession, body: bytes, status: int, answer: dict[str, Any]) -> None:
    async with client.post("/do", data=body) as found:
        assert (found.status, await found.json()) == (status, answer)


async def test_nothing_else(client: aiohttp.ClientSession) -> None:
    async with client.get("/do") as found:
        assert found.status == 405
    async with client.post("/other") as found:
        assert found.status == 404


async def test_a_place_where_it_cannot_be_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="operator's socket"):
        await operator_socket.start(operator_socket.application({}), tmp_path / "missing" / "operator.sock")
