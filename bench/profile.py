"""Where the sidecar's time goes: a flame graph by py-spy of `ours, fast` under 2 KB requests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import instructions, load
from bench.bodies import body
from bench.envoys import engine
from bench.errors import CannotMeasure
from bench.variants import OURS_FAST, Variant, check, variant

BODY = "2 KB"
CONNECTIONS = 16
SAMPLES_PER_S = 200
WARM_UP_REQUESTS = 400


def profile(file: Path, seconds: int, folder: Path, config: Path | None, say: Callable[[str], None]) -> str:
    """Writes the picture to `file`; what else is told of it."""
    spy = _py_spy()
    chat, data = body(BODY), folder / "body"
    data.write_bytes(chat.data)
    with engine(folder / "engine") as port, variant(OURS_FAST, folder / "ours", port, config) as one:
        check(one, chat)
        rps = _put(one, WARM_UP_REQUESTS, data, folder).rps
        say(f"profiling {OURS_FAST} for {seconds} s")
        # Longer than it is watched, as it is slower then, if at all.
        requests = round(rps * (seconds + 2))
        with ThreadPoolExecutor(1) as pool:
            under_load = pool.submit(_put, one, requests, data, folder)
            _record(spy, one, seconds, file)
            errors = under_load.result().errors
        if errors:
            raise CannotMeasure(f"{errors} requests failed under the profile")
        counted = instructions.told(
            one.sidecar_pids, lambda: _put(one, requests // 2, data, folder).requests, folder, say
        )
    return f"{file}: {OURS_FAST}, {BODY} on {CONNECTIONS} connections, {seconds} s\n{counted}"


def _put(one: Variant, requests: int, data: Path, folder: Path) -> load.Load:
    return load.put(one.port, data, requests=requests, connections=CONNECTIONS, scratch=folder)


def _record(spy: str, one: Variant, seconds: int, file: Path) -> None:
    command = [spy, "record", "--pid", str(one.sidecar_pids[0]), "--duration", str(seconds)]
    # With the interpreter's lock alone: threads that wait are sometimes taken for busy ones.
    command += ["--gil", "--rate", str(SAMPLES_PER_S), "--format", "flamegraph", "--output", str(file)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        lines = run.stderr.strip().splitlines()
        raise CannotMeasure(f"py-spy: {lines[-1] if lines else f'ended with {run.returncode}'}")


def _py_spy() -> str:
    """Beside this Python, or in PATH."""
    found = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if found is None:
        raise CannotMeasure("py-spy is not installed: pip install py-spy")
    return found
