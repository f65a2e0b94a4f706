"""`extproc weights`: the table at every width, JSON, and one line where there is nothing to show."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from extproc.cli.main import main
from extproc.cli.weights import BAR, bar, chosen, shown
from extproc.edge.weights_page import describe
from extproc.errors import CannotStart, Problem
from extproc.model.topology import Endpoint
from tests.edge.weights import BUSY, NOW, UNKNOWN, given, pool, report
from tests.ports import free_port


def page(*pools: Any, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(describe(report(*pools, **more), now=NOW + 0.5)))
    return found


def printed(found: dict[str, Any], width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(shown(found, width=width))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines()]


class Sidecar:
    """What answers in place of one."""

    def __init__(self) -> None:
        self.answer: Callable[[], tuple[int, bytes]] = lambda: (200, json.dumps(page(BUSY, UNKNOWN)).encode())
        self.asked = 0

    @contextmanager
    def listening(self) -> Iterator[str]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                status, body = outer.answer() if self.path == "/weights" else (404, b"")
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.fixture
def sidecar() -> Sidecar:
    return Sidecar()


@pytest.fixture
def admin(sidecar: Sidecar) -> Iterator[str]:
    with sidecar.listening() as address:
        yield address


# --- the table


def test_the_table_at_120_columns() -> None:
    assert printed(page(BUSY), 120) == [
        "generation 1, weighed 0.5 s ago",
        "chat (vllm, stable)",
        "endpoint       mem  p99 ms  age s  score  weight  share                   why",
        "10.0.0.1:8000  20%     300    1.5  0.813     722  72.2%  ██████████████▌  memory",
        "10.0.0.2:8000  70%   1,200    1.5  0.313     278  27.8%  █████▌           memory",
        "10.0.0.3:8000    -       -      -      -       0   0.0%                   draining",
    ]


def test_the_table_at_80_columns_has_no_bars() -> None:
    assert printed(page(BUSY), 80) == [
        "generation 1, weighed 0.5 s ago",
        "chat (vllm, stable)",
        "endpoint      mem p99 ms age s score weight share why",
        "10.0.0.1:8000 20%    300   1.5 0.813    722 72.2% memory",
        "10.0.0.2:8000 70%  1,200   1.5 0.313    278 27.8% memory",
        "10.0.0.3:8000   -      -     -     -      0  0.0% draining",
    ]


WIDEST = [given(Endpoint("192.168.100.200", 65535), 1.0, 3000.0, age_s=99.9)]
WIDEST += [given(Endpoint(f"192.168.100.{at}", 65535), 0.99, 1700.0, age_s=99.9) for at in range(9)]


def test_the_widest_ipv4_rows_fit_into_80_columns_in_one_line_each() -> None:
    lines = printed(page(pool("chat", *WIDEST)), 80)
    assert len(lines) == 3 + len(WIDEST)
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_a_long_address_loses_no_digit(width: int) -> None:
    long = "2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff"
    lines = printed(page(pool("chat", given(Endpoint(long, 65535), 0.123, 1.0))), width)
    assert max(map(len, lines)) <= width
    first_column = "".join(re.match(r"\S*", line)[0] for line in lines[3:])  # type: ignore[index]
    assert f"{long}:65535" in first_column
    assert " 12% " in lines[3] and " 1000 " in lines[3] and "100.0%" in lines[3]
    assert "…" not in "".join(lines)


def test_what_nobody_knows_is_a_dash() -> None:
    rows = printed(page(UNKNOWN), 80)[3:]
    assert [row.split() for row in rows] == [
        ["10.0.0.1:8000", "-", "-", "-", "-", "500", "50.0%", "equal"],
        ["10.0.0.2:8000", "-", "-", "-", "-", "500", "50.0%", "equal"],
    ]


def test_before_the_first_tick_and_without_pools() -> None:
    nothing = json.loads(json.dumps(describe(None, now=NOW)))
    assert printed(nothing, 80) == ["not weighed yet", "no pools"]


def test_problems_and_saturation_are_told() -> None:
    full = pool("chat", given(Endpoint("10.0.0.1", 1), 1.0))
    lines = printed(page(full, problems=(Problem("endpoints/chat", "missing"),)), 80)
    assert lines[1] == "not published: endpoints/chat: missing"
    assert lines[2] == "chat (vllm, stable) SATURATED"
    assert printed(page(replace(BUSY, unhealthy=True)), 80)[1] == "chat (vllm, stable) UNHEALTHY"


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.0, ""), (1.0, "█" * BAR), (0.5, "█" * (BAR // 2)), (1 / 160, "▏"), (0.9999, "█" * BAR), (0.001, "")],
)
def test_bars(share: float, expected: str) -> None:
    assert bar(share) == expected


# --- the command


def test_the_table_of_a_running_sidecar(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["weights", "--admin", admin]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "chat (vllm, stable)" in out and "dark (vllm, stable)" in out
    assert "█" in out, "where nobody says how wide it is, it is wide"


def test_one_pool_alone(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["weights", "--admin", admin, "--pool", "dark"]) == 0
    out = capsys.readouterr().out
    assert "dark" in out and "chat" not in out


def test_json_is_the_page(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["weights", "--admin", admin, "--json", "--pool", "chat"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == page(BUSY)


def test_the_address_comes_from_the_config(admin: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"listeners: {{admin: '{admin}'}}")
    assert main(["weights", "--config", str(file)]) == 0
    assert "chat" in capsys.readouterr().out


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that fails."""
    assert main(["weights", *argv]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    return line


def test_a_pool_that_is_not_there(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    for how in ([], ["--json"], ["--watch"]):
        line = refused(["--admin", admin, "--pool", "nope", *how], capsys)
        assert line == "extproc: no pool 'nope'; there are: chat, dark"
    with pytest.raises(CannotStart, match="there are: none"):
        chosen({"pools": []}, "nope")


@pytest.mark.parametrize("how", [[], ["--json"], ["--watch"]])
def test_no_sidecar_is_one_line(how: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    line = refused(["--admin", address, *how], capsys)
    assert line.startswith(f"extproc: no sidecar answers at http://{address}/weights: ")


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.0.0.1:x", "[::1]:0", "127.0.0.1:99999", ":", "https://127.0.0.1:9902", "a:1/status"],
)
def test_no_address_at_all_is_one_line(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "allowed: HOST:PORT" in refused(["--admin", address], capsys)


@pytest.mark.parametrize("address", ["no such host:1", "a" * 300 + ":1"])
def test_a_host_nobody_knows_is_one_line(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no sidecar answers" in refused(["--admin", address], capsys)


def test_an_address_as_a_browser_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    with Sidecar().listening() as address:
        assert main(["weights", "--json", "--admin", f"http://{address}/"]) == 0


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, b"{}", "answered 404"),
        (500, b"", "answered 500"),
        (200, b"<html>", "no sidecar answers"),
        (200, b"[]", "no sidecar answers"),
        (200, b"{}", "no sidecar answers"),
        (200, b"\xff", "no sidecar answers"),
    ],
)
def test_something_else_that_answers_is_one_line(
    sidecar: Sidecar, admin: str, status: int, body: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sidecar.answer = lambda: (status, body)
    assert said in refused(["--admin", admin], capsys)


# --- --watch


def watching(admin: str, **how: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "extproc", "weights", "--watch", "--admin", admin]
    return subprocess.Popen(command, **how)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ctrl_c_ends_a_watch_with_0_and_a_pipe_gets_every_table(sidecar: Sidecar, admin: str) -> None:
    with watching(admin, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        until(lambda: sidecar.asked >= 3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert err == b""
    assert out.decode().count("chat (vllm, stable)") >= 2


def test_on_a_terminal_it_is_as_wide_as_that(sidecar: Sidecar, admin: str) -> None:
    main_end, other_end = pty.openpty()
    env = os.environ | {"COLUMNS": "80", "LINES": "40", "TERM": "xterm"}
    with watching(admin, stdout=other_end, stderr=subprocess.PIPE, env=env) as process:
        os.close(other_end)
        seen = b""
        while b"10.0.0.3" not in seen:
            seen += os.read(main_end, 65536)
        until(lambda: sidecar.asked >= 2)
        process.send_signal(signal.SIGINT)
        drain = threading.Thread(target=drained, args=(main_end,))
        drain.start()
        process.wait(timeout=20)
        drain.join()
        os.close(main_end)
    assert process.returncode == 0
    assert "█" not in seen.decode()


def drained(terminal: int) -> None:
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:  # the other end is closed
        return


def test_a_sidecar_that_ends_while_it_is_watched_is_one_line() -> None:
    sidecar = Sidecar()
    with sidecar.listening() as admin:
        process = watching(admin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        until(lambda: sidecar.asked >= 1)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert len(err.splitlines()) == 1 and b"no sidecar answers" in err
