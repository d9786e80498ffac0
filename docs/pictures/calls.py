"""Draw the pictures of /calls in docs/guides/calls.md: hold real calls, and photograph the page.

.venv/bin/python docs/pictures/calls.py question.wav

The caller is ``question.wav``, twice in each call: the second time it interrupts the answer. The recogniser,
the turn model and the voice are the default ones; the answers are scripted. The first call is over when the
pictures are taken, and in the second one the agent speaks. Run it on an idle machine. It needs the extra
``dev`` and Chromium.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import soundfile
from playwright.async_api import Browser, async_playwright

from rejoinder import Agent
from rejoinder.agent.server.own_server import own_server
from rejoinder.client import Call, ReplyDone, connect

FOLDER = Path(__file__).parent
PIECE_SECONDS = 0.1
"""Length of a message with audio, which is sent in real time."""
HEARD_SECONDS = 4.0
"""How long the caller listens to the first answer before the second question interrupts it."""
ANSWERS = (
    'One moment. @forecast {"city": "Bergen"}',
    "It is mild and dry, with a little sun in the afternoon. Tomorrow brings rain from the west, and wind.",
    "In Bergen it is twelve degrees, and it stays dry until the evening.",
)
VIEWS: dict[str, dict[str, Any]] = {
    "calls.png": {"viewport": {"width": 1280, "height": 900}},
    "calls-phone.png": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}
"""The options of the browser's page for each picture."""

agent = Agent()


@agent.tool
def forecast(city: str) -> str:
    """Return the weather of a city."""
    return f"{city}: 12 degrees, dry, rain from the west tomorrow"


async def listen(call: Call, replies: asyncio.Semaphore) -> None:
    """Count the replies that have ended, until the call is over."""
    async for event in call:
        if isinstance(event, ReplyDone):
            replies.release()


async def say(call: Call, audio: np.ndarray, rate: int) -> None:
    """Send audio at the speed at which a microphone records it."""
    size = int(PIECE_SECONDS * rate)
    for begin in range(0, len(audio), size):
        await call.send_audio(audio[begin : begin + size], rate)
        await asyncio.sleep(PIECE_SECONDS)


async def converse(call: Call, question: np.ndarray, rate: int) -> None:
    """Ask, interrupt the answer with the same question, and hear the second answer."""
    replies = asyncio.Semaphore(0)
    listening = asyncio.create_task(listen(call, replies))
    silence = np.zeros(rate, np.float32)
    await say(call, np.concatenate((silence, question)), rate)
    talking = asyncio.create_task(say(call, np.tile(silence, 60), rate))
    await replies.acquire()  # of the reply that calls the tool
    await asyncio.sleep(HEARD_SECONDS)
    talking.cancel()
    await say(call, question, rate)
    talking = asyncio.create_task(say(call, np.tile(silence, 60), rate))
    for _ in range(2):  # the reply that was interrupted, and the one to the second question
        await replies.acquire()
    talking.cancel()
    listening.cancel()
    await asyncio.wait((talking, listening))


def found(page: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the calls that are over, and those in which the agent speaks an answer."""
    with urlopen(f"{page}/api/calls") as answer:
        listed = json.load(answer)
    return listed["calls"], [call for call in listed["live"] if call["floor"] == "agent" and call["budget"]]


async def photograph(browser: Browser, url: str, call: str, options: dict[str, Any], path: Path) -> None:
    """Write a picture of one call."""
    page = await browser.new_page(**options)
    await page.goto(f"{url}#{call}")
    await page.wait_for_selector("#turns li .steps")
    await page.wait_for_selector(".lane.agent > svg")
    await page.screenshot(path=path)
    await page.close()


async def main(question: Path) -> None:
    """Start a server and a browser, and write the pictures."""
    audio, rate = soundfile.read(question, dtype="float32", always_2d=True)
    flags = {"llm": f"scripted:llm|{'|'.join(ANSWERS)}", "agent": f"{__file__}:agent"}
    os.environ |= {"REJOINDER_RECORDINGS": tempfile.mkdtemp(), "REJOINDER_RECORDING": "always"}
    async with own_server(flags) as address, async_playwright() as driver:
        page = f"http://{urlsplit(address).netloc}/calls"
        chromium = shutil.which("chromium")
        browser = await driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        async with connect(address) as call:
            await converse(call, audio.mean(axis=1), rate)
        async with connect(address) as call:
            speaking = asyncio.create_task(converse(call, audio.mean(axis=1), rate))
            over, running = await asyncio.to_thread(found, page)
            while not (over and running):
                await asyncio.sleep(PIECE_SECONDS)
                over, running = await asyncio.to_thread(found, page)
            for name, options in VIEWS.items():
                await photograph(browser, page, over[0]["id"], options, FOLDER / name)
                print(FOLDER / name)
            await speaking
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]))) if len(sys.argv) == 2 else sys.exit(__doc__)
