"""An incident is a log line, a JSON line, a count, and one of the last ones."""

from __future__ import annotations

import json
import logging

import pytest
from prometheus_client import CollectorRegistry

from extproc.edge.incidents import Incidents
from extproc.model.protection import Incident, Kind, Severity

OPEN = Incident(
    at=12.5,
    kind=Kind.BREAKER,
    subject="pool/big",
    state="open",
    reason="error_rate 0.52",
    severity=Severity.CRITICAL,
    active=True,
    evidence={"requests": 100, "p99_s": None},
)


def test_it_is_told_everywhere(caplog: pytest.LogCaptureFixture) -> None:
    registry, lines, told = CollectorRegistry(), [], []
    incidents = Incidents(registry, lines.extend, shown=2, tell=told.append)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            incidents.report(OPEN)
    assert json.loads(lines[0]) == {
        "at": 12.5,
        "kind": "breaker",
        "subject": "pool/big",
        "state": "open",
        "reason": "error_rate 0.52",
        "severity": "critical",
        "active": True,
        "evidence": {"requests": 100, "p99_s": None},
    }
    assert lines[0].endswith(b"\n") and len(lines) == 3
    assert list(incidents.last()) == [OPEN, OPEN], "bounded"
    assert told == [OPEN] * 3
    assert caplog.records[0].levelno == logging.ERROR
    assert caplog.messages[0] == "breaker pool/big is open: error_rate 0.52 (requests=100)"
    labels = {"kind": "breaker", "subject": "pool/big", "state": "open"}
    assert registry.get_sample_value("llm_incidents_total", labels) == 3
