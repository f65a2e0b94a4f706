from __future__ import annotations

import os

# Needs a Docker engine and builds images: `make test-compose` asks for it.
collect_ignore = [] if os.environ.get("TEST_COMPOSE") else ["test_stack.py"]
