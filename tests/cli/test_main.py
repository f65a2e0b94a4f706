"""Subcommands, exit codes, and one line for every expected failure."""

from __future__ import annotations

import argparse

import pytest

from extproc import __version__
from extproc.cli import check
from extproc.cli.main import main
from extproc.cli.outcome import CANNOT, WRONG
from extproc.errors import CannotStart, ConfigError, OurFault, Problem


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(_: argparse.Namespace) -> int:
        raise error

    def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        commands.add_parser("check").set_defaults(run=run)

    monkeypatch.setattr(check, "add_to", add_to)


FAILURES: list[tuple[str, BaseException, int, list[str]]] = [
    (
        "config",
        ConfigError((Problem("a.b", "allowed: 1"), Problem("", "not YAML"))),
        WRONG,
        ["extproc: config: a.b: allowed: 1", "extproc: config: not YAML"],
    ),
    ("cannot_start", CannotStart("port taken"), CANNOT, ["extproc: port taken"]),
    ("our_fault", OurFault("r", "template missing"), CANNOT, ["extproc: template missing"]),
    ("file", FileNotFoundError(2, "No such file", "x.yaml"), CANNOT, ["extproc: No such file: x.yaml"]),
    ("os", OSError("odd"), CANNOT, ["extproc: odd"]),
    ("broken_pipe", BrokenPipeError(32, "Broken pipe"), CANNOT, []),
]


@pytest.mark.parametrize(("error", "code", "lines"), [case[1:] for case in FAILURES], ids=[c[0] for c in FAILURES])
def test_expected_failures(
    error: BaseException,
    code: int,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing(monkeypatch, error)
    assert main(["check"]) == code
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", lines)


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main(["check"])


def test_exit_codes_are_told_apart() -> None:
    assert (CANNOT, WRONG) == (1, 2)


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["--log-level", "loud", "check", "x"], ["check"]])
def test_wrong_use(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(argv)
    assert end.value.code == 2
    assert "usage: extproc" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["up", "serve", "check", "explain", "envoy-config"])
def test_every_subcommand_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert f"usage: extproc {command}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"extproc {__version__}\n"
