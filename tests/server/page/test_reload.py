"""What a page keeps over a reload, and addresses that cannot call; in a real Chromium."""

from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from playwright.async_api import Page
from support.browsing import CHROMIUM, browsing, run
from support.ports import unused_port
from support.servers.chat import chat_server, token
from support.serving import serving

STORY = " ".join(f"This is sentence number {number} of a long story." for number in range(1, 12))
WORDS = "all => all.map(node => node.firstChild.data.trim())"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


async def type_in(page: Page, text: str) -> None:
    await page.fill("#text", text)
    await page.press("#text", "Enter")


def test_page_that_is_loaded_again_in_mid_sentence_remembers_what_was_heard(tmp_path: Path) -> None:
    """There is one line only, so a page that has gone has let go of it."""
    prompts: list[list[dict[str, str]]] = []

    def answer(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        prompts.append(messages)
        handler.wfile.write(token(STORY) + token(None, "stop") + b"data: [DONE]\n\n")

    async def act() -> None:
        async with browsing(tmp_path, None) as (page, errors):
            await page.goto(server.http)
            assert await page.locator("#error").is_hidden()
            await type_in(page, "Tell me a story.")
            await page.wait_for_selector(".entry.agent:has-text('number 2')")
            await page.reload()
            await page.wait_for_selector("#error .title:has-text('The page was reloaded.')")
            question, heard = await page.locator(".entry .text").evaluate_all(WORDS)
            assert question == "Tell me a story." and "number 2" in heard
            assert STORY.startswith(heard) and len(heard) < len(STORY), "no more than was heard"
            assert server.sessions() == 0 and await page.get_attribute("#state", "data-state") == "idle"

            await page.click("text=Go on")
            await page.wait_for_selector("#state[data-state=listening]")
            await page.reload()  # before anything was said
            await type_in(page, "Go on, please.")
            await page.wait_for_selector(".entry.agent >> nth=1")
            prompted = [(message["role"], message["content"]) for message in prompts[-1][-3:]]
            assert prompted == [("user", question), ("assistant", heard), ("user", "Go on, please.")]
            assert await page.locator(".divider").count() == 0

            await page.click("#talk")  # Stop: that was the end of it
            await page.reload()
            assert await page.locator(".entry").count() == 0 and await page.locator("#error").is_hidden()
            assert errors == []

    port = unused_port()
    llm = f"openai:http://127.0.0.1:{port}/v1#m"
    with chat_server(port, answer), serving(tmp_path, llm=llm, max_sessions="1") as server:
        run(act())


def test_typed_text_stays_where_no_call_is_possible(tmp_path: Path) -> None:
    """Without https, and not on this machine: no browser plays a call there."""

    async def act() -> None:
        async with browsing(tmp_path, None) as (page, errors):
            await page.goto(f"http://talk.test:{server.port}")
            await type_in(page, "Hello there")
            await page.wait_for_selector("#error .title:has-text('This address cannot be used for calls.')")
            assert await page.input_value("#text") == "Hello there"
            assert await page.locator(".entry").count() == 0 and server.sessions() == 0
            assert errors == []

    with serving(tmp_path) as server:
        run(act())
