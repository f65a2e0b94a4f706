"""The smallest access log server: keeps what Envoy tells about finished requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc

from extproc.codec import access_log
from extproc.model.telemetry import AccessSample


class StubControl:
    """On a unix socket, from construction until `stop()`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._samples: list[AccessSample] = []
        self._more = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(4))
        handler = grpc.stream_unary_rpc_method_handler(self._log)
        methods = {access_log.METHOD_NAME: handler}
        generic = grpc.method_handlers_generic_handler(access_log.METHOD_SERVICE, methods)
        self._server.add_generic_rpc_handlers((generic,))
        self._server.add_insecure_port(f"unix:{path}")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()

    def samples(self, count: int, *, within_s: float = 10.0) -> list[AccessSample]:
        """The next so many, taken away; fewer where the time is over."""
        with self._more:
            self._more.wait_for(lambda: len(self._samples) >= count, within_s)
            taken, self._samples = self._samples[:count], self._samples[count:]
        return taken

    def _log(self, messages: Iterator[bytes], _: grpc.ServicerContext) -> bytes:
        for message in messages:
            with self._more:
                self._samples += access_log.batch(message).samples
                self._more.notify_all()
        return access_log.RESPONSE
