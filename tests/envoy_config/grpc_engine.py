"""An engine over gRPC that answers any method with what it was sent, and keeps what was called.

The message `fail` is answered with an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc

from tests.ports import free_port

SERVICE = "/inference.GRPCInferenceService/"
CHECK = "/grpc.health.v1.Health/Check"
SERVED = {
    SERVICE + name
    for name in (
        *("ServerLive", "ServerReady", "ServerMetadata"),
        *("ModelReady", "ModelMetadata", "ModelConfig", "ModelInfer", "ModelStreamInfer"),
    )
} | {CHECK}
MANAGEMENT = {
    SERVICE + name
    for name in (
        *("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload", "ModelStatistics"),
        *("TraceSetting", "LogSettings", "SystemSharedMemoryStatus", "SystemSharedMemoryRegister"),
        *("SystemSharedMemoryUnregister", "CudaSharedMemoryStatus", "CudaSharedMemoryRegister"),
        "CudaSharedMemoryUnregister",
    )
}
LOAD = ("endpoint-load-metrics", 'JSON {"named_metrics":{"kv_cache_usage_perc":0.25}}')


@dataclass(frozen=True)
class Call:
    """`headers` by name, in lower case."""

    method: str
    headers: dict[str, str | bytes]


class GrpcEngine(grpc.GenericRpcHandler):
    """Runs from construction until `stop()`. Streams are answered message by message, while they are open."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.port = free_port()
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((self,))
        self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        headers = {entry.key: entry.value for entry in details.invocation_metadata}
        self.calls.append(Call(details.method, headers))
        return grpc.stream_stream_rpc_method_handler(self._echo)

    @property
    def methods(self) -> list[str]:
        return [call.method for call in self.calls]

    def _echo(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        context.send_initial_metadata((LOAD,))
        for message in messages:
            if message == b"fail":
                context.abort(grpc.StatusCode.INTERNAL, "asked for")
            yield message
