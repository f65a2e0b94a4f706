"""One running system for all tests that neither kill nor reconfigure anything."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.running import Engine, Stack


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.envoy)


@pytest.fixture(scope="session", autouse=True)
def open_files() -> None:
    """As many as the system allows, here and in every child: thousands of streams are two files each."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@pytest.fixture(scope="session", params=["fast", "grpc"])
def transport(request: pytest.FixtureRequest) -> str:
    """Whatever uses the running system, or its engine, is tested over both."""
    return str(request.param)


@pytest.fixture(scope="session")
def stack(open_files: None, transport: str) -> Iterator[Stack]:
    with Stack(changes={"transport": transport}) as running:
        yield running


@pytest.fixture(scope="session")
def front(stack: Stack) -> int:
    """The port clients talk to."""
    return stack.port


@pytest.fixture(scope="session")
def engine(stack: Stack) -> Engine:
    return stack.engine
