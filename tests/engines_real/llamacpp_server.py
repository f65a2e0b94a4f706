"""llama.cpp's own HTTP server until SIGTERM: `python llamacpp_server.py MODEL PORT ALIAS [ADDRESS]` in the venv of it."""

from __future__ import annotations

import signal
import sys

import xllamacpp


def main(model: str, port: str, alias: str, address: str = "127.0.0.1") -> None:
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {alias}  # a set: of a str every letter becomes an alias
    params.hostnames = [address]
    params.port = int(port)
    params.n_ctx = 4096
    params.n_parallel = 4
    params.cpuparams.n_threads = 1
    params.endpoint_metrics = params.endpoint_slots = params.endpoint_props = True
    params.warmup = False
    server = xllamacpp.Server(params)
    print("listening on", server.listening_address, flush=True)
    signal.sigwait(ends)


if __name__ == "__main__":
    main(*sys.argv[1:])
