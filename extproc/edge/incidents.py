"""What tripped, recovered or was changed: a log line, a JSON line, a metric, the last ones for `/events`."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec
from prometheus_client import CollectorRegistry

from extproc import collectors
from extproc.model.protection import Incident, Severity

log = logging.getLogger("extproc.incidents")

_LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.CRITICAL: logging.ERROR}


class Incidents:
    """Used from the event loop's thread only. `write` takes JSON lines, `tell` is for a webhook; neither may
    raise or wait."""

    def __init__(
        self,
        registry: CollectorRegistry,
        write: Callable[[Sequence[bytes]], object],
        *,
        shown: int,
        tell: Callable[[Incident], None] = lambda _: None,
    ) -> None:
        self._counts = collectors.counts(
            registry, "llm_incidents", "What tripped, recovered or was changed.", ("kind", "subject", "state")
        )
        self._write = write
        self._last: deque[Incident] = deque(maxlen=shown)
        self._tell = tell

    def report(self, incident: Incident) -> None:
        self._last.append(incident)
        self._counts.add((incident.kind.value, incident.subject, incident.state))
        self._write([msgspec.json.encode(incident) + b"\n"])
        log.log(
            _LEVELS[incident.severity],
            "%s is %s: %s %s",
            " ".join(dict.fromkeys((incident.kind.value, incident.subject))),
            incident.state,
            incident.reason,
            _shown(incident),
        )
        self._tell(incident)

    def last(self) -> Iterable[Incident]:
        """The newest first."""
        return tuple(reversed(self._last))


def _shown(incident: Incident) -> str:
    parts = (f"{name}={value}" for name, value in incident.evidence.items() if value not in (None, ""))
    return f"({', '.join(parts)})" if incident.evidence else ""
