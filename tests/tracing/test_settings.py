"""The block `tracing` of the config."""

from __future__ import annotations

import pytest

from extproc.errors import ConfigError
from extproc.settings import changed_needing_restart, load


def test_it_is_off_by_default() -> None:
    assert load(b"{}").tracing.enabled is False


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:4318/v1/traces", "https://otel.example/v1/traces", "http://[::1]:4318/x"]
)
def test_a_collector(url: str) -> None:
    assert load(f"tracing: {{endpoint: '{url}'}}").tracing.endpoint == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:4318",
        "grpc://x/y",
        "http://",
        "http://x",
        "http://u:p@x/v1/traces",
        "http://x:99999/v1/traces",
    ],
)
def test_what_is_no_collector_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"tracing\.endpoint: allowed: http"):
        load(f"tracing: {{endpoint: '{url}'}}")


def test_all_mistakes_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load(b"tracing: {root_share: 1.1, batch: 0, timeout_s: 0, nonsense: 1}")
    paths = {problem.path for problem in caught.value.problems}
    assert paths == {"tracing.root_share", "tracing.batch", "tracing.timeout_s", "tracing.nonsense"}


def test_a_change_needs_a_restart() -> None:
    assert changed_needing_restart(load(b"{}"), load(b"tracing: {enabled: true}")) == ("tracing",)
