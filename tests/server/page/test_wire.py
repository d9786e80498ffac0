"""The page when the server is not there, not ready, full, or gone in mid-sentence; in a real Chromium."""

import asyncio
import base64
import json
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Error, Page
from support.browsing import (
    CHROMIUM,
    PHONE,
    RECONNECTING,
    Wire,
    becomes_true,
    browsing,
    noise,
    run,
    silence,
    wire_to,
)
from support.patience import PATIENCE
from support.ports import unused_port
from support.servers.chat import chat_server, token
from support.servers.in_process import until
from support.serving import Talk, serving

from rejoinder.agent.server.keys import hashed

STORY = " ".join(f"This is sentence number {number} of a long story." for number in range(1, 12))
QUIET = [silence(30)]
GOES_ON = "shown => document.querySelector('.entry.agent .text').firstChild.data.length > shown"
"""Whether the answer has more than this many characters."""

SAYS_LOST = """() => new Promise((resolve) => {
  const state = document.getElementById("state");
  const look = () => state.dataset.state === "reconnecting" && resolve();
  new MutationObserver(look).observe(state, { attributes: true });
})"""
"""Waits for a state that may last for half a second only. ``becomes_true`` may begin too late for it."""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


async def cut(page: Page, wire: Wire) -> None:
    """Cut the wire, which swallows no more then, and wait until the page has said so, however briefly."""
    seen = asyncio.create_task(page.evaluate(SAYS_LOST))
    await asyncio.sleep(0)  # it is sent
    await page.evaluate("0")  # and the page looks already
    await wire.cut()
    wire.swallows = False
    async with asyncio.timeout(PATIENCE):
        await seen


async def problem(page: Page, title: str) -> str:
    """Wait for a problem and return what to do about it."""
    await page.wait_for_selector(f"#error .title:has-text('{title}')")
    return await page.inner_text("#error .advice")


