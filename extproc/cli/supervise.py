"""Processes that are kept alive: forked again when they end or no longer answer, ended with us, in order.

Forked, not started anew: to import the program takes a second, which is long where one process of two is down. So
nothing here may start a thread or an event loop.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import os
import signal
import struct
import sys
from collections.abc import Callable, Sequence

from extproc.cli.outcome import CANNOT, WRONG, outcome
from extproc.loops.tasks import monotonic

log = logging.getLogger("extproc.supervise")

AGAIN_S = 0.1
MOST_S = 5.0
LONG_ENOUGH_S = 1.0
"""A process that lived this long is forked again at once; one that did not, after a pause that doubles."""

AT_FIRST_S = 5.0
"""One that says within this time that it cannot start will not be able to later."""

HUNG_S = 5.0
"""Without a beat for so long a process is killed: what waits for its answer has failed at Envoy long before."""

LOOK_S = 1.0
HELD_UP_S = 1.0
"""A look that is so late says that the whole machine stood still, and nothing about one process of it."""

END_S = 5.0
STOPPING = (signal.SIGTERM, signal.SIGINT)
HEARD = (*STOPPING, signal.SIGCHLD)

PR_SET_PDEATHSIG = 1
_SECONDS = struct.Struct("d")


class Kept:
    """One process by name; `run` is what it does, and returns its exit code. One that once called `beat` has to go
    on with it."""

    def __init__(self, name: str, run: Callable[[], int]) -> None:
        self.name = name
        self._beat_at = mmap.mmap(-1, _SECONDS.size)  # shared with the process
        self.pid = 0
        self.due_at = 0.0  # when it is to be forked; of interest while there is no pid
        self._run = run
        self._begun_at = 0.0
        self._pause_s = AGAIN_S

    def fork(self, now: float) -> None:
        parent = os.getpid()
        _flush()  # or both would write what waits
        self._begun_at = now
        _SECONDS.pack_into(self._beat_at, 0, 0.0)
        try:
            self.pid = os.fork()
        except OSError as error:  # no process or no memory left, for now
            log.error("%s is not started: %s", self.name, error)
            self.ended(now)
            return
        if self.pid == 0:
            os._exit(_child(parent, self._run))

    def beat(self) -> None:
        """Said by the process itself: its event loop turns."""
        _SECONDS.pack_into(self._beat_at, 0, monotonic())

    def hangs(self, now: float, awake_since: float) -> bool:
        """`awake_since`: when the machine last stood still as a whole; before that nobody could beat."""
        (beat_at,) = _SECONDS.unpack_from(self._beat_at)
        return bool(self.pid and beat_at) and now - max(beat_at, awake_since) > HUNG_S

    def ended(self, now: float) -> None:
        """It is due again."""
        self.pid = 0
        if now - self._begun_at > LONG_ENOUGH_S:
            self._pause_s = AGAIN_S
            self.due_at = now
        else:
            self.due_at = now + self._pause_s
            self._pause_s = min(self._pause_s * 2, MOST_S)


def _child(parent: int, run: Callable[[], int]) -> int:
    """What happens in the child. Its session is its own: Ctrl-C reaches us, and we end it."""
    try:
        os.setsid()
        for number in HEARD:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
        end_with(parent)
        code = outcome(run)
    except BaseException:
        log.exception("a process failed")
        code = 70
    _flush()
    return code


def _flush() -> None:
    """Nobody may be there to read it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # gone, closed, never there
            stream.flush()


def end_with(parent: int) -> None:
    """Be sent SIGTERM when the parent is gone, also where it was killed."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def keep(groups: Sequence[Sequence[Kept]], grace_s: float) -> int:
    """All of them until SIGTERM or SIGINT, then one group after the other ends. 0, or the code of one that cannot
    start."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where we were started with it ignored, no code would be left
    every, began = [each for group in groups for each in group], monotonic()
    awake_since = began
    code: int | None = None
    while code is None:
        now = monotonic()
        for each in every:
            if not each.pid and each.due_at <= now:
                each.fork(now)
        pauses = (each.due_at - now for each in every if not each.pid)
        if _heard(max(0.0, min((LOOK_S, *pauses)))) in STOPPING:
            code = 0
        if monotonic() - now > LOOK_S + HELD_UP_S:
            awake_since = monotonic()
        for each, status in _reaped(every):
            now = monotonic()
            if status in (CANNOT, WRONG) and now - began < AT_FIRST_S:
                code = status
            elif code is None:
                log.error("%s ended with %s and is started again", each.name, _told(status))
            each.ended(now)
        _kill_hung(every, awake_since)
    for group in groups:
        _end(group, grace_s + END_S)
    return code


def _kill_hung(every: Sequence[Kept], awake_since: float) -> None:
    now = monotonic()
    for each in every:
        if each.hangs(now, awake_since):
            log.error("%s has not answered for %g s and is killed", each.name, HUNG_S)
            os.kill(each.pid, signal.SIGKILL)


def _heard(timeout_s: float) -> int | None:
    """The next signal; None where none came in time."""
    found = signal.sigtimedwait(HEARD, timeout_s)
    return found.si_signo if found is not None else None


def _reaped(every: Sequence[Kept]) -> list[tuple[Kept, int]]:
    """Who has ended, with its exit code; below 0 = by that signal."""
    ended = []
    for each in every:
        if each.pid:
            pid, status = os.waitpid(each.pid, os.WNOHANG)
            if pid:
                ended.append((each, os.waitstatus_to_exitcode(status)))
    return ended


def _end(group: Sequence[Kept], timeout_s: float) -> None:
    """Asked, and killed where they take longer."""
    running = [each for each in group if each.pid]
    for each in running:
        os.kill(each.pid, signal.SIGTERM)
    deadline = monotonic() + timeout_s
    while running and monotonic() < deadline:
        _heard(0.05)
        ended = [each for each, _ in _reaped(running)]
        running = [each for each in running if each not in ended]
    for each in running:
        log.error("%s does not end and is killed", each.name)
        os.kill(each.pid, signal.SIGKILL)
        os.waitpid(each.pid, 0)


def _told(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"code {code}"
