"""`extproc serve`: what the command line says about listeners."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from extproc.app import Listening
from extproc.cli.main import main
from extproc.cli.serve import adjusted, announce
from extproc.settings import load

SHIPPED = load("")


def given(**values: object) -> argparse.Namespace:
    return argparse.Namespace(**({"listen": None, "admin_port": None} | values))


def test_nothing_said_nothing_changed() -> None:
    assert adjusted(SHIPPED, given()) == SHIPPED
    assert adjusted(SHIPPED, argparse.Namespace(admin_port=None, port=None)) == SHIPPED


def test_listeners() -> None:
    found = adjusted(SHIPPED, given(listen="127.0.0.1:5", admin_port=0, port=8080)).listeners
    assert (found.ext_proc, found.admin, found.envoy) == ("127.0.0.1:5", "127.0.0.1:0", "127.0.0.1:8080")
    assert found.metrics is None
    assert SHIPPED.listeners.ext_proc == "unix:extproc.sock"


def test_a_port_keeps_the_host() -> None:
    over = load("listeners: {admin: '[::1]:9902', envoy: '0.0.0.0:1'}")
    found = adjusted(over, given(admin_port=7, port=8)).listeners
    assert (found.admin, found.envoy) == ("[::1]:7", "0.0.0.0:8")


@pytest.mark.parametrize(
    "argv",
    [
        ["--listen", "bogus"],
        ["--listen", "unix:"],
        ["--listen", "127.0.0.1:99999"],
        ["--admin-port", "99999"],
    ],
    ids=" ".join,
)
def test_a_bad_address_is_one_line_and_no_start(tmp_path: Path, argv: list[str]) -> None:
    command = [sys.executable, "-m", "extproc", "serve", "--admin-port", "0", "--state-dir", str(tmp_path), *argv]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired as running:
        pytest.fail(f"it listens: {(running.stdout or b'').decode()}")
    assert ended.returncode in (1, 2)
    assert "Traceback" not in ended.stderr
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("usage: ") and line[:1] != " "]
    assert len(lines) == 1
    assert lines[0].startswith("extproc")


@pytest.mark.parametrize("argv", [["--admin-port", "x"], ["--admin-port"], ["--nonsense"], ["extra"]])
def test_wrong_use(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["serve", *argv])
    assert end.value.code == 2
    assert "usage: extproc" in capsys.readouterr().err


def test_a_config_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "state"
    assert main(["serve", "--config", str(tmp_path / "none"), "--state-dir", str(state)]) == 1
    assert capsys.readouterr().err == f"extproc: No such file or directory: {tmp_path}/none\n"
    assert not state.exists()


def test_a_wrong_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c").write_text("nonsense: 1")
    assert main(["serve", "--config", str(tmp_path / "c"), "--state-dir", str(tmp_path / "s")]) == 2
    assert capsys.readouterr().err == "extproc: config: nonsense: unknown key\n"


def test_a_state_directory_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f").write_text("")
    assert main(["serve", "--state-dir", str(tmp_path / "f" / "s")]) == 1
    err = capsys.readouterr().err
    assert err == f"extproc: cannot make the state directory {tmp_path}/f/s: Not a directory\n"


@pytest.mark.parametrize(
    ("metrics", "lines"),
    [
        (None, ["ext_proc  unix:/s", "control   unix:/c", "admin     http://a:1/", "audit     /x"]),
        (
            "m:2",
            [
                "ext_proc  unix:/s",
                "control   unix:/c",
                "admin     http://a:1/",
                "metrics   http://m:2/metrics",
                "audit     /x",
            ],
        ),
    ],
)
def test_announce(metrics: str | None, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    announce(Listening("unix:/s", "unix:/c", "a:1", metrics, Path("/x")))
    assert capsys.readouterr().out.splitlines() == lines
