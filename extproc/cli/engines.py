"""`--engine URL=KIND` to pools."""

from __future__ import annotations

import argparse

from pydantic import ValidationError

from extproc.errors import CannotStart
from extproc.model.names import Engine
from extproc.pools import EndpointConfig, Pool, endpoint


def engine_argument(text: str) -> tuple[str, Engine]:
    """`http://host:port=vllm` as (URL, kind)."""
    url, _, kind = text.rpartition("=")
    try:
        return url, Engine(kind)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected URL={'|'.join(Engine)}") from None


def pools_of(engines: list[tuple[str, Engine]], *, by_priority: bool, metrics_url: str | None = None) -> list[Pool]:
    """Pools engine-1, engine-2, … in the order given. Without `by_priority` the engine's rules say.

    `metrics_url`: one page that tells of all of them.
    """
    try:
        return [
            Pool(
                name=f"engine-{number}",
                engine=kind,
                endpoints=[url if metrics_url is None else _with_metrics(url, metrics_url)],
                schedules_by_priority=True if by_priority and kind is not Engine.LLAMACPP else None,
            )
            for number, (url, kind) in enumerate(engines, 1)
        ]
    except ValidationError as error:
        raise CannotStart(f"--engine: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def _with_metrics(url: str, page: str) -> EndpointConfig:
    where = endpoint(url)
    return EndpointConfig(address=where.address, http_port=where.http_port, metrics_url=page)


def standin_engines(url: str) -> list[tuple[str, Engine]]:
    """The stand-in plays all three engines."""
    return [(url, kind) for kind in (Engine.VLLM, Engine.TRITON, Engine.LLAMACPP)]
