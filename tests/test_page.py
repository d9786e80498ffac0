"""The page in a real Chromium, with a recording as its microphone and the real server behind it."""

import asyncio
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.async_api import Page, async_playwright

from rejoinder.agent.own_server import own_server
from rejoinder.agent.recordings import RecordingsMissing, read_set, speech_folder

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
RATE = 48_000
QUIET = ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
LONG_ANSWER = " ".join(f"This is sentence number {number} of a long story." for number in range(1, 12))

pytestmark = [
    pytest.mark.browser,
    pytest.mark.weights,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


def question() -> np.ndarray:
    """Return somebody asking about the weather, at 48 kHz."""
    try:
        recordings = read_set(speech_folder(), "assistant_utterances")
    except RecordingsMissing as error:
        pytest.skip(str(error))
    return next(r for r in recordings if r.path.stem == "azure_whatstheweatherlike").load(RATE)


def silence(seconds: float) -> np.ndarray:
    return np.zeros(int(seconds * RATE), np.float32)


async def in_browser(microphone: list[np.ndarray], llm: str | None, folder: Path, act) -> list[str]:
    """Open the page with the given audio as its microphone, run ``act(page)``, return the page's errors."""
    wav = folder / "microphone.wav"
    soundfile.write(wav, np.concatenate(microphone), RATE, subtype="PCM_16")
    arguments = [
        *QUIET,
        "--no-sandbox",
        "--disable-gpu",
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={wav}%noloop",
        "--autoplay-policy=no-user-gesture-required",
    ]
    errors: list[str] = []
    async with own_server({"llm": llm}) as url, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        page = await browser.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(url.replace("ws://", "http://").partition("v1/")[0])
        await page.click("#talk")
        await act(page)
        await page.screenshot(path=folder / "page.png")
        await browser.close()
    return errors


def test_a_question_is_transcribed_answered_and_heard(tmp_path: Path) -> None:
    async def act(page: Page) -> None:
        await page.wait_for_selector("#state[data-state=listening]", timeout=15_000)
        await page.wait_for_selector(".entry.user:has-text('weather')", timeout=15_000)
        await page.wait_for_selector(".entry.agent", timeout=15_000)
        await page.wait_for_selector("#state[data-state=agent]", timeout=15_000)
        await page.wait_for_selector("#waterfall .total:has-text('ms')", timeout=15_000)
        parts = await page.locator("#waterfall ol li data").evaluate_all("all => all.map(d => +d.value)")
        total = await page.locator("#waterfall .total").inner_text()
        assert abs(sum(parts) - float(total.split()[0])) <= len(parts)  # each is rounded for the eye
        assert await page.locator(".entry.agent").first.inner_text()
        await page.click("#talk")
        await page.wait_for_selector("#state[data-state=idle]", timeout=15_000)
        assert await page.locator("#error").is_hidden()

    microphone = [silence(1.5), question(), silence(20)]
    assert asyncio.run(in_browser(microphone, None, tmp_path, act)) == []


def test_speaking_over_the_answer_cuts_it(tmp_path: Path) -> None:
    async def act(page: Page) -> None:
        await page.wait_for_selector(".entry.agent", timeout=20_000)
        await page.wait_for_selector(".entry.agent.cut", timeout=20_000)
        cut = page.locator(".entry.agent.cut").first
        played_ms = int(await cut.get_attribute("data-played-ms") or 0)
        assert played_ms > 500, "something of it was heard"
        assert played_ms < 15_000, "and not all of it"
        assert await cut.locator(".unheard").count() == 1

    microphone = [silence(1.5), question(), silence(4), question(), silence(20)]
    llm = f"scripted:llm|{LONG_ANSWER}"
    assert asyncio.run(in_browser(microphone, llm, tmp_path, act)) == []
