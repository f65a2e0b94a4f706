import pytest

from extproc.model.telemetry import EngineSample


def test_what_was_not_measured_is_none_and_never_zero() -> None:
    sample = EngineSample(at=1.0)
    assert sample.memory is None and sample.running is None and sample.rates == {}


def test_samples_are_values() -> None:
    with pytest.raises(AttributeError):
        EngineSample(at=1.0).at = 2.0  # type: ignore[misc]
