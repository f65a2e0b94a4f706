"""Where the gRPC server listens, and what stands in its way."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from extproc.edge import grpc_server
from extproc.edge.grpc_server import MAX_SOCKET_PATH, bind, clear_stale, server
from extproc.errors import CannotStart


@pytest.fixture
def listening(tmp_path: Path) -> socket.socket:
    """A socket file somebody listens on."""
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(tmp_path / "s"))
    sock.listen()
    return sock


def stale(path: Path) -> Path:
    """A socket file whose process is gone."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
    return path


async def test_a_free_tcp_port() -> None:
    bound = bind(server(1024), "127.0.0.1:0")
    host, _, port = bound.rpartition(":")
    assert host == "127.0.0.1"
    assert 0 < int(port) < 65536


async def test_a_taken_tcp_port() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(CannotStart, match=f"cannot listen on {address}"):
            bind(server(1024), address)


async def test_two_servers_do_not_share_a_port() -> None:
    first = server(1024)
    address = bind(first, "127.0.0.1:0")
    with pytest.raises(CannotStart):
        bind(server(1024), address)


@pytest.mark.parametrize(
    "address",
    ["bogus", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999", "127.0.0.1:-1", "no.invalid:80"],
)
async def test_what_is_no_address(address: str) -> None:
    with pytest.raises(CannotStart, match="cannot listen on "):
        bind(server(1024), address)


async def test_a_socket_file_for_owner_and_group(tmp_path: Path) -> None:
    path = tmp_path / "s"
    assert bind(server(1024), f"unix:{path}") == f"unix:{path}"
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


async def test_a_socket_left_behind_is_replaced(tmp_path: Path) -> None:
    path = stale(tmp_path / "s")
    before = path.stat().st_ino, path.stat().st_ctime_ns
    bind(server(1024), f"unix:{path}")
    assert (path.stat().st_ino, path.stat().st_ctime_ns) != before


async def test_a_socket_in_use_is_left_alone(tmp_path: Path, listening: socket.socket) -> None:
    with listening, pytest.raises(CannotStart, match="another process listens there"):
        bind(server(1024), f"unix:{tmp_path / 's'}")
    assert (tmp_path / "s").exists()


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
async def test_what_is_no_socket_is_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        (tmp_path / "target").write_text("precious")
        path.symlink_to(tmp_path / "target")
    with pytest.raises(CannotStart, match="the file is there and is no socket"):
        bind(server(1024), f"unix:{path}")
    assert path.exists()


async def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="cannot listen on unix:"):
        bind(server(1024), f"unix:{tmp_path / 'none' / 's'}")


async def test_a_file_for_a_directory(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(CannotStart, match="Not a directory"):
        bind(server(1024), f"unix:{tmp_path / 'f' / 's'}")


async def test_a_directory_that_cannot_be_written(not_root: None) -> None:
    with pytest.raises(CannotStart, match="cannot listen on unix:"):
        bind(server(1024), "unix:/extproc-test.sock")


@pytest.mark.parametrize(("length", "fits"), [(MAX_SOCKET_PATH, True), (MAX_SOCKET_PATH + 1, False), (500, False)])
async def test_the_length_of_a_socket_path(length: int, fits: bool) -> None:
    """107 bytes are what the kernel takes; gRPC would cut or refuse a longer one without a clear word."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        path = Path(directory) / ("s" * (length - len(directory) - 1))
        if fits:
            assert bind(server(1024), f"unix:{path}") == f"unix:{path}"
            return
        with pytest.raises(CannotStart, match="is longer than 107 bytes"):
            bind(server(1024), f"unix:{path}")


async def test_the_length_counts_in_bytes(tmp_path: Path) -> None:
    path = Path("/tmp") / ("é" * 60)
    with pytest.raises(CannotStart, match="is longer than 107 bytes"):
        bind(server(1024), f"unix:{path}")


def test_nothing_there_is_nothing_to_clear(tmp_path: Path) -> None:
    clear_stale(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_a_stale_socket_is_cleared(tmp_path: Path) -> None:
    path = stale(tmp_path / "s")
    clear_stale(path)
    assert not path.exists()


# ── a socket for a server that brings no gRPC library ────────────────────────────────────────────


def opened(address: str) -> str:
    """What was bound; closed again."""
    made, bound = grpc_server.listening(address)
    made.close()
    return bound


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_socket_is_never_the_worlds(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        assert opened(f"unix:{tmp_path}/s") == f"unix:{tmp_path}/s"
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o660


def test_nobody_connects_before_somebody_listens(tmp_path: Path) -> None:
    """So that its mode, set after it was bound, is right for the first who comes."""
    made, _ = grpc_server.listening(f"unix:{tmp_path}/s")
    with made, socket.socket(socket.AF_UNIX) as other, pytest.raises(ConnectionRefusedError):
        other.connect(f"{tmp_path}/s")


def test_one_left_behind_is_replaced_and_one_in_use_is_not(tmp_path: Path) -> None:
    stale(tmp_path / "s")
    made, _ = grpc_server.listening(f"unix:{tmp_path}/s")
    made.listen()
    with made, pytest.raises(CannotStart, match="another process listens there"):
        grpc_server.listening(f"unix:{tmp_path}/s")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_a_port_of_ours(host: str) -> None:
    made, bound = grpc_server.listening(f"{host}:0")
    with made:
        made.listen()
        assert bound == f"{host}:{made.getsockname()[1]}"
        with pytest.raises(CannotStart, match="Address already in use"):
            grpc_server.listening(bound)
    assert opened(bound) == bound  # at once, though connections may linger


@pytest.mark.parametrize(
    "address", ["bogus", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999", "no.invalid:80", "unix:/none/s", "unix:/"]
)
def test_no_socket_for_what_is_no_address(address: str) -> None:
    with pytest.raises(CannotStart, match="cannot listen on "):
        grpc_server.listening(address)


def test_a_long_path_is_none_of_the_kernels(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="is longer than 107 bytes"):
        grpc_server.listening(f"unix:{tmp_path}/{'s' * 107}")
