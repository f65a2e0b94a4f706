"""A process and all it has started, read from the kernel: CPU time, memory, open files, what each one is."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from bench.errors import CannotMeasure
from bench.processes import cpu_s, rss_mb

LISTENING = "00010000"
"""Flag of a socket in /proc/net/unix."""

_WORKER = re.compile(r"extproc-(\d+)\.sock$")


def pids(root: int) -> tuple[int, ...]:
    """`root` first, then all that descend from it. CannotMeasure where it has ended."""
    found = [root]
    try:
        for pid in found:
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    except OSError:
        raise CannotMeasure(f"process {root} has ended, or one it started") from None
    return tuple(found)


def each_cpu_s(every: tuple[int, ...]) -> tuple[float, ...]:
    """CPU seconds of each, threads included. CannotMeasure where one has ended: its time is gone with it."""
    try:
        return tuple(map(cpu_s, every))
    except OSError:
        raise CannotMeasure(f"one of the processes {', '.join(map(str, every))} has ended") from None


def all_rss_mb(root: int) -> float:
    """MB of the whole tree, summed: pages that forked processes share are counted in each."""
    return sum(map(rss_mb, pids(root)))


def open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def named(root: int) -> dict[str, int]:
    """Pids by what a process is: `sidecar` where it is alone, else `supervisor`, `control`, `worker 1`, …"""
    first, *others = pids(root)
    if not others:
        return {"sidecar": first}
    names = {_name(pid): pid for pid in others}
    if len(names) != len(others):
        raise CannotMeasure(f"cannot tell the {len(others)} processes below {root} apart")
    return {"supervisor": first, **{name: names[name] for name in sorted(names)}}


def _name(pid: int) -> str:
    numbers = [found[1] for path in sockets(pid) if (found := _WORKER.search(path))]
    return f"worker {numbers[0]}" if numbers else "control"


def sockets(pid: int) -> list[str]:
    """Paths of the unix sockets a process listens on."""
    held = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            held.add(str(each.readlink()))
    return listening(Path("/proc/net/unix").read_text(), held)


def listening(table: str, held: set[str]) -> list[str]:
    """Of /proc/net/unix: the paths of listening sockets that are among `held`, each as `socket:[INODE]`."""
    lines = [line.split() for line in table.splitlines()[1:]]
    return [line[7] for line in lines if len(line) == 8 and line[3] == LISTENING and f"socket:[{line[6]}]" in held]
