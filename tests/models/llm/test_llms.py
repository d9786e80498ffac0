"""All language models: real llama.cpp, a chat server on loopback, and servers with all kinds of faults."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support import speech
from support.llm_contract import (
    DONE,
    LONG,
    Handler,
    Llama,
    answer,
    event,
    plain,
    prompt_of,
    serving,
    streamed,
    test_a_session_with_history_is_answered_beside_another,  # noqa: F401
    test_more_than_there_are_slots_at_once,  # noqa: F401
    test_tokens_stream,  # noqa: F401
    weights,
)
from support.patience import PATIENCE

from rejoinder.models.llm import openai
from rejoinder.models.llm.llama_cpp import LLAMA_SLOTS, LlamaCpp
from rejoinder.models.llm.openai import ChatOptions, OpenAiChat
from rejoinder.models.llm.ort.adapter import OrtLlm
from rejoinder.models.llm.ort.kv_cache import Slots
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Llm, Message

# Real llama.cpp


@pytest.fixture(scope="module")
def llama() -> Iterator[Llama]:
    xllamacpp = pytest.importorskip("xllamacpp")

    def with_meters() -> Any:
        parameters = common()
        parameters.endpoint_metrics = True
        return parameters

    common = xllamacpp.CommonParams
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xllamacpp, "CommonParams", with_meters)
        for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            patch.setenv(variable, "http://127.0.0.1:9")  # no server listens there
        model = speech.model("llama")
    with asyncio.Runner(debug=True) as runner:
        yield Llama(runner, model)
        runner.run(model.aclose())


@pytest.fixture(scope="module")
def served(llama: Llama) -> Iterator[OpenAiChat]:
    """The openai adapter on llama.cpp's HTTP port."""
    chat = llama.model._chat
    client = OpenAiChat(str(chat._client.base_url), "any", chat._client.api_key)
    yield client
    llama.run(client.aclose())


@pytest.fixture(scope="module")
def ort(llama: Llama) -> Iterator[OrtLlm]:
    """The weights of llama.cpp's model, in onnxruntime."""
    model: OrtLlm = speech.model("ort:")
    yield model
    llama.run(model.aclose())


@pytest.fixture(params=["llama", "ort", "openai", "scripted:llm"])
def llm(request: pytest.FixtureRequest) -> Llm:
    match request.param:
        case "llama":
            model: Llm = request.getfixturevalue("llama").model
        case "ort":
            model = request.getfixturevalue("ort")
        case "openai":
            model = request.getfixturevalue("served")
        case spec:
            model = speech.model(spec)
    return model


@weights
def test_two_conversations_keep_their_caches(llama: Llama) -> None:
    async def alternate() -> list[int]:
        talks = [
            prompt_of(f"Tell me of {name}: " + f"{name} is far away, and it is cold there. " * 10)
            for name in ("Oslo", "Rome")
        ]
        counts = []
        for _ in range(2):
            for talk in talks:
                before = llama.meter("prompt_tokens_total")
                reply = "".join(await answer(llama.model, talk, 4))
                await llama.until_idle()
                counts.append(llama.meter("prompt_tokens_total") - before)
                talk += [Message(role="assistant", content=reply), Message(role="user", content="Go on.")]
        return counts

    first, second, *later = llama.run(alternate())
    assert min(first, second) > 100
    assert max(later) < 40


@weights
def test_slow_consumer_does_not_block_other_replies(llama: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    # Four answers of hundreds of tokens take longer on a busy machine than until_idle waits.
    monkeypatch.setattr(openai, "REQUESTED_TOKENS", 16)

    async def listen() -> str:
        slow = [
            llama.model.reply(prompt_of(f"Tell me {n} things about the sea."))
            for n in range(2, 2 + LLAMA_SLOTS)
        ]
        try:
            for reply in slow:
                await anext(reply)
            await llama.until_idle()
            async with asyncio.timeout(10 * PATIENCE):  # for ever if the slow ones blocked it
                quick = "".join(await answer(llama.model, prompt_of("Say yes."), 5))
            rest = "".join([token async for token in slow[0]])
        finally:
            for reply in slow:
                await reply.aclose()
        return quick and rest

    assert llama.run(listen())


@weights
def test_file_that_is_not_gguf_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"<html>not found</html>")
    with pytest.raises(ModelError, match=r"model\.gguf is not a GGUF file"):
        LlamaCpp(file, 1)


