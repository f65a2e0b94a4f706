"""What goes through as plain values."""

from __future__ import annotations

import json

from extproc.edge.traffic_page import describe
from extproc.loops.recent import Recent
from extproc.windows.latency import UNSEEN
from tests.loops.test_recent import sample


def test_everything_is_plain_and_nothing_is_empty() -> None:
    recent = Recent(lambda _: "big")
    recent.finished([sample(tier="")], now=1.0, wall=5.0)
    page = describe(recent.rates(now=1.0), {("big", ""): UNSEEN}, recent.last(), (b'{"field":"n"}\n',))
    assert json.loads(json.dumps(page)) == page
    assert page["rates"] == [{"tier": "none", "class": "normal", "per_s": 0.1}]
    assert page["overrides"] == [{"field": "n"}]
    (last,) = page["last"]  # type: ignore[misc]
    assert (last["at"], last["pool"], last["tier"], last["outcome"]) == (5.0, "big", "none", "ok")
    (latency,) = page["latency"]  # type: ignore[misc]
    assert (latency["pool"], latency["requests"], latency["p99_s"]) == ("big", 0, None)
