"""The large model of the bench: a chat server on loopback with a stated delay and stated prices.

Its words come from a real model in this process, so that openings and what follows them can be judged.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from rejoinder.models.llm.routing.opening import OPENED
from rejoinder.pipeline.errors import PipelineError
from rejoinder.pipeline.interfaces import Llm, Message, TokenLlm

CHARACTERS_PER_TOKEN = 4.0
"""Of a prompt for a model that does not count its tokens."""
MOST_SAID_TOKENS = 40
"""Most tokens of an answer."""
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


@dataclass(slots=True)
class DelayedChat:
    """Answers chat requests with the words of a model, after a delay.

    llm: writes the words; ``delay_s`` passes meanwhile. read, written: the tokens of all requests, those that
    were closed included. joins: the opening and what follows it, of each request that has an opening. idle:
    set while no request is being answered.
    """

    llm: Llm
    delay_s: float
    requests: int = 0
    read: int = 0
    written: int = 0
    joins: list[list[str]] = field(default_factory=list)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    _busy: int = 0

    def reset(self) -> None:
        """Forget the figures."""
        self.requests = self.read = self.written = 0
        self.joins = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests on one connection. It ends where the client closes it. Cancelling closes it."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                body = json.loads(await reader.readexactly(int(length[1]) if length else 0) or b"{}")
                self._busy += 1
                self.idle.clear()
                try:
                    await self._answer(body.get("messages", []), writer)
                finally:
                    self._busy -= 1
                    if not self._busy:
                        self.idle.set()
        except (OSError, asyncio.IncompleteReadError, PipelineError):
            pass
        finally:
            writer.close()

    async def _answer(self, messages: list[Message], writer: asyncio.StreamWriter) -> None:
        due = asyncio.get_running_loop().time() + self.delay_s
        self.requests += 1
        read, written = self._tokens(messages), 0
        self.read += read
        join = [messages[-2]["content"], ""] if messages[-1]["content"] == OPENED else None
        if join:
            self.joins.append(join)
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        async with aclosing(self._words(messages, due)) as words:
            async for word in words:
                self.written += 1
                written += 1
                if join:
                    join[1] += word
                writer.write(_chunk({"choices": [_choice(word)]}))
                await writer.drain()
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        writer.write(_chunk({"choices": [_choice(None, "stop")]}) + _chunk({"choices": [], "usage": usage}))
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    async def _words(self, messages: list[Message], due: float) -> AsyncGenerator[str, None]:
        """Yield the model's words, the first one at ``due`` at the earliest."""
        count = 0
        async with aclosing(self.llm.reply(messages)) as words:
            async for word in words:
                if (left := due - asyncio.get_running_loop().time()) > 0:
                    await asyncio.sleep(left)
                yield word
                if (count := count + 1) >= MOST_SAID_TOKENS:
                    return

    def _tokens(self, messages: list[Message]) -> int:
        if isinstance(self.llm, TokenLlm):
            return self.llm.count(messages)
        return round(sum(len(one["content"]) for one in messages) / CHARACTERS_PER_TOKEN)


def _choice(text: str | None, finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": {"content": text}, "finish_reason": finish}


def _chunk(fields: dict[str, Any]) -> bytes:
    body = f"data: {json.dumps({'id': '1', 'object': 'chat.completion.chunk', **fields})}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(body), body)
