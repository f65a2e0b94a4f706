"""A protection loop that nobody listens to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from extproc.edge.state_file import StateFile
from extproc.loops.breakers import Kept
from extproc.loops.drift import DriftWatch
from extproc.loops.lengths import LengthWatch
from extproc.loops.parameter_history import ParameterHistory
from extproc.loops.protection import LoadOf, Protector
from extproc.loops.tasks import wall
from extproc.settings import load


def quiet_protector(pool_of: Callable[[str], str], load_of: LoadOf, folder: Path, **given: Any) -> Protector:
    """`given` replaces parts of it."""
    history = ParameterHistory(None, save=StateFile(folder / "parameters.json").save, wall=wall)
    parts: dict[str, Any] = {
        "parameters": history,
        "drift": DriftWatch(None, load(b"{}").drift, pool_of=pool_of, save=lambda _: True, report=lambda _: None),
        "lengths": LengthWatch(None, save=lambda _: True),
        "publish": lambda _: None,
        "report": lambda _: None,
        "save": lambda _: True,
        "reconsider": lambda: None,
    }
    return Protector(Kept(), pool_of=pool_of, load_of=load_of, **(parts | given))
