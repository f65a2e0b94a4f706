"""The gRPC server Envoy connects to, on a unix socket or a TCP port."""

from __future__ import annotations

import socket
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from extproc.errors import CannotStart
from extproc.model.topology import MAX_PORT

MESSAGE_MARGIN_BYTES = 1 << 20
"""What a message may hold besides the body: headers and attributes."""

MAX_SOCKET_PATH = 107
SOCKET_MODE = 0o660


def server(max_body_bytes: int, more: Sequence[tuple[str, Any]] = ()) -> grpc.aio.Server:
    """A server whose message limit agrees with the body limit. Ports are not shared with another process."""
    options: list[tuple[str, Any]] = [
        *more,
        ("grpc.max_receive_message_length", max_body_bytes + MESSAGE_MARGIN_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
    ]
    return grpc.aio.server(options=options)


def bind(server: grpc.aio.Server, address: str) -> str:
    """Bind to `unix:PATH` or `HOST:PORT`; what was bound. CannotStart says what stands in the way."""
    if address.startswith("unix:"):
        return _bind_socket(server, Path(address.removeprefix("unix:")))
    host, number = _host_port(address)
    check_free(host.strip("[]"), number)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        raise CannotStart(f"cannot listen on {address}: the port is taken or not allowed") from None
    return f"{host}:{port}"


def listening(address: str) -> tuple[socket.socket, str]:
    """The same for a server that brings no gRPC library: a bound socket, and what was bound."""
    if address.startswith("unix:"):
        path = Path(address.removeprefix("unix:"))
        _make_way(path)
        return _bound(socket.AF_UNIX, str(path), address), address
    host, number = _host_port(address)
    check_free(host.strip("[]"), number)
    family, *_, found = socket.getaddrinfo(host.strip("[]"), number, type=socket.SOCK_STREAM)[0]
    bound = _bound(family, found, address)
    return bound, f"{host}:{bound.getsockname()[1]}"


def _bound(family: int, address: Any, told: str) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_UNIX:
            made.bind(address)
            Path(address).chmod(SOCKET_MODE)
        else:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
    except OSError as error:
        made.close()
        raise CannotStart(f"cannot listen on {told}: {error.strerror}") from None
    return made


def _host_port(address: str) -> tuple[str, int]:
    host, _, number = address.rpartition(":")
    if not host or not number.isdecimal() or int(number) > MAX_PORT:
        raise CannotStart(f"cannot listen on {address}: expected unix:PATH or HOST:PORT")
    return host, int(number)


def check_free(host: str, port: int, option: str = "") -> None:
    """CannotStart where the port is taken: gRPC would add lines of its own, Envoy share it without a word."""
    try:
        # Without the port, which would be taken modulo 65,536 here.
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(found[0]) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((found[4][0], port))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        hint = f" (choose with {option})" if option else ""
        raise CannotStart(f"cannot listen on {host}:{port}: {why}{hint}") from None


def _bind_socket(server: grpc.aio.Server, path: Path) -> str:
    _make_way(path)
    try:
        server.add_insecure_port(f"unix:{path}")
        path.chmod(SOCKET_MODE)
    except (RuntimeError, OSError) as error:
        reason = getattr(error, "strerror", None) or "no permission, or no such directory"
        raise CannotStart(f"cannot listen on unix:{path}: {reason}") from None
    return f"unix:{path}"


def _make_way(path: Path) -> None:
    if len(str(path).encode()) > MAX_SOCKET_PATH:
        raise CannotStart(f"the socket path {path} is longer than {MAX_SOCKET_PATH} bytes")
    clear_stale(path)


def clear_stale(path: Path) -> None:
    """Remove a socket file nobody listens on; CannotStart where somebody does, or where it is no socket."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotStart(f"cannot listen on unix:{path}: {error.strerror}") from None
    if not stat.S_ISSOCK(mode):
        raise CannotStart(f"cannot listen on unix:{path}: the file is there and is no socket")
    if _answers(path):
        raise CannotStart(f"cannot listen on unix:{path}: another process listens there")
    try:
        path.unlink()
    except OSError as error:
        raise CannotStart(f"cannot remove the socket left behind at {path}: {error.strerror}") from None


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
