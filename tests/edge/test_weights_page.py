"""The page of weights: its shape, and that what is not known is null."""

from __future__ import annotations

import json
from math import inf
from typing import Any

import pytest

from extproc.edge.weights_page import describe
from extproc.errors import Problem
from extproc.loops.reconcile import Report
from tests.edge.weights import BUSY, NOW, UNKNOWN, A, B, given, pool, report


def page(found: Report | None, now: float = NOW) -> dict[str, Any]:
    """As it travels: plain JSON."""
    parsed: dict[str, Any] = json.loads(json.dumps(describe(found, now=now), allow_nan=False))
    return parsed


def test_before_the_first_tick() -> None:
    assert page(None) == {"tick_age_s": None, "generation": 0, "problems": [], "pools": []}


def test_the_whole_page() -> None:
    found = page(report(BUSY, generation=4), NOW + 2.5)
    assert {key: found[key] for key in ("tick_age_s", "generation", "problems")} == {
        "tick_age_s": 2.5,
        "generation": 4,
        "problems": [],
    }
    (chat,) = found["pools"]
    rows = chat.pop("endpoints")
    assert chat == {
        "name": "chat",
        "engine": "vllm",
        "role": "stable",
        "total": 1000,
        "saturated": False,
        "unhealthy": False,
    }
    assert rows[0] == {
        "endpoint": A.key,
        "hostname": "",
        "weight": 722,
        "share": 0.722,
        "draining": False,
        "score": 0.8133,
        "reason": "memory",
        "moved_by": "memory",
        "terms": {
            "memory": {"reading": 0.2, "utility": 0.8, "age_s": 3.5, "freshness": "fresh"},
            "latency": {"reading": 0.3, "utility": 0.8333, "age_s": 3.5, "freshness": "fresh"},
        },
    }
    assert rows[2] | {"endpoint": ""} == {
        "endpoint": "",
        "hostname": "",
        "weight": 0,
        "share": 0.0,
        "draining": True,
        "score": None,
        "reason": "draining",
        "moved_by": None,
        "terms": {},
    }


def test_a_score_nobody_has_data_for_is_null() -> None:
    (dark,) = page(report(UNKNOWN))["pools"]
    assert [row["score"] for row in dark["endpoints"]] == [None, None]
    assert [row["reason"] for row in dark["endpoints"]] == ["equal", "equal"]
    assert dark["endpoints"][0]["terms"]["memory"] == {
        "reading": None,
        "utility": None,
        "age_s": None,
        "freshness": "missing",
    }


def test_an_endpoint_alone_without_data_has_the_pools_median() -> None:
    (found,) = page(report(pool("chat", given(A, 0.5), given(B, None))))["pools"]
    assert [row["score"] for row in found["endpoints"]] == [0.5, 0.5]
    assert found["endpoints"][1]["reason"] == "median"


def test_a_pool_without_endpoints_and_one_that_is_all_drained() -> None:
    drained = pool("drained", given(A, 0.5, healthy=False))
    empty, all_out = page(report(pool("empty"), drained))["pools"]
    assert (empty["endpoints"], empty["total"]) == ([], 0)
    assert all_out["endpoints"][0]["share"] == 0.0


@pytest.mark.parametrize("now", [NOW - 50, NOW])
def test_a_clock_that_went_back_makes_no_negative_age(now: float) -> None:
    found = page(report(BUSY), now)
    assert found["tick_age_s"] == 0
    assert found["pools"][0]["endpoints"][0]["terms"]["memory"]["age_s"] == 1.0


def test_infinity_is_null() -> None:
    (found,) = page(report(pool("chat", given(A, 0.5, inf))))["pools"]
    assert found["endpoints"][0]["terms"]["latency"]["reading"] is None
    assert found["endpoints"][0]["terms"]["latency"]["utility"] == 0.0


def test_names_and_problems_are_told() -> None:
    named = pool("chat", given(A, 0.5), hostname="engine.example")
    found = page(report(named, problems=(Problem("endpoints/chat", "missing"),)))
    assert found["pools"][0]["endpoints"][0]["hostname"] == "engine.example"
    assert found["problems"] == ["endpoints/chat: missing"]
