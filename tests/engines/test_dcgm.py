"""The GPU exporter: units, blanks, several GPUs, and the label that joins them."""

from __future__ import annotations

import pytest

from extproc.engines import dcgm
from extproc.model.telemetry import EngineSample
from tests.engines.texts import page, points


def samples(text: bytes, label: str | None = "Hostname") -> dict[str, EngineSample]:
    return dict(dcgm.samples(points(text, dcgm.WANTED), label=label, now=5.0))


def gpu(host: str, number: int, used: str, free: str, busy: str, sm: str | None = None) -> bytes:
    labels = f'{{gpu="{number}",UUID="GPU-{host}-{number}",Hostname="{host}"}}'
    values = [("FI_DEV_FB_USED", used), ("FI_DEV_FB_FREE", free), ("FI_DEV_GPU_UTIL", busy)]
    values += [("FI_PROF_SM_ACTIVE", sm)] if sm else []
    return "".join(f"DCGM_{name}{labels} {value}\n" for name, value in values).encode()


def test_the_captured_page_shows_the_fuller_and_busier_gpu_of_the_host() -> None:
    (seen,) = samples(page("dcgm")).values()
    assert seen == EngineSample(at=5.0, memory=132500 / (132500 + 10231), gpu_utilisation=0.97)


def test_hosts_are_kept_apart() -> None:
    text = gpu("a", 0, "30", "70", "50", "0.25") + gpu("b", 0, "90", "10", "10")
    assert samples(text) == {
        "a": EngineSample(at=5.0, memory=0.3, gpu_utilisation=0.5, sm_utilisation=0.25),
        "b": EngineSample(at=5.0, memory=0.9, gpu_utilisation=0.1),
    }


def test_memory_is_of_one_gpu_never_of_a_mixture() -> None:
    text = gpu("a", 0, "10", "90", "0") + gpu("a", 1, "20", "20", "0")
    assert samples(text)["a"].memory == 0.5


def test_any_label_joins_and_none_takes_the_page() -> None:
    text = b'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="x",pod="vllm-0"} 40\nDCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="y"} 60\n'
    assert samples(text, "pod") == {"vllm-0": EngineSample(at=5.0, gpu_utilisation=0.4)}
    assert samples(text, None) == {"": EngineSample(at=5.0, gpu_utilisation=0.6)}
    assert samples(text) == {}


def test_the_labels_name_is_compared_without_case() -> None:
    assert set(samples(b'DCGM_FI_DEV_GPU_UTIL{gpu="0",hostname="n"} 1\n')) == {"n"}


@pytest.mark.parametrize("blank", ["9223372036854775794", "2147483632", "140737488355328", "NaN"])
def test_blank_values_are_not_known(blank: str) -> None:
    seen = samples(gpu("a", 0, blank, "70", "50")).get("a")
    assert seen == EngineSample(at=5.0, gpu_utilisation=0.5)


def test_a_gpu_shown_once_per_container_is_one_gpu() -> None:
    twice = b'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="x",Hostname="a",pod="%s"} 40\n'
    assert samples(twice % b"p" + twice % b"") == {"a": EngineSample(at=5.0, gpu_utilisation=0.4)}
