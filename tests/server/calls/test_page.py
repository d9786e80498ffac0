"""The page of calls in a real Chromium: live calls, hostile words, filters, a key, desktop and telephone."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page
from support.browsing import CHROMIUM, LAPTOP, PHONE, SCHEMES, browsing, run
from support.serving import PATIENCE, Server, Talk, serving

from rejoinder.agent.server.keys import hashed

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
TOOL = {"type": "function", "name": "look", "description": "Look.", "parameters": {"type": "object"}}
CALLS_TOOL = f'{HOSTILE} is what you say. @look {{"place": "{HOSTILE}"}}'
LLM = f"scripted:llm|{CALLS_TOOL}|It is warm and dry and calm in all of Rome today.{' It stays so.' * 20}"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), llm=LLM) as running:
        yield running


def type_in(talk: Talk, item: dict[str, Any]) -> None:
    talk.send("conversation.item.create", item=item)
    talk.send("response.create")


def hold_call(server: Server, talk: Talk) -> str:
    """Type a hostile question, answer the tool with hostile words, interrupt the answer; return the call."""
    talk.send("session.update", session={"type": "realtime", "tools": [TOOL]})
    question = {"type": "input_text", "text": HOSTILE}
    type_in(talk, {"type": "message", "role": "user", "content": [question]})
    asked = talk.until("response.done")["response"]["output"][-1]
    type_in(talk, {"type": "function_call_output", "call_id": asked["call_id"], "output": HOSTILE})
    talk.until("response.output_audio.delta")
    talk.speak()
    assert talk.until("response.done")["response"]["status"] == "cancelled"
    (live,) = server.get("/calls/api/calls")["live"]
    return str(live["id"])


def wait_ended(server: Server, id_: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while id_ not in {one["id"] for one in server.get("/calls/api/calls")["calls"]}:
        assert time.monotonic() < deadline, "the call is still among the running ones"
        time.sleep(0.05)


def saved(path: Path) -> list[dict[str, Any]]:
    """Return the calls in a file that the browser has saved."""
    return [json.loads(line) for line in path.read_text().splitlines()]


async def is_accessible(page: Page) -> None:
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme)
        result = await Axe().run(page, options={"resultTypes": ["violations"]})
        assert result.violations_count == 0, f"{scheme}: {result.generate_report()}"
    width = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert width <= 0, "wider than the screen"


def test_call_is_shown_while_it_runs_and_after_its_end(server: Server, tmp_path: Path) -> None:
    async def act() -> None:
        with Talk(server) as talk:
            async with browsing(tmp_path, None, viewport=LAPTOP) as (page, errors):
                id_ = hold_call(server, talk)
                await page.goto(f"{server.http}/calls")
                await page.click(f"#live [data-id={id_}] a")
                await page.wait_for_selector("#turn-2 .unheard")
                assert await page.inner_text("#turn-1 .user p") == HOSTILE
                assert HOSTILE in await page.inner_text("#turn-1 .agent p")
                cut = page.locator("#turn-2")
                assert await cut.locator(".unheard").inner_text()
                assert "Agent, interrupted" in await cut.inner_text()
                await page.click("#turns summary")
                tool = await page.locator("#turns details").inner_text()
                assert "Tool look" in tool and f'"place": "{HOSTILE}"' in tool
                talk.until("response.done")
                await page.wait_for_selector("#turn-3 .steps li:has-text('send')")
                assert await page.locator("#turns details").evaluate("each => each.open"), "it stays open"
                await is_accessible(page)
                talk.socket.close()
                await page.wait_for_selector(f"#ended [data-id={id_}] [aria-current=true]")
                await page.wait_for_selector("#facts dd:has-text('the client has left')")
                assert await page.locator("#live li").count() == 0
                assert await page.locator("#call img, #call script").count() == 0
                assert errors == []

    run(act())


def test_earlier_calls_are_filtered_exported_and_read_on_a_telephone(server: Server, tmp_path: Path) -> None:
    with Talk(server) as talk:
        id_ = hold_call(server, talk)
    wait_ended(server, id_)

    async def act() -> None:
        async with browsing(tmp_path, None, viewport=PHONE) as (page, errors):
            await page.goto(f"{server.http}/calls")
            await page.wait_for_selector(f"#ended [data-id={id_}]")
            await page.click("#filter summary")
            await page.fill("[name=words]", "nowhere said")
            await page.press("[name=words]", "Enter")
            await page.wait_for_selector("#no-ended:has-text('No call fits.')")
            await is_accessible(page)
            async with page.expect_download() as empty:
                await page.click("#export-calls")
            assert saved(await (await empty.value).path()) == []
            await page.click("[type=reset]")
            await page.wait_for_selector(f"#ended [data-id={id_}]")
            async with page.expect_download() as download:
                await page.click("#export-calls")
            assert id_ in {call["id"] for call in saved(await (await download.value).path())}
            await page.click(f"#ended [data-id={id_}] a")
            await page.wait_for_selector("#turns li")
            assert await page.locator("#ended").is_hidden()
            await is_accessible(page)
            await page.click("#back")
            await page.wait_for_selector("#ended li")
            assert errors == []

    run(act())


def test_page_asks_for_the_key_of_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_CALLS_KEY", hashed("rj_calls"))

    async def act(server: Server) -> None:
        async with browsing(tmp_path, None, viewport=PHONE) as (page, errors):
            await page.goto(f"{server.http}/calls")
            await page.wait_for_selector("#problem:has-text('calls_key') #key")
            await is_accessible(page)
            await page.fill("#key", "rj_calls")
            await page.press("#key", "Enter")
            await page.wait_for_selector("#state:has-text('Live')")
            assert await page.locator("#problem").is_hidden()
            await page.reload()
            await page.wait_for_selector("#state:has-text('Live')")
            assert errors == []

    with serving(tmp_path) as server:
        run(act(server))
