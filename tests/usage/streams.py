"""The recorded streams: where they are, which path they answer, and what each must tell."""

from __future__ import annotations

from pathlib import Path

from extproc.model.telemetry import UsageSample
from tests import datasets

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = "/v1/messages"
NATIVE = "/completion"
GENERATE = "/v2/models/ensemble/generate_stream"

Told = tuple[str, int | None, int, str, bool]
"""Model, prompt tokens, output tokens, finish reason, whether estimated."""

STREAMS: dict[str, tuple[str, Told]] = {
    "anthropic_basic_response.sse": (MESSAGES, ("claude-3-opus-latest", 11, 6, "stop", False)),
    "anthropic_error_midstream.sse": (MESSAGES, ("m", 11, 0, "error", True)),
    "llamacpp_chat.sse": (CHAT, ("m", 9, 1, "stop", False)),
    "llamacpp_completion_native_no_DONE.sse": (NATIVE, ("m", 9, 2, "stop", False)),
    "llamacpp_error_midstream_new.sse": (CHAT, ("m", None, 1, "error", True)),
    "llamacpp_error_midstream_old.sse": (CHAT, ("m", None, 1, "error", True)),
    "openai_4cc50a61.sse": (CHAT, ("gpt-4o-2024-08-06", 79, 1, "length", False)),
    "openai_83b060ba.sse": (CHAT, ("gpt-4o-2024-08-06", 9, 2, "stop", False)),
    "openai_keepalive_crlf.sse": (CHAT, ("m", None, 1, "", True)),
    "triton_generate_stream.sse": (GENERATE, ("ensemble", None, 2, "", True)),
    "triton_generate_stream_error_http200.sse": (GENERATE, ("ensemble", None, 1, "error", True)),
    "vllm_chat.sse": (CHAT, ("m", 12, 2, "stop", False)),
    "vllm_chat_reasoning.sse": (CHAT, ("m", None, 3, "length", True)),
    "vllm_completions.sse": (COMPLETIONS, ("m", None, 2, "length", True)),
    "vllm_error_midstream_new.sse": (CHAT, ("m", None, 1, "error", True)),
    "vllm_error_midstream_old.sse": (CHAT, ("m", None, 1, "error", True)),
}


def folder() -> Path:
    return datasets.folder("sse")


def recorded(name: str) -> bytes:
    return (folder() / name).read_bytes()


def told(sample: UsageSample) -> Told:
    return sample.model, sample.prompt_tokens, sample.output_tokens, sample.finish_reason, sample.estimated
