"""Envoy itself accepts the template and every kind of bootstrap, and finds nothing deprecated in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from extproc.cli.envoy_binary import find_envoy
from extproc.model.names import Engine
from extproc.resources.bootstrap import following, from_files, render
from extproc.resources.plan import EngineCluster, Pipe, Plan, Served, Tcp
from extproc.resources.template import Node, dump, load_overlay, load_template

pytestmark = pytest.mark.envoy

SHIPPED = Path(__file__).resolve().parents[2] / "envoy" / "envoy.yaml"
CA = "/etc/ssl/certs/ca-certificates.crt"
VLLM = EngineCluster("vllm", Engine.VLLM, (Served("10.0.0.1", 8000),))
TRITON = EngineCluster("triton", Engine.TRITON, (Served("triton.internal", 8000),))
TRITON_GRPC = EngineCluster("triton-grpc", Engine.TRITON, (Served("triton.internal", 8001),), http2=True)
TLS = EngineCluster(
    "hosted", Engine.VLLM, (Served("api.example.com", 443, hostname="api.example.com"),), tls_name="api.example.com"
)
MANY = replace(
    VLLM,
    endpoints=(Served("10.0.0.1", 8000, 700), Served("10.0.0.2", 8000, 300), Served("::1", 8000, 1, draining=True)),
    max_requests=17,
    lb_policy="ROUND_ROBIN",
)
PLAN = Plan(engines=(VLLM,), ext_proc=(Pipe("/run/extproc/extproc.sock"),))

PLANS = {
    "one engine": PLAN,
    "fail closed": replace(PLAN, fail_open=False),
    "unknown paths pass": replace(PLAN, unknown_paths="pass", extra_paths=("/version", "/docs/*")),
    "several engines and DNS": replace(PLAN, engines=(VLLM, TRITON)),
    "gRPC": replace(PLAN, engines=(TRITON, VLLM, TRITON_GRPC)),
    "many endpoints": replace(
        PLAN, engines=(MANY, replace(TRITON, endpoints=(*MANY.endpoints, *TRITON.endpoints)))
    ),
    "no endpoints": replace(PLAN, engines=(replace(VLLM, endpoints=()), replace(TRITON_GRPC, endpoints=()))),
    "sidecar and admin elsewhere": replace(
        PLAN,
        ext_proc=(Tcp("sidecar.internal", 9000),),
        control=Tcp("10.1.1.1", 9001),
        admin=Pipe("/tmp/admin.sock"),
    ),
    "IPv6": replace(PLAN, engines=(replace(VLLM, endpoints=(Served("::1", 8000),)),), listener=Tcp("::", 10000)),
    "TLS": replace(
        PLAN, engines=(TLS, replace(VLLM, tls_name="10.0.0.1"), replace(TRITON_GRPC, tls_name="triton.internal"))
    ),
    "other limits": replace(
        PLAN, max_body_bytes=1024, extra_allowed_headers=("x-team",), access_log_path="/dev/null"
    ),
    "usage": replace(PLAN, usage=True),
}


def validate(file: Path) -> None:
    command = [
        str(find_envoy()),
        "--mode",
        "validate",
        "-c",
        str(file),
        "-l",
        "warning",
        "--use-dynamic-base-id",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "[warning]" not in done.stderr, done.stderr


def written(folder: Path, config: Node) -> Path:
    file = folder / "envoy.json"
    file.write_text(dump(config), encoding="utf-8")
    return file


def needs_certificates(name: str) -> None:
    if name == "TLS" and not Path(CA).exists():
        pytest.skip("no system certificates here")


def test_the_template_as_it_stands() -> None:
    validate(SHIPPED)


@pytest.mark.parametrize("name", PLANS)
def test_a_static_bootstrap(name: str, tmp_path: Path) -> None:
    needs_certificates(name)
    validate(written(tmp_path, render(load_template(), PLANS[name])))


@pytest.mark.parametrize(
    "name", ["one engine", "fail closed", "sidecar and admin elsewhere", "other limits", "usage"]
)
def test_a_bootstrap_that_follows_the_control_plane(name: str, tmp_path: Path) -> None:
    validate(written(tmp_path, following(load_template(), load_overlay(), PLANS[name])))


@pytest.mark.parametrize(
    "name", ["one engine", "fail closed", "sidecar and admin elsewhere", "other limits", "usage"]
)
def test_a_bootstrap_that_follows_files(name: str, tmp_path: Path) -> None:
    for kind in ("cds", "rds", "rtds"):
        (tmp_path / f"{kind}.json").write_text('{"version_info": "1", "resources": []}')
    validate(written(tmp_path, from_files(load_template(), load_overlay(), PLANS[name], str(tmp_path))))


def test_the_folder_of_the_template_holds_no_python() -> None:
    """It shares its name with an installed package and would hide it."""
    assert not list(SHIPPED.parent.rglob("*.py"))
