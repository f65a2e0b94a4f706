"""How log lines look: for people on a console, or one JSON object each for a collector of logs.

Where a line is about one request it has that request's id, which the audit, the access log and spans have as well.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Literal

import msgspec

Format = Literal["console", "json"]

REQUEST_ID = "request_id"
"""Name of the record's attribute, to be given as `extra`."""


class ConsoleLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        request_id = _request_id(record)
        return f"{line} [request {request_id}]" if request_id else line


class JsonLines(logging.Formatter):
    """Keys `ts` (ISO 8601, UTC), `level`, `logger`, `message`; `request_id` and `trace` where there are."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := _request_id(record):
            told[REQUEST_ID] = request_id
        if record.exc_info:
            told["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode({key: _valid(value) for key, value in told.items()}).decode()


_FORMATTERS: dict[Format, type[logging.Formatter]] = {"console": ConsoleLines, "json": JsonLines}


def configure(kind: Format) -> None:
    """From now on lines of this process look like this."""
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler:  # the one of the command line, none of a test's
            handler.setFormatter(_FORMATTERS[kind]())


def _request_id(record: logging.LogRecord) -> str:
    """A client may have chosen it: nothing that would begin a line of its own."""
    text = str(getattr(record, REQUEST_ID, "") or "")
    return "".join(each if each.isprintable() else "?" for each in text)


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
