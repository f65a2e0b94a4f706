"""Words that become labels."""

from __future__ import annotations

import re

from extproc.usage.seen import Outcome, Skip


def test_outcomes_and_reasons_are_labels() -> None:
    assert all(re.fullmatch("[a-z_]+", word) for word in (*Outcome, *Skip))
