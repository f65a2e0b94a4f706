"""Which paths reach an engine: management never, in no spelling; served ones as sent; others as configured.

The sidecar is dead here: what holds, holds by Envoy's configuration alone.
"""

from __future__ import annotations

import json
import random
import re
import time
from urllib.parse import unquote

import pytest

from tests.envoy_config.messages import ask, error, only, status
from tests.real_envoy import RealEnvoy, RecordingUpstream, talk

pytestmark = pytest.mark.envoy


# ── management paths ─────────────────────────────────────────────────────────────────────────────

MANAGEMENT = [
    *("/v2/repository/index", "/v2/repository/models/m/load", "/v2/repository/models/m/unload"),
    *("/v2/repository/r/index", "/v2/repository/r/models/m/load", "/v2/logging", "/v2/trace/setting"),
    *("/v2/models/m/trace/setting", "/v2/models/m/versions/1/trace/setting"),
    *("/v2/systemsharedmemory/status", "/v2/systemsharedmemory/region/r/register"),
    *("/v2/systemsharedmemory/unregister", "/v2/cudasharedmemory/region/r/register", "/v2/cudasharedmemory/status"),
    *("/metrics", "/slots", "/slots/0", "/props", "/lora-adapters", "/models/load", "/models/unload"),
    *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/models/load", "/v1/models/m/load"),
    *("/v1/models/org/m/unload", "/sleep", "/wake_up", "/is_sleeping", "/pause", "/resume", "/is_paused"),
    *("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache", "/collective_rpc", "/server_info"),
    *("/start_profile", "/stop_profile", "/abort_requests", "/scale_elastic_ep", "/is_scaling_elastic_ep"),
    *("/update_weights", "/init_weight_transfer_engine", "/init_weights_update_group", "/start_weight_update"),
    *("/finish_weight_update", "/weight_checker", "/load", "/invocations", "/inference/v1/generate"),
    *("/fault_tolerance/apply", "/get_world_size"),
]

PLAIN_TRICKS = [
    lambda p: p + "/",
    lambda p: p + "?x=1",
    lambda p: p + ";x=1",
    lambda p: p + "/.",
    lambda p: p + "/x/..",
    lambda p: "/" + p,
    lambda p: "/." + p,
    lambda p: "/x/.." + p,
    lambda p: "/../.." + p,
    lambda p: p.upper(),
    lambda p: p.replace("/", "//"),
    lambda p: p.replace("/", "/./"),
    lambda p: "/" + p[1:].replace("/", "%2F"),
    lambda p: "/" + p[1:].replace("/", "%5c"),
    lambda p: "/" + p[1:].replace("/", "\\"),
    lambda p: "%2F" + p,
    lambda p: "/%2e" + p,
    lambda p: "/x/%2e%2E" + p,
    lambda p: "/x/..;" + p,
    lambda p: "/" + f"%{ord(p[1]):02x}" + p[2:],
    lambda p: p[:-1] + f"%{ord(p[-1]):02X}",
    lambda p: p[:-1] + f"%25{ord(p[-1]):02x}",
    lambda p: re.sub("[a-z]", lambda c: f"%{ord(c[0]):02x}", p),
    lambda p: p + "%0a",
    lambda p: p + "%00",
    lambda p: p + "%20",
    lambda p: p + "%3fx",
    lambda p: p + "%23",
    lambda p: p + "#x",
    lambda p: p + "\x7f",
    lambda p: "http://other" + p,
]


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_management_paths_are_answered_403(envoy: RealEnvoy, engine: RecordingUpstream, method: str) -> None:
    for path in MANAGEMENT:
        answer = talk(envoy.port, ask(path, method, body=b"{}"))
        assert status(answer) == 403, path
        if method != "HEAD":
            assert error(answer)["code"] == "management_path"
    assert engine.requests == []


