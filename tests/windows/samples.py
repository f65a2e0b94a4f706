"""Requests for tests of windows and of what is fed by them."""

from __future__ import annotations

from typing import Any

from extproc.model.telemetry import AccessSample


def sample(**changes: Any) -> AccessSample:
    """A request the engine at 10.0.0.1:8000 answered with 200 in 0.2 s, its first byte after 0.1 s."""
    usual: dict[str, Any] = {
        "upstream": "10.0.0.1:8000",
        "cluster": "chat",
        "route": "chat-default",
        "status": 200,
        "flags": (),
        "first_byte_s": 0.1,
        "total_s": 0.2,
        "tier": "normal",
        "scenario": "general",
        "request_class": "normal",
        "tenant": "anonymous",
        "params": "set@1",
    }
    return AccessSample(**(usual | changes))
