"""A sidecar with pools of a test's own, and Envoys that follow it."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.e2e.running import Assembly, Sidecar, following_envoy
from tests.real_envoy import RealEnvoy

TELEMETRY = {"interval_s": 1, "timeout_s": 0.5}


class Following(Assembly):
    """One sidecar and one Envoy; more of both on request. `changes` are laid over the config's top level."""

    def __init__(self, pools: list[dict[str, Any]], **changes: Any) -> None:
        super().__init__("follow-")
        self.config = self.folder / "extproc.yaml"
        self.tree = {"pools": pools, "telemetry": TELEMETRY} | changes
        self.save()
        self.state_dir = self.folder / "state"
        self.state_dir.mkdir()
        try:
            self.sidecar = Sidecar(self.config, self.state_dir)
            self._stops.append(self.sidecar.stop)
            self.envoy = self.another_envoy()
        except BaseException:
            self.stop()
            raise

    def another_envoy(self) -> RealEnvoy:
        envoy = following_envoy(self.config, self.state_dir)
        self._stops.append(envoy.stop)
        return envoy

    def weights(self, pool: str) -> dict[str, dict[str, Any]]:
        """What the sidecar says of a pool's endpoints, by endpoint."""
        pools = {each["name"]: each for each in json.loads(self.sidecar.admin("/weights"))["pools"]}
        return {each["endpoint"]: each for each in pools[pool]["endpoints"]}

    def share(self, pool: str, endpoint: str) -> float:
        return float(self.weights(pool)[endpoint]["share"])


def envoy_weights(envoy: RealEnvoy, cluster: str) -> dict[str, int]:
    """What Envoy itself says, by `ip:port`; 0 where an endpoint gets no new request."""
    page = envoy.admin("/clusters")
    weights = {m[1]: int(m[2]) for m in re.finditer(rf"^{cluster}::([\d.]+:\d+)::weight::(\d+)$", page, re.M)}
    flags = {m[1]: m[2] for m in re.finditer(rf"^{cluster}::([\d.]+:\d+)::health_flags::(.*)$", page, re.M)}
    return {
        where: 0 if "/failed_eds_health" in flags[where] or "/eds_status_draining" in flags[where] else weight
        for where, weight in weights.items()
    }
