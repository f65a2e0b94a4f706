"""Envoy itself accepts the template and every kind of overlay, and finds nothing deprecated in them."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from extproc.cli.envoy_binary import find_envoy
from extproc.model.names import Engine
from extproc.resources.bootstrap import render
from extproc.resources.plan import EngineCluster, Pipe, Plan, Served, Tcp
from extproc.resources.template import dump, load_template

pytestmark = pytest.mark.envoy

SHIPPED = Path(__file__).resolve().parents[2] / "envoy" / "envoy.yaml"
CA = "/etc/ssl/certs/ca-certificates.crt"
VLLM = EngineCluster("vllm", Engine.VLLM, (Served("10.0.0.1", 8000),))
TRITON = EngineCluster("triton", Engine.TRITON, (Served("triton.internal", 8000),))
TLS = EngineCluster(
    "hosted", Engine.VLLM, (Served("api.example.com", 443, hostname="api.example.com"),), tls_name="api.example.com"
)
PLAN = Plan(engines=(VLLM,), ext_proc=Pipe("/run/extproc/extproc.sock"))

OVERLAYS = {
    "one engine": PLAN,
    "fail closed": replace(PLAN, fail_open=False),
    "unknown paths pass": replace(PLAN, unknown_paths="pass", extra_paths=("/version", "/docs/*")),
    "several engines and DNS": replace(PLAN, engines=(VLLM, TRITON)),
    "sidecar and admin elsewhere": replace(
        PLAN, ext_proc=Tcp("sidecar.internal", 9000), admin=Pipe("/tmp/admin.sock")
    ),
    "IPv6": replace(PLAN, engines=(replace(VLLM, host="::1"),), listener=Tcp("::", 10000)),
    "TLS": replace(PLAN, engines=(TLS, replace(VLLM, tls=True))),
    "other limits": replace(
        PLAN, max_body_bytes=1024, extra_allowed_headers=("x-team",), access_log_path="/dev/null"
    ),
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


def test_the_template_as_it_stands() -> None:
    validate(SHIPPED)


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay(name: str, tmp_path: Path) -> None:
    if name == "TLS" and not Path(CA).exists():
        pytest.skip("no system certificates here")
    written = tmp_path / "envoy.yaml"
    written.write_text(dump(render(load_template(), OVERLAYS[name])), encoding="utf-8")
    validate(written)


def test_the_folder_of_the_template_holds_no_python() -> None:
    """It shares its name with an installed package and would hide it."""
    assert not list(SHIPPED.parent.rglob("*.py"))
