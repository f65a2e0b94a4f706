"""Who sent a request: proofs, names, and what only a trusted caller may say."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.errors import ClientFault
from extproc.model.names import Field, RequestClass
from extproc.model.values import Caller
from extproc.request import caller
from extproc.request.headers import Headers
from extproc.trust import Tenants, Trust, digest, tenant_name

TOKENS = (b"old-token", b"new-token")
TRUST = Trust(
    tuple(digest(token) for token in TOKENS),
    (ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fd00::/8")),
    frozenset({"spiffe://mesh/ns/shop/sa/web", "CN=web"}),
)
NOBODY = Trust((), (), frozenset())
TENANTS = Tenants("authorization", {digest(b"shop-key"): "key-shop", digest(b"other"): "key-other"}, {})
NO_TENANTS = Tenants("authorization", {}, {})
PROOF = ("x-caller-token", b"new-token")
SAYS = (
    ("x-business-label", b"legal"),
    ("x-request-class", b"critical"),
    ("x-tenant", b"shop"),
    ("x-param-temperature", b"0.1"),
    ("x-param-max-tokens", b"77"),
)


def read(
    *headers: tuple[str, bytes], trust: Trust = TRUST, tenants: Tenants = TENANTS, **attributes: str
) -> Caller:
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    return caller.read(Headers(headers), named, trust, tenants)


PROOFS: list[tuple[str, tuple[tuple[str, bytes], ...], dict[str, str], str]] = [
    ("nothing", (), {}, ""),
    ("token", (PROOF,), {}, "token"),
    ("rotated_token", (("x-caller-token", b"old-token"),), {}, "token"),
    ("wrong_token", (("x-caller-token", b"new-tokem"),), {}, ""),
    ("prefix_of_a_token", (("x-caller-token", b"new-toke"),), {}, ""),
    ("longer_token", (("x-caller-token", b"new-token-"),), {}, ""),
    ("other_case", (("x-caller-token", b"New-Token"),), {}, ""),
    ("empty_token", (("x-caller-token", b""),), {}, ""),
    ("token_bytes", (("x-caller-token", b"\xff\x00\x80"),), {}, ""),
    ("digest_as_token", (("x-caller-token", digest(b"new-token")),), {}, ""),
    ("two_tokens", (PROOF, PROOF), {}, ""),
    ("right_and_wrong_token", (("x-caller-token", b"guess"), PROOF), {}, ""),
    ("source", (), {"source__address": "10.1.2.3:5555"}, "source"),
    ("source_v6", (), {"source__address": "[fd00::1]:5555"}, "source"),
    ("source_mapped", (), {"source__address": "[::ffff:10.1.2.3]:5555"}, "source"),
    ("other_source", (), {"source__address": "10.2.2.3:5555"}, ""),
    ("source_is_a_socket", (), {"source__address": "/run/app.sock"}, ""),
    ("source_unknown", (), {"source__address": ""}, ""),
    ("spoofed_source", (("x-forwarded-for", b"10.1.2.3"), ("source.address", b"10.1.2.3:1")), {}, ""),
    ("spoofed_identity", (("x-forwarded-client-cert", b"URI=spiffe://mesh/ns/shop/sa/web"),), {}, ""),
    ("uri", (), {"connection__uri_san_peer_certificate": "spiffe://mesh/ns/shop/sa/web"}, "identity"),
    ("subject", (), {"connection__subject_peer_certificate": "CN=web"}, "identity"),
    ("other_uri", (), {"connection__uri_san_peer_certificate": "spiffe://mesh/ns/shop/sa/web2"}, ""),
    ("empty_identity", (), {"connection__subject_peer_certificate": ""}, ""),
    ("token_before_source", (PROOF,), {"source__address": "10.1.2.3:5"}, "token"),
    ("wrong_token_right_source", (("x-caller-token", b"no"),), {"source__address": "10.1.2.3:5"}, "source"),
]


@pytest.mark.parametrize(("headers", "attributes", "by"), [c[1:] for c in PROOFS], ids=[c[0] for c in PROOFS])
def test_proofs(headers: tuple[tuple[str, bytes], ...], attributes: dict[str, str], by: str) -> None:
    found = read(*headers, *SAYS, **attributes)
    assert (found.trusted, found.trust_reason) == (bool(by), by)
    if by:
        assert found == Caller(
            True, by, "shop", "legal", RequestClass.CRITICAL, {Field.TEMPERATURE: 0.1, Field.MAX_TOKENS: 77}
        )
    else:
        assert found == Caller(False, "", "anonymous", None, None, {})


@pytest.mark.parametrize(
    ("headers", "attributes"),
    [
        ((PROOF,), {}),
        ((("x-caller-token", b""),), {}),
        ((), {"source__address": "10.1.2.3:5"}),
        ((), {"connection__uri_san_peer_certificate": ""}),
        ((), {"connection__subject_peer_certificate": "CN=web"}),
    ],
)
def test_where_nothing_is_configured_nobody_is_trusted(
    headers: tuple[tuple[str, bytes], ...], attributes: dict[str, str]
) -> None:
    assert read(*headers, *SAYS, trust=NOBODY, **attributes) == Caller(False, "", "anonymous", None, None, {})


def test_a_bad_word_of_an_untrusted_caller_is_not_even_read() -> None:
    found = read(("x-request-class", b"urgent"), ("x-param-max-tokens", b"-1"), ("x-tenant", b"\xff"))
    assert found == Caller(False, "", "anonymous", None, None, {})


KEYS: list[tuple[str, tuple[bytes, ...], str]] = [
    ("none", (), "anonymous"),
    ("bearer", (b"Bearer shop-key",), "key-shop"),
    ("lower_case", (b"bearer shop-key",), "key-shop"),
    ("upper_case", (b"BEARER shop-key",), "key-shop"),
    ("spaces", (b"Bearer   shop-key ",), "key-shop"),
    ("bare", (b"shop-key",), "key-shop"),
    ("another", (b"Bearer other",), "key-other"),
    ("unknown", (b"Bearer guess",), "anonymous"),
    ("other_case", (b"Bearer Shop-Key",), "anonymous"),
    ("basic", (b"Basic shop-key",), "anonymous"),
    ("only_the_scheme", (b"Bearer",), "anonymous"),
    ("empty", (b"",), "anonymous"),
    ("bytes", (b"Bearer \xff\xfe",), "anonymous"),
    ("twice", (b"Bearer shop-key", b"Bearer shop-key"), "anonymous"),
]


@pytest.mark.parametrize(("values", "tenant"), [case[1:] for case in KEYS], ids=[case[0] for case in KEYS])
@pytest.mark.parametrize("trusted", [False, True])
def test_tenant_by_key(values: tuple[bytes, ...], tenant: str, trusted: bool) -> None:
    proof = (PROOF,) if trusted else ()
    assert read(*proof, *(("authorization", value) for value in values)).tenant == tenant


def test_a_key_in_a_header_of_its_own() -> None:
    tenants = Tenants("x-api-key", {digest(b"k"): tenant_name(b"k")}, {})
    assert read(("x-api-key", b"k"), tenants=tenants).tenant == tenant_name(b"k")
    assert read(("authorization", b"Bearer k"), tenants=tenants).tenant == "anonymous"


def test_without_configured_keys_everybody_is_anonymous() -> None:
    assert read(("authorization", b"Bearer shop-key"), tenants=NO_TENANTS).tenant == "anonymous"


def test_a_trusted_name_goes_before_the_key() -> None:
    assert read(PROOF, ("authorization", b"Bearer other"), ("x-tenant", b"shop")).tenant == "shop"
    assert read(PROOF, ("authorization", b"Bearer other"), ("x-tenant", b"")).tenant == "key-other"
    assert read(("authorization", b"Bearer other"), ("x-tenant", b"shop")).tenant == "key-other"


@pytest.mark.parametrize("name", ["a", "Shop-1", "team:web@eu.example_1", "0", "x" * 64])
def test_names_of_tenants(name: str) -> None:
    assert read(PROOF, ("x-tenant", name.encode())).tenant == name


@pytest.mark.parametrize("name", [b"x" * 65, b"-a", b"a b", b"a\xff", "名".encode(), b"a,b", b"a\nb", b'a"'])
def test_no_names_of_tenants(name: bytes) -> None:
    with pytest.raises(ClientFault) as refusal:
        read(PROOF, ("x-tenant", name))
    fault = refusal.value
    assert (fault.status, fault.reason, fault.param) == (400, "invalid_header", "x-tenant")
    assert fault.message.isascii()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"critical", RequestClass.CRITICAL),
        (b"normal", RequestClass.NORMAL),
        (b"best-effort", RequestClass.BEST_EFFORT),
        (b"BEST-EFFORT", RequestClass.BEST_EFFORT),
        (b" Critical ", RequestClass.CRITICAL),
        (b"", None),
    ],
)
def test_request_class(value: bytes, expected: RequestClass | None) -> None:
    assert read(PROOF, ("x-request-class", value)).request_class is expected


OVERRIDES: list[tuple[str, bytes, Field, Any]] = [
    ("x-param-temperature", b"0", Field.TEMPERATURE, 0.0),
    ("x-param-temperature", b"0.30", Field.TEMPERATURE, 0.3),
    ("x-param-temperature", b"2", Field.TEMPERATURE, 2.0),
    ("x-param-temperature", b"1e-1", Field.TEMPERATURE, 0.1),
    ("x-param-top-p", b"0", Field.TOP_P, 0.0),
    ("x-param-top-p", b"1.0", Field.TOP_P, 1.0),
    ("x-param-max-tokens", b"1", Field.MAX_TOKENS, 1),
    ("x-param-max-tokens", b"10000000", Field.MAX_TOKENS, 10_000_000),
    ("x-param-max-tokens", b" 5 ", Field.MAX_TOKENS, 5),
]


@pytest.mark.parametrize(("name", "value", "field", "expected"), OVERRIDES)
def test_overrides(name: str, value: bytes, field: Field, expected: float) -> None:
    assert read(PROOF, (name, value)).overrides == {field: expected}


def test_a_repeated_override_says_nothing() -> None:
    assert read(PROOF, ("x-param-top-p", b"0.1"), ("x-param-top-p", b"0.2")).overrides == {}


BAD: list[tuple[str, bytes]] = [
    ("x-param-temperature", b"hot"),
    ("x-param-temperature", b"-0.1"),
    ("x-param-temperature", b"2.1"),
    ("x-param-temperature", b"nan"),
    ("x-param-temperature", b"inf"),
    ("x-param-temperature", b"1e400"),
    ("x-param-temperature", b"0x1"),
    ("x-param-temperature", b"0,5"),
    ("x-param-temperature", b"\xff"),
    ("x-param-temperature", "٠".encode()),
    ("x-param-temperature", b"0_1"),
    ("x-param-top-p", b"1.1"),
    ("x-param-top-p", b"-1"),
    ("x-param-max-tokens", b"0"),
    ("x-param-max-tokens", b"-5"),
    ("x-param-max-tokens", b"10000001"),
    ("x-param-max-tokens", b"1.5"),
    ("x-param-max-tokens", b"1e3"),
    ("x-param-max-tokens", b"1_000"),
    ("x-param-max-tokens", b"9" * 5000),
    ("x-request-class", b"urgent"),
    ("x-request-class", b"\xff\xfe"),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{n}-{v[:9]!r}" for n, v in BAD])
def test_a_trusted_callers_mistake_is_told(name: str, value: bytes) -> None:
    with pytest.raises(ClientFault) as refusal:
        read(PROOF, (name, value))
    fault = refusal.value
    assert (fault.status, fault.reason, fault.param) == (400, "invalid_header", name)
    assert fault.message.startswith(f"Invalid header '{name}': expected ")


NAMES = ("x-caller-token", "x-business-label", "x-request-class", "x-tenant", "authorization", *caller.OVERRIDES)


@settings(deadline=None, max_examples=300)
@given(
    headers=st.lists(st.tuples(st.sampled_from(NAMES), st.binary(max_size=12)), max_size=8),
    address=st.text(max_size=20),
    proven=st.booleans(),
)
def test_any_bytes_are_read_or_refused(headers: list[tuple[str, bytes]], address: str, proven: bool) -> None:
    proof = (PROOF,) if proven else ()
    try:
        found = read(*proof, *headers, source__address=address, connection__subject_peer_certificate=address)
    except ClientFault as fault:
        assert fault.status == 400
        assert fault.message.isascii()
        return
    assert found.tenant.isascii()
    if not found.trusted:
        assert (found.label, found.request_class, found.overrides) == (None, None, {})
