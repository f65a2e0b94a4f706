"""What an operator may change in a running sidecar, over a unix socket that only its user and group can open.

The admin port stays read-only: whoever may look at metrics may not switch parameters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from extproc.errors import CannotStart

SOCKET = "operator.sock"
"""In the state directory."""

MODE = 0o660

Act = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""What one path does, given the request's JSON; Refused says why it does not."""


class Refused(Exception):
    """`args[0]` is told to the operator."""


def application(acts: Mapping[str, Act]) -> web.Application:
    """POST only, one path per act."""
    app = web.Application(client_max_size=64 * 1024)
    for path, act in acts.items():
        app.router.add_post(path, _handler(act))
    return app


def _handler(act: Act) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.Response:
        try:
            given = msgspec.json.decode(await request.read() or b"{}", type=dict[str, Any])
            return web.json_response(act(given))
        except msgspec.MsgspecError:
            return web.json_response({"error": "the body is no JSON object"}, status=400)
        except Refused as refused:
            return web.json_response({"error": str(refused)}, status=409)

    return handle


async def start(app: web.Application, path: Path) -> web.AppRunner:
    """Listen; the caller ends it with `cleanup()`. A socket left behind is replaced."""
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    _remove(path)
    before = os.umask(0o777 & ~MODE)
    try:
        await web.UnixSite(runner, str(path)).start()
    except OSError as error:
        await runner.cleanup()
        raise CannotStart(f"the operator's socket {path} cannot be opened: {error.strerror}") from None
    finally:
        os.umask(before)
    return runner


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
