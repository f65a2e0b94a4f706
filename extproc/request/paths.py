"""Which API family and dialect a path asks for. Envoy's routes stay the guard; this only picks a reader."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import unquote

from extproc.model.names import Dialect, Family
from extproc.model.values import Target

_EXACT: dict[str, Target] = {
    "/v1/chat/completions": Target(Family.OPENAI, Dialect.OPENAI_CHAT),
    "/v1/completions": Target(Family.OPENAI, Dialect.OPENAI_COMPLETIONS),
    "/v1/responses": Target(Family.OPENAI, Dialect.OPENAI_RESPONSES),
    "/v1/embeddings": Target(Family.OPENAI, Dialect.OPENAI_EMBEDDINGS),
    "/v1/messages": Target(Family.ANTHROPIC, Dialect.ANTHROPIC_MESSAGES),
    "/completion": Target(Family.LLAMACPP, Dialect.LLAMACPP_COMPLETION),
    "/completions": Target(Family.LLAMACPP, Dialect.LLAMACPP_COMPLETION),
}
MAX_REMEMBERED_CHARS = 256
_TRITON_MODEL = re.compile(r"/v2/models/([^/]+)(?:/versions/[^/]+)?/(infer|generate|generate_stream)")
_TRITON_DIALECTS = {
    "infer": Dialect.TRITON_INFER,
    "generate": Dialect.TRITON_GENERATE,
    "generate_stream": Dialect.TRITON_GENERATE,
}
_FAMILIES = (
    ("/v1/messages", Target(Family.ANTHROPIC, None)),
    ("/v1/", Target(Family.OPENAI, None)),
    ("/v2", Target(Family.TRITON, None)),
)
_ELSE = Target(Family.LLAMACPP, None)


def target(path: str) -> Target:
    """What `path` (with or without a query) asks for. Unread paths get a target without a dialect."""
    bare = path.partition("?")[0].partition("#")[0]
    return _of_bare(bare) if len(bare) <= MAX_REMEMBERED_CHARS else _of_bare.__wrapped__(bare)


@lru_cache(maxsize=1024)
def _of_bare(bare: str) -> Target:
    trimmed = bare.rstrip("/") or "/"
    exact = _EXACT.get(trimmed)
    if exact is not None:
        return exact
    triton = _TRITON_MODEL.fullmatch(trimmed)
    if triton is not None:
        return Target(Family.TRITON, _TRITON_DIALECTS[triton[2]], unquote(triton[1]))
    # As the most lenient reader behind us may take it: decoded, without path parameters and blanks around.
    plain = unquote(trimmed).partition(";")[0].strip()
    if plain != trimmed and "%" not in plain:
        return target(plain)
    return next((found for prefix, found in _FAMILIES if trimmed.startswith(prefix)), _ELSE)
