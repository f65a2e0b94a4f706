"""Incidents to a webhook, in the shape Alertmanager takes alerts: a JSON list with labels and annotations.

A queue of its own, so that no incident waits for a receiver; what does not fit or is not taken after its tries is
dropped and counted. Redirects are not followed: a receiver could send the token somewhere else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

import aiohttp
import msgspec
from prometheus_client import CollectorRegistry

from extproc import collectors
from extproc.model.protection import Incident

log = logging.getLogger("extproc.webhook")

MAX_QUEUED = 256
TRIES = 3
TIMEOUT_S = 5.0
WAIT_S = 1.0
"""Before the second try; doubled with each."""


class Webhook:
    """`address` gives URL and token ("" = none) at the moment of sending: secrets may rotate."""

    def __init__(self, registry: CollectorRegistry, address: Callable[[], tuple[str, str]]) -> None:
        self._address = address
        self._queue: asyncio.Queue[Incident] = asyncio.Queue(MAX_QUEUED)
        self._counts = collectors.counts(registry, "llm_webhook_incidents", "By what became of them.", ("result",))
        self._complained = False

    def tell(self, incident: Incident) -> None:
        """Takes no time; a full queue drops it."""
        if not self._address()[0]:
            return
        try:
            self._queue.put_nowait(incident)
        except asyncio.QueueFull:
            self._counts.add(("dropped",))

    async def run(self) -> None:
        """Until cancelled."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                await self._deliver(session, await self._queue.get())

    async def _deliver(self, session: aiohttp.ClientSession, incident: Incident) -> None:
        for number in range(TRIES):
            if number:
                await asyncio.sleep(WAIT_S * 2 ** (number - 1))
            why = await self._try(session, incident)
            if why is None:
                self._counts.add(("sent",))
                self._complained = False
                return
        self._counts.add(("failed",))
        if not self._complained:
            log.error("the webhook did not take an incident: %s", why)
        self._complained = True

    async def _try(self, session: aiohttp.ClientSession, incident: Incident) -> str | None:
        """None where it was taken; else why not, without a word of the URL: it may hold a secret."""
        url, token = self._address()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        try:
            async with session.post(url, data=alerts(incident), headers=headers, allow_redirects=False) as answer:
                return None if 200 <= answer.status < 300 else f"status {answer.status}"
        except TimeoutError:
            return "no answer in time"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return type(error).__name__


def alerts(incident: Incident) -> bytes:
    """One alert. An incident that is over has an end, which resolves the alert of the same labels."""
    at = datetime.fromtimestamp(incident.at, UTC).isoformat()
    labels = {
        "alertname": f"Llm{incident.kind.value.capitalize()}",
        "subject": incident.subject,
        "severity": incident.severity.value,
    }
    if incident.kind.value != "parameters":
        labels.pop("severity")  # it would tell the end from its beginning
    evidence = ", ".join(f"{name}={value}" for name, value in incident.evidence.items() if value is not None)
    annotations = {"summary": f"{incident.subject} is {incident.state}: {incident.reason}", "evidence": evidence}
    alert = {"labels": labels, "annotations": annotations, "startsAt": at}
    if not incident.active:
        alert["endsAt"] = at
    return msgspec.json.encode([alert])
