"""Faults on demand: slower answers, and a share of them with an error status. Set on the engine's own port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

PATH = "/__faults"


class Faults(Struct, frozen=True, forbid_unknown_fields=True):
    """`share` of the answers have `status` (0 = none); `delay_ms` is waited before any.

    `lengths`: tokens that OpenAI chat answers say they have, one after the other and from the start again; what is
    longer than was granted is cut.
    """

    status: Annotated[int, Meta(ge=0, le=599)] = 0
    share: Annotated[float, Meta(ge=0, le=1)] = 1.0
    delay_ms: Annotated[float, Meta(ge=0, le=60_000)] = 0.0
    lengths: Annotated[tuple[Annotated[int, Meta(ge=0, le=100_000)], ...], Meta(max_length=10_000)] = ()

    def fails(self, number: int) -> bool:
        """Whether the answer of this number is one of them: evenly spread, no test counts on luck."""
        return bool(self.status) and int((number + 1) * self.share) > int(number * self.share)


NO_FAULTS = Faults()


def read(body: bytes) -> Faults:
    """msgspec.ValidationError or DecodeError for anything else."""
    return msgspec.json.decode(body or b"{}", type=Faults)


def lengthened(document: Mapping[str, Any], tokens: int, granted: int | None) -> dict[str, Any]:
    """An answer that says it has so many tokens; anything but a chat completion as it is."""
    if not isinstance(document.get("usage"), dict) or not document.get("choices"):
        return dict(document)
    cut = granted is not None and tokens > granted
    told = min(tokens, granted) if granted is not None else tokens
    prompt = document["usage"].get("prompt_tokens", 0)
    usage = {"prompt_tokens": prompt, "completion_tokens": told, "total_tokens": prompt + told}
    choices = [{**each, "finish_reason": "length" if cut else "stop"} for each in document["choices"]]
    return {**document, "choices": choices, "usage": usage}
