"""Where engines are: endpoints, and what a pool is for."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_address

from msgspec import Struct

MAX_REMEMBERED = 20_000

MAX_PORT = 65535


@lru_cache(maxsize=MAX_REMEMBERED)
def is_ip(host: str) -> bool:
    """Whether it is an address and no name; IPv6 with or without brackets."""
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def authority(host: str, port: int | None = None) -> str:
    """`host:port` as URLs and Envoy's logs spell it: IPv6 in brackets. None = the host alone."""
    spelled = f"[{host}]" if ":" in host else host
    return spelled if port is None else f"{spelled}:{port}"


class Role(StrEnum):
    """What a pool is for. `stable` pools serve models by name; the others are chosen by policies."""

    STABLE = "stable"
    LONG = "long"
    LIGHT = "light"
    SHADOW = "shadow"
    CANARY = "canary"


class Endpoint(Struct, frozen=True):
    """One engine server. `address` is an IP or a name; ports in 1..65535; `grpc_port` for Triton alone.

    `metrics_url` None = the engine's usual place beside its HTTP port. `hostname` is the name an address was found
    by, "" where it was given as it is.
    """

    address: str
    http_port: int
    grpc_port: int | None = None
    metrics_url: str | None = None
    tls: bool = False
    hostname: str = ""

    @property
    def key(self) -> str:
        """`address:http_port`: unique in a pool, what tables, metrics and logs show."""
        return f"{self.address}:{self.http_port}"


def host_port(text: str) -> tuple[str, int] | None:
    """Of `HOST:PORT`; None for anything else. Port 0 is any free one."""
    host, _, port = text.rpartition(":")
    return (host, int(port)) if host and port.isdecimal() and int(port) <= MAX_PORT else None
