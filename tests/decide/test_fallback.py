"""Where a request goes while its pool does not take everybody."""

from __future__ import annotations

from collections import Counter

import pytest

from extproc.decide import fallback
from extproc.decide.pool import Destination
from extproc.errors import Unavailable
from extproc.model.names import Engine, Family, RequestClass
from extproc.model.protection import ParameterAccess, PoolAccess, Protection
from extproc.registry import Registry
from extproc.settings import load

POOLS = """
pools:
  - {name: big, engine: vllm, endpoints: ["http://a:1"]}
  - {name: tri, engine: triton, endpoints: ["http://b:1"]}
"""
LIGHT = POOLS + '  - {name: light, engine: llamacpp, endpoints: ["http://c:1"], role: light}\n'
BIG = Destination("big", Engine.VLLM, True)
TRI = Destination("tri", Engine.TRITON, True)
NORMAL, CRITICAL = RequestClass.NORMAL, RequestClass.CRITICAL


def registry(text: str) -> Registry:
    settings = load(text)
    return Registry(
        defaults=settings.default_model,
        models=settings.models,
        pools=settings.pools,
        specs=settings.pool_specs(),
        default_pool=settings.default_pool,
        engines=settings.engines,
        context_fraction=0.65,
        lowest_latency_models=[],
    )


def go(
    wanted: Destination,
    access: PoolAccess | None,
    *,
    pools: str = LIGHT,
    rank: RequestClass = NORMAL,
    drawn: int = 9999,
    light: tuple[str, ...] = ("light",),
) -> Destination:
    shut = {} if access is None else {wanted.pool or "": access}
    family = Family.TRITON if wanted is TRI else Family.OPENAI
    protection = Protection(pools=shut, light=light, retry_after_s=7)
    return fallback.redirected(wanted, family, rank, registry(pools), protection, drawn=drawn)


OPEN = PoolAccess(0.0, "pool_breaker", ("critical",))
HALF = PoolAccess(0.05, "pool_breaker", ("critical",))
SLOW = PoolAccess(0.0, "fallback_breaker", ("critical",), serves_anyway=True)


def test_a_pool_that_takes_everybody() -> None:
    assert go(BIG, None) is BIG


@pytest.mark.parametrize("access", [OPEN, HALF, SLOW])
def test_critical_requests_stay(access: PoolAccess) -> None:
    assert go(BIG, access, rank=CRITICAL) is BIG


@pytest.mark.parametrize("access", [OPEN, HALF, SLOW])
def test_the_rest_goes_to_the_light_pool(access: PoolAccess) -> None:
    found = go(BIG, access)
    assert (found.pool, found.engine, found.fallback) == ("light", Engine.LLAMACPP, access.reason)


def test_a_probe_goes_there() -> None:
    found = go(BIG, HALF, drawn=499)
    assert (found.pool, found.probe, found.fallback) == ("big", True, "")
    assert go(BIG, HALF, drawn=500).pool == "light"
    assert go(BIG, OPEN, drawn=0).pool == "light", "an open pool is tried by nobody"


@pytest.mark.parametrize("access", [OPEN, HALF, SLOW])
def test_no_light_pool_that_speaks_its_api(access: PoolAccess) -> None:
    with pytest.raises(Unavailable) as raised:
        go(TRI, access)
    assert (raised.value.reason, raised.value.status, raised.value.retry_after_s) == (
        "no_fallback_for_dialect",
        503,
        7,
    )


def test_the_light_pool_is_shut_as_well() -> None:
    with pytest.raises(Unavailable, match="as well"):
        go(BIG, OPEN, light=())
    assert go(BIG, SLOW, light=()) is BIG, "a bad answer now and then is better than none"


def test_without_any_light_pool_envoys_own_breaker_answers() -> None:
    assert go(BIG, OPEN, pools=POOLS) is BIG
    assert go(BIG, SLOW, pools=POOLS) is BIG
    with pytest.raises(Unavailable) as raised:
        go(BIG, HALF, pools=POOLS)
    assert raised.value.reason == "pool_half_open"
    assert go(BIG, HALF, pools=POOLS, drawn=0).probe


@pytest.mark.parametrize("wanted", [BIG, TRI])
@pytest.mark.parametrize("light", [(), ("light",)])
def test_a_pool_that_is_tried_out_and_has_no_other_takes_everybody(
    wanted: Destination, light: tuple[str, ...]
) -> None:
    alone = PoolAccess(0.05, "pool_breaker", ("critical",), alone=True)
    assert go(wanted, alone, light=light) is wanted
    assert go(wanted, alone, light=light, drawn=0).probe
    assert go(BIG, alone, pools=POOLS) is BIG


@pytest.mark.parametrize(
    ("text", "value"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"b", 0xE70C2DE5), (b"foobar", 0xBF9CF968)]
)
def test_fnv1a_has_its_published_values(text: bytes, value: int) -> None:
    assert fallback.fnv1a32(text) == value


def test_a_share_of_nonces_are_probes() -> None:
    nonces = (f"3f0c8c1e-7d5f-4c1e-9d1b-{number:012x}".encode() for number in range(20_000))
    came = Counter(fallback.is_probe(fallback.draw(nonce), 0.05) for nonce in nonces)
    assert came[True] / 20_000 == pytest.approx(0.05, abs=0.01)


def test_equal_requests_that_fare_alike_are_told_apart_from_others() -> None:
    protection = Protection(pools={"big": HALF, "tri": OPEN}, parameters=ParameterAccess(0.01, "x"))
    assert fallback.admissions(0, protection) == (False, True, True)
    assert fallback.admissions(300, protection) == (False, False, True)
    assert fallback.admissions(9999, protection) == (False, False, False)
