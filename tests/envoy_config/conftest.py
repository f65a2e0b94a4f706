"""One engine that records every byte, and a few Envoys in front of it, each started once and used afresh."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

from extproc.resources.plan import Pipe
from tests.envoy_config.messages import LIMIT
from tests.envoy_config.stub_sidecar import StubSidecar, carry_on
from tests.real_envoy import RealEnvoy, RecordingUpstream, ok, plan


@pytest.fixture(scope="package")
def one_engine() -> Iterator[RecordingUpstream]:
    upstream = RecordingUpstream()
    yield upstream
    upstream.stop()


@pytest.fixture
def engine(one_engine: RecordingUpstream) -> RecordingUpstream:
    one_engine.requests.clear()
    one_engine.stray, one_engine.answer = b"", ok
    return one_engine


@pytest.fixture(scope="package")
def envoy(one_engine: RecordingUpstream) -> Iterator[RealEnvoy]:
    """The shipped policy: open on failure, unknown paths rejected. The sidecar is dead."""
    with RealEnvoy(plan(one_engine.port, extra_paths=("/version", "/docs/*"))) as running:
        yield running


@pytest.fixture(scope="package")
def lenient(one_engine: RecordingUpstream) -> Iterator[RealEnvoy]:
    """Unknown paths pass, so that the management rules stand alone. The sidecar is dead."""
    with RealEnvoy(plan(one_engine.port, unknown_paths="pass")) as running:
        yield running


@pytest.fixture(scope="package")
def closed(one_engine: RecordingUpstream) -> Iterator[RealEnvoy]:
    """Closed on failure. The sidecar is dead."""
    with RealEnvoy(plan(one_engine.port, fail_open=False)) as running:
        yield running


@pytest.fixture(scope="package")
def one_sidecar() -> Iterator[StubSidecar]:
    with tempfile.TemporaryDirectory() as folder:
        stub = StubSidecar(f"{folder}/s.sock", lambda phase, _: carry_on(phase))
        yield stub
        stub.stop()


@pytest.fixture
def sidecar(one_sidecar: StubSidecar) -> StubSidecar:
    """Changes nothing until told otherwise."""
    one_sidecar.script, one_sidecar.seen = lambda phase, _: carry_on(phase), []
    return one_sidecar


@pytest.fixture(scope="package")
def one_judged(one_engine: RecordingUpstream, one_sidecar: StubSidecar) -> Iterator[RealEnvoy]:
    wanted = plan(one_engine.port, ext_proc=Pipe(one_sidecar.path), max_body_bytes=LIMIT, fail_open=False)
    with RealEnvoy(wanted) as running:
        yield running


@pytest.fixture
def judged(one_judged: RealEnvoy, sidecar: StubSidecar) -> RealEnvoy:
    """Closed on failure, and the sidecar lives."""
    return one_judged
