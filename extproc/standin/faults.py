"""Faults on demand: slower answers, and a share of them with an error status. Set on the engine's own port."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

PATH = "/__faults"


class Faults(Struct, frozen=True, forbid_unknown_fields=True):
    """`share` of the answers have `status` (0 = none); `delay_ms` is waited before any."""

    status: Annotated[int, Meta(ge=0, le=599)] = 0
    share: Annotated[float, Meta(ge=0, le=1)] = 1.0
    delay_ms: Annotated[float, Meta(ge=0, le=60_000)] = 0.0

    def fails(self, number: int) -> bool:
        """Whether the answer of this number is one of them: evenly spread, no test counts on luck."""
        return bool(self.status) and int((number + 1) * self.share) > int(number * self.share)


NO_FAULTS = Faults()


def read(body: bytes) -> Faults:
    """msgspec.ValidationError or DecodeError for anything else."""
    return msgspec.json.decode(body or b"{}", type=Faults)
