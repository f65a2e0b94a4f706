"""`python -m extproc.standin` as a process."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from extproc.standin.__main__ import parse


def spawn(*options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "extproc.standin", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_ends_cleanly(number: signal.Signals) -> None:
    process = spawn("--port", "0")
    try:
        line = process.stdout.readline()
        assert line.startswith("stand-in engine on http://127.0.0.1:")
        with urllib.request.urlopen(f"{line.split()[-1]}/health", timeout=10) as answer:
            assert answer.status == 200
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (0, "", "")


def test_an_open_stream_does_not_keep_it_from_ending(free_port: int) -> None:
    process = spawn("--port", str(free_port), "--delay-ms", "60000")
    try:
        process.stdout.readline()
        with socket.create_connection(("127.0.0.1", free_port)) as client:
            body = b'{"stream": true}'
            head = b"POST /completion HTTP/1.1\r\nHost: e\r\nContent-Length: %d\r\n\r\n" % len(body)
            client.sendall(head + body)
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0


def test_a_taken_port_is_one_line_and_exit_code_1(free_port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port))
        taken.listen()
        process = spawn("--port", str(free_port))
        try:
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, out) == (1, "")
    assert err.count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{free_port}" in err


@pytest.mark.parametrize(
    "options", [["--port", "70000"], ["--port", "x"], ["--delay-ms", "-1"], ["--delay-ms", "nan"]]
)
def test_impossible_options_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(options)
    assert caught.value.code == 2
    assert options[0] in capsys.readouterr().err
