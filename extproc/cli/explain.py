"""`extproc explain`: what would be changed in one request, and why, without sending it."""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from extproc import intent_model
from extproc.cli.arguments import add_config
from extproc.cli.engines import engine_argument, pools_of, standin_engines
from extproc.config_source import ConfigSource
from extproc.edge import secrets
from extproc.errors import CannotStart
from extproc.exchange import Exchange
from extproc.model.commands import Command, Continue, RecordDecision, RecordPass, Reject
from extproc.model.events import RequestBodyReceived, RequestHeadersReceived
from extproc.model.values import ABSENT, Caller, Change, Classification, Value
from extproc.parameters import Classify
from extproc.settings import Reading, snapshot
from extproc.snapshot import Classifier, HasText, Snapshot

TRUSTED_SOURCE = "127.0.0.1"


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("explain", help="print what would be changed in a request, and why")
    add_config(parser)
    parser.add_argument("file", nargs="?", default="-", help="the request body; - reads stdin (-)")
    parser.add_argument("--path", help="the request's path (guessed from the body's keys)")
    parser.add_argument("-H", "--header", action="append", default=[], metavar="'NAME: VALUE'")
    parser.add_argument("--trusted", action="store_true", help="as if the caller had proved itself")
    parser.add_argument("--engine", action="append", default=[], type=engine_argument, metavar="URL=KIND")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """0 where the request would pass, 1 where it would be refused."""
    body = sys.stdin.buffer.read() if arguments.file == "-" else Path(arguments.file).read_bytes()
    headers = _headers(arguments, body)
    heard: list[Classification] = []
    current = _snapshot(arguments)
    commands = explain(current, headers, body, trusted=arguments.trusted, heard=heard)
    report = as_json(commands, heard, current.parameters.classify)
    if arguments.json:
        print(json.dumps(report, ensure_ascii=False))
    else:
        _print(report)
    return 1 if "refused" in report else 0


def explain(
    current: Snapshot,
    headers: list[tuple[str, bytes]],
    body: bytes,
    *,
    trusted: bool,
    heard: list[Classification] | None = None,
) -> list[Command]:
    """The commands of one exchange, exactly as a served request would get them; `heard` gets the verdict of each
    classifier that was asked and had one."""
    if heard is not None:
        noting = tuple(_noting(each, heard) for each in current.classifiers)
        current = msgspec.structs.replace(current, classifiers=noting)
    if trusted:
        network = ipaddress.ip_network(f"{TRUSTED_SOURCE}/32")
        current = msgspec.structs.replace(current, trust=msgspec.structs.replace(current.trust, sources=(network,)))
    exchange = Exchange()
    attributes = {"source.address": f"{TRUSTED_SOURCE}:0"} if trusted else {}
    first = RequestHeadersReceived(tuple(headers), not body, attributes)
    commands = exchange.handle(first, current, now=0)
    if body and not any(isinstance(command, Reject | RecordPass) for command in commands):
        commands = exchange.handle(RequestBodyReceived(body, True), current, now=0)
    return commands


def _noting(classifier: Classifier, heard: list[Classification]) -> Classifier:
    def ask(request: HasText, caller: Caller) -> Classification | None:
        verdict = classifier(request, caller)
        if verdict is not None:
            heard.append(verdict)
        return verdict

    return ask


