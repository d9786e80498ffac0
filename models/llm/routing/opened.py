"""One answer with an opening: the words of a small model or a phrase, until the large model goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace

from rejoinder.models.llm.failover.candidate import Piece, Request
from rejoinder.models.llm.failover.failover import GUESS_CHECK_SECONDS, Failover, is_guess
from rejoinder.models.llm.routing.opening import OPENED
from rejoinder.pipeline.replying.upstream import upstream

Opening = Callable[[], Awaitable[tuple[str, str]]]
"""Returns the first words, "" for none, and the name of the model that wrote them, "" for a phrase."""


async def opened(
    failover: Failover, request: Request, opening: Opening, after_s: float
) -> AsyncGenerator[Piece, None]:
    """Stream an answer, and an opening in front of it if it is late. Raises ModelError.

    The models are asked at once. If the answer begins within ``after_s``, or before the opening is known, no
    opening is said. Otherwise their request is closed, and they are asked for what follows the opening. While
    the reply is only a guess, nothing is said, and the time does not begin. Closing it closes all requests.
    """
    loop = asyncio.get_running_loop()
    stream = failover.stream(request)
    first = asyncio.create_task(_next(stream), name="answer")
    words = asyncio.ensure_future(opening())
    try:
        while is_guess() and not first.done():
            await asyncio.wait([first], timeout=GUESS_CHECK_SECONDS)
        await asyncio.wait([first], timeout=after_s)
        if not (first.done() or words.done()):
            await asyncio.wait([first, words], return_when=asyncio.FIRST_COMPLETED)
        said, author = ("", "") if first.done() else await words
        if said:
            await _end(first)
            await stream.aclose()
            stream = failover.stream(replace(request, given=said, go_on=OPENED))
            first = asyncio.create_task(_next(stream), name="answer")
            if (reply := upstream.get()) is not None:
                reply.opened(loop.time())
                if author:
                    reply.answers(author)
            yield said
        piece = await first
        while piece is not None:
            yield piece
            piece = await _next(stream)
    finally:
        await _end(first)
        await _end(words)
        await stream.aclose()


async def _next(stream: AsyncGenerator[Piece, None]) -> Piece | None:
    return await anext(stream, None)


async def _end(task: asyncio.Future[tuple[str, str]] | asyncio.Task[Piece | None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # a model that lost may fail unnoticed
