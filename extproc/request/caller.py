"""Who sent a request, and what a trusted caller says about it. Without proof none of it has an effect."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache

from extproc.errors import ClientFault
from extproc.model.names import Field, RequestClass
from extproc.model.values import Caller, Scalar
from extproc.request.headers import Headers
from extproc.trust import Tenants, Trust, digest, from_source, has_token

TOKEN, LABEL, CLASS, TENANT = "x-caller-token", "x-business-label", "x-request-class", "x-tenant"
OVERRIDES = {
    "x-param-temperature": Field.TEMPERATURE,
    "x-param-top-p": Field.TOP_P,
    "x-param-max-tokens": Field.MAX_TOKENS,
}
ANONYMOUS = "anonymous"
_WHOLE = re.compile(r"[0-9]{1,15}")
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{0,15})?([eE][+-]?[0-9]{1,2})?")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}")
_BOUNDS: dict[Field, tuple[float, float]] = {
    Field.TEMPERATURE: (0, 2),
    Field.TOP_P: (0, 1),
    Field.MAX_TOKENS: (1, 10_000_000),
}


def read(headers: Headers, attributes: Mapping[str, str], trust: Trust, tenants: Tenants) -> Caller:
    """The caller; ClientFault 400 for a trusted caller's header that cannot be read."""
    reason = _trusted_by(headers, attributes, trust)
    by_key = _tenant_of_key(headers, tenants)
    if reason is None:
        return _untrusted(by_key)
    return Caller(
        trusted=True,
        trust_reason=reason,
        tenant=_named_tenant(headers) or by_key,
        label=headers.text(LABEL) or None,
        request_class=_request_class(headers),
        overrides=_overrides(headers),
    )


@lru_cache(maxsize=4096)
def _untrusted(tenant: str) -> Caller:
    return Caller(False, "", tenant, None, None, {})


def _trusted_by(headers: Headers, attributes: Mapping[str, str], trust: Trust) -> str | None:
    """How the caller proved itself: by token, by the connection's address, by its certificate."""
    token = headers.one(TOKEN) if trust.token_digests else None
    if token and has_token(token, trust.token_digests):
        return "token"
    if trust.sources and from_source(attributes.get("source.address", ""), trust.sources):
        return "source"
    if not trust.identities:
        return None
    names = (
        attributes.get("connection.uri_san_peer_certificate"),
        attributes.get("connection.subject_peer_certificate"),
    )
    return "identity" if any(name and name in trust.identities for name in names) else None


def _tenant_of_key(headers: Headers, tenants: Tenants) -> str:
    key = headers.one(tenants.key_header) if tenants.keys else None
    if not key:
        return ANONYMOUS
    scheme, _, rest = key.partition(b" ")
    bare = rest.strip() if scheme.lower() == b"bearer" else key
    return tenants.keys.get(digest(bare), ANONYMOUS)


def _named_tenant(headers: Headers) -> str:
    name = headers.text(TENANT)
    if name and not _TENANT.fullmatch(name):
        raise _invalid(TENANT, "up to 64 of letters, digits, '.', '_', ':', '@', '-'")
    return name


def _request_class(headers: Headers) -> RequestClass | None:
    text = headers.text(CLASS).lower()
    if not text:
        return None
    try:
        return RequestClass(text)
    except ValueError:
        raise _invalid(CLASS, " or ".join(RequestClass)) from None


def _overrides(headers: Headers) -> dict[Field, Scalar]:
    return {
        field: _number(name, headers.text(name), field) for name, field in OVERRIDES.items() if headers.text(name)
    }


def _number(name: str, text: str, field: Field) -> Scalar:
    low, high = _BOUNDS[field]
    whole = field is Field.MAX_TOKENS
    written = (_WHOLE if whole else _NUMBER).fullmatch(text)
    value = math.nan if written is None else int(text) if whole else float(text)
    if not low <= value <= high:
        raise _invalid(name, f"a {'whole ' if whole else ''}number from {low} to {high:,}")
    return value


def _invalid(name: str, allowed: str) -> ClientFault:
    return ClientFault(400, "invalid_header", f"Invalid header '{name}': expected {allowed}.", param=name)
