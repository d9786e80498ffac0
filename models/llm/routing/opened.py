"""One answer with an opening: the words of a small model or a phrase, until the large model goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rejoinder.models.llm.failover.candidate import Piece, Request
from rejoinder.models.llm.failover.guessing import GUESS_CHECK_SECONDS, is_guess
from rejoinder.models.llm.routing.opening import OPENED, Openings
from rejoinder.pipeline.upstream import upstream


async def opened(
    answer: Callable[[Request], AsyncGenerator[Piece, None]], request: Request, openings: Openings
) -> AsyncGenerator[Piece, None]:
    """Stream an answer, and an opening in front of it if it is late. Raises ModelError.

    answer: streams the answer to a request, which is asked at once. If it begins in time, or before the
    opening is known, no opening is said. Otherwise its request is closed, and what follows the opening is
    asked for. While the reply is only a guess, nothing is said, and the time does not begin. Closing it
    closes all requests.
    """
    loop = asyncio.get_running_loop()
    stream = answer(request)
    first = asyncio.create_task(_next(stream), name="answer")
    words = asyncio.create_task(openings.choose(request), name="opening")
    try:
        while is_guess() and not first.done():
            await asyncio.wait([first], timeout=GUESS_CHECK_SECONDS)
        await asyncio.wait([first], timeout=openings.after_s)
        if not (first.done() or words.done()):
            await asyncio.wait([first, words], return_when=asyncio.FIRST_COMPLETED)
        said, author = ("", "") if first.done() else await words
        if said:
            await _end(first)
            await stream.aclose()
            stream = answer(replace(request, given=said, go_on=OPENED))
            first = asyncio.create_task(_next(stream), name="answer")
            if (reply := upstream.get()) is not None:
                reply.opened(loop.time())
                if author:
                    reply.answers(author, None)
            yield said
        piece = await first
        while piece is not None:
            yield piece
            piece = await _next(stream)
    finally:
        try:
            await _end(first, words)
        finally:
            with suppress(RuntimeError):  # a second cancel came while the stream was in use
                await stream.aclose()


async def _next(stream: AsyncGenerator[Piece, None]) -> Piece | None:
    return await anext(stream, None)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # a model that lost may fail unnoticed
