"""Where engines are: endpoints, and what a pool is for."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


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
