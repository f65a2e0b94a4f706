"""What a deployment decides, as values."""

from __future__ import annotations

from msgspec.structs import replace

from extproc.model.names import Engine
from extproc.resources.bootstrap import render
from extproc.resources.plan import EngineCluster, Pipe, Plan, Served
from extproc.resources.template import load_template
from tests.resources.configs import VLLM


def test_the_defaults_of_a_plan_are_the_templates_values() -> None:
    plan = Plan(
        engines=(
            EngineCluster("engine-1", Engine.VLLM, (Served("127.0.0.1", 8000),)),
            EngineCluster("engine-1-grpc", Engine.TRITON, (Served("127.0.0.1", 8001),), http2=True),
        ),
        ext_proc=(Pipe("/run/extproc/extproc.sock"),),
    )
    assert render(load_template(), plan) == load_template()


def test_the_host_is_rewritten_once_an_endpoint_wants_its_own() -> None:
    named = Served("10.0.0.1", 443, hostname="api.example.com")
    assert replace(VLLM, endpoints=(*VLLM.endpoints, named)).rewrites_host
    assert not VLLM.rewrites_host
    assert not replace(VLLM, endpoints=()).rewrites_host
