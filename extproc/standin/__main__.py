"""`python -m extproc.standin`: the stand-in engine as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence

import uvloop

from extproc.errors import CannotStart
from extproc.standin.server import start


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit code."""
    options = parse(argv)
    try:
        uvloop.run(serve(options.host, options.port, options.delay_ms / 1000))
    except CannotStart as problem:
        print(f"extproc.standin: {problem}", file=sys.stderr)
        return 1
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m extproc.standin", description=main.__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=0, help="0 picks a free one (default: %(default)s)")
    parser.add_argument(
        "--delay-ms", type=_delay_ms, default=0.0, help="before plain answers and between events of a stream"
    )
    return parser.parse_args(argv)


async def serve(host: str, port: int, delay_s: float) -> None:
    """Listen, say where, and end cleanly when asked to."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    try:
        runner = await start(host, port, delay_s=delay_s)
    except OSError as error:
        raise CannotStart(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    print(f"stand-in engine on {_url(*runner.addresses[0][:2])}", flush=True)
    await ended.wait()
    await runner.cleanup()


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError("a port is 0 to 65535")
    return port


def _delay_ms(text: str) -> float:
    delay_ms = float(text)
    if not 0 <= delay_ms <= 60_000:
        raise argparse.ArgumentTypeError("a delay is 0 to 60000 milliseconds")
    return delay_ms


if __name__ == "__main__":
    sys.exit(main())
