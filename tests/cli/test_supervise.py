"""Processes that are kept alive, each test by a real supervisor of its own."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from extproc.cli.supervise import AGAIN_S, LONG_ENOUGH_S, MOST_S, Kept
from tests.e2e.running import get, until
from tests.ports import free_port

PRELUDE = """
import logging, os, signal, sys, time
from extproc.cli import supervise
from extproc.cli.supervise import Kept, keep
from extproc.errors import CannotStart, ConfigError, Problem
logging.basicConfig(stream=sys.stderr, format="%(message)s")

def say(*words):
    os.write(1, " ".join(map(str, words)).encode() + b"\\n")

def wait(name="child"):
    say(name, os.getpid())
    signal.pause()

def end_at(number):
    def handler(*_):
        say("ending", os.getpid())
        raise SystemExit(number)
    signal.signal(signal.SIGTERM, handler)
"""


class Supervisor:
    """Runs a script to its end, or to the end of the test."""

    def __init__(self, script: str, *command: str) -> None:
        self.process = subprocess.Popen(
            command or [sys.executable, "-c", PRELUDE + script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # or a line that was read ahead would be missed at the end
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
        self.pid = self.process.pid

    def line(self) -> list[str]:
        """The next words it, or a child of it, says."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().split()

    def started(self) -> int:
        """The pid of the next child."""
        return int(self.line()[1])

    def ended(self, number: int | None = None) -> tuple[int, str, list[str]]:
        """Asked to by a signal, or by itself: its code, the rest of its output, and its log."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out.decode(), err.decode().splitlines()


@pytest.fixture
def supervisors() -> Iterator[list[Supervisor]]:
    running: list[Supervisor] = []
    yield running
    for each in running:
        if each.process.poll() is None:
            left = children(each.pid)
            each.process.kill()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        each.process.communicate()


class Starts:
    def __init__(self, running: list[Supervisor]) -> None:
        self._running = running

    def __call__(self, script: str = "", *command: str) -> Supervisor:
        self._running.append(Supervisor(script, *command))
        return self._running[-1]


@pytest.fixture
def start(supervisors: list[Supervisor]) -> Starts:
    return Starts(supervisors)


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state(pid: int) -> str:
    """ "" where there is no such process."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


# ── kept alive ───────────────────────────────────────────────────────────────────────────────────


def test_one_that_ends_is_started_again(start: Starts) -> None:
    running = start("raise SystemExit(keep([[Kept('one', wait)]], 0))")
    first = running.started()
    os.kill(first, signal.SIGKILL)
    second = running.started()
    assert first != second
    code, out, log = running.ended(signal.SIGTERM)
    assert (code, out) == (0, "")
    assert log == ["one ended with SIGKILL and is started again"]
    assert state(second) == ""


HANGING = """
supervise.HUNG_S = 2.0
supervise.LOOK_S = 0.5
def beat_and(hang):
    one.beat()
    say("child", os.getpid())
    while True:
        one.beat()
        time.sleep(hang)
"""


def test_one_that_hangs_is_killed_and_started_again(start: Starts) -> None:
    running = start(HANGING + "one = Kept('one', lambda: beat_and(0.05))\nraise SystemExit(keep([[one]], 0))")
    first = running.started()
    os.kill(first, signal.SIGSTOP)
    second = running.started()
    assert state(first) == ""
    code, _, log = running.ended(signal.SIGTERM)
    assert (code, log) == (
        0,
        ["one has not answered for 2 s and is killed", "one ended with SIGKILL and is started again"],
    )
    assert state(second) == ""


def test_one_that_never_beat_is_left_alone(start: Starts) -> None:
    running = start(
        "supervise.HUNG_S = 0.1\nsupervise.LOOK_S = 0.1\nraise SystemExit(keep([[Kept('one', wait)]], 0))"
    )
    first = running.started()
    time.sleep(0.5)
    assert state(first) in "RS"
    assert running.ended(signal.SIGTERM)[2] == []


