"""What each part of the page tells."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.page.sections import sections

WEIGHTS: dict[str, Any] = {
    "tick_age_s": 0.4,
    "pools": [
        {
            "name": "big<i>",
            "engine": "vllm",
            "role": "stable",
            "saturated": True,
            "unhealthy": False,
            "endpoints": [
                {
                    "endpoint": "10.0.0.1:8000",
                    "weight": 700,
                    "share": 0.7,
                    "draining": False,
                    "reason": "scored",
                    "moved_by": "memory",
                    "terms": {"memory": {"utility": 0.25}, "latency": {"utility": None}},
                },
                {"endpoint": "10.0.0.2:8000", "weight": 0, "share": 0.0, "draining": True, "reason": "draining"},
            ],
        }
    ],
}

STATUS: dict[str, Any] = {
    "enabled": True,
    "looked_s_ago": 0.7,
    "panic": "big",
    "pools": [{"name": "big<i>", "degraded": True}],
    "slo": {"broken": ["10.0.0.1:8000"]},
    "breakers": [
        {
            "name": "pool/big",
            "state": "open",
            "reason": "error_rate 0.5 > 0.2",
            "window": {"requests": 20, "errors": 10, "p99_s": 1.234},
        }
    ],
    "drift": [
        {
            "pool": "big",
            "tier": "strict",
            "state": "drift",
            "reason": "slower",
            "d": 0.34567,
            "p": 1.2e-9,
            "p95_delta_s": 0.25,
            "parameter_set": "default@abc",
        }
    ],
    "parameters": {
        "active": "default@abc",
        "pinned": True,
        "versions": [
            {"label": "old@1", "standing": "past", "good": True, "activated_at": 0, "reason": None},
            {"label": "default@abc", "standing": "active", "good": False, "activated_at": 1e9, "reason": "config"},
        ],
    },
    "incidents": [
        {
            "at": 1e9,
            "kind": "breaker",
            "subject": "pool/big",
            "state": "open",
            "severity": "critical",
            "reason": "errors",
        }
    ],
}

TRAFFIC: dict[str, Any] = {
    "rate_window_s": 10.0,
    "rates": [{"tier": "strict", "class": "critical", "per_s": 12.34}],
    "latency": [
        {
            "pool": "big",
            "tier": "strict",
            "requests": 80,
            "error_rate": 0.0125,
            "p50_s": 0.1,
            "p95_s": 1.5,
            "p99_s": None,
            "first_byte_p99_s": 0.02,
        }
    ],
    "last": [
        {
            "at": 1e9,
            "tier": "strict",
            "class": "critical",
            "scenario": "legal",
            "tenant": "<img src=x onerror=alert(1)>",
            "pool": "big",
            "outcome": "ok",
            "status": 200,
            "total_s": 0.25,
            "fallback": "",
        }
    ],
    "overrides": [
        {
            "ts": 1e9,
            "request_id": "r-1",
            "tenant": "shop",
            "field": "temperature",
            "from": None,
            "to": 0.3,
            "rule": "tier",
            "reason": "strict",
            "tier": "strict",
        }
    ],
}

HEAD = {"state": "ready", "version": "1.2", "uptime": "1:00", "generation": 3, "parameter_set": "default@abc"}

TOLD = [
    (
        "now",
        ["ready", "1.2", "default@abc", "broken", "10.0.0.1:8000", "no pool is closed, big serves", "1 s ago"],
    ),
    ("pools", ["big&lt;i&gt;", "vllm stable", "degraded", "saturated", "700", "70.0%", "scored, moved by memory"]),
    ("pools", ["<td>memory 0.25</td>", '<span class="warning">draining</span>']),
    ("breakers", ["pool/big", '<span class="bad">open</span>', "error_rate 0.5 &gt; 0.2", "1.23 s"]),
    ("drift", ["big / strict", '<span class="bad">drift</span>', "0.346", "1.2e-09", "250 ms"]),
    ("parameters", ["default@abc is active (pinned)", "09-09 01:46:40", "old@1", "config"]),
    ("rates", ["last 10 s", "strict", "critical", "12.3"]),
    ("latency", ["big / strict", "80", "1.2%", "100 ms", "1.50 s", "20 ms"]),
    ("decisions", ["legal", "&lt;img src=x onerror=alert(1)&gt;", "200", "250 ms"]),
    ("overrides", ["temperature", "absent → 0.3", "r-1", "shop"]),
    ("incidents", ["pool/big", '<span class="bad">critical</span>', "errors"]),
]


@pytest.mark.parametrize(("name", "words"), TOLD)
def test_a_part_tells(name: str, words: list[str]) -> None:
    part = sections(HEAD, WEIGHTS, STATUS, TRAFFIC)[name]
    for word in words:
        assert word in part, part


def test_no_untrusted_name_is_a_tag() -> None:
    page = "".join(sections(HEAD, WEIGHTS, STATUS, TRAFFIC).values())
    assert "<img" not in page and "<i>" not in page


def test_parts_are_plain_text_that_json_takes() -> None:
    assert {type(part) for part in sections(HEAD, WEIGHTS, STATUS, TRAFFIC).values()} == {str}


def test_half_a_world_is_shown() -> None:
    parts = sections({}, {}, {}, {})
    assert list(parts) == list(sections(HEAD, WEIGHTS, STATUS, TRAFFIC))
    assert "none" in parts["pools"] and "no requests" in parts["latency"]
