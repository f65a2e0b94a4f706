"""Fixtures of the whole suite: here alone a session's servers are started once for every folder that uses them."""

from __future__ import annotations

import os

# Several processes of tests share the cores: each one's linear algebra keeps to one thread, as it does in service.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from tests.engines_real.fixtures import llamacpp, running_tritons, tritons

__all__ = ["llamacpp", "running_tritons", "tritons"]


settings.register_profile("suite", deadline=None)  # a busy machine is no bug
settings.load_profile("suite")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "engines: starts a real inference server")


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """The argument's name for bytes nobody can read: the processes of a run must collect the same names."""
    if isinstance(val, bytes) and (len(val) > 100 or not val.isascii() or b"\0" in val):
        return argname
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        real = bool({"running_tritons", "llamacpp", "vllm"} & set(getattr(item, "fixturenames", ())))
        if real:
            item.add_marker(pytest.mark.engines)
        # One process starts the real engines; elsewhere a file's tests share what they start.
        item.add_marker(pytest.mark.xdist_group("engines" if real else item.location[0]))
    items.sort(key=_starts_nothing)


def _starts_nothing(item: pytest.Item) -> bool:
    """Tests that wait for servers go first, so that short ones fill the end evenly."""
    return not {"e2e", "envoy_config", "engines_real", "docs"} & set(item.path.parts)
