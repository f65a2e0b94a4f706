"""Two Tritons and a llama.cpp on free ports until Ctrl-C: `make engines && python -m tests.engines_real`."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack

from tests.engines_real.installed import is_installed
from tests.engines_real.llamacpp import LlamaCppServer
from tests.engines_real.triton import TritonServer


def main() -> None:
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    if not (is_installed("triton") and is_installed("llamacpp")):
        sys.exit("not installed: make engines")
    with ExitStack() as ending:
        for server in (TritonServer(), TritonServer(), LlamaCppServer()):
            ending.callback(server.stop)
            server.start()
            grpc = f" grpc 127.0.0.1:{server.grpc_port}" if isinstance(server, TritonServer) else ""
            print(f"{type(server).__name__} {server.url}{grpc} metrics {server.metrics_url}", flush=True)
        print("Ctrl-C ends all of it.", flush=True)
        signal.sigwait(ends)


if __name__ == "__main__":
    main()
