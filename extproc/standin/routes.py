"""Which path speaks which API."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote

from extproc.standin import (
    anthropic_api,
    llamacpp_api,
    openai_api,
    openai_responses,
    triton_api,
    triton_infer,
)
from extproc.standin.receipt import Received
from extproc.standin.replies import Plain, Reply, Respond, openai_error

_EXACT: dict[str, tuple[str, Respond]] = {
    "/v1/chat/completions": ("POST", openai_api.chat),
    "/v1/completions": ("POST", openai_api.completions),
    "/v1/embeddings": ("POST", openai_api.embeddings),
    "/v1/responses": ("POST", openai_responses.responses),
    "/v1/models": ("GET", openai_api.models),
    "/v1/messages": ("POST", anthropic_api.messages),
    "/v1/messages/count_tokens": ("POST", anthropic_api.count_tokens),
    "/v2": ("GET", triton_api.server),
    "/v2/health/live": ("GET", triton_api.live),
    "/v2/health/ready": ("GET", triton_api.ready),
    "/completion": ("POST", llamacpp_api.completion),
    "/completions": ("POST", llamacpp_api.completion),
    "/tokenize": ("POST", llamacpp_api.tokenize),
    "/detokenize": ("POST", llamacpp_api.detokenize),
    "/health": ("GET", llamacpp_api.health),
}

_PATTERNS: tuple[tuple[re.Pattern[str], str, Respond], ...] = tuple(
    (re.compile(pattern.replace("{m}", r"/v2/models/[^/]+(?:/versions/[^/]+)?")), method, respond)
    for pattern, method, respond in (
        ("{m}/infer", "POST", triton_infer.infer),
        ("{m}/generate", "POST", triton_api.generate),
        ("{m}/generate_stream", "POST", triton_api.generate_stream),
        ("{m}", "GET", triton_api.metadata),
        ("{m}/ready", "GET", triton_api.ready),
        ("{m}/config", "GET", triton_api.config),
        ("/v1/models/.+", "GET", openai_api.model),
        ("/v1/audio/(?:transcriptions|translations)", "POST", openai_api.upload),
        ("/v1/images/.+", "POST", openai_api.upload),
    )
)

_MANAGEMENT = re.compile(
    r"""(?:/v1)?/(?:
      metrics | slots | props | lora-adapters | load | models/(?:load|unload) | (?:un)?load_lora_adapter
    | sleep | wake_up | is_sleeping | pause | resume | is_paused | reset_\w+_cache | scale_elastic_ep
    | is_scaling_elastic_ep | start_profile | stop_profile | collective_rpc | server_info | update_weights\w*
    | init_weight\w*
    )(?:/.*)?
    | /v2/(?:repository|logging|trace|systemsharedmemory|cudasharedmemory)(?:/.*)?
    | /v2/models/(?:[^/]+/(?:versions/[^/]+/)?)?(?:stats|trace/setting)
    """,
    re.VERBOSE | re.IGNORECASE,
)


def respond(received: Received) -> Reply:
    """The reply of the API that the path belongs to."""
    found = _EXACT.get(received.path) or _by_pattern(received.path)
    # `/v1/models/load` and its like look like models; what could be management counts as such.
    if (found is None or found[1] is openai_api.model) and is_management(received.path):
        return Plain({"management": True})
    if found is None:
        return openai_error(404, f"Unknown path {received.target}", "not_found")
    method, answer = found
    if received.method != method and not (received.method == "HEAD" and method == "GET"):
        return openai_error(405, f"{received.target} takes {method}", "method_not_allowed")
    return answer(received)


def _by_pattern(path: str) -> tuple[str, Respond] | None:
    for pattern, method, answer in _PATTERNS:
        if pattern.fullmatch(path):
            return method, answer
    return None


def is_management(path: str) -> bool:
    """Whether some engine could read this path as management, in any spelling: a leak must be noticed."""
    folded = posixpath.normpath("/" + unquote(unquote(path)).lstrip("/"))
    return _MANAGEMENT.fullmatch(folded) is not None
