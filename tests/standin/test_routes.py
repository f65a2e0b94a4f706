from __future__ import annotations

import pytest

from extproc.standin.replies import Plain
from extproc.standin.routes import is_management, respond

MANAGEMENT = [
    "/metrics",
    "/slots",
    "/slots/0",
    "/props",
    "/sleep",
    "/wake_up",
    "/reset_prefix_cache",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/models/unload",
    "/v2/repository/index",
    "/v2/repository/models/m/load",
    "/v2/logging",
    "/v2/trace/setting",
    "/v2/models/m/trace/setting",
    "/v2/models/m/versions/1/stats",
    "/v2/systemsharedmemory/status",
]
SPELLED = [
    "//metrics",
    "/metrics/",
    "/METRICS",
    "/%6detrics",
    "/%256detrics",
    "/v2%2Flogging",
    "/v1/../slots",
    "/v2//logging",
    "/v2/./repository/index",
]


@pytest.mark.parametrize("path", MANAGEMENT + SPELLED)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_management_that_gets_here_is_noticed(request_of, path: str, method: str) -> None:
    reply = respond(request_of(path=path, method=method))
    assert reply == Plain({"management": True})


@pytest.mark.parametrize("path", ["/v1/models/load", "/v1/models/unload", "/v1/models/../slots"])
def test_management_that_looks_like_a_model_is_noticed(request_of, path: str) -> None:
    assert respond(request_of(path=path, method="GET")).document == {"management": True}


@pytest.mark.parametrize("path", ["/v1/models/slots-7b", "/v2/models/logging", "/v1/models/my/metrics-model"])
def test_models_with_such_names_are_models(request_of, path: str) -> None:
    assert not is_management(path)
    assert respond(request_of(path=path, method="GET")).status == 200


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/chat", "/v1/chat/completions/", "/v2/models", "/x/metrics"])
def test_any_other_path_is_not_found(request_of, path: str) -> None:
    reply = respond(request_of(path=path))
    assert (reply.status, reply.document["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/health", 405),
        ("HEAD", "/health", 200),
        ("GET", "/v2/models/m/infer", 405),
        ("GET", "/v2/models/m/versions/1/config", 200),
        ("POST", "/v1/images/generations", 200),
        ("POST", "/v1/audio/translations", 200),
    ],
)
def test_methods(request_of, method: str, path: str, status: int) -> None:
    assert respond(request_of(path=path, method=method)).status == status
