"""`extproc explain`: the report, for people and machines, and what it is asked with."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from extproc.cli.explain import as_json, explain, guessed_path
from extproc.cli.main import main
from tests.decide.worlds import CHAT, SMALL, world


def run(tmp_path: Path, body: bytes, *argv: str) -> int:
    file = tmp_path / "body.json"
    file.write_bytes(body)
    return main(["explain", *argv, str(file)])


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    out, err = capsys.readouterr()
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "c.yaml"
    file.write_text(SMALL)
    return str(file)


STRICT = b'{"model":"m","messages":[{"role":"user","content":"order #12345"}],"temperature":1.5,"top_k":5}'


def test_the_report_for_machines(tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, STRICT, "--json", "--config", config) == 0
    found = report(capsys)
    version = found["parameter_set"]
    assert version.startswith("small@")
    headers = found.pop("headers")
    heard = [(each["source"], each["tier"], each["scenario"], each["confidence"]) for each in found.pop("heard")]
    assert heard == [("rules", "strict", "order_query", 1.0)]
    assert (found.pop("default"), found.pop("needed")) == ("normal (general)", 0.8)
    assert found == {
        "tier": "strict",
        "scenario": "order_query",
        "confidence": 1.0,
        "source": "rules",
        "rule": "order_number",
        "tenant": "anonymous",
        "engine": "vllm",
        "class": "normal",
        "pool": "engine-1",
        "profile": "default",
        "parameter_set": version,
        "max_tokens": 120,
        "changes": [
            {"field": "temperature", "from": 1.5, "to": 0.3, "rule": "tier.strict", "reason": "capped at 0.3"},
            {
                "field": "top_p",
                "from": None,
                "to": 0.85,
                "rule": "coupling.line",
                "reason": "temperature was lowered to 0.3",
            },
            {
                "field": "max_tokens",
                "from": None,
                "to": 120,
                "rule": "length.scenario",
                "reason": "answers to order_query need 120 tokens",
            },
            {
                "field": "priority",
                "from": None,
                "to": 0,
                "rule": "priority.normal",
                "reason": "the request's class",
            },
        ],
    }
    assert headers["x-llm-tier"] == "strict"
    assert headers["x-llm-pool"] == "engine-1"


def test_the_report_for_people(tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, STRICT, "--config", config) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "tier strict" in lines
    assert "rule order_number" in lines
    assert "x-llm-tier: strict" in lines
    assert any("temperature" in line and "tier.strict" in line for line in lines)
    assert "order #12345" not in out


def test_nothing_to_change(tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    body = b'{"messages":[],"temperature":0.5,"max_tokens":9}'
    engine = ("--engine", "http://h:1=vllm")
    assert run(tmp_path, body, "--config", config, *engine) == 0
    assert "no changes" in capsys.readouterr().out
    assert run(tmp_path, body, "--json", "--config", config, *engine) == 0
    assert report(capsys)["changes"] == []


def test_a_request_that_would_be_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, b'{"temperature":"hot"}', "--json") == 1
    assert report(capsys) == {
        "refused": {
            "status": 400,
            "error": {
                "message": "Invalid 'temperature': expected a number, 0 or more.",
                "type": "invalid_request_error",
                "param": "temperature",
                "code": "invalid_parameter",
            },
        }
    }
    assert run(tmp_path, b'{"temperature":"hot"}') == 1
    assert capsys.readouterr().out == "refused with 400: Invalid 'temperature': expected a number, 0 or more.\n"


def test_a_request_that_would_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, b"{}", "--path", "/v1/models", "--json") == 0
    found = report(capsys)
    assert found["passed"] == "no_dialect"
    assert run(tmp_path, b"", "--path", CHAT) == 0
    assert "passes untouched: no_body" in capsys.readouterr().out


def test_an_engine_that_does_not_speak_the_api(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, STRICT, "--engine", "http://h:1=triton") == 1
    assert "refused with 400: No configured engine speaks the openai API." in capsys.readouterr().out


SAYS = ("-H", "X-Param-Temperature: 0.1", "-H", "x-request-class:critical", "--header", "x-tenant: shop")


def test_a_trusted_caller(tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, STRICT, "--json", "--config", config, "--trusted", *SAYS) == 0
    found = report(capsys)
    assert (found["class"], found["tenant"]) == ("critical", "shop")
    assert found["changes"][0]["to"] == 0.1
    assert found["changes"][-1]["to"] == -10


def test_without_trust_the_same_words_say_nothing(
    tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, STRICT, "--json", "--config", config, *SAYS) == 0
    found = report(capsys)
    assert (found["class"], found["tenant"], found["changes"][0]["to"]) == ("normal", "anonymous", 0.3)


def test_a_header_without_a_colon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, STRICT, "-H", "nonsense") == 1
    assert capsys.readouterr().err == "extproc: --header 'nonsense': expected 'NAME: VALUE'\n"


@pytest.mark.parametrize("argv", [["-H", "x-a: \udcff"], ["--path", "/v1/\udcff"]], ids=["header", "path"])
def test_arguments_may_be_any_bytes(tmp_path: Path, argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, STRICT, *argv) == 0
    assert capsys.readouterr().err == ""


def test_the_body_on_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["explain", "--json"], ["explain", "--json", "-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"prompt":"x"}')))
        assert main(argv) == 0
        assert report(capsys)["max_tokens"] == 256


def test_a_body_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err == f"extproc: No such file or directory: {tmp_path}/none\n"


def test_a_secret_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("trust: {tokens: [{file: /nonexistent/token}]}")
    assert run(tmp_path, STRICT, "--config", str(tmp_path / "c.yaml")) == 2
    assert capsys.readouterr().err == (
        "extproc: config: trust.tokens.0: file /nonexistent/token: No such file or directory\n"
    )


@pytest.mark.parametrize(
    "value",
    ["[/x]", "[red]", "[bold]x[/bold]", "[link=http://x]", "\x1b[31m"],
    ids=["close", "open", "pair", "link", "escape"],
)
def test_a_clients_value_is_no_markup(tmp_path: Path, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the client wrote is shown as it is or not at all, and never breaks the table."""
    body = json.dumps({"messages": [], "temperature": 0, "top_k": value}).encode()
    assert run(tmp_path, body) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "top_k" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"messages":[]}', "/v1/chat/completions"),
        (b'{"text_input":"x"}', "/v2/models/model/generate"),
        (b'{"inputs":[]}', "/v2/models/model/infer"),
        (b'{"input":"x"}', "/v1/responses"),
        (b'{"n_predict":1,"prompt":"x"}', "/completion"),
        (b'{"prompt":"x"}', "/v1/completions"),
        (b"{}", "/v1/chat/completions"),
        (b"", "/v1/chat/completions"),
        (b"\xff", "/v1/chat/completions"),
        (b"{", "/v1/chat/completions"),
        (b"[]", "/v1/chat/completions"),
        (b"5", "/v1/chat/completions"),
        (b"null", "/v1/chat/completions"),
        (b"true", "/v1/chat/completions"),
        (b'"text"', "/v1/chat/completions"),
        (b"[" * 100_000, "/v1/chat/completions"),
    ],
    ids=lambda value: value[:20].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_guessed_path(body: bytes, path: str) -> None:
    assert guessed_path(body) == path


def test_explain_says_what_a_served_request_would_get() -> None:
    headers = [(":method", b"POST"), (":path", CHAT.encode())]
    found = as_json(explain(world(), headers, STRICT, trusted=False))
    assert (found["tier"], found["max_tokens"]) == ("strict", 120)
    assert as_json(explain(world(), headers, b"", trusted=False))["passed"] == "no_body"
