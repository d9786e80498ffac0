"""The chat servers named by the field, each as a fake that follows its published schema (``chat_kinds``)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from support.llm_contract import SOON, answer, prompt_of
from support.servers.chat_fake import CALLED, MODEL, TEXT, THOUGHT, ChatFake, running
from support.servers.chat_kinds import KINDS, Kind
from support.tool_calls import WEATHER, answered

from rejoinder.models.llm.openai import ChatOptions, OpenAiChat
from rejoinder.models.llm.prefix_cache import TGI, UNKNOWN, recognised
from rejoinder.pipeline import Message, ModelError, ToolCall, Tools

PROMPT = prompt_of("Hello?")
QUESTION: list[Message] = prompt_of("The weather in Rome?")


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    given: Kind = request.param
    return given


@asynccontextmanager
async def talking(
    kind: Kind, model: str = MODEL, **settings: Any
) -> AsyncIterator[tuple[ChatFake, OpenAiChat]]:
    async with asyncio.timeout(SOON), running(kind) as fake:
        chat = OpenAiChat(fake.url, model, options=ChatOptions(SOON, SOON), **settings)
        try:
            yield fake, chat
        finally:
            await chat.aclose()


def test_an_answer_is_streamed_without_thoughts_and_usage(kind: Kind) -> None:
    async def talk() -> None:
        async with talking(kind, extra={"stream_options": {"include_usage": True}}) as (fake, chat):
            for _ in range(2):  # the connection stays usable
                assert await answer(chat, PROMPT) == TEXT
            assert ("stream_options" in fake.requests[-1]) is ("stream_options" not in kind.refuses)

    asyncio.run(talk())


def test_a_tool_call_follows_the_words(kind: Kind) -> None:
    async def talk() -> None:
        async with talking(kind) as (fake, chat):
            *words, call = await answered(chat, QUESTION, Tools([WEATHER]))
            assert [word for word in words if word] == TEXT  # an empty one says that a call begins
            assert isinstance(call, ToolCall) and (call.name, call.arguments) == CALLED
            assert call.id and fake.requests[-1]["tool_choice"] == "auto"

    asyncio.run(talk())


def test_a_refused_field_is_left_out_from_then_on(kind: Kind) -> None:
    async def talk() -> None:
        async with talking(kind) as (fake, chat):
            for _ in range(2):
                *_, call = await answered(chat, QUESTION, Tools([WEATHER], parallel=False))
                assert isinstance(call, ToolCall)
            sent = [kind.refuses & request.keys() for request in fake.requests]
            assert sent[0] == kind.refuses & {"parallel_tool_calls", "max_tokens", "stream_options"}
            assert not any(sent[-2:]) and len(sent) <= 5

    asyncio.run(talk())


def test_closing_the_answer_closes_the_connection(kind: Kind) -> None:
    async def talk() -> None:
        async with talking(kind) as (fake, chat):
            fake.scenario = "endless"
            async with aclosing(chat.reply(PROMPT)) as pieces:
                assert await anext(pieces) == TEXT[0]
                assert not fake.left.is_set()
            await fake.left.wait()

    asyncio.run(talk())


def test_an_error_in_mid_stream_is_an_error_with_the_reason(kind: Kind) -> None:
    async def talk() -> None:
        async with talking(kind) as (fake, chat):
            fake.scenario = "breaks"
            heard = []
            with pytest.raises(ModelError) as caught:
                async with aclosing(chat.reply(PROMPT)) as pieces:
                    async for piece in pieces:
                        heard.append(piece)
            assert heard == TEXT
            assert kind.says in str(caught.value) and THOUGHT not in str(caught.value)
            fake.scenario = "answer"
            assert await answer(chat, PROMPT) == TEXT

    asyncio.run(talk())


def test_an_overloaded_server_fails_at_once_and_says_how_long_it_asks_to_wait(kind: Kind) -> None:
    async def talk() -> None:
        async with talking(kind) as (fake, chat):
            fake.scenario = "overloaded"
            status, message = kind.overload
            with pytest.raises(ModelError, match=rf"{status}.*{message}.*it asks to wait 7 s"):
                await answer(chat, PROMPT)
            assert len(fake.requests) == 1

    asyncio.run(talk())


def test_an_unknown_model_is_named_unless_any_name_is_served(kind: Kind) -> None:
    async def talk() -> list[str]:
        async with talking(kind, "nothing") as (_, chat):
            return await answer(chat, PROMPT)

    if kind.missing is None:
        assert asyncio.run(talk()) == TEXT
        return
    status, message = kind.missing
    with pytest.raises(ModelError) as caught:
        asyncio.run(talk())
    assert str(status) in str(caught.value) and message.format("nothing") in str(caught.value)


def test_the_cache_is_filled_by_what_the_server_accepts(kind: Kind) -> None:
    async def talk() -> None:
        async with talking(kind) as (fake, chat):
            for _ in range(2):
                await chat.warm(PROMPT)
            sent = [request["max_tokens"] for request in fake.requests]
            assert sent == ([] if kind.warm_tokens is None else [kind.warm_tokens] * 2)
            assert fake.listed == 1, "it is asked once"
            assert not [request for request in fake.requests if request.get("stream")]

    asyncio.run(talk())


def test_the_setting_decides() -> None:
    async def talk() -> None:
        for kind in (one for one in KINDS if one.warm_tokens is None):
            async with talking(kind, can_warm=True) as (fake, chat):
                await chat.warm(PROMPT)
                sent = fake.requests[-1]
                assert sent.get("max_tokens", sent.get("max_completion_tokens")) == 1
        async with talking(KINDS[0], can_warm=False) as (fake, chat):
            await chat.warm(PROMPT)
            assert not fake.requests and not fake.listed

    asyncio.run(talk())


def test_a_server_that_is_down_is_asked_again() -> None:
    async def talk() -> None:
        async with running(KINDS[0]) as fake:
            url = fake.url
        chat = OpenAiChat(url, MODEL)
        await chat.warm(PROMPT)  # nothing is lost: there is no request to fail
        port = int(url.split(":")[2].partition("/")[0])
        fake = ChatFake(KINDS[0])
        listener = await asyncio.start_server(fake.serve, "127.0.0.1", port)
        try:
            async with asyncio.timeout(SOON):
                await chat.warm(PROMPT)
            assert fake.listed == len(fake.requests) == 1
        finally:
            await chat.aclose()
            listener.close()
            await fake.aclose()
            await listener.wait_closed()

    asyncio.run(talk())


def test_a_server_behind_https_is_not_asked() -> None:
    """It may bill each request: the setting ``can_warm`` allows them."""

    async def talk() -> None:
        chat = OpenAiChat("https://127.0.0.1:9/v1", MODEL)
        allowed = OpenAiChat("https://127.0.0.1:9/v1", MODEL, can_warm=True)
        try:
            await chat.warm(PROMPT)
            with pytest.raises(ModelError, match="Connection error"):
                await allowed.warm(PROMPT)
        finally:
            await chat.aclose()
            await allowed.aclose()

    asyncio.run(talk())


@pytest.mark.parametrize("listed", [[], [("a", None)], [("a", "b")], [("a", ["vllm"])], [(None, None)]])
def test_other_lists_are_of_an_unknown_server(listed: list[tuple[Any, Any]]) -> None:
    entries = [SimpleNamespace(id=id_, owned_by=owner) for id_, owner in listed]
    assert recognised(entries, "a") == UNKNOWN
    assert recognised([SimpleNamespace()], "a") == UNKNOWN


def test_the_entry_of_the_model_decides() -> None:
    entries = [SimpleNamespace(id="a", owned_by="vllm"), SimpleNamespace(id="b", owned_by="b")]
    assert recognised(entries, "b") == TGI
    assert recognised(entries, "a").name == recognised(entries, "other").name == "vLLM"
