"""The page when its server is killed in mid-reply, and started again; in a real Chromium."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.browsing import CHROMIUM, RECONNECTING, becomes_true, browsing, noise, run, silence
from support.patience import PATIENCE
from support.serving import serving

HEARD = """() => Array.from(
  document.querySelectorAll(".entry.agent .text"), (shown) => shown.firstChild.data).join(" ")"""
"""The agent's words without those that were not heard, which are struck out behind them."""
STORY = " ".join(f"This is sentence number {number} of a long story." for number in range(1, 6))

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


def test_page_goes_on_after_its_server_was_killed(tmp_path: Path) -> None:
    """The page shows each word that was heard, and each once; then the call goes on."""
    settings = {"llm": f"scripted:llm|{STORY}|Bye.", "conversations": f"sqlite:{tmp_path / 'kept.db'}"}
    with ExitStack() as first, ExitStack() as second:
        server = first.enter_context(serving(tmp_path, clean=False, **settings))

        def kill() -> None:
            server.process.kill()
            server.process.wait(PATIENCE)

        async def act() -> None:
            async with browsing(tmp_path, [silence(1), noise(1), silence(60)]) as (page, _):
                await page.goto(server.http)
                await page.click("#talk")
                await page.wait_for_selector(".entry.agent:has-text('number 2')")
                await asyncio.to_thread(kill)
                await becomes_true(page, RECONNECTING)
                again = await asyncio.to_thread(
                    second.enter_context, serving(tmp_path, port=server.port, **settings)
                )
                await page.wait_for_selector(".entry.agent:has-text('number 5')")
                await page.wait_for_selector("#state[data-state=listening]")
                assert " ".join((await page.evaluate(HEARD)).split()) == STORY
                assert await page.locator("#error").is_hidden()
                await page.fill("#text", "Thank you.")
                await page.press("#text", "Enter")
                await page.wait_for_selector(".entry.agent:has-text('Bye.')")
                assert again.port == server.port

        run(act())
