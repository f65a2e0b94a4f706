"""`python -m extproc` and the script `extproc`."""

from __future__ import annotations

import sys

from extproc.cli.main import main as _main


def main() -> None:
    sys.exit(_main(sys.argv[1:]))


if __name__ == "__main__":
    main()
