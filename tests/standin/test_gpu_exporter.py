"""The GPU exporter that plays a scenario: its page, and the process."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extproc.engines.reading import Reading, Source, read
from extproc.model.telemetry import EngineSample
from extproc.standin.gpu_exporter import At, Gpu, Scenario, page, scenario, value_at

TEXT = b"""
gpus:
  - labels: {Hostname: node-a, gpu: "0"}
    points:
      - {at_s: 0, memory_used: 4000, memory_free: 20000, utilisation: 30}
      - {at_s: 60, memory_used: 22000, memory_free: 2000, utilisation: 90, sm_active: 0.5}
  - labels: {Hostname: node-b, gpu: "1", pod: 'say "x"'}
    points:
      - {at_s: 5, memory_used: 1, memory_free: 2, utilisation: 3, sm_active: 0.25}
"""


def values(scenario: Scenario, elapsed_s: float) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels["Hostname"]): sample.value
        for family in text_string_to_metric_families(page(scenario, elapsed_s).decode())
        for sample in family.samples
    }


def test_a_page_half_way() -> None:
    found = values(scenario(TEXT), 30.0)
    assert found[("DCGM_FI_DEV_FB_USED", "node-a")] == 13000
    assert found[("DCGM_FI_DEV_FB_FREE", "node-a")] == 11000
    assert found[("DCGM_FI_DEV_GPU_UTIL", "node-a")] == 60
    assert found[("DCGM_FI_DEV_GPU_UTIL", "node-b")] == 3
    assert found[("DCGM_FI_PROF_SM_ACTIVE", "node-b")] == 0.25
    assert ("DCGM_FI_PROF_SM_ACTIVE", "node-a") not in found


@pytest.mark.parametrize(("at_s", "expected"), [(-1, 10), (0, 10), (5, 15), (10, 20), (15, 10), (20, 0), (99, 0)])
def test_values_are_linear_between_points_and_constant_outside(at_s: float, expected: float) -> None:
    points = [At(0, 10, 0, 0), At(10, 20, 0, 0), At(20, 0, 0, 0)]
    assert value_at(points, "memory_used", at_s) == expected


def test_labels_are_completed_and_escaped() -> None:
    text = page(scenario(TEXT), 0).decode()
    assert '{gpu="0",UUID="GPU-node-a-0",device="nvidia0",Hostname="node-a"}' in text
    assert r'pod="say \"x\""' in text


def test_a_living_page_moves_and_a_frozen_one_does_not() -> None:
    still = Scenario([Gpu({}, [At(0, 1, 2, 3)])])
    assert page(still, 1) != page(still, 2)
    frozen = Scenario(still.gpus, frozen_after_s=1)
    assert page(frozen, 1) == page(frozen, 2) != page(frozen, 0.5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "object"),
        (b"gpus: [", "expected"),
        (b"gpus: []\nspeed: 1", "speed"),
        (b"gpus: [{labels: {}, points: []}]", "at least one"),
        (TEXT.replace(b"at_s: 60", b"at_s: 0"), "rising"),
        (TEXT.replace(b"4000", b"much"), "memory_used"),
    ],
)
def test_a_bad_scenario_says_why(text: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        scenario(text)


def test_the_page_is_read_as_a_real_exporters_is() -> None:
    found = read(Source.DCGM, page(scenario(TEXT), 30.0), None, label="Hostname", now=5.0)
    assert isinstance(found, Reading)
    assert found.samples["node-a"] == EngineSample(at=5.0, memory=13 / 24, gpu_utilisation=0.6)
    assert found.samples["node-b"].sm_utilisation == 0.25


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text: str = answer.read().decode()
        return text


def test_the_process_follows_its_file(tmp_path: Path) -> None:
    path = tmp_path / "gpus.yaml"
    path.write_bytes(TEXT)
    command = [sys.executable, "-m", "extproc.standin.gpu_exporter", "--port", "0", "--scenario", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().split()[-1]
        assert 'DCGM_FI_DEV_GPU_UTIL{gpu="1"' in get(url)
        path.write_bytes(TEXT.replace(b"utilisation: 3,", b"utilisation: 77,"))
        assert " 77\n" in get(url)
        path.write_bytes(b"gpus: nonsense")
        assert " 77\n" in get(url)
        path.unlink()
        assert " 77\n" in get(url)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0
    assert err.count("the last good scenario stays") == 2


def test_no_scenario_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "extproc.standin.gpu_exporter", "--scenario", str(tmp_path / "none")]
    process = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (process.returncode, process.stdout, process.stderr.count("\n")) == (1, "", 1)
