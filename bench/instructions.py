"""How many instructions a request takes: a count that other load of the machine hardly changes.

`perf stat` counts in the real sidecar under load, where the processor lets it. Else callgrind counts in a process
of its own that answers canned streams: `python -m bench.instructions FOLDER COUNT`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.bodies import body
from bench.canned import CannedStream
from bench.micro import body_message, headers_message, recording, servicer
from bench.processes import ROOT

COUNT = 200
WARM_UP = 100
BODY = "2 KB"
ATTACH_S = 0.5
_COLLECTED = re.compile(r"Collected : (\d+)")

_PERF = ("perf", "stat", "-x", ",", "-e", "instructions")


def told(pids: Sequence[int], load: Callable[[], int], folder: Path, say: Callable[[str], None]) -> str:
    """One line. `load` puts requests on these processes, and returns how many."""
    if (counted := _perf(pids, load)) is not None:
        return f"{counted:,.0f} instructions per {BODY} request, by perf stat on the sidecar under load"
    if shutil.which("valgrind") and shutil.which("callgrind_control"):
        say("counting instructions")
        if (counted := _callgrind(folder)) is not None:
            return f"{counted:,.0f} instructions per {BODY} request in process, transport included, by callgrind"
    return "instructions are not counted: neither perf stat nor valgrind's callgrind works here"


def _perf(pids: Sequence[int], load: Callable[[], int]) -> float | None:
    if shutil.which("perf") is None or perf_count(_said([*_PERF, "true"])) is None:
        return None
    command = [*_PERF, "-p", ",".join(map(str, pids))]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as perf:
        time.sleep(ATTACH_S)
        requests = load()
        perf.send_signal(signal.SIGINT)
        counted = perf_count(perf.communicate()[1])
    return counted / requests if counted is not None else None


def perf_count(said: str) -> int | None:
    """Of perf's comma-separated lines; None where the processor does not count, or perf may not."""
    for line in said.splitlines():
        count, *rest = line.split(",")
        if any(field.startswith("instructions") for field in rest):
            return int(count) if count.isdecimal() else None
    return None


def _said(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def _callgrind(folder: Path) -> float | None:
    """From the moment the process is warm until its last request; None where valgrind cannot."""
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder / 'callgrind'}"]
    command += [sys.executable, "-m", "bench.instructions", str(folder), str(COUNT)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as counting:
        assert counting.stdout is not None
        if counting.stdout.readline() != "warm\n":
            counting.kill()
            return None
        subprocess.run(["callgrind_control", "--instr=on", str(counting.pid)], capture_output=True, check=False)
        said = counting.communicate("go\n")[1]
    found = _COLLECTED.search(said)
    return int(found[1]) / COUNT if found and int(found[1]) else None


def main(folder: Path, requests: int) -> None:
    data = body(BODY).data
    with recording(folder, None) as (recorder, _, settings):
        stream = CannedStream(servicer(settings, recorder), (headers_message(len(data)), body_message(data)))
        for _ in range(WARM_UP):
            stream()
        print("warm", flush=True)
        sys.stdin.readline()
        for _ in range(requests):
            stream()
        os._exit(0)  # what Python tidies up is no part of a request


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
