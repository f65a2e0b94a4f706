"""`python -m extproc` and the script `extproc`."""

from __future__ import annotations

import os
import sys

# Processes are forked before gRPC is used, and programs started after; its handlers would only warn of that.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
# Products of a few thousand numbers: handing them to threads takes longer than they do.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from extproc.cli.main import main as _main


def main() -> None:
    sys.exit(_main(sys.argv[1:]))


if __name__ == "__main__":
    main()
