"""The status page in a real browser, beside a real Envoy: changes appear, anybody can read it, no script gets in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.e2e.asking import CHAT, ask, chat
from tests.e2e.faulty import FaultyEngine, Guarded, ask_many, engine, served_by, steady
from tests.e2e.running import until

CHROMIUM = shutil.which("chromium")
SEEN_MS = 3000
"""How long after the sidecar knows it a change may take to be on the page."""

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "status-page.png"
"""In README and docs; taken anew with TAKE_PICTURES=1."""

HOSTILE = '<img src=x onerror="document.title=1">'

pytestmark = pytest.mark.skipif(CHROMIUM is None and not os.environ.get("CI"), reason="no chromium installed")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Guarded, list[FaultyEngine]]]:
    engines = [engine(tmp_path_factory.mktemp("engine")) for _ in range(3)]
    first, second, other = engines
    pools = [
        {"name": "big", "engine": "vllm", "endpoints": [first.url, second.url]},
        {"name": "light", "engine": "vllm", "endpoints": [other.url], "role": "light"},
    ]
    try:
        with Guarded(pools) as running:
            ask_many(running.port, 30)
            ask(running.port, CHAT, {**chat("hello"), "n": 9}, {"x-request-id": HOSTILE})
            until(lambda: "big / " in running.sidecar.admin("/"), what="latency")
            yield running, engines
    finally:
        for each in engines:
            each.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--disable-gpu"])
        yield browser
        browser.close()


def opened(browser: Browser, running: Guarded, **how: Any) -> Page:
    """The page, live; a fault of its script fails the test."""
    page = browser.new_context(**how).new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto(f"http://127.0.0.1:{running.sidecar.admin_port}/")
    if how.get("java_script_enabled", True):
        expect(page.locator("#live")).to_have_text("live")
    return page


def test_the_picture_of_the_docs(browser: Browser, world: tuple[Guarded, list[FaultyEngine]]) -> None:
    """Taken anew only where it is asked for, so that a run leaves no change behind."""
    page = opened(browser, world[0], viewport={"width": 1200, "height": 1000})
    picture = page.screenshot()
    assert picture.startswith(b"\x89PNG")
    if os.environ.get("TAKE_PICTURES"):
        PICTURE.write_bytes(picture)
    assert PICTURE.is_file()
    page.context.close()


BROKEN_WORDS = """[...document.querySelectorAll('th, td')]
  .filter(cell => /^[A-Za-z0-9_.]{1,16}$/.test(cell.innerText.trim()) && !cell.querySelector('meter'))
  .filter(cell => cell.getBoundingClientRect().height > 0)
  .filter(cell => {
    const words = document.createRange(); words.selectNodeContents(cell);
    return new Set([...words.getClientRects()].map(each => Math.round(each.top / 12))).size > 1;
  }).map(cell => cell.innerText)"""
"""Cells of one short word that stands on several lines."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_anybody_can_read_it(
    browser: Browser, world: tuple[Guarded, list[FaultyEngine]], scheme: str, width: int
) -> None:
    page = opened(browser, world[0], color_scheme=scheme, viewport={"width": width, "height": 900})
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "it scrolls sideways"
    assert page.evaluate(BROKEN_WORDS) == []
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(24, 24, 27)"
    assert dark == (scheme == "dark")
    page.context.close()


def test_without_javascript_it_is_a_table(browser: Browser, world: tuple[Guarded, list[FaultyEngine]]) -> None:
    page = opened(browser, world[0], java_script_enabled=False)
    expect(page.locator("#live")).to_have_text("as of the last load")
    expect(page.locator("#pause")).to_be_hidden()
    assert page.locator("#pools tbody tr").count() == 3
    expect(page.locator("#decisions")).to_contain_text("200")
    page.context.close()


def test_names_of_strangers_are_text(browser: Browser, world: tuple[Guarded, list[FaultyEngine]]) -> None:
    page = opened(browser, world[0])
    expect(page.locator("#overrides")).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0
    assert page.title() == "extproc"
    page.context.close()


def test_the_policy_stops_scripts_that_got_in(browser: Browser, world: tuple[Guarded, list[FaultyEngine]]) -> None:
    page = opened(browser, world[0])
    page.evaluate("document.getElementById('now').innerHTML = '<img src=x onerror=\"document.title=1\">'")
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'document.title=2'}))"
    )
    page.wait_for_timeout(300)
    assert page.title() == "extproc"
    page.context.close()


def test_it_pauses_and_goes_on(browser: Browser, world: tuple[Guarded, list[FaultyEngine]]) -> None:
    page = opened(browser, world[0])
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#live")).to_have_text("paused")
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("#live")).to_have_text("live")
    page.context.close()


def test_a_breaker_that_trips_and_a_weight_that_changes_appear(
    browser: Browser, world: tuple[Guarded, list[FaultyEngine]]
) -> None:
    """The last one of the file: it breaks what the others look at."""
    running, (first, second, _) = world
    page = opened(browser, running)
    breaker = page.locator("#breakers tr", has=page.get_by_role("rowheader", name="pool/big", exact=True))
    expect(breaker).to_contain_text("closed")
    for each in (first, second):
        each.fail(status=503, share=1.0)
    with steady(lambda: served_by(ask(running.port, CHAT, chat("hello")))):
        until(lambda: running.breaker("pool/big") == "open", within_s=30, what="the breaker")
        expect(breaker).to_contain_text("open", timeout=SEEN_MS)
        expect(page.locator("#incidents")).to_contain_text("pool/big", timeout=SEEN_MS)
    for each in (first, second):
        each.heal()
    row = page.locator("#pools tr").filter(has_text=first.url.removeprefix("http://"))
    before = row.inner_text()
    first.stop()
    until(lambda: '"draining": true' in running.sidecar.admin("/weights"), within_s=30, what="draining")
    expect(row).to_contain_text("draining", timeout=SEEN_MS)
    assert row.inner_text() != before
    page.context.close()