def test_where_all_stood_still_nobody_is_blamed(start: Starts) -> None:
    """As on a machine that was paused: its first look finds every beat old."""
    script = (
        "supervise.HELD_UP_S = 0.5\none = Kept('one', lambda: beat_and(0.05))\nraise SystemExit(keep([[one]], 0))"
    )
    running = start(HANGING + script)
    first = running.started()
    for pid in (running.pid, first):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(2.5)
    os.kill(running.pid, signal.SIGCONT)
    time.sleep(0.1)  # it looks
    os.kill(first, signal.SIGCONT)
    time.sleep(1)
    assert children(running.pid) == [first]
    assert running.ended(signal.SIGTERM)[2] == []


def test_the_pauses_of_one_that_ends_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", lambda: 4711)
    kept, now, pauses = Kept("one", lambda: 0), 1000.0, []
    for _ in range(9):
        kept.fork(now)
        assert kept.pid == 4711
        kept.ended(now := now + LONG_ENOUGH_S / 2)
        assert kept.pid == 0
        pauses.append(round(kept.due_at - now, 6))
        now = kept.due_at
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, MOST_S, MOST_S, MOST_S]
    kept.fork(now)
    kept.ended(now := now + LONG_ENOUGH_S * 1.01)
    assert kept.due_at == now
    kept.fork(now)
    kept.ended(now)
    assert kept.due_at == now + AGAIN_S


def test_one_that_cannot_be_forked_is_tried_again(start: Starts) -> None:
    running = start(f"""
fork, failures = os.fork, [1, 1]
def failing():
    if failures:
        failures.pop()
        raise OSError({errno.EAGAIN}, "Resource temporarily unavailable")
    return fork()
os.fork = failing
raise SystemExit(keep([[Kept("one", wait)]], 0))
""")
    running.started()
    code, _, log = running.ended(signal.SIGTERM)
    assert code == 0
    assert log == ["one is not started: [Errno 11] Resource temporarily unavailable"] * 2


def test_no_zombie_is_left(start: Starts) -> None:
    running = start("raise SystemExit(keep([[Kept(n, wait) for n in 'abcd']], 0))")
    pids = [running.started() for _ in range(4)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    again = [running.started() for _ in range(4)]
    until(lambda: sorted(children(running.pid)) == sorted(again), what="only those")
    assert [state(pid) for pid in pids] == [""] * 4
    assert running.ended(signal.SIGTERM)[0] == 0


def test_also_where_children_are_ignored_at_the_start(start: Starts) -> None:
    """A shell, or whatever started us, may have said so."""
    running = start(
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nraise SystemExit(keep([[Kept('one', wait)]], 0))"
    )
    os.kill(running.started(), signal.SIGKILL)
    running.started()
    assert running.ended(signal.SIGTERM)[0] == 0


def test_what_a_child_begins_with(start: Starts) -> None:
    """No signal blocked or handled by us, and a session of its own: Ctrl-C is ours to tell."""
    running = start("""
def run():
    handled = [signal.getsignal(n) is signal.SIG_DFL for n in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)]
    say(*signal.pthread_sigmask(signal.SIG_BLOCK, []), all(handled), os.getsid(0) == os.getpid())
    wait()
signal.signal(signal.SIGTERM, lambda *_: None)
raise SystemExit(keep([[Kept("one", run)]], 0))
""")
    assert running.line() == ["True", "True"]
    assert running.ended(signal.SIGTERM)[0] == 0


def test_what_waits_to_be_written_is_written_once(start: Starts) -> None:
    running = start("""
print("before")  # no terminal: it waits
def run():
    print("child")
    return 1
raise SystemExit(keep([[Kept("one", run)]], 0))
""")
    assert running.ended()[:2] == (1, "before\nchild\n")


@pytest.mark.parametrize("stream", ["sys.stdout = None", "sys.stdout.close()", "os.close(1)"])
def test_nobody_reads_what_is_said(start: Starts, stream: str) -> None:
    running = start(f"""
print("before")
{stream}
def run():
    signal.pause()
raise SystemExit(keep([[Kept("one", run)]], 0))
""")
    until(lambda: children(running.pid))
    code, _, log = running.ended(signal.SIGTERM)
    assert code in (0, 120)  # Python says so where it cannot write at its end
    assert not [line for line in log if "ended with" in line]


# ── one that cannot start ────────────────────────────────────────────────────────────────────────

CANNOT = """
def run():
    raise {error}
raise SystemExit(keep([[Kept("one", run), Kept("other", wait)], [Kept("third", wait)]], 60))
"""


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        ("CannotStart('cannot listen on x: it is taken')", 1, "extproc: cannot listen on x: it is taken"),
        ("ConfigError((Problem('a.b', 'no'),))", 2, "extproc: config: a.b: no"),
        ("PermissionError(13, 'Permission denied', '/x')", 1, "extproc: Permission denied: /x"),
    ],
)
def test_one_that_cannot_start_ends_all(start: Starts, error: str, code: int, line: str) -> None:
    running = start(CANNOT.format(error=error))
    ended, out, log = running.ended()
    assert (ended, log) == (code, [line])
    for each in out.splitlines():
        assert state(int(each.split()[1])) == ""


