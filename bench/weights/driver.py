"""Who makes the weights of ours: what Envoy has to know to be told them, and the process that tells them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import yaml

from bench.processes import Process, accepts, free_port, running
from bench.weights.envoy import CLUSTERS, OURS, Fragment, grpc_access_log, grpc_cluster
from bench.weights.scenario import Ours

POOL = CLUSTERS[OURS]
CONTROL = "control.sock"


def fragment(folder: Path) -> Fragment:
    """ADS and the access log; the cluster is the one the sidecar makes, outlier detection included."""
    service = {"envoy_grpc": {"cluster_name": "llm_control"}}
    ads = {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [service]}
    cds = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "5s"}
    top = {"dynamic_resources": {"ads_config": ads, "cds_config": cds}}
    control = grpc_cluster("llm_control", str(folder / CONTROL))
    return Fragment([control], [grpc_access_log("llm_control")], top)


def sidecar(ours: Ours, engines: Sequence[int], folder: Path) -> AbstractContextManager[Process]:
    """The whole product, ready to be connected to. `engines`: ports on 127.0.0.1."""
    file = folder / "extproc.yaml"
    file.write_text(yaml.safe_dump(sidecar_config(ours, engines)))
    command = [sys.executable, "-m", "extproc", "serve", "--config", str(file), "--state-dir", str(folder)]
    return running("ours", command, folder / "sidecar.log", lambda: accepts(folder / CONTROL))


def sidecar_config(ours: Ours, engines: Sequence[int]) -> dict[str, object]:
    """One pool; everything else as shipped."""
    exporters = [{"url": f"http://127.0.0.1:{port}/metrics", "label": "instance"} for port in engines]
    return {
        "pools": [
            {
                "name": POOL,
                "engine": "llamacpp",
                "endpoints": [f"http://127.0.0.1:{port}" for port in engines],
                "max_acceptable_p99_ms": ours.max_acceptable_p99_s * 1000,
            }
        ],
        "telemetry": {"interval_s": ours.interval_s, "dcgm": exporters},
        "weights": {"window_s": ours.window_s, "lb_policy": ours.lb_policy},
        "listeners": {"admin": f"127.0.0.1:{free_port()}", "control": f"unix:{CONTROL}"},
    }
