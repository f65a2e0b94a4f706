"""`python -m extproc` and the script `extproc`."""

from __future__ import annotations

import os
import sys

# Processes are forked before gRPC is used, and programs started after; its handlers would only warn of that.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

from extproc.cli.main import main as _main


def main() -> None:
    sys.exit(_main(sys.argv[1:]))


if __name__ == "__main__":
    main()
