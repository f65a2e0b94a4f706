"""Who makes the weights of ours: one interface, so that what is measured can be exchanged.

A driver says what Envoy has to know to be told weights, and runs the process that tells them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec
import yaml

from bench.processes import Process, accepts, free_port, running
from bench.weights import standin
from bench.weights.envoy import CLUSTERS, OURS, Fragment, balanced, cluster, grpc_access_log, grpc_cluster
from bench.weights.scenario import Ours

POOL = CLUSTERS[OURS]
CONTROL = "control.sock"


class Driver(Protocol):
    def fragment(self, ours: Ours, folder: Path) -> Fragment: ...

    def running(self, ours: Ours, engines: Sequence[int], folder: Path) -> AbstractContextManager[Process]:
        """Ready to be connected to. `engines`: ports on 127.0.0.1."""
        ...


class Parts:
    """The product's parts in a process of the bench's own; weights by a file. For trying out what the product's
    own cluster does not have: any `bias`, any policy."""

    def fragment(self, ours: Ours, folder: Path) -> Fragment:
        source = {
            "path_config_source": {
                "path": str(folder / "eds.json"),
                "watched_directory": {"path": str(folder)},
            },
            "resource_api_version": "V3",
        }
        served = {**balanced(cluster(POOL), ours), "type": "EDS", "eds_cluster_config": {"eds_config": source}}
        control = grpc_cluster("llm_control", str(folder / CONTROL))
        return Fragment([served, control], [grpc_access_log("llm_control")])

    def running(self, ours: Ours, engines: Sequence[int], folder: Path) -> AbstractContextManager[Process]:
        socket = folder / CONTROL
        plan = standin.Plan(POOL, tuple(engines), ours, str(socket), str(folder / "eds.json"))
        standin.publish(plan, {})
        file = folder / "standin.json"
        file.write_bytes(msgspec.json.encode(plan))
        command = [sys.executable, "-m", "bench.weights.standin", str(file)]
        return running("ours", command, folder / "standin.log", lambda: accepts(socket))


class Sidecar:
    """The whole product, `extproc serve`, over ADS; the cluster is the one it makes, outlier detection included."""

    def fragment(self, ours: Ours, folder: Path) -> Fragment:
        service = {"envoy_grpc": {"cluster_name": "llm_control"}}
        ads = {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [service]}
        cds = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "5s"}
        top = {"dynamic_resources": {"ads_config": ads, "cds_config": cds}}
        control = grpc_cluster("llm_control", str(folder / CONTROL))
        return Fragment([control], [grpc_access_log("llm_control")], top)

    def running(self, ours: Ours, engines: Sequence[int], folder: Path) -> AbstractContextManager[Process]:
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


DRIVERS: dict[str, Driver] = {"parts": Parts(), "sidecar": Sidecar()}
