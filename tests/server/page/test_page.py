"""The page in a real Chromium, with a recording as its microphone and the real server behind it."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page
from support.browsing import CHROMIUM, becomes_true, browsing, question, run, silence

from rejoinder.agent.server.own_server import own_server

LONG_ANSWER = " ".join(f"This is sentence number {number} of a long story." for number in range(1, 12))

FIRST_WORDS = """() => [...document.querySelectorAll(".entry.agent .text")]
  .map((text) => text.innerText).find((text) => text.includes("This is sentence"))"""
"""The answer when it has three words. A busy machine takes seconds to ask for it afterwards."""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.weights,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


def words(text: str) -> list[str]:
    return text.split()


async def talking(page: Page, url: str) -> None:
    await page.goto(url.replace("ws://", "http://").partition("v1/")[0])
    await page.click("#talk")


def test_question_is_transcribed_answered_and_heard(tmp_path: Path) -> None:
    async def act() -> None:
        microphone = [silence(1.5), question(), silence(20)]
        async with own_server({}) as url, browsing(tmp_path, microphone) as (page, errors):
            await talking(page, url)
            await page.wait_for_selector("#state[data-state=listening]")
            await page.wait_for_selector(".entry.user:has-text('weather')")
            await page.wait_for_selector("#state[data-state=agent]")
            await page.wait_for_selector("#waterfall li:last-child:has-text('player')")
            parts = await page.locator("#waterfall ol li data").evaluate_all("all => all.map(d => +d.value)")
            total = await page.locator("#waterfall .total").inner_text()
            assert abs(sum(parts) - float(total.split()[0])) <= len(parts)  # each is rounded for the eye
            assert await page.locator(".entry.agent .text").first.inner_text()
            assert "echo cancellation" in (await page.locator("#processing").text_content() or "")
            await page.click("#talk")
            await page.wait_for_selector("#state[data-state=idle]")
            assert await page.locator("#error").is_hidden()
            assert errors == []

    run(act())


def test_speaking_over_the_answer_cuts_it(tmp_path: Path) -> None:
    """Its words appear as they are heard; those that were not are shown as such."""

    async def act() -> None:
        # On a busy machine the first one may be heard in part, and its answer cut before it is heard.
        microphone = [silence(1.5), *[question(), silence(4)] * 5, silence(20)]
        flags = {"llm": f"scripted:llm|{LONG_ANSWER}"}
        async with own_server(flags) as url, browsing(tmp_path, microphone) as (page, errors):
            sent: list[dict[str, Any]] = []
            page.on("websocket", lambda ws: ws.on("framesent", lambda frame: sent.append(json.loads(frame))))
            await talking(page, url)
            text = page.locator(".entry.agent:has-text('This is sentence') .text").first
            early = words(await becomes_true(page, FIRST_WORDS))
            assert len(early) < 8, "only what has been played"
            cut = page.locator(".entry.agent.cut:has-text('This is sentence')").first
            await cut.wait_for()
            played_ms = int(await cut.get_attribute("data-played-ms") or 0)
            cursor = next(e for e in sent if e["type"] == "conversation.item.truncate")
            assert cursor["audio_end_ms"] == played_ms
            assert cursor["item_id"] == await cut.get_attribute("data-item")
            assert 500 < played_ms < 15_000, "something of it was heard, and not all"
            # Both at once: the server's exact text may move the cut between two reads.
            both = await text.evaluate(
                "p => [p.firstChild.data, p.querySelector('.unheard')?.innerText ?? '']"
            )
            heard, unheard = map(words, both)
            assert early == heard[: len(early)] and len(early) < len(heard)
            assert [*heard, *unheard] == words(LONG_ANSWER)[: len(heard) + len(unheard)]
            assert errors == []

    run(act())
