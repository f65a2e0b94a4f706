"""`extproc envoy-config`: which bootstrap is printed for which config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from extproc.cli.main import main
from extproc.cli.render import last_good, rendered, static
from extproc.deployment import static_plan
from extproc.errors import CannotStart
from extproc.model.names import Engine
from extproc.resources.bootstrap import render
from extproc.resources.template import load_template
from extproc.settings import load
from tests.decide.worlds import pools
from tests.resources.configs import MANAGER, at, clusters

STATE = Path("/run/x")
ONE = pools(Engine.VLLM)
OURS = ["llm_ext_proc", "llm_control"]


def test_a_static_config_is_json_that_names_the_pool() -> None:
    config = json.loads(static(load(ONE), STATE))
    assert list(clusters(config)) == ["vllm", *OURS]
    assert config == render(load_template(), static_plan(load(ONE), STATE))


@pytest.mark.parametrize("over", [ONE, "", "pools: [{name: a, engine: vllm, endpoints_file: a.yaml}]"])
def test_a_follower_needs_no_endpoints(over: str) -> None:
    for text in (rendered(load(over), STATE), last_good(load(over), STATE)):
        config = json.loads(text)
        assert list(clusters(config)) == OURS
        assert config["admin"]["address"] == {"pipe": {"path": "/run/x/envoy-admin.sock"}}


def test_the_last_good_files_lie_in_the_state_directory() -> None:
    config = json.loads(last_good(load(ONE), STATE))
    source = at(config, "dynamic_resources", "cds_config", "path_config_source")
    assert source["path"] == "/run/x/xds/cds.json"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["envoy-config", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "c.yaml"
    written.write_text(ONE)
    return written


def test_the_command_prints_a_follower(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = printed(capsys, "--config", str(file), "--state-dir", "/run/y")
    assert config["admin"]["address"] == {"pipe": {"path": "/run/y/envoy-admin.sock"}}
    assert list(clusters(config)) == OURS
    assert at(config, *MANAGER, "rds", "config_source", "ads") == {}
    assert config == json.loads(rendered(load(ONE), Path("/run/y")))


def test_the_port_is_envoys_listener(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ((), ("--static",), ("--last-good",)):
        config = printed(capsys, "--config", str(file), "--port", "21000", *kind)
        assert "21000" in json.dumps(config["static_resources"]["listeners"])


def test_the_command_knows_two_other_kinds(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("--config", str(file), "--state-dir", "/run/y")
    assert printed(capsys, *common, "--static") == json.loads(static(load(ONE), Path("/run/y")))
    assert printed(capsys, *common, "--last-good") == json.loads(last_good(load(ONE), Path("/run/y")))


def test_without_a_control_plane_the_config_is_static(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(ONE + "xds: {enabled: false}\n")
    assert list(clusters(printed(capsys, "--config", str(file)))) == ["vllm", *OURS]


def test_a_state_directory_is_made_absolute(capsys: pytest.CaptureFixture[str]) -> None:
    config = printed(capsys, "--state-dir", "here")
    assert at(config, "admin", "address", "pipe", "path") == str(Path("here/envoy-admin.sock").absolute())


def test_only_one_kind_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["envoy-config", "--static", "--last-good"])
    assert end.value.code == 2
    assert "not allowed with" in capsys.readouterr().err


def test_the_static_config_of_no_pools(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CannotStart):
        static(load(""), STATE)
    assert main(["envoy-config", "--static"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "extproc: the config names no pools, so there is nothing to route to\n")


@pytest.mark.parametrize(("proxy", "context"), [("inbound", "SIDECAR_INBOUND"), ("gateway", "GATEWAY")])
def test_an_envoy_filter_is_yaml_for_the_port_that_is_named(
    capsys: pytest.CaptureFixture[str], file: Path, proxy: str, context: str
) -> None:
    assert (
        main(["envoy-config", "--config", str(file), "--state-dir", "/run/x", "--istio", proxy, "--port", "8123"])
        == 0
    )
    found = yaml.safe_load(capsys.readouterr().out)

    assert found["kind"] == "EnvoyFilter"
    assert {each["match"]["context"] for each in found["spec"]["configPatches"]} == {context}
    assert "8123" in str(found)
    assert "/run/x/extproc.sock" in str(found)


def test_another_proxy_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["envoy-config", "--istio", "outbound"])
    assert "--istio" in capsys.readouterr().err
