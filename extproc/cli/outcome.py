"""Every expected failure of a command is one line on stderr and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

from extproc.errors import CannotStart, ConfigError, OurFault

CANNOT, WRONG = 1, 2


def outcome(run: Callable[[], int]) -> int:
    """The exit code."""
    try:
        return run()
    except ConfigError as error:
        for problem in error.problems:
            print(f"extproc: config: {problem}", file=sys.stderr)
        return WRONG
    except (CannotStart, OurFault) as error:
        print(f"extproc: {error}", file=sys.stderr)
        return CANNOT
    except BrokenPipeError:  # whoever read our output left
        return CANNOT
    except OSError as error:
        named = f": {error.filename}" if error.filename else ""
        print(f"extproc: {error.strerror or error}{named}", file=sys.stderr)
        return CANNOT
