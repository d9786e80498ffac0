"""The page by keyboard alone, on a phone's screen, and as a screen reader finds it; in a real Chromium."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page
from support.browsing import CHROMIUM, PHONE, SCHEMES, becomes_true, browsing, noise, run, silence
from support.serving import Server, serving

STORY = " ".join(f"This is sentence number {number} of a long story." for number in range(1, 12))
SECOND = f"The second answer is a good deal longer than it needs to be{', and goes on' * 10}."
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SPY = """
window.asked = [];
const { mediaDevices } = navigator, getUserMedia = mediaDevices.getUserMedia.bind(mediaDevices);
mediaDevices.getUserMedia = (wanted) => (asked.push(wanted.audio), getUserMedia(wanted));
const { setSinkId } = AudioContext.prototype;
AudioContext.prototype.setSinkId = function (id) {
  asked.push({ sink: id });
  return setSinkId.call(this, id);
};
"""
"""Notes what the page asks the browser for, and lets it have it."""

TOO_WIDE = """(width) => [...document.querySelectorAll("body *")]
    .filter((element) => element.getBoundingClientRect().right > width).map((element) => element.outerHTML)"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), llm=f"scripted:llm|{STORY}|{SECOND}") as running:
        yield running


async def state(page: Page, name: str) -> None:
    await page.wait_for_selector(f"#state[data-state={name}]")


async def focused(page: Page) -> str:
    """Return what has the focus, which must be visible."""
    name, outline = await page.evaluate(
        "() => [document.activeElement.id || document.activeElement.textContent.trim(),"
        " getComputedStyle(document.activeElement).outlineStyle]"
    )
    assert outline == "solid", f"the focus on {name} is not to be seen"
    return str(name)


def test_call_by_keyboard_alone(server: Server, tmp_path: Path) -> None:
    """Talk, type over the answer, stop an answer, hang up; without a mouse."""

    async def tab_to(page: Page, name: str, key: str = "Tab") -> None:
        for _ in range(12):
            await page.keyboard.press(key)
            if await focused(page) == name:
                return
        raise AssertionError(f"no way to {name}")

    async def act() -> None:
        async with browsing(tmp_path, [silence(30)]) as (page, errors):
            await page.goto(server.http)
            await tab_to(page, "talk")
            await page.keyboard.press("Enter")
            await state(page, "listening")
            await tab_to(page, "text")
            await page.keyboard.type("Tell me a story.")
            await page.keyboard.press("Enter")
            await page.wait_for_selector(".entry.agent:has-text('sentence number 1')")
            await page.keyboard.type("Enough.")
            await page.keyboard.press("Enter")
            await page.wait_for_selector(".entry.agent.cut")
            await page.wait_for_selector(".entry.agent:has-text('The second')")
            assert await page.locator(".entry.user .text").all_inner_texts() == [
                "Tell me a story.",
                "Enough.",
            ]
            await page.keyboard.press("Escape")
            await page.wait_for_selector(".entry.agent.cut >> nth=1")
            await state(page, "listening")
            heard = await page.locator(".entry.agent .text").evaluate_all(
                "all => all.map(p => p.firstChild.data)"
            )
            assert STORY.startswith(heard[0]) and SECOND.startswith(heard[1])
            assert len(heard[0]) < 0.5 * len(STORY) and len(heard[1]) < len(SECOND)
            await tab_to(page, "settings-title", "Shift+Tab")
            await page.keyboard.press("Space")
            await tab_to(page, "read-out")
            await page.keyboard.press("Space")
            await page.focus("#text")
            await page.keyboard.type("More")
            await page.keyboard.press("Enter")
            assert await page.text_content("#said") == "You: More"
            await page.focus("#talk")
            await page.keyboard.press("Space")
            await state(page, "idle")
            assert errors == []

    run(act())


def test_nothing_is_in_the_way_of_a_screen_reader_or_a_small_screen(server: Server, tmp_path: Path) -> None:
    """By axe-core's rules, contrast and size of targets among them; and nothing is wider than a phone."""

    async def fits(page: Page) -> None:
        for scheme in SCHEMES:
            await page.emulate_media(color_scheme=scheme)
            found = await Axe().run(page, options={"runOnly": RULES, "resultTypes": ["violations"]})
            assert found.violations_count == 0, f"{scheme}: {found.generate_report()}"
            assert await page.evaluate(TOO_WIDE, PHONE["width"]) == [], scheme

    async def act() -> None:
        microphone = [silence(1), noise(1), silence(30)]
        async with browsing(tmp_path, microphone, viewport=PHONE) as (page, _):
            await page.goto(server.http)
            await fits(page)
            closed = await page.locator("summary").bounding_box()
            await page.click("summary")
            assert await page.locator("summary").bounding_box() == closed, (
                "it can be closed where it was opened"
            )
            await page.click("#talk")
            await page.wait_for_selector(".entry.agent:has-text('This')")
            assert await page.evaluate("document.getAnimations().length") == 0, "the user wants none"
            await page.click("#interrupt")
            await page.wait_for_selector(".entry.agent.cut")
            await page.wait_for_selector("#waterfall .total")
            await fits(page)
            log = page.get_by_role("log", name="Conversation")
            assert await log.get_attribute("aria-live") == "off", "the agent's voice would be talked over"
            await page.click("#talk")
            await page.context.set_offline(True)
            await page.click("#talk")
            await page.wait_for_selector("#error")
            await fits(page)
            assert await page.get_by_role("alert").count() == 1

    run(act())


def test_devices_are_chosen_and_echo_is_to_be_cancelled(server: Server, tmp_path: Path) -> None:
    async def act() -> None:
        async with browsing(tmp_path, [silence(30)]) as (page, errors):
            await page.add_init_script(SPY)
            await page.goto(server.http)
            await page.click("summary")
            await page.click("#talk")
            await state(page, "listening")
            await page.wait_for_selector("#processing:has-text('echo cancellation')")
            await page.select_option("#microphone", label="Fake Audio Input 2")
            await page.select_option("#speaker", label="Fake Audio Output 1")
            await becomes_true(page, "() => asked.length === 3")
            first, second, sink = await page.evaluate("asked")
            chosen = [await page.input_value("#microphone"), await page.input_value("#speaker")]
            assert first["echoCancellation"] is True and "deviceId" not in first
            assert second == {**first, "deviceId": chosen[0]} and sink == {"sink": chosen[1]}
            assert await page.locator("#error").is_hidden()
            await page.click("text=Mute")
            await page.click("text=Unmute")
            await page.wait_for_selector("#mute:has-text('Mute')")
            await page.reload()
            await becomes_true(page, "([a, b]) => microphone.value === a && speaker.value === b", chosen)
            assert errors == []

    run(act())
