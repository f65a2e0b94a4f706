"""Talks to a running sidecar: its admin pages, and its operator's socket."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import http.client
import json
import socket
from pathlib import Path
from typing import Any

from extproc.edge.operator_socket import SOCKET
from extproc.errors import CannotStart
from extproc.model.topology import host_port
from extproc.settings import load

TIMEOUT_S = 5.0


def add_admin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--admin", metavar="HOST:PORT", help="the sidecar's admin pages (listeners.admin)")


def _place(text: str) -> str:
    """HOST:PORT, also as a browser's line has it."""
    place = text.removeprefix("http://").rstrip("/")
    found = host_port(place)
    if found is None or not found[1] or "/" in place:
        raise CannotStart(f"--admin {text}: allowed: HOST:PORT, e.g. 127.0.0.1:9902")
    return place


def admin_of(arguments: argparse.Namespace) -> str:
    """Where its admin pages are: as told, else as the config has it."""
    if arguments.admin:
        return _place(arguments.admin)
    return load(arguments.config.read_bytes() if arguments.config else b"").listeners.admin


def fetch(admin: str, path: str, key: str) -> dict[str, Any]:
    """A page that is an object with this key; CannotStart where nobody answers, or something else does."""
    host, _, port = admin.rpartition(":")
    try:
        connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            if answer.status != 200:
                raise CannotStart(f"http://{admin}{path} answered {answer.status}")
            found = json.loads(answer.read())
        if not isinstance(found, dict) or key not in found:
            raise ValueError("it is no sidecar")
    except (OSError, http.client.HTTPException, ValueError, OverflowError) as error:
        raise CannotStart(
            f"no sidecar answers at http://{admin}{path}: {error}; --admin HOST:PORT names another place"
        ) from None
    return found


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("operator", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(str(self._path))


def act(state_dir: Path, path: str, **given: object) -> dict[str, Any]:
    """Have the sidecar of this state directory do something; CannotStart says why it does not."""
    where = state_dir / SOCKET
    try:
        with contextlib.closing(_Unix(where)) as connection:
            connection.request("POST", path, json.dumps({**given, "by": _user()}))
            answer = connection.getresponse()
            found: dict[str, Any] = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CannotStart(f"no sidecar answers at {where}: {error}") from None
    if answer.status != 200:
        raise CannotStart(str(found.get("error", f"{path} answered {answer.status}")))
    return found


def _user() -> str:
    """Who asks, for the record."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"