@pytest.mark.parametrize("policy", ["envoy", "lenient"])
def test_no_spelling_of_a_management_path_arrives(
    policy: str, request: pytest.FixtureRequest, engine: RecordingUpstream
) -> None:
    port = request.getfixturevalue(policy).port
    for path in MANAGEMENT:
        for trick in PLAIN_TRICKS:
            answer = talk(port, ask(trick(path), "POST", body=b"{}"))
            assert status(answer) in (307, 400, 403, 404), trick(path)
    assert engine.requests == []


def test_an_escaped_slash_is_redirected_to_a_path_that_is_refused(envoy: RealEnvoy) -> None:
    answer = talk(envoy.port, ask("/v2%2Frepository%2Findex", "POST"))
    assert status(answer) == 307
    assert b"\r\nlocation: /v2/repository/index\r\n" in answer


def test_an_engine_under_a_prefix_hides_its_management_paths_too(
    lenient: RealEnvoy, engine: RecordingUpstream
) -> None:
    for path in (
        "/llama/slots",
        "/a/b/metrics",
        "/triton/v2/repository/index",
        "/x/v1/load_lora_adapter",
        "/v1;/x",
    ):
        assert status(talk(lenient.port, ask(path))) == 403, path
    assert engine.requests == []


def respell(path: str, dice: random.Random) -> str:
    """One random spelling: letters escaped once or twice or in capitals, slashes in every disguise."""
    slashes = [
        "/",
        "/",
        "/",
        "//",
        "/./",
        "/x/../",
        "/%2e/",
        "/x/%2E%2e/",
        "%2f",
        "\\",
        "%5C",
        ";x/",
        "/;/../",
    ]
    tails = [
        "",
        "",
        "/",
        "//",
        "/.",
        "/..;/",
        ";a=b",
        "?a",
        "%0a",
        "%0d%0a",
        "%09",
        "%20",
        "%7f",
        "%2f",
        "%",
        ".",
        "%2e",
    ]
    out = ""
    for char in path:
        if char == "/":
            out += dice.choice(["", "", ";v=1", ";"] if out else [""]) + dice.choice(slashes)
        else:
            out += dice.choice(
                [char] * 12 + [char.upper(), f"%{ord(char):02x}", f"%{ord(char):02X}", f"%25{ord(char):02x}"]
            )
    return (out if out.startswith("/") else "/" + out) + dice.choice(tails)


def as_an_engine_might_read(path: str) -> str:
    """More generous than any engine: unescaped to the end, no empty segments, no parameters, no case."""
    path = path.split("?", maxsplit=1)[0]
    for _ in range(4):
        path = unquote(path)
    segments = (segment.split(";")[0].strip() for segment in path.replace("\\", "/").lower().split("/"))
    found: list[str] = []
    for segment in segments:
        if segment == "..":
            found = found[:-1]
        elif segment not in ("", "."):
            found.append(segment)
    return "/" + "/".join(found)


def test_random_spellings_of_management_paths_never_arrive(lenient: RealEnvoy, engine: RecordingUpstream) -> None:
    dice = random.Random(20261130)
    for path in MANAGEMENT * 20:
        talk(lenient.port, ask(respell(path, dice), dice.choice(["GET", "POST"]), body=b"{}"))
    arrived = {each.path: as_an_engine_might_read(each.path) for each in engine.requests}
    assert {read: spelled for spelled, read in arrived.items() if read in MANAGEMENT} == {}


@pytest.mark.parametrize(
    "path",
    [
        "/v2/models/metrics/infer",
        "/v2/models/load/generate",
        "/v2/models/trace/infer",
        "/v1/models",
        "/v1/models/loader",
        "/v1/loads",
        "/v2/models/repository",
    ],
)
def test_names_that_only_look_like_management_are_served(
    envoy: RealEnvoy, engine: RecordingUpstream, path: str
) -> None:
    assert status(talk(envoy.port, ask(path))) == 200
    assert only(engine).path == path


# ── served and unknown paths ─────────────────────────────────────────────────────────────────────

