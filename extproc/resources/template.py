"""The shipped Envoy files, and how to find a piece in them.

The template stays the one readable Envoy configuration: it runs as it stands, and what `extproc up` starts is that
file with a few named pieces replaced. Pieces are looked up by name; a missing one is an error. The rejected
alternative, a string template, is no valid file by itself, and a value with a quote in it becomes configuration.
"""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path
from typing import Any, cast

import yaml

from extproc.errors import OurFault
from extproc.resources.plan import Pipe, Tcp

Node = dict[str, Any]

CONNECTION_MANAGER = "envoy.filters.network.http_connection_manager"


def load_template() -> Node:
    """The bootstrap that stands by itself."""
    return load("envoy.yaml")


def load_overlay() -> Node:
    """What makes Envoy follow a control plane."""
    return load("control-plane.yaml")


def load(name: str) -> Node:
    """A shipped file: package data in a wheel, beside the package in a checkout."""
    packaged = importlib.resources.files("extproc").joinpath(name)
    beside = Path(__file__).resolve().parents[2] / "envoy" / name
    source = packaged if packaged.is_file() else beside
    if not source.is_file():
        raise OurFault("envoy_template", f"the Envoy template {name} is missing from this installation")
    return cast(Node, yaml.safe_load(source.read_text(encoding="utf-8")))


def dump(config: Node) -> str:
    """As JSON, which is YAML too: PyYAML leaves `n` and `y` unquoted and Envoy takes those for booleans."""
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def copy(node: Node) -> Node:
    """Unlike `deepcopy`, what a YAML anchor made one object becomes several: an edit stays where it is."""
    return cast(Node, json.loads(json.dumps(node)))


def get(node: Node, *keys: str) -> Any:
    found: Any = node
    for depth, key in enumerate(keys):
        if not isinstance(found, dict) or key not in found:
            raise OurFault("envoy_template", f"the Envoy template lacks {'.'.join(keys[: depth + 1])}")
        found = found[key]
    return found


def named(nodes: list[Node], name: str) -> Node:
    for node in nodes:
        if node.get("name") == name:
            return node
    raise OurFault("envoy_template", f"the Envoy template has nothing named {name}")


def connection_manager(config: Node) -> Node:
    listener = named(get(config, "static_resources", "listeners"), "llm")
    for chain in get(listener, "filter_chains"):
        for each in get(chain, "filters"):
            if each["name"] == CONNECTION_MANAGER:
                return cast(Node, get(each, "typed_config"))
    raise OurFault("envoy_template", "the Envoy template has no HTTP connection manager")


def address(where: Tcp | Pipe) -> Node:
    if isinstance(where, Pipe):
        return {"pipe": {"path": where.path}}
    return {"socket_address": {"address": where.host.strip("[]"), "port_value": where.port}}
