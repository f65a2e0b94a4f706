"""An engine's load report (ORCA): asked for, told to the sidecar, kept from the client; and a sidecar that is away."""

from __future__ import annotations

import time

import grpc
import pytest

from extproc.codec import orca
from tests.envoy_config.control import StubControl
from tests.envoy_config.grpc_engine import LOAD, SERVICE, GrpcEngine
from tests.envoy_config.messages import ask, only, status
from tests.envoy_config.stub_sidecar import StubSidecar, carry_on, metadata
from tests.real_envoy import RealEnvoy, RecordingUpstream, talk

pytestmark = pytest.mark.envoy

FORMAT = "endpoint-load-metrics-format"
REPORTING = (
    b"HTTP/1.1 200 OK\r\nEndpoint-Load-Metrics: %s\r\nx-other: kept\r\ncontent-length: 2\r\n\r\n{}"
    % LOAD[1].encode()
)
INFER = SERVICE + "ModelInfer"


@pytest.mark.parametrize("policy", ["envoy", "lenient", "judged"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/v2/models/m/infer", "/completion"])
def test_a_report_is_asked_for_and_never_reaches_the_client(
    policy: str, path: str, request: pytest.FixtureRequest, engine: RecordingUpstream, sidecar: StubSidecar
) -> None:
    engine.answer = lambda _: REPORTING
    answer = talk(request.getfixturevalue(policy).port, ask(path, "POST", body=b"{}"))
    assert status(answer) == 200
    assert only(engine).values(FORMAT) == [b"JSON"]
    assert orca.HEADER.encode() not in answer.lower()
    assert b"x-other: kept" in answer


def test_a_client_does_not_choose_its_form(envoy: RealEnvoy, engine: RecordingUpstream) -> None:
    sent = b"endpoint-load-metrics-format: TEXT\r\nEndpoint-Load-Metrics-Format: BIN\r\n"
    talk(envoy.port, ask("/v1/models", headers=sent))
    assert only(engine).values(FORMAT) == [b"JSON"]


def test_a_path_that_passes_unjudged_hides_it_too(envoy: RealEnvoy, engine: RecordingUpstream) -> None:
    engine.answer = lambda _: REPORTING
    answer = talk(envoy.port, ask("/version"))
    assert status(answer) == 200
    assert orca.HEADER.encode() not in answer.lower()


def test_over_grpc_it_is_the_same(envoy: RealEnvoy, triton: GrpcEngine) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{envoy.port}") as channel:
        answer, ended = channel.unary_unary(INFER).with_call(b"x", timeout=10)
    assert answer == b"x"
    assert triton.calls[0].headers[FORMAT] == "JSON"
    assert orca.HEADER not in {key for key, _ in ended.initial_metadata()}


# ── the sidecar is told ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def control(one_control: StubControl, judged: RealEnvoy) -> StubControl:
    """What was told of earlier requests is forgotten."""
    while one_control.samples(1, within_s=0.6):
        pass
    return one_control


def test_the_sidecar_is_told_what_the_client_is_not(
    judged: RealEnvoy, engine: RecordingUpstream, sidecar: StubSidecar, control: StubControl
) -> None:
    engine.answer = lambda _: REPORTING
    decided = {"tier": "strict", "scenario": "payment", "class": "critical", "tenant": "acme", "params": "p@1"}
    sidecar.script = lambda phase, _: carry_on(phase) + metadata(decided)
    talk(judged.port, ask("/v1/completions", "POST", body=b"{}"))
    (sample,) = control.samples(1)
    assert sample.orca == {"kv_cache_usage_perc": 0.25}
    assert (sample.cluster, sample.upstream) == ("engine-1", f"127.0.0.1:{engine.port}")
    assert (sample.route, sample.status, sample.flags) == ("openai", 200, ())
    assert (sample.tier, sample.tenant, sample.request_class) == ("strict", "acme", "critical")
    assert sample.first_byte_s is not None
    assert 0 < sample.first_byte_s <= sample.total_s


def test_a_failed_grpc_call_is_told_as_one(
    judged: RealEnvoy, triton: GrpcEngine, sidecar: StubSidecar, control: StubControl
) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{judged.port}") as channel:
        channel.unary_unary(INFER)(b"x", timeout=10)
        with pytest.raises(grpc.RpcError):
            channel.unary_unary(INFER)(b"fail", timeout=10)
    passed, failed = control.samples(2)
    assert (passed.cluster, passed.upstream) == ("engine-1-grpc", f"127.0.0.1:{triton.port}")
    assert (passed.status, passed.orca) == (200, {"kv_cache_usage_perc": 0.25})
    assert failed.status == 500


def test_what_reached_no_engine_is_not_told(
    judged: RealEnvoy, engine: RecordingUpstream, sidecar: StubSidecar, control: StubControl
) -> None:
    for path in ("/metrics", "/unknown", "/v2/repository/index"):
        talk(judged.port, ask(path))
    talk(judged.port, ask("/v1/models"))
    (sample,) = control.samples(2, within_s=1.5)
    assert sample.route == "openai"


# ── the sidecar is away ──────────────────────────────────────────────────────────────────────────


def test_a_log_that_cannot_be_delivered_hurts_no_request(
    envoy: RealEnvoy, engine: RecordingUpstream, triton: GrpcEngine
) -> None:
    engine.answer = lambda _: REPORTING
    attempts = "cluster.llm_control."
    before = envoy.stats(attempts)["upstream_cx_connect_fail"]
    for _ in range(20):
        answer = talk(envoy.port, ask("/v1/chat/completions", "POST", body=b"{}"))
        assert status(answer) == 200
        with grpc.insecure_channel(f"127.0.0.1:{envoy.port}") as channel:
            assert channel.unary_unary(INFER)(b"x", timeout=10) == b"x"
        time.sleep(0.05)
    assert len(engine.requests) == len(triton.calls) == 20
    assert envoy.stats(attempts)["upstream_cx_connect_fail"] > before  # it was tried, all the while
    assert envoy.process.poll() is None
