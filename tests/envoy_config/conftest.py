"""Engines that record what they get, and a few Envoys in front of them, each started once and used afresh."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from extproc.model.names import Engine
from extproc.resources.plan import EngineCluster, Pipe, Plan, Served
from tests.envoy_config.control import StubControl
from tests.envoy_config.grpc_engine import GrpcEngine
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
def one_triton() -> Iterator[GrpcEngine]:
    engine = GrpcEngine()
    yield engine
    engine.stop()


@pytest.fixture
def triton(one_triton: GrpcEngine) -> GrpcEngine:
    one_triton.calls.clear()
    return one_triton


def both(engine: RecordingUpstream, triton: GrpcEngine, **changes: Any) -> Plan:
    """The engine over HTTP, and another over gRPC."""
    over_grpc = EngineCluster("engine-1-grpc", Engine.TRITON, (Served("127.0.0.1", triton.port),), http2=True)
    wanted = plan(engine.port, **changes)
    return replace(wanted, engines=(*wanted.engines, over_grpc))


@pytest.fixture(scope="package")
def envoy(one_engine: RecordingUpstream, one_triton: GrpcEngine) -> Iterator[RealEnvoy]:
    """The shipped policy: open on failure, unknown paths rejected. The sidecar is dead."""
    with RealEnvoy(both(one_engine, one_triton, extra_paths=("/version", "/docs/*"))) as running:
        yield running


@pytest.fixture(scope="package")
def lenient(one_engine: RecordingUpstream, one_triton: GrpcEngine) -> Iterator[RealEnvoy]:
    """Unknown paths pass, so that the management rules stand alone. The sidecar is dead."""
    with RealEnvoy(both(one_engine, one_triton, unknown_paths="pass")) as running:
        yield running


@pytest.fixture(scope="package")
def closed(one_engine: RecordingUpstream) -> Iterator[RealEnvoy]:
    """Closed on failure, and no engine speaks gRPC. The sidecar is dead."""
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
def one_control() -> Iterator[StubControl]:
    with tempfile.TemporaryDirectory() as folder:
        stub = StubControl(f"{folder}/c.sock")
        yield stub
        stub.stop()


@pytest.fixture(scope="package")
def one_judged(
    one_engine: RecordingUpstream, one_triton: GrpcEngine, one_sidecar: StubSidecar, one_control: StubControl
) -> Iterator[RealEnvoy]:
    sidecar = {"ext_proc": Pipe(one_sidecar.path), "control": Pipe(one_control.path)}
    wanted = both(one_engine, one_triton, **sidecar, max_body_bytes=LIMIT, fail_open=False)
    with RealEnvoy(wanted) as running:
        yield running


@pytest.fixture
def judged(one_judged: RealEnvoy, sidecar: StubSidecar) -> RealEnvoy:
    """Closed on failure, and the sidecar lives."""
    return one_judged
