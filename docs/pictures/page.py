"""Draw the pictures of the page in docs/guides/page.md: hold a real call in Chromium, and photograph it.

.venv/bin/python docs/pictures/page.py question.wav

The microphone is the recording, twice: the second time it interrupts the answer. The recogniser, the turn
model and the voice are the default ones; the answer is scripted. Run it on an idle machine. It needs the
extra ``dev`` and Chromium.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import soundfile
from playwright.async_api import Browser, async_playwright, expect

from rejoinder.agent.server.own_server import own_server

FOLDER = Path(__file__).parent
PAUSES = (1.0, 5.0, 20.0)
"""Silence before the first question, between both, and after the second one, in seconds."""
BEGINNING = "It is mild and dry, with a little"
"""Words of the second answer that the page shows before the picture is taken."""
ANSWER = f"{BEGINNING} sun in the afternoon. Tomorrow brings rain from the west, and some wind."
CALL_MS = 40_000.0
"""Longest wait for them."""
VIEWS: dict[str, dict[str, Any]] = {
    "page.png": {"viewport": {"width": 1000, "height": 760}},
    "page-phone.png": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}
"""The options of the browser's page for each picture."""


def microphone(question: Path) -> tuple[np.ndarray, int]:
    """Return what the microphone records, and its rate in hertz."""
    audio, rate = soundfile.read(question, dtype="float32", always_2d=True)
    asked, silences = audio.mean(axis=1), [np.zeros(int(seconds * rate), np.float32) for seconds in PAUSES]
    return np.concatenate((silences[0], asked, silences[1], asked, silences[2])), rate


async def photograph(browser: Browser, url: str, options: dict[str, Any], path: Path) -> None:
    """Hold a call on the page, and write a picture of the second answer."""
    page = await browser.new_page(**options)
    await page.goto(url)
    await page.click("#talk")
    second = page.locator("#transcript .agent .text").nth(1)
    await expect(second).to_contain_text(BEGINNING, timeout=CALL_MS)
    await page.screenshot(path=path)
    await page.close()


async def main(question: Path) -> None:
    """Start a server and a browser, and write the pictures."""
    flags = {"llm": f"scripted:llm|{ANSWER}"}
    with TemporaryDirectory() as folder:
        wav = Path(folder, "microphone.wav")
        soundfile.write(wav, *microphone(question), subtype="PCM_16")
        arguments = [
            "--no-sandbox",
            "--use-fake-ui-for-media-stream",
            "--use-fake-device-for-media-stream",
            f"--use-file-for-fake-audio-capture={wav}%noloop",
        ]
        async with own_server(flags) as address, async_playwright() as driver:
            for name, options in VIEWS.items():
                browser = await driver.chromium.launch(
                    executable_path=shutil.which("chromium"), args=arguments
                )
                await photograph(browser, f"http://{urlsplit(address).netloc}/", options, FOLDER / name)
                await browser.close()
                print(FOLDER / name)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]))) if len(sys.argv) == 2 else sys.exit(__doc__)