def test_dropped_socket_is_opened_again_and_the_answer_goes_on(tmp_path: Path) -> None:
    """There is one line only. What is typed meanwhile is answered; the agent knows all it has said."""
    prompts: list[list[dict[str, str]]] = []
    spoken = STORY[: STORY.index(" This is sentence number 4")]

    def answer(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        prompts.append(messages)
        handler.wfile.write(token(spoken) + token(None, "stop") + b"data: [DONE]\n\n")

    async def act() -> None:
        received: list[dict[str, Any]] = []
        addresses: list[str] = []
        async with (
            wire_to(server.port) as wire,
            browsing(tmp_path, [silence(1), noise(1), silence(60)]) as (page, errors),
        ):
            page.on("websocket", lambda ws: ws.on("framereceived", lambda f: received.append(json.loads(f))))
            page.on("websocket", lambda ws: addresses.append(ws.url))
            await page.goto(wire.http)
            await page.click("#talk")
            for number in (1, 2):
                await page.wait_for_selector(f".entry.agent:has-text('number {number}')")
                await cut(page, wire)
                await page.wait_for_selector("#state[data-state=agent]")
            await page.wait_for_selector("#state[data-state=listening]")
            assert await page.locator("#error").is_hidden()
            assert (await page.inner_text(".entry.agent .text")).strip() == spoken
            assert await page.locator(".entry").count() == 2 and await page.locator(".cut").count() == 0
            deltas = {e["event_id"]: e["delta"] for e in received if e["type"].endswith("output_audio.delta")}
            sent_ms = sum(len(base64.b64decode(delta)) for delta in deltas.values()) // 48
            played_ms = await page.get_attribute(".entry.agent", "data-played-ms")
            assert int(played_ms or 0) == sent_ms, "all of it, and once"
            reported = [dict(parse_qsl(urlsplit(address).query)) for address in addresses]
            assert [query.get("item_id", "")[:5] for query in reported] == ["", "item_", "item_"]
            first, second = (int(query["audio_end_ms"]) for query in reported[1:])
            assert 0 < first < second <= sent_ms, "what the loudspeaker had played at each loss"
            await wire.cut(refuse=True)
            await becomes_true(page, RECONNECTING)
            await page.fill("#text", "Thank you.")
            await page.press("#text", "Enter")
            wire.mend()
            await page.wait_for_selector("#state[data-state=agent]")
            assert len([e for e in received if e["type"] == "session.created"]) == 4
            assert len({e["session"]["id"] for e in received if e["type"] == "session.created"}) == 1
            said = [(message["role"], message["content"]) for message in prompts[-1][-3:]]
            assert said == [("user", "what is the weather"), ("assistant", spoken), ("user", "Thank you.")]
            assert await page.locator(".entry").count() == 4
            assert errors == []

    port = unused_port()
    llm = f"openai:http://127.0.0.1:{port}/v1#m"
    with chat_server(port, answer), serving(tmp_path, llm=llm, max_sessions="1") as server:
        run(act())


def test_server_that_has_lost_the_conversation_receives_it(tmp_path: Path) -> None:
    """There is one line only, so the server must let go of it too; the heard words are sent again."""
    prompts: list[list[dict[str, str]]] = []

    def answer(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        prompts.append(messages)
        handler.wfile.write(token(STORY) + token(None, "stop") + b"data: [DONE]\n\n")

    async def act() -> None:
        async with (
            wire_to(server.port) as wire,
            browsing(tmp_path, [silence(1), noise(1), silence(40)]) as (page, errors),
        ):
            await page.goto(wire.http)
            await page.click("#talk")
            await page.wait_for_selector(".entry.agent:has-text('number 2')")
            await wire.cut(refuse=True)
            await becomes_true(page, RECONNECTING)
            assert "The conversation is kept" in await problem(page, "The connection was lost.")
            await page.fill("#text", "Go on, please.")
            await page.press("#text", "Enter")
            await page.wait_for_selector(".entry.agent.cut")
            said = await page.locator(".entry.agent .text").evaluate("p => p.firstChild.data")
            wire.mend()
            await page.wait_for_selector("#state[data-state=agent]")
            assert await page.locator("#error").is_hidden()
            assert await page.locator(".entry").count() == 4 and await page.locator(".divider").count() == 0
            prompted = [(message["role"], message["content"]) for message in prompts[-1][-3:]]
            assert prompted == [
                ("user", "what is the weather"),
                ("assistant", said.strip()),
                ("user", "Go on, please."),
            ]
            assert errors == []

    port = unused_port()
    llm = f"openai:http://127.0.0.1:{port}/v1#m"
    with chat_server(port, answer), serving(tmp_path, llm=llm, max_sessions="1", resume_s="0") as server:
        run(act())


def test_text_typed_just_before_the_break_is_answered_once(tmp_path: Path) -> None:
    """The server has it, and answers; the page only hears of that when it is back."""
    prompts: list[list[dict[str, str]]] = []

    def answer(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        prompts.append(messages)
        handler.wfile.write(token("All is well.") + token(None, "stop") + b"data: [DONE]\n\n")

    async def act() -> None:
        async with wire_to(server.port) as wire, browsing(tmp_path, QUIET) as (page, errors):
            await page.goto(wire.http)
            await page.click("#talk")
            await page.wait_for_selector("#state[data-state=listening]")
            prompts.clear()  # the model was tried out at the start
            for number in (1, 2):
                wire.swallows = True
                await page.fill("#text", f"Number {number}?")
                await page.press("#text", "Enter")
                await until(lambda number=number: len(prompts) >= number)
                await wire.cut()
                wire.swallows = False
                await page.wait_for_selector(f".entry.agent:has-text('well') >> nth={number - 1}")
                await page.wait_for_selector("#state[data-state=listening]")
                await asyncio.sleep(1.0)
            assert len(prompts) == 2 and await page.locator(".entry").count() == 4
            assert [message["content"] for message in prompts[1][-3:]] == [
                "Number 1?",
                "All is well.",
                "Number 2?",
            ]
            assert await page.locator("#error").is_hidden() and errors == []

    port = unused_port()
    llm = f"openai:http://127.0.0.1:{port}/v1#m"
    with chat_server(port, answer), serving(tmp_path, llm=llm) as server:
        run(act())


def test_answer_of_which_the_server_has_not_kept_all_goes_on_with_its_text_once(tmp_path: Path) -> None:
    """Ten seconds went into a dead network, which is more than is kept; then the user interrupts."""

    async def act() -> None:
        received: list[dict[str, Any]] = []
        async with (
            wire_to(server.port) as wire,
            browsing(tmp_path, [silence(1), noise(1), silence(60)]) as (page, errors),
        ):
            page.on("websocket", lambda ws: ws.on("framereceived", lambda f: received.append(json.loads(f))))
            await page.goto(wire.http)
            await page.click("#talk")
            await page.wait_for_selector(".entry.agent:has-text('number 1 ')")
            wire.swallows = True
            await asyncio.sleep(12.0)  # the server speaks in real time
            await cut(page, wire)
            await page.wait_for_selector("#state[data-state=agent]")
            resumed = next(e for e in received if e["type"] == "rejoinder.resumed")
            assert resumed["after"] is None and resumed["item_id"] and resumed["audio_start_ms"] > 0
            shown = len(await page.locator(".entry.agent .text").evaluate("p => p.firstChild.data"))
            await becomes_true(page, GOES_ON, shown)
            await page.click("#interrupt")
            await page.wait_for_selector(".entry.agent.cut")
            await page.wait_for_selector("#state[data-state=listening]")
            await until(lambda: any(e["type"] == "conversation.item.retrieved" for e in received))
            heard = await page.locator(".entry.agent .text").evaluate("p => p.firstChild.data")
            whole = await page.locator(".entry.agent .text").evaluate(
                "p => p.firstChild.data + (p.querySelector('.unheard')?.textContent ?? '')"
            )
            assert STORY.startswith(heard.strip()) and STORY.startswith(whole.strip()), "once"
            assert await page.locator(".entry").count() == 2
            retrieved = [e["item"] for e in received if e["type"] == "conversation.item.retrieved"]
            assert retrieved[-1]["status"] == "incomplete", "and the server knows where it was cut"
            assert await page.locator("#error").is_hidden() and errors == []

    with serving(tmp_path, llm=f"scripted:llm|{STORY} {STORY}") as server:
        run(act())


def test_player_that_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    """A server that has lost the conversation receives it, even if the heard part of an answer is unknown."""
    deaf = """
    const { postMessage } = MessagePort.prototype;
    MessagePort.prototype.postMessage = function (message, ...rest) {
      if (!message?.flush) postMessage.call(this, message, ...rest);
    };
    """

    async def act() -> None:
        async with wire_to(server.port) as wire, browsing(tmp_path, QUIET) as (page, errors):
            await page.add_init_script(deaf)
            await page.goto(wire.http)
            await page.fill("#text", "Where were we?")
            await page.press("#text", "Enter")
            await page.wait_for_selector(".entry.agent:has-text('number 1 ')")
            await cut(page, wire)
            await page.wait_for_selector("#state:not([data-state=reconnecting])")
            await page.fill("#text", "Go on.")
            await page.press("#text", "Enter")
            await page.wait_for_selector(
                ".entry.user:has-text('Go on.') + .entry.agent:has-text('number 1 ')"
            )
            assert errors == []

    with serving(tmp_path, llm=f"scripted:llm|{STORY}", resume_s="0") as server:
        run(act())


def test_server_that_wants_a_key_is_shown_the_one_that_is_entered(tmp_path: Path) -> None:
    """It is kept until the tab is closed, and what was typed before it is answered."""
    key = "rj_a-key.of~the-tests"

    async def enter(page: Page, given: str) -> None:
        assert await page.evaluate("document.activeElement.id") == "key"
        await page.keyboard.type(given)
        await page.keyboard.press("Enter")

    async def act() -> None:
        async with browsing(tmp_path, QUIET, viewport=PHONE) as (page, errors):
            await page.goto(server.http)
            await page.fill("#text", "Who is there?")
            await page.press("#text", "Enter")
            for given in ("not this one", "rj_nor-this-one", key):
                await problem(page, "This server needs a key.")
                found = await Axe().run(page, options={"resultTypes": ["violations"]})
                assert found.violations_count == 0, found.generate_report()
                if given == "not this one":
                    await enter(page, given)
                    assert not await page.evaluate("document.getElementById('key').validity.valid")
                    await page.fill("#key", "")
                    await page.focus("#key")
                    continue
                async with page.expect_websocket():  # opened after the form is hidden, which may be brief
                    await enter(page, given)
            await page.wait_for_selector(".entry.agent:has-text('You said: Who is there?')")
            assert await page.locator("#error").is_hidden()
            await page.reload()
            await page.click("#talk")
            await page.wait_for_selector("#state[data-state=listening]")
            assert await page.evaluate("localStorage.length") == 0 and errors == []

    with serving(tmp_path, llm="scripted:llm", api_keys=hashed(key)) as server:
        run(act())


def test_unreachable_or_full_server_is_reported_and_retried(tmp_path: Path) -> None:
    """And what was typed meanwhile is answered in the end."""

    async def act() -> None:
        async with wire_to(server.port) as wire, browsing(tmp_path, QUIET) as (page, errors):
            await page.goto(wire.http)
            await wire.cut(refuse=True)
            await page.fill("#text", "Is anybody there?")
            await page.press("#text", "Enter")
            assert "Check that it is running" in await problem(page, "The server does not answer.")
            wire.mend()
            with Talk(server):
                await page.click("#again")
                assert "all 1 lines are busy" in await problem(page, "All lines are busy.")
                assert await page.get_attribute("#state", "data-state") == "idle"
            server.wait_idle()
            await page.click("#again")
            await page.wait_for_selector(".entry.agent:has-text('You said: Is anybody there?')")
            assert await page.locator("#error").is_hidden()
            assert await page.locator(".entry").count() == 2 and await page.locator(".divider").count() == 0
            assert errors == []

    with serving(tmp_path, llm="scripted:llm", max_sessions="1") as server:
        run(act())


def test_call_waits_for_models_that_are_still_loading(tmp_path: Path) -> None:
    ready = threading.Event()

    def answer(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        ready.wait(6 * PATIENCE)
        handler.wfile.write(token("Yes.") + token(None, "stop") + b"data: [DONE]\n\n")

    async def act() -> None:
        async with browsing(tmp_path, QUIET) as (page, errors):
            for _ in range(200):  # the port is not open at once
                try:
                    await page.goto(server.http)
                    break
                except Error:
                    await asyncio.sleep(0.1)
            await page.click("#talk")
            await problem(page, "The models are still loading.")
            assert await page.inner_text("#state") == "Connecting"
            ready.set()
            await page.wait_for_selector("#state[data-state=listening]")
            assert await page.locator("#error").is_hidden()
            assert errors == []

    port = unused_port()
    llm = f"openai:http://127.0.0.1:{port}/v1#m"
    with chat_server(port, answer), serving(tmp_path, wait=False, llm=llm) as server:
        run(act())


def test_address_that_may_not_call_is_reported(tmp_path: Path) -> None:
    """A host name of an attacker that leads to this machine: see ``may_call`` in agent/server/access.py."""

    async def act() -> None:
        page_of = f"http://talk.secure.test:{server.port}"
        async with browsing(tmp_path, QUIET) as (page, errors):
            await page.goto(page_of)
            await page.click("#talk")
            advice = await problem(page, "The server does not take calls from this address.")
            assert page_of in advice and "allowed_origins" in advice
            assert errors == []

    with serving(tmp_path) as server:
        run(act())


def test_cookies_that_are_too_large_are_named(tmp_path: Path) -> None:
    """Other programs on this host set them, when the page is there already. Then they are cleared."""

    async def act() -> None:
        async with browsing(tmp_path, QUIET) as (page, errors):
            await page.goto(server.http)
            await page.click("#talk")  # so that the browser has the page's parts
            await page.wait_for_selector("#state[data-state=listening]")
            await page.click("#talk")
            await page.wait_for_selector("#state[data-state=idle]")
            cookies = [{"name": f"c{n}", "value": "x" * 3000, "url": server.http} for n in range(3)]
            await page.context.add_cookies(cookies)  # type: ignore[arg-type]
            await page.click("#talk")
            advice = await problem(page, "The cookies of this address are too large.")
            assert "Clear the cookies of 127.0.0.1" in advice
            await page.context.clear_cookies()
            await page.click("#again")
            await page.wait_for_selector("#state[data-state=listening]")
            assert await page.locator("#error").is_hidden() and errors == []

    with serving(tmp_path, resume_s="0") as server:
        run(act())


def test_user_without_microphone_can_type(tmp_path: Path) -> None:
    async def act() -> None:
        async with browsing(tmp_path, None) as (page, errors):
            await page.goto(server.http)
            await page.click("#talk")
            assert "You can type instead" in await problem(page, "The microphone was refused.")
            await page.fill("#text", "Hello there")
            await page.click("text=Send")
            await page.wait_for_selector(".entry.agent:has-text('You said: Hello there')")
            await page.wait_for_selector("#state:has-text('Write to the agent')")
            await page.click("text=Use mic")
            await problem(page, "The microphone was refused.")
            assert await page.get_attribute("#state", "data-state") == "listening", "the call goes on"
            assert errors == []

    with serving(tmp_path, llm="scripted:llm") as server:
        run(act())
