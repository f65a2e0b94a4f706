"""Tokens, addresses, and what a tenant is called."""

from __future__ import annotations

import hashlib
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.trust import TENANT_DIGITS, digest, from_source, has_token, tenant_name

VALID = tuple(digest(token) for token in (b"one", b"two", b"two", b"\xff\x00"))


def test_secrets_are_kept_as_digests() -> None:
    assert digest(b"one") == hashlib.sha256(b"one").digest()


@pytest.mark.parametrize(
    ("presented", "valid"),
    [
        (b"one", True),
        (b"two", True),
        (b"\xff\x00", True),
        (b"three", False),
        (b"", False),
        (b"one ", False),
        (b"ONE", False),
        (VALID[0], False),
        (b"x" * 100_000, False),
    ],
)
def test_tokens(presented: bytes, valid: bool) -> None:
    assert has_token(presented, VALID) is valid
    assert has_token(presented, tuple(reversed(VALID))) is valid


@given(st.binary(max_size=20))
def test_without_tokens_none_is_right(presented: bytes) -> None:
    assert has_token(presented, ()) is False


NETWORKS = tuple(ipaddress.ip_network(text) for text in ("10.1.0.0/16", "192.168.7.7/32", "fd00:1::/32", "::1/128"))


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("10.1.0.0:1", True),
        ("10.1.255.255:65535", True),
        ("10.1.2.3", True),
        ("10.2.0.0:1", False),
        ("10.0.255.255:1", False),
        ("192.168.7.7:80", True),
        ("192.168.7.8:80", False),
        ("[fd00:1::9]:80", True),
        ("[fd00:2::9]:80", False),
        ("[::1]:80", True),
        ("[::2]:80", False),
        ("[::ffff:10.1.2.3]:80", True),
        ("[::ffff:10.2.2.3]:80", False),
        ("/run/envoy.sock", False),
        ("@abstract", False),
        ("", False),
        (":", False),
        ("::", False),
        ("localhost:80", False),
        ("10.1.2.3:80, 8.8.8.8:1", False),
        ("10.1.2.3.4:80", False),
        ("010.1.2.3:80", False),
        ("١٠.1.2.3:80", False),
        ("10.1.2.3\n:80", False),
    ],
)
def test_addresses(address: str, inside: bool) -> None:
    assert from_source(address, NETWORKS) is inside


@given(st.text(max_size=30))
def test_any_text_is_no_crash_and_without_networks_nothing(address: str) -> None:
    assert from_source(address, ()) is False
    assert from_source(address, NETWORKS) in (True, False)


def test_a_network_of_everything_is_by_family() -> None:
    everything = (ipaddress.ip_network("0.0.0.0/0"),)
    assert from_source("8.8.8.8:1", everything) is True
    assert from_source("[2001:db8::1]:1", everything) is False


def test_tenants_are_named_by_their_keys_digest() -> None:
    name = tenant_name(b"secret")
    assert name == "key-" + hashlib.sha256(b"secret").hexdigest()[:TENANT_DIGITS]
    assert TENANT_DIGITS == 16
    assert tenant_name(b"secret2") != name
