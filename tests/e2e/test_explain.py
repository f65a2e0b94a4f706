"""`extproc explain` says what the engine then really receives."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.e2e.asking import CHAT, CREATIVE, NORMAL, STRICT, TRUSTED, ask, chat
from tests.e2e.running import Stack


def explain(stack: Stack, body: bytes, *arguments: str, code: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-m", "extproc", "explain", "--config", str(stack.config), "--json", *arguments]
    done = subprocess.run(command, input=body, capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (code, b"")
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def applied(body: bytes, changes: list[dict[str, Any]]) -> dict[str, Any]:
    """The scalars of a chat as they are after these changes."""
    values = {key: value for key, value in json.loads(body).items() if key != "messages"}
    for change in changes:
        assert values.get(change["field"]) == change["from"]
        values[change["field"]] = change["to"]
    return {key: value for key, value in values.items() if value is not None}


@pytest.mark.parametrize(
    ("text", "given", "tier"),
    [
        (STRICT, {"temperature": 1.4, "top_p": 0.97, "max_tokens": 3000}, "strict"),
        (NORMAL, {}, "normal"),
        (CREATIVE, {"max_tokens": 3000, "n": 9}, "creative"),
    ],
)
def test_it_agrees_field_by_field_with_what_arrives(
    stack: Stack, text: str, given: dict[str, Any], tier: str
) -> None:
    body = json.dumps(chat(text, **given)).encode()
    report = explain(stack, body)
    answer = ask(stack.port, CHAT, body)
    assert report["tier"] == answer.decided("tier") == tier
    assert report["scenario"] == answer.decided("scenario")
    assert report["class"] == answer.decided("priority")
    assert report["tenant"] == answer.decided("tenant")
    assert report["pool"] == answer.decided("pool")
    assert report["parameter_set"] == answer.decided("params")
    assert applied(body, report["changes"]) == answer.params
    assert report["max_tokens"] == answer.params["max_tokens"]
    assert {name: answer.seen[name] for name in report["headers"]} == {
        name: [value] for name, value in report["headers"].items()
    }
    audited = [(each["field"], each["from"], each["to"], each["rule"], each["reason"]) for each in (
        stack.sidecar.audit(answer.request_id)
    )]  # fmt: skip
    explained = [
        tuple(each[key] for key in ("field", "from", "to", "rule", "reason")) for each in report["changes"]
    ]
    assert audited == explained


def test_it_agrees_for_a_trusted_caller(stack: Stack) -> None:
    body = json.dumps(chat(NORMAL)).encode()
    said = {"x-business-label": "legal", "x-request-class": "critical", "x-param-temperature": "0.05"}
    lines = [part for name, value in said.items() for part in ("-H", f"{name}: {value}")]
    report = explain(stack, body, "--trusted", *lines)
    answer = ask(stack.port, CHAT, body, {**TRUSTED, **said})
    assert applied(body, report["changes"]) == answer.params
    assert (report["tier"], report["class"]) == ("strict", "critical")


def test_it_agrees_about_a_refusal(stack: Stack) -> None:
    body = json.dumps(chat(STRICT, temperature="hot")).encode()
    refused = explain(stack, body, code=1)["refused"]
    answer = ask(stack.port, CHAT, body)
    assert (refused["status"], refused["error"]) == (answer.status, answer.json()["error"])
