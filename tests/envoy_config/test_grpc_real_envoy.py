"""Triton over gRPC: what infers arrives as sent, what manages arrives in no spelling and no disguise."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator

import grpc
import pytest

from tests.envoy_config.grpc_engine import CHECK, MANAGEMENT, SERVED, SERVICE, GrpcEngine
from tests.envoy_config.messages import ask, error, status
from tests.envoy_config.stub_sidecar import HEADERS, StubSidecar, carry_on, change, reject
from tests.envoy_config.test_paths_real_envoy import PLAIN_TRICKS, as_an_engine_might_read, respell
from tests.real_envoy import RealEnvoy, RecordingUpstream, talk

pytestmark = pytest.mark.envoy

MESSAGE = b"\x0a\x01m\xff\xfe not JSON"
INFER, STREAM = SERVICE + "ModelInfer", SERVICE + "ModelStreamInfer"
AS_GRPC = b"content-type: application/grpc\r\nte: trailers\r\n"


def call(envoy: RealEnvoy, method: str, *, metadata: tuple[tuple[str, str], ...] = ()) -> bytes:
    """One message there and back; grpc.RpcError with the status otherwise."""
    with grpc.insecure_channel(f"127.0.0.1:{envoy.port}") as channel:
        answer: bytes = channel.unary_unary(method)(MESSAGE, timeout=10, metadata=metadata)
    return answer


def refused(envoy: RealEnvoy, method: str) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as refusal:
        call(envoy, method)
    code: grpc.StatusCode = refusal.value.code()
    return code


def framed(message: bytes) -> bytes:
    return b"\x00" + len(message).to_bytes(4, "big") + message


def line(envoy: RealEnvoy) -> dict[str, object]:
    """The last line of the access log."""
    time.sleep(0.3)
    found: dict[str, object] = json.loads(envoy.access_log.read_text().splitlines()[-1])
    return found


# ── what is served ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", ["envoy", "lenient", "judged"])
def test_inference_health_and_metadata_arrive_as_sent(
    policy: str,
    request: pytest.FixtureRequest,
    triton: GrpcEngine,
    engine: RecordingUpstream,
    sidecar: StubSidecar,
) -> None:
    through = request.getfixturevalue(policy)
    for method in sorted(SERVED):
        assert call(through, method) == MESSAGE
        assert triton.methods[-1] == method
    assert len(triton.calls) == len(SERVED)
    assert engine.requests == []


def test_it_has_its_own_route_and_cluster(envoy: RealEnvoy, triton: GrpcEngine) -> None:
    call(envoy, INFER)
    found = line(envoy)
    assert (found["route"], found["cluster"]) == ("triton-grpc", "engine-1-grpc")
    assert found["path"] == INFER


def test_a_stream_is_answered_while_the_client_holds_it_open(judged: RealEnvoy, triton: GrpcEngine) -> None:
    done = threading.Event()

    def asked() -> Iterator[bytes]:
        yield b"one"
        yield b"two"
        done.wait(10)

    with grpc.insecure_channel(f"127.0.0.1:{judged.port}") as channel:
        stream = channel.stream_stream(STREAM)(asked(), timeout=10)
        assert [next(stream), next(stream)] == [b"one", b"two"]
        assert not done.is_set()
        done.set()
        assert list(stream) == []
    assert triton.methods == [STREAM]


def test_a_client_of_http1_is_served_too(envoy: RealEnvoy, triton: GrpcEngine) -> None:
    answer = talk(envoy.port, ask(INFER, "POST", AS_GRPC, framed(MESSAGE)), timeout=1)
    assert status(answer) == 200
    assert MESSAGE in answer
    assert triton.methods == [INFER]


def test_a_clients_own_decisions_do_not_arrive(envoy: RealEnvoy, triton: GrpcEngine) -> None:
    names = ("x-llm-pool", "x-llm-priority", "x-caller-token", "x-tenant", "x-param-temperature", "x-request-class")
    call(envoy, INFER, metadata=tuple((name, "critical") for name in names))
    assert not set(names) & set(triton.calls[0].headers)
    assert line(envoy)["route"] == "triton-grpc"


# ── judged by headers alone ──────────────────────────────────────────────────────────────────────


def test_the_sidecar_sees_headers_and_no_body(judged: RealEnvoy, triton: GrpcEngine, sidecar: StubSidecar) -> None:
    call(judged, INFER)
    (seen,) = sidecar.seen
    assert dict(seen.headers)[":path"] == INFER.encode()
    assert seen.body is None


def test_a_critical_one_has_a_route_of_its_own(judged: RealEnvoy, triton: GrpcEngine, sidecar: StubSidecar) -> None:
    sidecar.script = lambda phase, _: change(phase, {"x-llm-priority": "critical"})
    assert call(judged, INFER) == MESSAGE
    assert line(judged)["route"] == "triton-grpc-critical"


def test_a_pool_of_http_is_no_place_for_it(
    judged: RealEnvoy, triton: GrpcEngine, engine: RecordingUpstream, sidecar: StubSidecar
) -> None:
    sidecar.script = lambda phase, _: change(phase, {"x-llm-pool": "engine-1"})
    assert call(judged, INFER) == MESSAGE
    assert (triton.methods, engine.requests) == ([INFER], [])


def test_the_sidecar_may_refuse_it(judged: RealEnvoy, triton: GrpcEngine, sidecar: StubSidecar) -> None:
    sidecar.script = lambda phase, _: reject(429, b"{}", {}) if phase == HEADERS else carry_on(phase)
    assert refused(judged, INFER) is grpc.StatusCode.UNAVAILABLE  # gRPC's word for 429
    assert triton.calls == []


# ── what is not served ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", ["envoy", "lenient", "judged"])
def test_management_is_denied(
    policy: str, request: pytest.FixtureRequest, triton: GrpcEngine, engine: RecordingUpstream, sidecar: StubSidecar
) -> None:
    through = request.getfixturevalue(policy)
    for method in sorted(MANAGEMENT):
        assert refused(through, method) is grpc.StatusCode.PERMISSION_DENIED, method
    assert (triton.calls, engine.requests, sidecar.seen) == ([], [], [])


SPELLINGS = [
    *PLAIN_TRICKS,
    str.lower,
    lambda p: p.replace(".", "%2e"),
    lambda p: p.replace("Repository", "repository"),
    lambda p: INFER + "/.." + p.removeprefix("/inference.GRPCInferenceService"),
    lambda p: INFER + "/../../" + p[1:],
    lambda p: INFER + "?" + p,
    lambda p: "/v1" + p,
    lambda p: "/v2" + p,
    lambda p: "/x" + p,
]


@pytest.mark.parametrize("policy", ["envoy", "lenient"])
@pytest.mark.parametrize(
    "headers", [AS_GRPC, AS_GRPC.replace(b"grpc\r", b"grpc+proto\r"), b"content-type: application/json\r\n", b""]
)
def test_no_spelling_and_no_disguise_of_management_arrives(
    policy: str, headers: bytes, request: pytest.FixtureRequest, triton: GrpcEngine, engine: RecordingUpstream
) -> None:
    port = request.getfixturevalue(policy).port
    for method in sorted(MANAGEMENT):
        for spelled in SPELLINGS:
            talk(port, ask(spelled(method), "POST", headers, framed(b"")), timeout=0.5)
    assert triton.calls == []
    read = [as_an_engine_might_read(each.path) for each in engine.requests]
    assert [path for path in read if "grpcinferenceservice" in path] == []


def test_random_spellings_of_management_never_arrive(
    lenient: RealEnvoy, triton: GrpcEngine, engine: RecordingUpstream
) -> None:
    dice = random.Random(20261130)
    for method in sorted(MANAGEMENT) * 20:
        talk(lenient.port, ask(respell(method, dice), "POST", AS_GRPC, framed(b"")), timeout=0.5)
    assert triton.calls == []
    arrived = {as_an_engine_might_read(each.path) for each in engine.requests}
    assert not arrived & {method.lower() for method in MANAGEMENT}


@pytest.mark.parametrize("policy", ["envoy", "lenient"])
@pytest.mark.parametrize(
    "kind", ["application/json", "Application/GRPC", "text/plain", "application/x-protobuf", ""]
)
def test_json_to_such_a_path_is_no_way_around(
    policy: str, kind: str, request: pytest.FixtureRequest, triton: GrpcEngine, engine: RecordingUpstream
) -> None:
    port = request.getfixturevalue(policy).port
    headers = f"content-type: {kind}\r\n".encode() if kind else b""
    for method in sorted(SERVED - {CHECK}):
        answer = talk(port, ask(method, "POST", headers, b'{"max_tokens":99999}'))
        assert (status(answer), error(answer)["code"]) == (403, "management_path")
    assert (triton.calls, engine.requests) == ([], [])


def test_a_health_check_that_is_no_grpc_is_an_unknown_path(envoy: RealEnvoy, triton: GrpcEngine) -> None:
    assert error(talk(envoy.port, ask(CHECK, "POST", body=b"{}")))["code"] == "unknown_path"
    assert triton.calls == []


@pytest.mark.parametrize(
    "method",
    [
        "/other.Service/Infer",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    ],
)
def test_any_other_service_is_unknown(
    envoy: RealEnvoy, triton: GrpcEngine, engine: RecordingUpstream, method: str
) -> None:
    assert refused(envoy, method) is grpc.StatusCode.UNIMPLEMENTED
    assert (triton.calls, engine.requests) == ([], [])


def test_without_a_grpc_pool_nothing_of_it_is_served(closed: RealEnvoy, engine: RecordingUpstream) -> None:
    for method in sorted((SERVED | MANAGEMENT) - {CHECK}):
        assert refused(closed, method) is grpc.StatusCode.PERMISSION_DENIED
    assert refused(closed, CHECK) is grpc.StatusCode.UNIMPLEMENTED
    assert engine.requests == []