SERVED = {
    "anthropic": "/v1/messages /v1/messages/count_tokens",
    "openai": "/v1 /v1/chat/completions /v1/completions /v1/responses /v1/embeddings /v1/models /v1/models/a/b",
    "triton": "/v2 /v2/health/live /v2/health/ready /v2/models/m /v2/models/m/versions/1 /v2/models/m/ready"
    " /v2/models/m/config /v2/models/m/infer /v2/models/m/generate /v2/models/m/generate_stream"
    " /v2/models/m/versions/3/infer /v2/models/a%20b%3A%e4%bd%a0+@!/infer"
    " /v2/models/a:b,c(d)/versions/2/config",
    "llamacpp": "/completion /completions /tokenize /detokenize /health",
}


@pytest.mark.parametrize("family", SERVED)
def test_served_paths_arrive_as_sent(envoy: RealEnvoy, engine: RecordingUpstream, family: str) -> None:
    for path in SERVED[family].split():
        for spelled in (path, path + "/", path + "?a=%2F&b=;"):
            assert status(talk(envoy.port, ask(spelled, "POST", body=b"{}"))) == 200, spelled
            assert engine.requests[-1].path == spelled
            assert engine.requests[-1].body == b"{}"


def test_each_family_has_its_route(envoy: RealEnvoy) -> None:
    for family, paths in SERVED.items():
        talk(envoy.port, ask(paths.split()[0] + "?route=" + family))
    time.sleep(0.3)
    lines = [json.loads(line) for line in envoy.access_log.read_text().splitlines()]
    assert [line["route"] for line in lines[-4:]] == list(SERVED)
    assert not any("route=" in line["path"] for line in lines if line["path"])


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/foo",
        "/v2/models",
        "/v2/models/m/stats",
        "/V1/chat/completions",
        "/chat/completions",
        "/v3/x",
        "/v2/models/a/b/infer",
        "/v2/health/dead",
        "/versions",
    ],
)
def test_an_unknown_path_is_answered_404_naming_the_key(
    envoy: RealEnvoy, engine: RecordingUpstream, path: str
) -> None:
    answer = talk(envoy.port, ask(path))
    assert status(answer) == 404
    assert "unknown_paths" in error(answer)["message"]
    assert engine.requests == []


def test_extra_paths_pass(envoy: RealEnvoy, engine: RecordingUpstream) -> None:
    for path in ("/version", "/docs/", "/docs/a/b?c"):
        assert status(talk(envoy.port, ask(path))) == 200
        assert engine.requests[-1].path == path
    assert status(talk(envoy.port, ask("/docs/metrics"))) == 403


def test_unknown_paths_pass_where_configured(lenient: RealEnvoy, engine: RecordingUpstream) -> None:
    assert status(talk(lenient.port, ask("/anything/at%20all", "POST", body=b"x"))) == 200
    assert (only(engine).path, only(engine).body) == ("/anything/at%20all", b"x")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions/batch",
        "/v1/chat/completions/batch?x=/v1/messages/count_tokens",
        "/v1/completions/render",
        "/v1/messages/batches",
        "/v1/chat/completions//batch",
    ],
)
def test_what_generates_below_a_judged_path_is_not_served(
    envoy: RealEnvoy, engine: RecordingUpstream, path: str
) -> None:
    assert status(talk(envoy.port, ask(path, "POST", body=b"{}"))) == 404
    assert engine.requests == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("POST", "/v1/responses/input_tokens?a=1"),
        ("GET", "/v1/responses/resp_1"),
        ("GET", "/v1/chat/completions/chat_1"),
    ],
)
def test_what_does_not_generate_there_is_served(
    envoy: RealEnvoy, engine: RecordingUpstream, method: str, path: str
) -> None:
    assert status(talk(envoy.port, ask(path, method, body=b"{}" if method == "POST" else b""))) == 200
    assert only(engine).path == path