def test_later_it_is_started_again(start: Starts) -> None:
    running = start("""
supervise.AT_FIRST_S = -1
def run():
    say("child", os.getpid())
    raise CannotStart("no")
raise SystemExit(keep([[Kept("one", run)]], 0))
""")
    pids = [running.started() for _ in range(3)]
    assert len(set(pids)) == 3
    code, _, log = running.ended(signal.SIGTERM)
    assert code == 0
    assert log[:2] == ["extproc: no", "one ended with code 1 and is started again"]


@pytest.mark.parametrize("what", ["ZeroDivisionError", "SystemExit(1)", "KeyboardInterrupt"])
def test_a_bug_is_told_and_is_no_reason_to_end(start: Starts, what: str) -> None:
    running = start(f"""
tries = iter([])
def run():
    say("child", os.getpid())
    raise {what}
raise SystemExit(keep([[Kept("one", run)]], 0))
""")
    assert running.started() != running.started()
    code, _, log = running.ended(signal.SIGTERM)
    assert code == 0
    assert log[0] == "a process failed"
    assert "one ended with code 70 and is started again" in log


# ── the end ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_group_after_the_other(start: Starts, number: int) -> None:
    running = start("""
def run(name):
    end_at(0)
    wait(name)
a, b, c = (Kept(name, lambda name=name: run(name)) for name in "abc")
raise SystemExit(keep([[a, b], [c]], 60))
""")
    names = {pid: name for name, pid in (running.line() for _ in range(3))}
    code, out, _ = running.ended(number)
    ended = [names[line.split()[1]] for line in out.splitlines()]
    assert (code, sorted(ended), ended[2]) == (0, ["a", "b", "c"], "c")


def test_asked_to_end_during_a_pause(start: Starts) -> None:
    running = start("""
supervise.AGAIN_S = 3600
def run():
    say("child", os.getpid())
    return 7
raise SystemExit(keep([[Kept("one", run), Kept("other", wait)]], 60))
""")
    running.started(), running.started()
    until(lambda: len(children(running.pid)) == 1, what="one has ended")
    assert running.ended(signal.SIGTERM)[0] == 0


def test_one_that_does_not_end_is_killed(start: Starts) -> None:
    running = start("""
supervise.END_S = 0.05
def deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait()
raise SystemExit(keep([[Kept("deaf", deaf), Kept("other", wait)], [Kept("third", wait)]], 0.05))
""")
    pids = [running.started() for _ in range(3)]
    code, _, log = running.ended(signal.SIGTERM)
    assert (code, log) == (0, ["deaf does not end and is killed"])
    assert [state(pid) for pid in pids] == [""] * 3


def test_asked_twice_it_ends_no_less(start: Starts) -> None:
    running = start("""
def slow():
    end_at(0)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        wait("slow")
    finally:
        signal.sigwait([signal.SIGUSR1])
        say("done")
raise SystemExit(keep([[Kept("slow", slow)], [Kept("other", wait)]], 60))
""")
    pids = {name: int(pid) for name, pid in (running.line() for _ in range(2))}
    running.process.send_signal(signal.SIGTERM)
    assert running.line() == ["ending", str(pids["slow"])]
    for _ in range(3):
        running.process.send_signal(signal.SIGTERM)
        running.process.send_signal(signal.SIGINT)
    assert state(pids["child"]) != ""
    os.kill(pids["slow"], signal.SIGUSR1)
    code, out, _ = running.ended()
    assert (code, out) == (0, "done\n")


