"""Prompts and checks of the contract tests of all language models."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from support.patience import PATIENCE

from rejoinder.models.llm.llama_cpp import LLAMA_SLOTS
from rejoinder.models.llm.openai import ChatOptions, OpenAiChat
from rejoinder.pipeline.interfaces import Llm, Message

LONG = "Tell me a very long story about the sea, with many people in it."

weights = pytest.mark.weights


def prompt_of(question: str, system: str = "You talk on the phone.") -> list[Message]:
    return [Message(role="system", content=system), Message(role="user", content=question)]


async def answer(llm: Llm, messages: Sequence[Message], tokens: int | None = None) -> list[str]:
    """Return the tokens of the reply; close it after a number of tokens."""
    got: list[str] = []
    async with aclosing(llm.reply(messages)) as stream:
        async for token in stream:
            got.append(token)
            if len(got) == tokens:
                break
    return got


class Llama:
    """The in-process model with its meters, and the loop that its connections belong to."""

    def __init__(self, runner: asyncio.Runner, model: Any) -> None:
        self.run = runner.run
        self.model = model

    def meter(self, name: str) -> int:
        """Read one of llama.cpp's own counters."""
        found = re.search(rf"^llamacpp:{name} (\d+)", self.model._server.handle_metrics(), re.MULTILINE)
        assert found, name
        return int(found[1])

    async def until_idle(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.meter("requests_processing") or self.meter("requests_deferred"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@weights
@pytest.mark.parametrize(
    "question", ["Say yes.", "Привет, 世界 🎉 'x' \"y\" \\ \n\t\x00 ∑", "a", " " * 50 + "?"], ids=ascii
)
def test_tokens_stream(llama: Llama, llm: Llm, question: str) -> None:
    tokens = llama.run(answer(llm, prompt_of(question), 12))
    assert len(tokens) > 1
    assert all(tokens)


@weights
def test_more_than_there_are_slots_at_once(llama: Llama, llm: Llm) -> None:
    async def together() -> list[list[str]]:
        return await asyncio.gather(
            *(answer(llm, prompt_of(f"Is {n} a number?"), 5) for n in range(LLAMA_SLOTS + 2))
        )

    assert all(llama.run(together()))


@weights
def test_a_session_with_history_is_answered_beside_another(llama: Llama, llm: Llm) -> None:
    async def conversation(name: str) -> list[str]:
        messages = prompt_of(f"My name is {name}.")
        for _ in range(2):
            reply = "".join(await answer(llm, messages, 8))
            messages += [Message(role="assistant", content=reply), Message(role="user", content="Go on.")]
        return [message["content"] for message in messages]

    async def together() -> list[list[str]]:
        return await asyncio.gather(conversation("Ada"), conversation("Ben"))

    ada, ben = llama.run(together())
    assert len(ada) == len(ben) == 6
    assert all([*ada, *ben])


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def event(content: str | None, finish: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    return "data: " + json.dumps({"id": "1", "object": "chat.completion.chunk", "choices": [choice]}) + "\n\n"


def plain(status: str, kind: str, body: str) -> Handler:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write((head + body).encode())

    return respond


def streamed(*parts: str, end: bool = True) -> Handler:
    """Stream the parts; without ``end`` the connection breaks in the middle of the chunked body."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for part in parts:
            writer.write(b"%x\r\n%s\r\n" % (len(part.encode()), part.encode()))
            await writer.drain()
        if end:
            writer.write(b"0\r\n\r\n")

    return respond


class Server:
    """A chat server on loopback that treats each request the same way."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.url = ""
        self.requested = asyncio.Event()
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            await reader.readexactly(int(length[1]) if length else 0)
            self.requested.set()
            await self._handler(reader, writer)
        finally:
            self.left.set()
            writer.close()


@asynccontextmanager
async def serving(
    handler: Handler, token_seconds: float = PATIENCE
) -> AsyncIterator[tuple[Server, OpenAiChat]]:
    """Run the server and a client of it, and make sure that neither leaves a task or a socket behind."""
    server = Server(handler)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = "http://{}:{}/v1".format(*listener.sockets[0].getsockname())
    options = ChatOptions(token_seconds, token_seconds)
    chat = OpenAiChat(server.url, "toy", can_warm=True, options=options)
    try:
        async with asyncio.timeout(PATIENCE):
            yield server, chat
            await chat.aclose()
            if server.requested.is_set():
                await server.left.wait()
    finally:
        await chat.aclose()
        listener.close()
        await listener.wait_closed()
    async with asyncio.timeout(PATIENCE):
        # The server's handlers end when their client is gone.
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0)


DONE = "data: [DONE]\n\n"
