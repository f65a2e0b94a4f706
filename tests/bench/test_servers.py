"""The servers that ours is compared with, and how processes are told apart and counted."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from bench import instructions, native_server, noop_server, tree
from bench.errors import CannotMeasure
from bench.micro import body_message, headers_message
from bench.processes import ROOT, accepts, running
from extproc.codec.wire import ext_proc_pb2 as pb
from extproc.edge.ext_proc import PATH


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for socket paths, unlike tmp_path."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        yield Path(name)


async def asked(address: str) -> list[pb.ProcessingResponse]:
    """One stream of two messages; it has to end by itself."""
    async with grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.stream_stream(PATH.decode())()  # type: ignore[call-arg]
        answers = []
        for message in (headers_message(7), body_message(b'{"a":2}')):
            await call.write(message)
            answers.append(pb.ProcessingResponse.FromString(await call.read()))
        assert await call.read() is grpc.aio.EOF  # type: ignore[attr-defined]
        assert await call.code() is grpc.StatusCode.OK
    return answers


def is_no_op(answers: list[pb.ProcessingResponse]) -> None:
    headers, body = answers
    assert headers.WhichOneof("response") == "request_headers"
    common = body.request_body.response
    assert json.loads(common.body_mutation.body) == {"x": 1, "a": 2}
    assert common.header_mutation.set_headers[0].header.raw_value == b"13"
    assert common.clear_route_cache


@pytest.mark.parametrize("transport", sorted(noop_server.TRANSPORTS))
async def test_the_no_op_answers_alike_over_both_transports(transport: str, folder: Path) -> None:
    address = f"unix:{folder / 's'}"
    stop = await noop_server.TRANSPORTS[transport](address, 1 << 20)
    try:
        is_no_op(await asked(address))
    finally:
        await stop()


async def test_the_native_no_op_answers_as_the_others(folder: Path) -> None:
    program = native_server.built(lambda _: None)
    if program is None:
        pytest.skip("no compiler for the native no-op")
    command = [str(program), f"unix:{folder / 's'}"]
    with running("the native no-op", command, folder / "log", lambda: accepts(folder / "s")):
        is_no_op(await asked(command[1]))


def test_it_is_compiled_once_for_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(native_server, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(native_server, "_run", lambda room, *command: (room / "noop").write_bytes(b""))
    monkeypatch.setattr("shutil.which", lambda program: f"/usr/bin/{program}")
    first = native_server.built(said.append)
    assert first is not None and first.is_file()
    assert native_server.built(said.append) == first
    monkeypatch.setattr(native_server, "FLAGS", ("-O3",))
    assert native_server.built(said.append) != first
    assert not first.exists()
    assert said == ["compiling the native no-op, once"] * 2


def test_without_a_compiler_it_is_left_out_but_not_in_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(native_server, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CI", raising=False)
    assert native_server.built(said.append) is None
    assert len(said) == 1 and "apt-get install libgrpc++-dev" in said[0]
    monkeypatch.setenv("CI", "true")
    with pytest.raises(CannotMeasure, match="protoc"):
        native_server.built(said.append)


def test_a_compiler_that_fails_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CannotMeasure, match="sh cannot build the native no-op: second"):
        native_server._run(tmp_path, "sh", "-c", "echo first >&2; echo second >&2; exit 1")


FORKING = """
import os, sys
for _ in range(2):
    if os.fork() == 0:
        while sys.stdin.read(1): pass
        os._exit(0)
print(flush=True)
os.wait(), os.wait()
"""


def test_a_tree_is_all_that_was_started() -> None:
    command, pipe = [sys.executable, "-c", FORKING], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as root:
        assert root.stdout is not None and root.stdin is not None
        root.stdout.readline()
        every = tree.pids(root.pid)
        assert every[0] == root.pid and len(every) == 3
        assert len(tree.each_cpu_s(every)) == len(every) and sum(tree.each_cpu_s(every)) > 0
        assert tree.all_rss_mb(root.pid) > 3
        assert tree.open_files(root.pid) >= 3
        with pytest.raises(CannotMeasure, match="apart"):
            tree.named(root.pid)
        root.stdin.close()
        root.wait()
        with pytest.raises(CannotMeasure, match="ended"):
            tree.each_cpu_s(every)
        with pytest.raises(CannotMeasure, match="ended"):
            tree.pids(root.pid)


def test_one_alone_is_the_sidecar() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as alone:
        assert tree.named(alone.pid) == {"sidecar": alone.pid}


NET_UNIX = """Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 17 /x/extproc-2.sock
0000000000000000: 00000002 00000000 00010000 0001 01 18 /y/extproc-1.sock
0000000000000000: 00000003 00000000 00000000 0001 03 19 /x/extproc-2.sock
0000000000000000: 00000003 00000000 00000000 0001 03 20
"""


def test_a_process_is_known_by_the_sockets_it_listens_on() -> None:
    assert tree.listening(NET_UNIX, {"socket:[17]", "socket:[19]", "socket:[20]"}) == ["/x/extproc-2.sock"]


def test_perf_is_read() -> None:
    assert instructions.perf_count("123456,,instructions:u,1000,100.00,,\n") == 123456
    assert instructions.perf_count("<not supported>,,instructions,0,100.00,,\n") is None
    assert instructions.perf_count("no permission\n") is None


def test_what_is_counted_waits_until_it_is_told_to_go(folder: Path) -> None:
    command = [sys.executable, "-m", "bench.instructions", str(folder), "3"]
    done = subprocess.run(command, cwd=ROOT, input="go\n", capture_output=True, text=True, check=True)
    assert done.stdout == "warm\n"


def test_nothing_that_counts_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    told = instructions.told((), lambda: 0, tmp_path, lambda _: None)
    assert told.startswith("instructions are not counted")
    assert "\n" not in told