def test_the_supervisor_killed_takes_all_along(start: Starts) -> None:
    running = start("raise SystemExit(keep([[Kept(n, wait) for n in 'ab']], 60))")
    pids = [running.started() for _ in range(2)]
    running.process.kill()
    until(lambda: [state(pid) in ("", "Z") for pid in pids] == [True, True])


def test_a_parent_that_is_gone_already(start: Starts) -> None:
    running = start("supervise.end_with(1 << 22)\nsay('still here')")
    assert running.ended()[:2] == (-signal.SIGTERM, "")


# ── the real command ─────────────────────────────────────────────────────────────────────────────


class Serving:
    """`extproc serve` with two workers."""

    def __init__(self, start: Starts, tmp_path: Path, **changes: object) -> None:
        self.port = free_port()
        self.state = tmp_path / "state"
        self.config = tmp_path / "extproc.yaml"
        self.write(workers=2, **changes)
        command = [sys.executable, "-m", "extproc", "serve", "--config", str(self.config)]
        self.running = start("", *command, "--state-dir", str(self.state), "--admin-port", str(self.port))

    def write(self, **changes: object) -> None:
        self.config.write_text(yaml.safe_dump({"shutdown_grace_s": 1, **changes}))

    def sample(self, name: str) -> float | None:
        try:
            text = get(f"http://127.0.0.1:{self.port}/metrics").decode()
        except OSError:
            return None
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else None

    def ready(self) -> None:
        until(lambda: self.sample('llm_workers{state="ready"}') == 2, within_s=60, what="workers")


def test_two_workers_from_the_start_to_ctrl_c(start: Starts, tmp_path: Path) -> None:
    serving = Serving(start, tmp_path)
    serving.ready()
    pid = serving.running.pid
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1, "a thread would not be forked along"
    pids = children(pid)
    assert len(pids) == 3
    for name in ("workers.sock", "extproc-1.sock", "extproc-2.sock"):
        assert (serving.state / name).stat().st_mode & 0o777 == 0o660
    # Whoever is started again goes by what the others go by, whatever the file says now.
    serving.write(workers=1, audit={"path": "other.jsonl"})
    os.kill(_control(pids, serving.state), signal.SIGKILL)
    until(
        lambda: serving.sample("llm_config_waiting_for_restart") == 2, within_s=60, what="another control process"
    )
    serving.ready()
    assert serving.sample('llm_workers{state="expected"}') == 2
    code, out, log = serving.running.ended(signal.SIGINT)
    assert code == 0
    assert [state(each) for each in pids] == [""] * 3
    assert out.count("ext_proc  unix:extproc-1.sock, unix:extproc-2.sock") == 2
    assert "Traceback" not in "\n".join(log)
    assert not (serving.state / "other.jsonl").exists()


def _control(pids: Sequence[int], state_dir: Path) -> int:
    """The one that has the audit file open."""
    for pid in pids:
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if each.readlink() == state_dir / "audit.jsonl":
                    return pid
    raise AssertionError


def test_a_port_that_is_taken(start: Starts, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        metrics = f"127.0.0.1:{other.getsockname()[1]}"
        serving = Serving(start, tmp_path, listeners={"metrics": metrics})
        code, out, log = serving.running.ended()
    assert (code, out) == (1, "")
    assert log == [f"extproc: the admin port {metrics} cannot be opened: Address already in use"]


def test_a_worker_that_cannot_listen(start: Starts, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "extproc-2.sock").write_text("precious")
    serving = Serving(start, tmp_path)
    code, _, log = serving.running.ended()
    assert code == 1
    path = serving.state / "extproc-2.sock"
    assert [line for line in log if not re.match(r"\d{4}-", line)] == [
        f"extproc: cannot listen on unix:{path}: the file is there and is no socket"
    ]
