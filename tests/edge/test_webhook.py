"""Incidents at a real receiver, which may be slow, gone or a liar."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from extproc.edge import webhook
from extproc.edge.webhook import Webhook, alerts
from extproc.model.protection import Incident, Kind, Severity
from tests.edge.test_incidents import OPEN

CLOSED = Incident(
    at=20.0, kind=Kind.BREAKER, subject="pool/big", state="closed", reason="", severity=Severity.INFO, active=False
)


class Receiver:
    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.got: list[tuple[dict[str, str], Any]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.json()))
        status = self.statuses.pop(0) if self.statuses else 200
        headers = {"Location": self.url + "/elsewhere"} if status == 302 else {}
        return web.Response(status=status, headers=headers)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    app = web.Application()
    app.router.add_post("/{any:.*}", found.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield found
    await runner.cleanup()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "WAIT_S", 0.01)


async def sent(hook: Webhook, registry: CollectorRegistry, result: str, count: int = 1) -> None:
    task = asyncio.create_task(hook.run())
    try:
        async with asyncio.timeout(10):
            while (registry.get_sample_value("llm_webhook_incidents_total", {"result": result}) or 0) < count:
                await asyncio.sleep(0.01)
    finally:
        task.cancel()


def hook(address: Callable[[], tuple[str, str]]) -> tuple[Webhook, CollectorRegistry]:
    registry = CollectorRegistry()
    return Webhook(registry, address), registry


async def test_it_arrives_as_an_alert_with_its_token(receiver: Receiver) -> None:
    one, registry = hook(lambda: (receiver.url, "s3cret"))
    one.tell(OPEN)
    one.tell(CLOSED)
    await sent(one, registry, "sent", 2)
    (headers, (first,)), (_, (second,)) = receiver.got
    assert headers["Authorization"] == "Bearer s3cret"
    assert first["labels"] == {"alertname": "LlmBreaker", "subject": "pool/big"} == second["labels"]
    assert "endsAt" not in first and second["endsAt"] == "1970-01-01T00:00:20+00:00"
    assert first["annotations"]["summary"] == "pool/big is open: error_rate 0.52"


@pytest.mark.parametrize("statuses", [[500], [503, 429]])
async def test_it_is_tried_again(receiver: Receiver, statuses: list[int]) -> None:
    receiver.statuses = list(statuses)
    one, registry = hook(lambda: (receiver.url, ""))
    one.tell(OPEN)
    await sent(one, registry, "sent")
    assert len(receiver.got) == len(statuses) + 1
    assert "Authorization" not in receiver.got[0][0]


async def test_a_redirect_is_not_followed(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    receiver.statuses = [302] * 3
    one, registry = hook(lambda: (receiver.url, "s3cret"))
    one.tell(OPEN)
    await sent(one, registry, "failed")
    assert len(receiver.got) == 3 and "status 302" in caplog.text
    assert "s3cret" not in caplog.text and receiver.url not in caplog.text


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "nonsense", "http://[", "ftp://x"])
async def test_nobody_there_is_one_line_however_often(url: str, caplog: pytest.LogCaptureFixture) -> None:
    one, registry = hook(lambda: (url, ""))
    one.tell(OPEN)
    one.tell(CLOSED)
    await sent(one, registry, "failed", 2)
    assert len([each for each in caplog.records if each.name == "extproc.webhook"]) == 1


async def test_the_queue_is_bounded_and_telling_takes_no_time() -> None:
    one, registry = hook(lambda: ("http://127.0.0.1:9/x", ""))
    for _ in range(webhook.MAX_QUEUED + 7):
        one.tell(OPEN)
    assert registry.get_sample_value("llm_webhook_incidents_total", {"result": "dropped"}) == 7


async def test_without_an_address_nothing_is_kept() -> None:
    one, registry = hook(lambda: ("", ""))
    for _ in range(webhook.MAX_QUEUED + 7):
        one.tell(OPEN)
    assert registry.get_sample_value("llm_webhook_incidents_total", {"result": "dropped"}) is None


def test_alerts_are_json() -> None:
    assert json.loads(alerts(OPEN))[0]["startsAt"].startswith("1970-01-01T00:00:12")
