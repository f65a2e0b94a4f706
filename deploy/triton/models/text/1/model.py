"""A language model's manners without its weights: repeats the input's words, as slowly as it is told to.

Outputs: `text_output`, `max_tokens` words; `server`, who answered; `received`, a JSON object of every other input
and request parameter as it arrived. Request parameters that steer it:

- `delay_ms`: how long this request's batch takes (`text_stream`: the wait before each word);
- `set_delay_ms`: the same for every request to this server from this one on, until set again or the server ends.

They are request parameters and not tensors, because Triton batches only requests with the same set of tensors:
with a tensor, the requests that steer would never share a batch with those that do not.
In generate every unknown field of the body is a request parameter, `priority` and `timeout` too: they do not queue.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
MAX_TOKENS = 16
STARTED = 19  # of /proc/PID/stat, counted from after the command
NUMBERS = ("max_tokens", "temperature", "top_p")


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        self.streams = bool(pb_utils.using_decoupled_model_transaction_policy(config))
        self.delay = ServerDelay(float(config["parameters"]["delay_ms"]["string_value"]))
        self.server = os.environ.get("SERVER_NAME") or f"{socket.gethostname()}:{os.getppid()}"

    def execute(self, requests: list[Any]) -> list[Any] | None:
        received = [_received(request) for request in requests]
        delays_s = [self._delay_s(each) for each in received]
        if not self.streams:
            time.sleep(max(delays_s))
            return [self._whole(*each) for each in zip(requests, received, strict=True)]
        for request, numbers, delay_s in zip(requests, received, delays_s, strict=True):
            threading.Thread(target=self._stream, args=(request, numbers, delay_s), daemon=True).start()
        return None

    def _delay_s(self, received: dict[str, Any]) -> float:
        if "set_delay_ms" in received:
            self.delay.set(float(received["set_delay_ms"]))
        own_ms = received.get("delay_ms")
        return (self.delay.ms() if own_ms is None else float(own_ms)) / 1000

    def _whole(self, request: Any, received: dict[str, Any]) -> Any:
        return self._answer(request, received, " ".join(_words(request, received)))

    def _stream(self, request: Any, received: dict[str, Any], delay_s: float) -> None:
        """One word a response, the last marked as final; ends early when the client has left."""
        sender = request.get_response_sender()
        first, *later = _words(request, received)
        *words, last = [first, *(f" {word}" for word in later)]
        for sent, word in enumerate(words):
            time.sleep(delay_s)
            if sender.is_cancelled():
                # Triton counts a streaming model's request when it is handed over, so no metric can tell.
                pb_utils.Logger.log_info(f"a client left after {sent} of {len(words) + 1} words")
                return sender.send(flags=FINAL)
            sender.send(self._answer(request, received, word))
        time.sleep(delay_s)
        sender.send(self._answer(request, received, last), FINAL)

    def _answer(self, request: Any, received: dict[str, Any], text: str) -> Any:
        shape = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy().shape
        outputs = {"text_output": text, "server": self.server, "received": json.dumps(received)}
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, np.full(shape, value.encode(), dtype=object)) for name, value in outputs.items()]
        )


class ServerDelay:
    """One number for all instances of all models: each is a process of its own, so it stands in a file.

    Its name holds the server's pid and start, so that a server started again begins with what the config says.
    """

    def __init__(self, first_ms: float) -> None:
        server = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
        self._path = Path(tempfile.gettempdir()) / f"triton-delay-{os.getppid()}-{server[STARTED]}"
        self._first_ms = first_ms

    def ms(self) -> float:
        try:
            return float(self._path.read_text())
        except FileNotFoundError:
            return self._first_ms

    def set(self, delay_ms: float) -> None:
        written = self._path.with_name(f"{self._path.name}-{threading.get_native_id()}")
        written.write_text(str(delay_ms))
        written.replace(self._path)


def _received(request: Any) -> dict[str, Any]:
    """Parameters, and the number inputs that were sent."""
    numbers = {name: _number(request, name) for name in NUMBERS}
    sent = {name: value for name, value in numbers.items() if value is not None}
    return json.loads(request.parameters() or "{}") | sent


def _number(request: Any, name: str) -> float | int | None:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy().flat[0].item()


def _words(request: Any, received: dict[str, Any]) -> islice[str]:
    text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy().flat[0].decode()
    return islice(cycle(text.split() or [""]), max(1, int(received.get("max_tokens", MAX_TOKENS))))