@weights
def test_closing_early_stops_the_decoding(llama: Llama, llm: Llm) -> None:
    async def close_early() -> int:
        await llama.until_idle()
        before = llama.meter("tokens_predicted_total")
        await asyncio.gather(*(answer(llm, prompt_of(f"{LONG} {n}"), 3) for n in range(LLAMA_SLOTS)))
        await llama.until_idle()
        return llama.meter("tokens_predicted_total") - before

    assert llama.run(close_early()) < LLAMA_SLOTS * 40  # without closing, each decodes hundreds of tokens


@weights
def test_cancelling_before_the_first_token_stops_the_decoding(llama: Llama) -> None:
    async def cancel() -> int:
        await llama.until_idle()
        before = llama.meter("tokens_predicted_total")
        task = asyncio.create_task(answer(llama.model, prompt_of(LONG)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.05)
        await llama.until_idle()
        return llama.meter("tokens_predicted_total") - before

    assert llama.run(cancel()) < 40


@weights
def test_a_warmed_prompt_is_read_once(llama: Llama) -> None:
    system = "You are Ada, and you count the boats in the harbour of a small town. " * 8

    async def warm() -> list[int]:
        counts = []
        for step in (
            lambda: llama.model.warm(prompt_of("How many", system)),
            lambda: llama.model.warm(prompt_of("How many boats are", system)),
            lambda: answer(llama.model, prompt_of("How many boats are there?", system), 3),
            # At once: llama.cpp may not have noticed yet that the previous request is closed.
            lambda: answer(llama.model, prompt_of("How many boats are in the harbour?", system), 3),
        ):
            before = llama.meter("prompt_tokens_total")
            await step()
            await llama.until_idle()
            counts.append(llama.meter("prompt_tokens_total") - before)
        return counts

    first, *later = llama.run(warm())
    assert first > 100
    assert max(later) < 20


@weights
def test_a_reply_right_after_a_closed_one_starts_from_its_cache(llama: Llama) -> None:
    system = "You are Bob, and you sell tickets for the museum of trains. " * 8

    async def resume() -> int:
        await llama.model.warm(prompt_of("When", system))
        before = llama.meter("prompt_tokens_total")
        for n in range(4):
            await answer(llama.model, prompt_of(f"When do you open on day {n}?", system), 2)
        await llama.until_idle()
        return llama.meter("prompt_tokens_total") - before

    assert llama.run(resume()) < 4 * 25  # the system prompt alone is over 100 tokens


@weights
def test_a_prompt_that_does_not_fit_is_refused_and_the_next_one_answered(llama: Llama, served: Llm) -> None:
    for model, name in ((llama.model, "llama:SmolLM2"), (served, "openai:http")):
        with pytest.raises(ModelError, match=f"^{name}.*exceeds the available context size"):
            llama.run(answer(model, prompt_of("word " * 5000)))
        assert llama.run(answer(model, prompt_of("Say yes."), 2))
    with pytest.raises(ModelError, match=r"^llama:SmolLM2.*exceeds"):
        llama.run(llama.model.warm(prompt_of("word " * 5000)))


@weights
def test_lone_surrogate_is_refused_and_next_prompt_answered(llama: Llama, ort: OrtLlm) -> None:
    for model in (llama.model, ort):
        with pytest.raises(ModelError, match="surrogates not allowed"):
            llama.run(answer(model, prompt_of("\ud800")))
        assert llama.run(answer(model, prompt_of("Say yes."), 2))


@weights
def test_llama_server_requires_the_key(llama: Llama) -> None:
    async def stranger() -> None:
        chat = OpenAiChat(str(llama.model._chat._client.base_url), "any", "guess")
        try:
            await answer(chat, prompt_of("Say yes."))
        finally:
            await chat.aclose()

    with pytest.raises(ModelError, match="401"):
        llama.run(stranger())


def test_a_slot_goes_to_the_conversation_that_it_holds() -> None:
    async def take(slots: Slots, question: str) -> int:
        async with slots.take([Message(role="user", content=question)]) as slot:
            return slot

    async def talk() -> None:
        slots = Slots(3)
        red, blue = "What is red wine made of?", "How high is the blue sky?"
        first, second = await take(slots, red), await take(slots, blue)
        assert first != second
        assert await take(slots, red + " Grapes.") == first
        assert await take(slots, blue + " Very.") == second
        third = await take(slots, "Why not?")
        assert third not in (first, second)
        assert await take(slots, "So far so good.") == first  # the least recently used slot
        async with slots.take([]), slots.take([]), slots.take([]) as last:
            waiting = asyncio.create_task(take(slots, red))
            given_up = asyncio.create_task(take(slots, red))
            await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.sleep(0)
            assert given_up.cancelled() and not waiting.done()
        assert await waiting in (first, second, third)
        assert await take(slots, red) in (first, second, third)
        assert last in (first, second, third)

    asyncio.run(talk())


# Servers that fail


def stalling(handler: Handler) -> Handler:
    """Respond, then keep the connection open until the client closes it."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handler(reader, writer)
        await writer.drain()
        await reader.read()

    return respond


async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    pass


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def ask(handler: Handler, token_seconds: float = PATIENCE) -> str:
    async def talk() -> str:
        async with serving(handler, token_seconds) as (_, chat):
            return "".join(await answer(chat, prompt_of("Hello?")))

    with asyncio.Runner(debug=True) as runner:
        try:
            return runner.run(talk())
        finally:
            gc.collect()  # a resource that was left open warns now


HTML = "<html><body><h1>Bad gateway</h1>" + "<p>very sorry</p>\n" * 500 + "</body></html>"
ERROR = json.dumps({"error": {"message": "no such thing", "type": "x", "code": "y"}})
WHOLE = (event("Hel"), event("lo"), event(None, "stop"), DONE)

FAULTS: dict[str, tuple[Handler, str]] = {
    "hangs up": (hang_up, "Connection error"),
    "500 json": (plain("500 Oops", "application/json", ERROR), "500.*no such thing"),
    "401 json": (plain("401 No", "application/json", ERROR), "401.*no such thing"),
    "404 json": (plain("404 No", "application/json", ERROR), "404.*no such thing"),
    "500 html": (plain("500 Oops", "text/html", HTML), "Error code: 500"),
    "401 html": (plain("401 No", "text/html", HTML), "Error code: 401"),
    "404 html": (plain("404 No", "text/html", HTML), "Error code: 404"),
    "500 text": (plain("500 Oops", "text/plain", "so\nvery " * 500 + "sorry"), "Error code: 500"),
    "429 empty": (plain("429 Slow down", "text/plain", ""), "429"),
    "200 html": (plain("200 OK", "text/html", HTML), "the answer broke off before its end"),
    "200 json": (plain("200 OK", "application/json", "{}"), "the answer broke off before its end"),
    "not http": (plain("\x00\x01garbage", "x", "y"), "[Cc]onnection error|illegal|Protocol"),
    "garbage": (streamed("blah blah\n\n", "\x00\x01\n\n"), "the answer broke off before its end"),
    "garbage data": (streamed("data: {no json\n\n"), "the answer broke off: .*[Ee]xpect"),
    "no choices key": (streamed('data: {"id": "1"}\n\n'), "the answer broke off"),
    "error event": (streamed(event("Hel"), f"data: {ERROR}\n\n"), "the answer broke off: no such thing"),
    "only done": (streamed(DONE), "the answer broke off before its end"),
    "stops politely": (streamed(event("Hel")), "the answer broke off before its end"),
    "stops rudely": (streamed(event("Hel"), end=False), "the answer broke off: "),
    "stops in mid-event": (streamed(event("Hel")[:20]), "the answer broke off"),
    "no words": (streamed(), "the answer broke off before its end"),
}


@pytest.mark.parametrize("handler, reason", FAULTS.values(), ids=FAULTS)
def test_a_failing_server_is_named_with_the_reason(handler: Handler, reason: str) -> None:
    with pytest.raises(
        ModelError, match=rf"(?s)^openai:http://127\.0\.0\.1:\d+/v1#toy: .*{reason}"
    ) as caught:
        ask(handler)
    assert len(str(caught.value)) < 450
    assert "\n" not in str(caught.value)


TEXTS: dict[str, tuple[Handler, str]] = {
    "plain": (streamed(*WHOLE), "Hello"),
    "in one piece": (streamed("".join(WHOLE)), "Hello"),
    "byte by byte": (streamed(*"".join(WHOLE)), "Hello"),
    "length": (streamed(event("Hello"), event("", "length"), DONE), "Hello"),
    "finish with text": (streamed(event("Hel"), event("lo", "stop"), DONE), "Hello"),
    "no choices": (streamed(event("Hel"), 'data: {"choices": []}\n\n', event("lo", "stop"), DONE), "Hello"),
    "null content": (streamed(event(None), event("Hello"), event(None), event(None, "stop"), DONE), "Hello"),
    "comments": (streamed(": ping\n\n", event("Hel"), ": ping\n\n", event("lo", "stop"), DONE), "Hello"),
    "unicode": (streamed(event("Grüße "), event("世界 🎉", "stop"), DONE), "Grüße 世界 🎉"),
    "says nothing": (streamed(event(None, "stop"), DONE), ""),
    "no done": (streamed(event("Hello"), event(None, "stop")), "Hello"),
    "rude after the end": (streamed(event("Hello"), event(None, "stop"), end=False), "Hello"),
}


@pytest.mark.parametrize("handler, text", TEXTS.values(), ids=TEXTS)
def test_a_whole_answer_is_read_however_it_comes(handler: Handler, text: str) -> None:
    assert ask(handler) == text


@pytest.mark.parametrize(
    "handler",
    [stalling(mute), stalling(streamed(end=False)), stalling(streamed(event("Hel"), end=False))],
    ids=["before the head", "before the first token", "in the middle"],
)
def test_silent_server_times_out(handler: Handler) -> None:
    with pytest.raises(ModelError, match=r"#toy: no token for 0\.1 s"):
        ask(handler, token_seconds=0.1)


def test_pings_do_not_count_as_tokens() -> None:
    async def pinging(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await streamed(event("Hel"), end=False)(reader, writer)
        while not reader.at_eof():
            writer.write(b"8\r\n: ping\n\n\r\n")
            await asyncio.sleep(0.02)

    with pytest.raises(ModelError, match="no token for"):
        ask(pinging, token_seconds=0.2)


def test_complete_answer_survives_a_stream_that_stays_open() -> None:
    handler = stalling(streamed(event("Hello"), event(None, "stop"), end=False))
    assert ask(handler) == "Hello"  # within PATIENCE, the time that a token may take here


def test_server_that_requires_max_completion_tokens_gets_it() -> None:
    bodies: list[dict[str, Any]] = []
    words = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    refusal = plain("400 No", "application/json", json.dumps({"error": {"message": words}}))

    async def picky(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
        bodies.append(json.loads(body))
        await (streamed(*WHOLE) if "max_completion_tokens" in bodies[-1] else refusal)(reader, writer)

    async def talk() -> list[str]:
        server = await asyncio.start_server(one_request(picky), "127.0.0.1", 0)
        chat = OpenAiChat("http://{}:{}/v1".format(*server.sockets[0].getsockname()), "toy")
        try:
            async with asyncio.timeout(PATIENCE):
                return ["".join(await answer(chat, prompt_of("Hello?"))) for _ in range(2)]
        finally:
            await chat.aclose()
            server.close()
            await server.wait_closed()

    assert asyncio.run(talk()) == ["Hello", "Hello"]
    assert ["max_tokens" in body for body in bodies] == [True, False, False]  # learned once


def one_request(respond: Any) -> Handler:
    """Read one request, respond depending on its body, and close the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        await respond(reader, writer, await reader.readexactly(int(length[1]) if length else 0))
        await writer.drain()
        writer.close()

    return serve


def test_a_kept_connection_that_the_server_closes_costs_no_answer() -> None:
    async def leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await streamed(*WHOLE)(reader, writer)
        await writer.drain()
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")  # the next request gets no answer

    async def talk() -> None:
        async with serving(leaves) as (server, chat):
            for _ in range(3):
                assert "".join(await answer(chat, prompt_of("Hello?"))) == "Hello"
            server.left.clear()

    with asyncio.Runner(debug=True) as runner:
        runner.run(talk())


def test_a_refused_connection_is_named() -> None:
    async def refused() -> None:
        async with serving(mute) as (server, _):
            pass
        chat = OpenAiChat(server.url, "toy", can_warm=True)
        try:
            for call in (answer(chat, prompt_of("Hello?")), chat.warm(prompt_of("Hello?"))):
                with pytest.raises(ModelError, match=r"#toy: Connection error: .*(refused|connect)"):
                    await call
        finally:
            await chat.aclose()

    with asyncio.Runner(debug=True) as runner:
        runner.run(refused())
    gc.collect()


@pytest.mark.parametrize("tokens", [1, 3])
def test_closing_the_reply_closes_the_connection(tokens: int) -> None:
    async def close_early() -> None:
        async with serving(stalling(streamed(*[event("x")] * 5, end=False))) as (server, chat):
            assert await answer(chat, prompt_of("Hello?"), tokens) == ["x"] * tokens
            await server.left.wait()

    with asyncio.Runner(debug=True) as runner:
        runner.run(close_early())
    gc.collect()


@pytest.mark.parametrize("handler", [stalling(mute), stalling(streamed(event("x"), end=False))])
def test_cancelling_the_reply_closes_the_connection(handler: Handler) -> None:
    async def cancel() -> None:
        async with serving(handler) as (server, chat):
            task = asyncio.create_task(answer(chat, prompt_of("Hello?")))
            await server.requested.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.left.wait()

    with asyncio.Runner(debug=True) as runner:
        runner.run(cancel())
    gc.collect()


def test_a_server_that_hangs_holds_up_no_reply_by_its_warming() -> None:
    async def warm() -> None:
        connected: list[asyncio.Task[None]] = []

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connected.append(task)
            await reader.read()
            writer.close()
            await writer.wait_closed()

        async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            options = ChatOptions(warm_s=0.2)
            chat = OpenAiChat(f"http://{host}:{port}/v1", "toy", can_warm=True, options=options)
            with pytest.raises(ModelError, match=r"no answer for 0\.2 s"):
                await chat.warm(prompt_of("Hello?"))
            await chat.aclose()
            await asyncio.gather(*connected)

    with asyncio.Runner(debug=True) as runner:
        runner.run(warm())
    gc.collect()


def test_warming_fails_with_a_model_error_and_is_not_tried_unless_it_is_free() -> None:
    async def warm() -> None:
        async with serving(plain("500 Oops", "application/json", ERROR)) as (server, chat):
            costly = OpenAiChat(server.url, "toy")
            await costly.warm(prompt_of("Hello?"))
            await costly.aclose()
            assert not server.requested.is_set()
            with pytest.raises(ModelError, match=r"#toy: .*no such thing"):
                await chat.warm(prompt_of("Hello?"))

    with asyncio.Runner(debug=True) as runner:
        runner.run(warm())
    gc.collect()
