"""Fixtures of the whole suite: here alone a session's servers are started once for every folder that uses them."""

from __future__ import annotations

import pytest

from tests.engines_real.fixtures import llamacpp, running_tritons, tritons

__all__ = ["llamacpp", "running_tritons", "tritons"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "engines: starts a real inference server")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"running_tritons", "llamacpp", "vllm"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.engines)
