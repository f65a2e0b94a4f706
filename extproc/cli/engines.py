"""`--engine URL=KIND` to pools, and pools to Envoy clusters."""

from __future__ import annotations

import argparse
from urllib.parse import urlsplit

from pydantic import ValidationError

from extproc.cli.envoy_config import EngineCluster
from extproc.errors import CannotStart
from extproc.model.names import Engine
from extproc.registry import Pool


def engine_argument(text: str) -> tuple[str, Engine]:
    """`http://host:port=vllm` as (URL, kind)."""
    url, _, kind = text.rpartition("=")
    try:
        return url, Engine(kind)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected URL={'|'.join(Engine)}") from None


def pools_of(engines: list[tuple[str, Engine]], *, by_priority: bool) -> list[Pool]:
    """Pools engine-1, engine-2, … in the order given. Without `by_priority` the engine's rules say."""
    try:
        return [
            Pool(
                name=f"engine-{number}",
                engine=kind,
                endpoints=[url],
                schedules_by_priority=True if by_priority and kind is not Engine.LLAMACPP else None,
            )
            for number, (url, kind) in enumerate(engines, 1)
        ]
    except ValidationError as error:
        raise CannotStart(f"--engine: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def standin_engines(url: str) -> list[tuple[str, Engine]]:
    """The stand-in plays all three engines."""
    return [(url, kind) for kind in (Engine.VLLM, Engine.TRITON, Engine.LLAMACPP)]


def cluster(pool: Pool) -> EngineCluster:
    """A pool's Envoy cluster. The static bootstrap has one endpoint a pool."""
    parts = urlsplit(pool.endpoints[0])
    tls = parts.scheme == "https"
    assert parts.hostname is not None, "pools are validated"
    return EngineCluster(
        name=pool.name,
        engine=pool.engine,
        host=parts.hostname,
        port=parts.port or (443 if tls else 80),
        tls=tls,
        host_rewrite=parts.hostname if tls else "",
    )
