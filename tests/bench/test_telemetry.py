"""The telemetry benchmark: its pages, and one tiny run over real sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import telemetry
from extproc.engines import exposition, vllm


def test_pages_are_of_an_engines_size_and_their_counters_grow() -> None:
    first, second = telemetry.page(0), telemetry.page(1)
    assert 48_000 < len(first) < 56_000
    points = [exposition.parse(exposition.cut(page, vllm.WANTED), vllm.WANTED) for page in (first, second)]
    _, counters = vllm.sample(None, points[0], now=0.0)
    sample, _ = vllm.sample(counters, points[1], now=5.0)
    assert sample.p99_s is not None
    assert set(sample.rates) == {*vllm.COUNTERS, *vllm.PER_TOKEN}
    assert all(rate > 0 for rate in sample.rates.values())


def test_every_engine_has_an_address() -> None:
    hosts = telemetry.hosts(1000)
    assert len(set(hosts)) == 1000
    assert (hosts[0], hosts[-1]) == ("127.1.0.1", "127.1.3.250")


def test_every_step_is_measured() -> None:
    assert list(telemetry.reading_us(3)) == ["filter", "parse", "map"]
    assert all(us > 0 for us in telemetry.reading_us(3).values())


def test_one_tiny_run(tmp_path: Path) -> None:
    text = telemetry.measure(5, 2, 0.3, tmp_path)
    assert text.startswith("5 endpoints, pages of ")
    assert text.splitlines()[-1].startswith("all of it")


def test_engines_that_do_not_start_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(telemetry, "free_port", lambda: 99_999)
    monkeypatch.setattr("bench.processes.READY_S", 2.0)
    assert telemetry.main(["--endpoints", "1"]) == 1
    assert capsys.readouterr().err.startswith("bench: the engines")
