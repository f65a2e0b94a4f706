"""Commands are frozen, and a bare Continue changes nothing."""

from __future__ import annotations

from typing import get_args

import pytest

from extproc.model import commands
from extproc.model.commands import CloseStream, Command, Continue, RecordPass, RecordReject, Reject


def test_a_bare_continue_changes_nothing() -> None:
    bare = Continue("request_headers")
    assert (bare.set_headers, bare.body, bare.clear_route_cache, bare.metadata, bare.stream_body) == (
        (),
        None,
        False,
        None,
        False,
    )


@pytest.mark.parametrize(
    "command",
    [Continue("p"), Reject(400, "r", (), b""), CloseStream("r"), RecordPass("r"), RecordReject("r", 400)],
)
def test_frozen(command: Command) -> None:
    with pytest.raises(AttributeError):
        command.reason = "x"  # type: ignore[union-attr]


def test_the_union_names_every_command() -> None:
    named = {kind.__name__ for kind in get_args(Command)}
    assert named == {"Continue", "Reject", "CloseStream", "RecordDecision", "RecordPass", "RecordReject"}
    assert all(hasattr(commands, name) for name in named)
