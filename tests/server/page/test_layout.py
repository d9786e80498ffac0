"""Where things are on the page: nothing moves when a call starts, nothing is cut off; in a real Chromium."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page
from support.browsing import CHROMIUM, PHONE, browsing, noise, run, silence, wire_to
from support.serving import Server, serving

STORY = " ".join(f"This is sentence number {number} of a long story." for number in range(1, 12))
LARGE_TEXT = "--blink-settings=defaultFontSize=32"
"""What the browser's own setting for the size of text does: twice the usual 16 pixels."""
LAPTOP, TABLET, SMALL = (
    {"width": 1280, "height": 800},
    {"width": 1024, "height": 768},
    {"width": 320, "height": 640},
)
SIZES = {
    "laptop": (LAPTOP, []),
    "tablet": (TABLET, []),
    "phone": (PHONE, []),
    "small-phone": (SMALL, []),
    "laptop-large-text": (LAPTOP, [LARGE_TEXT]),
    "phone-large-text": (PHONE, [LARGE_TEXT]),
}
BOXES = """() => Object.fromEntries(
  ["h1", "#settings-title", ".control", "#talk", ".disc", ".meters", "#user-level", "#mute", "#interrupt",
    ".talk-log", "#transcript-title", "#text", ".timing", "#waterfall-title"].map((selector) => {
      const { left, top, width, height } = document.querySelector(selector).getBoundingClientRect();
      return [selector, [left, top + scrollY, width, height].map(Math.round)];
  }))"""
OUT_OF_SIGHT = """(selector) => [...document.querySelectorAll(selector)].map((each) => {
    const { top, bottom, left, right } = each.getBoundingClientRect();
    return [each.outerHTML, top, bottom, left, right];
  }).filter(([, top, bottom, left, right]) =>
    top < 0 || left < 0 || bottom > innerHeight || right > innerWidth)"""
COLOUR = "id => getComputedStyle(document.getElementById(id)).color"
IMPATIENT = """() => {
  const again = document.getElementById("again");
  if (again.textContent === "Try now") again.click();
  return document.getElementById("state").dataset.state === "idle";
}"""
"""All tries of the page, without the waits between them."""
READY = "#state[data-state=idle]"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), llm=f"scripted:llm|{STORY}|{STORY}") as running:
        yield running


def side_by_side(boxes: dict[str, Any]) -> bool:
    return bool(boxes["#mute"][1] == boxes["#interrupt"][1])


@pytest.mark.parametrize("size", SIZES)
def test_nothing_moves_when_a_call_starts_and_nothing_is_cut_off(
    server: Server, tmp_path: Path, size: str
) -> None:
    viewport, flags = SIZES[size]

    async def act() -> None:
        async with browsing(tmp_path, [silence(30)], *flags, viewport=viewport) as (page, errors):
            await page.goto(server.http)
            await page.wait_for_selector("#models")
            idle = await page.evaluate(BOXES)
            assert await page.evaluate("() => getComputedStyle(document.body).fontSize") == (
                "32px" if flags else "16px"
            )
            assert idle["#mute"][2:] == idle["#interrupt"][2:], "of one size"
            assert side_by_side(idle) or idle["#mute"][0] == idle["#interrupt"][0], (
                "in one line, or in one column"
            )
            await page.click("#talk")
            await page.wait_for_selector("#state[data-state=listening]")
            await page.wait_for_selector("#mute:has-text('Mute'):enabled")
            assert await page.evaluate(BOXES) == idle
            assert await page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
            await page.click("#talk")
            await page.wait_for_selector(READY)
            assert await page.evaluate(BOXES) == idle
            assert errors == []

    run(act())


