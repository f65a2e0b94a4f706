"""Who is trusted, and what a tenant is called. Secrets live here only as SHA-256 digests."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping

from msgspec import Struct

from extproc.model.names import RequestClass

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

TENANT_DIGITS = 16
"""Hex digits of a key's digest that name its tenant: enough to tell tenants apart, useless to guess a key."""


class Trust(Struct, frozen=True):
    """Ways to be trusted: a token, the connection's own address, its mTLS identity (URI SAN or subject)."""

    token_digests: tuple[bytes, ...]
    sources: tuple[Network, ...]
    identities: frozenset[str]


class Tenants(Struct, frozen=True):
    """`key_header` is where clients send the key that names them; `keys` maps its digest to a tenant."""

    key_header: str
    keys: Mapping[bytes, str]
    classes: Mapping[str, RequestClass]


def digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def tenant_name(key: bytes) -> str:
    return f"key-{digest(key).hex()[:TENANT_DIGITS]}"


def has_token(presented: bytes, valid: tuple[bytes, ...]) -> bool:
    """Whether the token is one of the valid ones; every one is compared, each in constant time."""
    hashed = digest(presented)
    found = False
    for candidate in valid:
        found |= hmac.compare_digest(hashed, candidate)
    return found


def from_source(address: str, sources: tuple[Network, ...]) -> bool:
    """Whether `address` (`ip:port`, `[ip6]:port`, or a UDS path) lies in one of the networks."""
    if not sources or not address:
        return False
    host = address.rpartition(":")[0].strip("[]") if ":" in address else address
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None) or ip
    return any(mapped in network for network in sources)
