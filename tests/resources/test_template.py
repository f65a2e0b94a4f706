"""The shipped files, and how pieces of them are found."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from extproc.errors import OurFault
from extproc.resources import template
from extproc.resources.plan import Pipe, Tcp
from extproc.resources.template import (
    address,
    connection_manager,
    copy,
    dump,
    get,
    load,
    load_overlay,
    load_template,
    named,
)
from tests.resources.configs import MANAGER, at, rendered

SHIPPED = Path(__file__).resolve().parents[2] / "envoy"


def test_the_shipped_files() -> None:
    assert load_template() == yaml.safe_load((SHIPPED / "envoy.yaml").read_text())
    assert load_overlay() == yaml.safe_load((SHIPPED / "control-plane.yaml").read_text())


def test_package_data_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "envoy.yaml").write_text("{admin: {}}")
    monkeypatch.setattr(template.importlib.resources, "files", lambda _: tmp_path)
    assert load("envoy.yaml") == {"admin": {}}
    assert load("control-plane.yaml") == load_overlay()


@pytest.mark.parametrize("name", ["envoy.yaml", "control-plane.yaml"])
def test_a_missing_file_is_our_fault(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(template, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    monkeypatch.setattr(template.importlib.resources, "files", lambda _: tmp_path)
    with pytest.raises(OurFault, match=f"{name} is missing"):
        load(name)


def test_what_is_written_reads_back_and_quotes_every_string() -> None:
    config = rendered() | {"node": {"id": "n", "cluster": "y"}}
    assert json.loads(dump(config)) == config
    assert yaml.safe_load(dump(config)) == config
    assert '"id": "n"' in dump(config)


def test_a_copy_shares_nothing_not_even_with_itself() -> None:
    shared = {"a": 1}
    whole = {"x": shared, "y": shared, "z": [shared]}
    copied = copy(whole)
    assert copied == whole
    copied["x"]["a"] = 2
    assert (copied["y"], copied["z"], shared) == ({"a": 1}, [{"a": 1}], {"a": 1})


def test_a_piece_by_its_keys() -> None:
    node = {"a": {"b": {"c": 5}}, "list": [{"x": 1}]}
    assert get(node, "a", "b", "c") == 5
    assert get(node) is node
    for keys, missing in ((("a", "x", "c"), "a.x"), (("a", "b", "c", "d"), "a.b.c.d"), (("list", "x"), "list.x")):
        with pytest.raises(OurFault, match=f"the Envoy template lacks {missing}$"):
            get(node, *keys)


def test_a_piece_by_its_name() -> None:
    first, second = {"name": "a", "x": 1}, {"name": "b"}
    assert named([{"unnamed": 1}, first, second, {"name": "a"}], "a") is first
    with pytest.raises(OurFault, match="the Envoy template has nothing named c"):
        named([first, second], "c")


def test_the_connection_manager() -> None:
    config = load_template()
    assert connection_manager(config) is at(config, *MANAGER)
    damaged = deepcopy(config)
    at(damaged, *MANAGER[:-2])[0]["name"] = "envoy.filters.network.tcp_proxy"
    with pytest.raises(OurFault, match="no HTTP connection manager"):
        connection_manager(damaged)


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (Tcp("10.0.0.1", 80), {"socket_address": {"address": "10.0.0.1", "port_value": 80}}),
        (Tcp("[::1]", 80), {"socket_address": {"address": "::1", "port_value": 80}}),
        (Tcp("sidecar", 80), {"socket_address": {"address": "sidecar", "port_value": 80}}),
        (Pipe("/run/x.sock"), {"pipe": {"path": "/run/x.sock"}}),
    ],
)
def test_addresses(where: Tcp | Pipe, found: dict[str, object]) -> None:
    assert address(where) == found