@pytest.mark.parametrize("size", ["laptop", "tablet", "phone"])
def test_waterfall_is_seen_whole_and_an_answer_moves_nothing(
    server: Server, tmp_path: Path, size: str
) -> None:
    viewport, _ = SIZES[size]

    async def act() -> None:
        microphone = [silence(1), noise(1), silence(30)]
        async with browsing(tmp_path, microphone, viewport=viewport) as (page, errors):
            await page.goto(server.http)
            await page.wait_for_selector("#models")
            idle = await page.evaluate(BOXES)
            await page.click("#talk")
            await page.wait_for_selector("#waterfall li:last-child:has-text('player')")
            await page.wait_for_selector(".entry.agent:has-text('number 3')")
            assert await page.locator("#waterfall li").count() == 9
            assert (
                await page.evaluate(OUT_OF_SIGHT, ".timing, #waterfall *, #typing, #talk, #interrupt") == []
            )
            boxes = await page.evaluate(BOXES)
            title, before = boxes.pop("#waterfall-title"), idle.pop("#waterfall-title")
            assert boxes == idle and abs(title[1] - before[1]) < 10, "it stands beside a larger number now"
            assert errors == []

    run(act())


def test_before_a_call_the_page_says_what_answers_and_what_to_say(server: Server, tmp_path: Path) -> None:
    async def act() -> None:
        async with browsing(tmp_path, [silence(30)], viewport=PHONE) as (page, errors):
            await page.goto(server.http)
            await page.wait_for_selector("#models")
            assert (await page.inner_text("#models")).split("\n") == [
                *("Language model", "scripted"),
                *("Recogniser", "scripted"),
                *("Voice", "scripted"),
            ]
            assert await page.locator(".intro li").count() == 3
            assert await page.evaluate(OUT_OF_SIGHT, ".intro, .intro *, #models, #models *") == []
            await page.fill("#text", "Hello.")
            await page.press("#text", "Enter")
            await page.wait_for_selector(".entry.agent:has-text('number 1')")
            assert await page.locator(".intro").is_hidden()
            assert errors == []

    run(act())


async def fine(page: Page) -> None:
    found = await Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_trouble_has_its_own_words_and_colours_and_moves_nothing(
    server: Server, tmp_path: Path, scheme: str
) -> None:
    """Amber while it retries, which a screen reader announces politely; red when it has given up."""

    async def act() -> None:
        async with (
            wire_to(server.port) as wire,
            browsing(
                tmp_path, [silence(60)], viewport=PHONE, color_scheme=scheme, reduced_motion="reduce"
            ) as (
                page,
                errors,
            ),
        ):
            await page.goto(wire.http)
            await page.click("#talk")
            await page.wait_for_selector("#state[data-state=listening]")
            calm = await page.evaluate(COLOUR, "state")
            await page.fill("#text", "Tell me a story.")
            await page.press("#text", "Enter")
            await page.wait_for_selector(".entry.agent:has-text('number 1')")
            boxes = await page.evaluate(BOXES)
            await wire.cut(refuse=True)
            await page.wait_for_selector("#state[data-state=reconnecting]")
            amber = await page.evaluate(COLOUR, "state")
            assert await page.inner_text("#state") == "Reconnecting" and amber != calm
            assert await page.inner_text("#announce") == (
                "The connection was lost. Reconnecting. The conversation is kept."
            )
            assert await page.get_attribute("#announce", "role") == "status", "which is polite"
            assert await page.get_by_role("alert").count() == 0
            await fine(page)
            assert await page.evaluate(BOXES) == boxes
            await page.wait_for_function(IMPATIENT)
            red = await page.evaluate(COLOUR, "state")
            assert await page.inner_text("#state") == "Not connected" and red not in (calm, amber)
            assert "The server does not answer." in await page.get_by_role("alert").inner_text()
            await fine(page)
            assert await page.evaluate(BOXES) == boxes
            await wire.mend()
            await page.click("#again")
            await page.wait_for_selector("#state[data-state=listening]")
            assert await page.evaluate(COLOUR, "state") == calm
            assert await page.locator("#error").is_hidden()
            await page.click("#talk")
            await page.wait_for_selector(READY)
            assert await page.inner_text("#state") == "Ready"
            assert errors == []

    run(act())
