"""Whose fault an error is, and what the other side is told about it.

Everything raised on purpose is an `ExtprocError`; anything else is a bug. Messages never carry
request content or secrets: they are written for a log and for a client's eyes alike.
"""

from __future__ import annotations

from dataclasses import dataclass


class ExtprocError(Exception):
    """Base of every error raised on purpose."""


class ClientFault(ExtprocError):
    """The client's mistake: answered with `status` (4xx) and an OpenAI-shaped error.

    `reason` is a short snake_case word for metrics; `param` names the offending field.
    """

    def __init__(self, status: int, reason: str, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.param = param


class Unavailable(ExtprocError):
    """Nobody can serve this request at the moment: answered 503 with `retry-after`, and no fault of the client."""

    status = 503

    def __init__(self, reason: str, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s


class OurFault(ExtprocError):
    """A failure of this program: counted, logged in one line, handled as `failure_mode` says."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a configuration: the dotted path of the key and what is allowed there."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(ExtprocError):
    """Every mistake found in a configuration, at once."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


class CannotStart(ExtprocError):
    """The command cannot do its work here (port taken, no permission, a program missing): one line, exit 1."""