def as_json(
    commands: list[Command], heard: Sequence[Classification] = (), config: Classify | None = None
) -> dict[str, Any]:
    """The report for machines: what applies, every change, the headers, or why it is refused or passes; what each
    classifier said, and what applies where none is sure."""
    report: dict[str, Any] = {}
    for command in commands:
        match command:
            case RecordDecision():
                decision = command.decision
                report |= {
                    name: getattr(decision, name)
                    for name in ("tier", "scenario", "confidence", "source", "rule", "tenant", "engine")
                }
                report |= {
                    "class": decision.request_class,
                    "pool": decision.pool,
                    "profile": decision.profile,
                }
                report |= {"parameter_set": decision.parameter_set, "max_tokens": decision.max_tokens}
                if config is not None:
                    report["heard"] = [_heard(each) for each in heard]
                    report["default"] = f"{config.default_tier.value} ({config.default_scenario})"
                    report["needed"] = config.min_confidence
                report["changes"] = [_change(change) for change in decision.changes]
            case RecordPass():
                report["passed"] = command.reason
            case Reject():
                report["refused"] = {"status": command.status, "error": json.loads(command.body)["error"]}
            case Continue():
                report["headers"] = {
                    name: value.decode() for name, value in (*command.set_headers, *command.body_headers)
                }
    return report


def _heard(verdict: Classification) -> dict[str, Any]:
    named = ("source", "tier", "scenario", "confidence", "rule")
    return {name: getattr(verdict, name) for name in named}


def _change(change: Change) -> dict[str, Any]:
    return {
        "field": change.field,
        "from": _shown(change.before),
        "to": _shown(change.after),
        "rule": change.rule,
        "reason": change.reason,
    }


def _shown(value: Value) -> Any:
    return None if value is ABSENT else value


def _print(report: dict[str, Any]) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if "refused" in report:
        refused = report["refused"]
        console.print(f"refused with {refused['status']}: {refused['error']['message']}")
        return
    if "passed" in report:
        console.print(f"passes untouched: {report['passed']}")
    for name, value in report.items():
        if name == "heard":
            for each in value:
                text = f"{each['source']}: {each['tier']} ({each['scenario']}), confidence {each['confidence']:.2f}"
                console.print(f"{'heard':<14} {printable(text)}")
        elif name not in ("changes", "headers", "passed"):
            console.print(f"{name:<14} {printable(value)}")
    if "changes" in report:
        console.print(_table(report["changes"]))
    for name, value in report.get("headers", {}).items():
        console.print(f"{name}: {printable(value)}")


def _table(changes: list[dict[str, Any]]) -> Table:
    table = Table("field", "from", "to", "rule", "reason", title=None if changes else "no changes")
    for change in changes:
        cells = (change["field"], change["from"], change["to"], change["rule"], change["reason"])
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def printable(value: object) -> str:
    """For a terminal: nothing in a request may move its cursor."""
    if value is None:
        return "-"
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in str(value))


def _snapshot(arguments: argparse.Namespace) -> Snapshot:
    settings = ConfigSource(arguments.config).settings
    if arguments.engine:
        settings = settings.model_copy(update={"pools": pools_of(arguments.engine, by_priority=False)})
    elif not settings.pools:
        pools = pools_of(standin_engines("http://127.0.0.1:1"), by_priority=True)
        settings = settings.model_copy(update={"pools": pools})
    reading = Reading(intent_model.read(settings.intent))
    return snapshot(settings, secrets.read(settings), generation=1, reading=reading)


def _headers(arguments: argparse.Namespace, body: bytes) -> list[tuple[str, bytes]]:
    headers = [(":method", b"POST"), (":path", os.fsencode(arguments.path or guessed_path(body)))]
    for line in arguments.header:
        name, colon, value = line.partition(":")
        if not colon:
            raise CannotStart(f"--header {name!r}: expected 'NAME: VALUE'")
        headers.append((name.strip().lower(), os.fsencode(value.strip())))
    return headers


GUESSES = (
    ("messages", "/v1/chat/completions"),
    ("text_input", "/v2/models/model/generate"),
    ("inputs", "/v2/models/model/infer"),
    ("input", "/v1/responses"),
    ("n_predict", "/completion"),
    ("prompt", "/v1/completions"),
)


def guessed_path(body: bytes) -> str:
    """The usual path for a body with these keys."""
    try:
        keys = json.loads(body)
    except (ValueError, RecursionError):
        keys = {}
    if not isinstance(keys, dict):
        keys = {}
    return next((path for key, path in GUESSES if key in keys), "/v1/chat/completions")
