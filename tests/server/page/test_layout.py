"""Where things are on the page: nothing moves when a call starts, nothing is cut off; in a real Chromium."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, ViewportSize
from support.browsing import (
    CHROMIUM,
    LAPTOP,
    PHONE,
    RECONNECTING,
    SCHEMES,
    becomes_true,
    browsing,
    noise,
    run,
    set_font_size,
    silence,
    wire_to,
)
from support.serving import Server, serving

from rejoinder.agent.model_names import names
from rejoinder.models.loading import Specs
from rejoinder.models.specs import LANGUAGE_MODELS

STORY = " ".join(f"This is sentence number {number} of a long story." for number in range(1, 12))
LARGE_TEXT = 32
"""Twice the browser's own setting for the size of text, in pixels."""
TABLET: ViewportSize = {"width": 1024, "height": 768}
SMALL: ViewportSize = {"width": 320, "height": 640}
SIZES = {
    "laptop": (LAPTOP, 16),
    "tablet": (TABLET, 16),
    "phone": (PHONE, 16),
    "small-phone": (SMALL, 16),
    "laptop-large-text": (LAPTOP, LARGE_TEXT),
    "phone-large-text": (PHONE, LARGE_TEXT),
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


async def boxes_of(page: Page, size: str) -> dict[str, Any]:
    """Return where things are on the page at one of its sizes."""
    viewport, font_size = SIZES[size]
    await page.set_viewport_size(viewport)
    await set_font_size(page, font_size)
    boxes: dict[str, Any] = await page.evaluate(BOXES)
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= viewport["width"], f"{size}: wider than the screen"
    return boxes


def test_nothing_moves_when_a_call_starts_and_nothing_is_cut_off(server: Server, tmp_path: Path) -> None:
    async def act() -> None:
        async with browsing(tmp_path, [silence(30)]) as (page, errors):
            await page.goto(server.http)
            await page.wait_for_selector("#models")
            idle = {size: await boxes_of(page, size) for size in SIZES}
            for size, boxes in idle.items():
                assert boxes["#mute"][2:] == boxes["#interrupt"][2:], f"{size}: not of one size"
                assert side_by_side(boxes) or boxes["#mute"][0] == boxes["#interrupt"][0], (
                    f"{size}: neither in one line nor in one column"
                )
            await page.click("#talk")
            await page.wait_for_selector("#state[data-state=listening]")
            await page.wait_for_selector("#mute:has-text('Mute'):enabled")
            assert {size: await boxes_of(page, size) for size in SIZES} == idle
            await page.click("#talk")
            await page.wait_for_selector(READY)
            assert {size: await boxes_of(page, size) for size in SIZES} == idle
            assert errors == []

    run(act())


def test_waterfall_is_seen_whole_and_an_answer_moves_nothing(server: Server, tmp_path: Path) -> None:
    sizes = ("laptop", "tablet", "phone")

    async def act() -> None:
        async with browsing(tmp_path, [silence(1), noise(1), silence(30)]) as (page, errors):
            await page.goto(server.http)
            await page.wait_for_selector("#models")
            idle = {size: await boxes_of(page, size) for size in sizes}
            await page.click("#talk")
            await page.wait_for_selector("#waterfall li:last-child:has-text('player')")
            await page.wait_for_selector(".entry.agent:has-text('number 3')")
            assert await page.locator("#waterfall li").count() == 9
            for size in sizes:
                boxes = await boxes_of(page, size)
                hidden = await page.evaluate(
                    OUT_OF_SIGHT, ".timing, #waterfall *, #typing, #talk, #interrupt"
                )
                assert hidden == [], size
                title, before = boxes.pop("#waterfall-title"), idle[size].pop("#waterfall-title")
                assert boxes == idle[size], size
                assert abs(title[1] - before[1]) < 10, f"{size}: more than for the larger number beside it"
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


async def colours(page: Page) -> dict[str, str]:
    """Return the colour of the state in each scheme, in which axe-core finds nothing wrong with the page."""
    found = {}
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme)
        found[scheme] = str(await page.evaluate(COLOUR, "state"))
        result = await Axe().run(page, options={"resultTypes": ["violations"]})
        assert result.violations_count == 0, f"{scheme}: {result.generate_report()}"
    return found


def test_trouble_has_its_own_words_and_colours_and_moves_nothing(server: Server, tmp_path: Path) -> None:
    """Amber while it retries, which a screen reader announces politely; red when it has given up."""

    async def act() -> None:
        async with (
            wire_to(server.port) as wire,
            browsing(tmp_path, [silence(60)], viewport=PHONE) as (page, errors),
        ):
            await page.goto(wire.http)
            await page.click("#talk")
            await page.wait_for_selector("#state[data-state=listening]")
            calm = await colours(page)
            await page.fill("#text", "Tell me a story.")
            await page.press("#text", "Enter")
            await page.wait_for_selector(".entry.agent:has-text('number 1')")
            boxes = await page.evaluate(BOXES)
            await wire.cut(refuse=True)
            await becomes_true(page, RECONNECTING)
            assert await page.inner_text("#state") == "Reconnecting"
            assert await page.inner_text("#announce") == (
                "The connection was lost. Reconnecting. The conversation is kept."
            )
            assert await page.get_attribute("#announce", "role") == "status", "which is polite"
            assert await page.get_by_role("alert").count() == 0
            amber = await colours(page)
            assert await page.evaluate(BOXES) == boxes
            await becomes_true(page, IMPATIENT)
            assert await page.inner_text("#state") == "Not connected"
            assert "The server does not answer." in await page.get_by_role("alert").inner_text()
            red = await colours(page)
            assert await page.evaluate(BOXES) == boxes
            for scheme in SCHEMES:
                assert len({calm[scheme], amber[scheme], red[scheme]}) == 3, scheme
            wire.mend()
            await page.click("#again")
            await page.wait_for_selector("#state[data-state=listening]")
            assert await colours(page) == calm
            assert await page.locator("#error").is_hidden()
            await page.click("#talk")
            await page.wait_for_selector(READY)
            assert await page.inner_text("#state") == "Ready"
            assert errors == []

    run(act())


@pytest.mark.parametrize("size", ["small", "medium", "tiny"])
def test_users_of_the_small_model_read_the_name_of_the_better_one(
    server: Server, tmp_path: Path, size: str
) -> None:
    specs = Specs(llm=LANGUAGE_MODELS[size])
    body, is_named = {"data": [{"models": names(specs)}]}, size == "small"

    async def act() -> None:
        async with browsing(tmp_path, [silence(1)]) as (page, errors):
            await page.route("**/v1/models", lambda route: route.fulfill(json=body))
            await page.goto(server.http)
            await page.wait_for_selector("#models")
            assert await page.locator("#larger").is_visible() == is_named
            for size in SIZES:
                await boxes_of(page, size)
            assert errors == []

    run(act())
