"""vLLM's tests are collected only by `make test-vllm`: an engine of 2.5 GB is no part of a usual run."""

import os

collect_ignore = [] if os.environ.get("TEST_VLLM") else ["test_vllm.py"]
