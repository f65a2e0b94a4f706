"""Shows something again every second, until Ctrl-C."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from rich.console import Console, RenderableType
from rich.live import Live

REFRESH_S = 1.0


def watch(console: Console, look: Callable[[], RenderableType]) -> None:
    """In place on a terminal; elsewhere one after the other."""
    with contextlib.suppress(KeyboardInterrupt):
        if not console.is_terminal:
            while True:
                console.print(look())
                time.sleep(REFRESH_S)
        with Live(look(), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(REFRESH_S)
                live.update(look(), refresh=True)
