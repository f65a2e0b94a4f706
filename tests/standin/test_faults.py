"""Faults on demand."""

from __future__ import annotations

import msgspec
import pytest

from extproc.standin.faults import NO_FAULTS, Faults, read


@pytest.mark.parametrize(("share", "failing"), [(0.0, 0), (0.5, 50), (0.3, 30), (1.0, 100), (0.01, 1)])
def test_a_share_fails_evenly(share: float, failing: int) -> None:
    faults = Faults(status=503, share=share)
    assert sum(faults.fails(number) for number in range(100)) == failing


def test_none_fail_without_a_status() -> None:
    assert not any(NO_FAULTS.fails(number) for number in range(10))


def test_read() -> None:
    assert read(b'{"status": 503, "share": 0.5, "delay_ms": 900}') == Faults(503, 0.5, 900)
    assert read(b"") == NO_FAULTS
    for wrong in (b"{", b'{"status": 1000}', b'{"share": 2}', b'{"delay": 1}'):
        with pytest.raises(msgspec.MsgspecError):
            read(wrong)
