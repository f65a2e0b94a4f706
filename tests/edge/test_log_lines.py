"""Log lines on a console and as JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from extproc.edge.log_lines import Format, configure


@pytest.fixture
def printed() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


log = logging.getLogger("extproc.test")


def test_a_json_line_has_everything(printed: io.StringIO) -> None:
    configure("json")
    log.error("stream failed: %s", "KeyError", extra={"request_id": "r-1"})
    (line,) = printed.getvalue().splitlines()
    told = json.loads(line)
    assert told.pop("ts").endswith("+00:00")
    assert told == {
        "level": "error",
        "logger": "extproc.test",
        "message": "stream failed: KeyError",
        "request_id": "r-1",
    }


def test_without_a_request_there_is_no_id(printed: io.StringIO) -> None:
    configure("json")
    log.warning("two\nlines")
    (line,) = printed.getvalue().splitlines()
    assert json.loads(line)["message"] == "two\nlines"
    assert "request_id" not in json.loads(line)


def test_a_bug_keeps_its_trace_in_one_line(printed: io.StringIO) -> None:
    configure("json")
    try:
        raise LookupError("here")
    except LookupError:
        log.exception("a bug")
    (line,) = printed.getvalue().splitlines()
    assert "LookupError: here" in json.loads(line)["trace"]


def test_a_console_line_ends_with_the_id(printed: io.StringIO) -> None:
    configure("console")
    log.error("stream failed", extra={"request_id": "r-1"})
    assert printed.getvalue().endswith(" ERROR extproc.test: stream failed [request r-1]\n")


@pytest.mark.parametrize("kind", ["console", "json"])
def test_an_id_begins_no_line_of_its_own(printed: io.StringIO, kind: Format) -> None:
    configure(kind)
    log.error("stream failed", extra={"request_id": "a\nERROR forged\x1b[31m\udcff"})
    assert len(printed.getvalue().splitlines()) == 1
    assert "\x1b" not in printed.getvalue()
