"""Where a request goes while its pool does not take everybody: to it as a probe, to a light pool, or nowhere."""

from __future__ import annotations

from msgspec.structs import replace

from extproc.decide.pool import Destination
from extproc.errors import Unavailable
from extproc.model.names import SPEAKS, Family, RequestClass
from extproc.model.protection import PoolAccess, Protection
from extproc.model.topology import Role
from extproc.registry import PoolFacts, Registry

WHOLE = 10_000
"""Shares are compared in ten-thousandths."""

_OFFSET, _PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF


def fnv1a32(data: bytes) -> int:
    """FNV-1a, 32 bits (Fowler, Noll, Vo)."""
    value = _OFFSET
    for byte in data:
        value = ((value ^ byte) * _PRIME) & _MASK
    return value


def draw(nonce: bytes) -> int:
    """A number in [0, WHOLE), the same in every process that sees this request."""
    return fnv1a32(nonce) % WHOLE


def is_probe(drawn: int, share: float) -> bool:
    return drawn < WHOLE * share


def admissions(drawn: int, protection: Protection) -> tuple[bool, ...]:
    """All that the draw decides, so that equal requests that fare alike are remembered together."""
    shares = {access.probe_share for access in protection.pools.values()}
    if protection.parameters is not None:
        shares.add(protection.parameters.probe_share)
    return tuple(is_probe(drawn, share) for share in sorted(shares))


def redirected(
    wanted: Destination,
    family: Family,
    request_class: RequestClass,
    registry: Registry,
    protection: Protection,
    *,
    drawn: int,
) -> Destination:
    """The destination that serves; Unavailable where none does."""
    access = protection.pools.get(wanted.pool or "")
    if access is None or request_class.value in access.exempt:
        return wanted
    if is_probe(drawn, access.probe_share):
        return replace(wanted, probe=True)
    if access.alone:
        return wanted
    lights = [pool for pool in registry.pools if pool.role is Role.LIGHT]
    if not lights:
        return _without_light(wanted, access, protection)
    speaking = [pool for pool in lights if family in SPEAKS[pool.engine]]
    if not speaking:
        raise _unavailable("no_fallback_for_dialect", "no light pool speaks this API", protection)
    taking = next((pool for pool in speaking if pool.name in protection.light), None)
    if taking is not None:
        return _to_light(taking, access)
    if access.serves_anyway:
        return wanted
    raise _unavailable("fallback_shut", "the light pools are shut as well", protection)


def _to_light(pool: PoolFacts, access: PoolAccess) -> Destination:
    return Destination(pool.name, pool.engine, pool.schedules_by_priority, fallback=access.reason)


def _without_light(wanted: Destination, access: PoolAccess, protection: Protection) -> Destination:
    """Envoy's own breaker answers for a pool that is open; while it is half open, its few places are for probes."""
    if access.serves_anyway or not access.probe_share:
        return wanted
    raise _unavailable("pool_half_open", "it is being tried out", protection)


def _unavailable(reason: str, why: str, protection: Protection) -> Unavailable:
    return Unavailable(
        reason, f"The pool of this model is shut; {why}.", retry_after_s=max(1, protection.retry_after_s)
    )
