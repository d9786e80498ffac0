"""``POST /v1/chat/completions`` and ``GET /v1/models``: the language model of the calls, for text clients.

The model ``agent`` is the integrator's agent: its instructions, and its tools, which run here.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.text_answers import agent_answer
from rejoinder.agent.server.access import RequestError, body, error_response
from rejoinder.agent.server.http.completion import Answer, Shape
from rejoinder.agent.server.http.completion_request import MAX_BODY, read
from rejoinder.agent.server.http.sse import (
    DONE_EVENT,
    KEEP_ALIVE,
    KEEP_ALIVE_SECONDS,
    EventStream,
    data,
    unless_gone,
)
from rejoinder.agent.server.limiting.allowance import BUSY_SECONDS
from rejoinder.agent.wires.failures import SHUTTING_DOWN, error_body, kind_of, reported
from rejoinder.models.llm.priority_gate import text_answer
from rejoinder.models.llm.trace_context import TRACEPARENT, passed_on
from rejoinder.pipeline import (
    Channel,
    Closed,
    History,
    Llm,
    Message,
    Models,
    Options,
    Overloaded,
    PipelineError,
    ProtocolError,
    TokenLlm,
    ToolCall,
    ToolLlm,
    Tools,
    Usage,
)
from rejoinder.pipeline.engines import call_id
from rejoinder.pipeline.errors import asking
from rejoinder.pipeline.history import MAX_ENTRIES
from rejoinder.pipeline.replying.text.answer_filter import MAX_TOKENS, AnswerFilter, filtered
from rejoinder.pipeline.trace import Trace
from rejoinder.pipeline.upstream import Upstream, call_context, upstream

log = logging.getLogger(__name__)

MODEL = "default"
"""The name of the one language model, as at /v1/realtime. Requests with any other name get it too."""
AGENT = "agent"
"""The name of the integrator's agent."""
LEFT = 499
"""nginx's status for a client that has left. No client reads it."""

Count = Callable[[], Awaitable[Usage | None]]
"""Returns the tokens of a request, None where they are not known or the request does not ask for them."""


class Writing:
    """Generates one answer in its own task, at the model's speed, however slowly the client reads."""

    def __init__(self, pieces: AsyncGenerator[str | ToolCall, None]) -> None:
        self._pieces = pieces
        self._out: Channel[str | ToolCall] = Channel(MAX_TOKENS, "completion")
        self.task = asyncio.create_task(self._write(), name="completion")
        self.task.add_done_callback(lambda task: self._out.close())  # also if the task never began

    async def _write(self) -> None:
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                await self._out.send(piece)

    async def read(self) -> AsyncGenerator[str | ToolCall | None, None]:
        """Yield the pieces, and None after ``KEEP_ALIVE_SECONDS`` without one. Raises the model's errors.

        Closing or cancelling stops reading; the model goes on until ``end``.
        """
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    piece = await self._out.receive()
            except TimeoutError:
                yield None
                continue
            except Closed:
                break
            yield piece
        if self.task.cancelled():
            raise Overloaded(SHUTTING_DOWN)
        with asking("language model"):
            self.task.result()

    async def end(self) -> None:
        """Stop the model and wait until it has stopped. Cancelling stops waiting."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Completions:
    """Answers text requests.

    models: returns the models, None while they load. refused: returns the answer to a request that is not
    allowed, None for any other. most: most answers at a time, so that the model stays free for calls. names:
    public names of the models. agent: returns the agent, and the options of its sessions. closed: returns why
    no request is answered any more, "" while they are.
    """

    def __init__(
        self,
        models: Callable[[], Models | None],
        refused: Callable[[Request], Awaitable[Response | None]],
        most: int,
        names: Mapping[str, str],
        agent: Callable[[], tuple[AgentHost, Options]],
        closed: Callable[[], str],
    ) -> None:
        self._closed = closed
        self._agent = agent
        self._models = models
        self._refused = refused
        self._most = most
        self._names = dict(names)
        self._running: set[Writing] = set()

    def routes(self) -> list[Route]:
        """Return the routes of the endpoints."""
        return [
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/models", self._list),
            Route("/v1/models/{model:path}", self._one),
        ]

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return bool(self._running)

    def end(self) -> None:
        """Stop all answers, because the server ends."""
        for writing in self._running:
            writing.task.cancel()

    # --- models -----------------------------------------------------------------------------------------

    async def _list(self, request: Request) -> Response:
        if refused := await self._refused(request):
            return refused
        names = [MODEL, *([AGENT] if self._agent()[0].answers_text else [])]
        return JSONResponse({"object": "list", "data": [self._model(name) for name in names]})

    async def _one(self, request: Request) -> Response:
        if refused := await self._refused(request):
            return refused
        if (model := request.path_params["model"]) not in (MODEL, AGENT):
            return error_response(404, f"there is no model {model[:64]}; there is {MODEL}", "model_not_found")
        return JSONResponse(self._model(model))

    def _model(self, name: str) -> dict[str, Any]:
        about = {"id": name, "object": "model", "created": 0, "owned_by": "rejoinder"}
        return {**about, "models": self._names}

    # --- completions ------------------------------------------------------------------------------------

    async def _complete(self, request: Request) -> Response:
        id_ = f"chatcmpl-{secrets.token_hex(12)}"
        call_id.current.set(id_)
        try:
            if refused := await self._refused(request):
                return refused
            return await self._answer(request, id_)
        except ClientDisconnect:
            return Response(status_code=LEFT)
        except RequestError as error:
            return error_response(error.status, str(error), error.code, error.retry)
        except ProtocolError as error:
            wrong = error_body(str(error), "invalid_request_error", error.code, error.param)
            return JSONResponse({"error": wrong}, status_code=400)
        except Exception as error:  # an error ends this request, and nothing else
            return _failed(id_, error)

    async def _answer(self, request: Request, id_: str) -> Response:
        if reason := self._closed():
            raise RequestError(503, reason, "overloaded", retry=BUSY_SECONDS)
        models = self._models()
        if models is None:
            raise RequestError(503, "the models are still loading", "loading", retry=2)
        wanted = read(await body(request, MAX_BODY))
        answer = Answer(wanted.most, wanted.stops())
        tools = wanted.wanted(isinstance(models.llm, ToolLlm))
        if len(self._running) >= self._most:
            reason = f"{self._most} text requests are being answered, which is the most at a time"
            raise RequestError(429, reason, "rate_limit_exceeded", retry=1)
        shape = Shape(id_, int(time.time()), wanted.model)
        prompt, llm = wanted.prompt(), models.llm
        if wanted.model == AGENT:
            host, options = self._agent()
            if tools.functions:
                raise ProtocolError(
                    "The agent has tools of its own: leave tools out.", "invalid_value", "tools"
                )
            pieces = _of_agent(llm, prompt, host, options, id_)
        else:
            pieces = _pieces(llm, prompt, tools)

        context = passed_on(request.headers.get(TRACEPARENT, ""))
        call_context.set(context)
        # The request to the model's server has the client's own span as its parent: there is none in between.
        reported_by_model = Upstream(Trace(0, request=context[36:52]), spoken=False)
        upstream.set(reported_by_model)

        async def count() -> Usage | None:
            if not wanted.counts:
                return None
            if reported_by_model.usage is not None:
                return reported_by_model.usage
            if not isinstance(llm, TokenLlm):
                return None
            try:
                read = await asyncio.to_thread(llm.count, prompt)  # slow for long prompts
                return Usage(read, answer.pieces)
            except PipelineError as error:  # send the answer without its usage
                log.warning("a prompt could not be counted: %s", error)
                return None

        writing = self._start(pieces)
        if not wanted.stream:
            try:
                return JSONResponse(await unless_gone(request, _whole(writing, answer, shape, count)))
            finally:
                await writing.end()
        events = _events(writing, answer, shape, count)
        try:
            first = await unless_gone(request, anext(events))  # an early error can still set the status
        except BaseException:
            await writing.end()
            raise
        return EventStream(_rest(first, events), writing.end)

    def _start(self, pieces: AsyncGenerator[str | ToolCall, None]) -> Writing:
        writing = Writing(pieces)
        self._running.add(writing)
        # The place is free as soon as the model is done, however slowly the client reads.
        writing.task.add_done_callback(lambda task: self._running.discard(writing))
        return writing


def _pieces(llm: Llm, messages: list[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
    if isinstance(llm, ToolLlm) and tools.functions:
        return filtered(llm.answer(messages, tools), AnswerFilter())
    return text_answer(llm, messages)


def _of_agent(
    llm: Llm, messages: list[Message], host: AgentHost, options: Options, id_: str
) -> AsyncGenerator[str | ToolCall, None]:
    """Return the agent's answer to a conversation. Earlier calls of its tools are not in it."""
    history = History.of(replace(options, examples=()), llm)
    for message in messages[-MAX_ENTRIES:]:
        if message["role"] != "tool" and message["content"]:
            history.add(message["role"], message["content"])
    return agent_answer(llm, history, host, host.new_call(CallInfo(id_, "text"), options))


async def _whole(writing: Writing, answer: Answer, shape: Shape, count: Count) -> dict[str, Any]:
    async with aclosing(writing.read()) as pieces:
        async for piece in pieces:
            if piece is not None:
                answer.take(piece)
            if answer.finish:
                break
    answer.end()
    return shape.whole(answer, await count())


async def _events(writing: Writing, answer: Answer, shape: Shape, count: Count) -> AsyncGenerator[str, None]:
    """Yield the stream. Raises the model's error before the first event; a later error becomes an event."""
    opening, sent = data(shape.chunk({"role": "assistant", "content": ""})), False
    try:
        async with aclosing(writing.read()) as pieces:
            async for piece in pieces:
                if piece is None:
                    yield KEEP_ALIVE
                elif text := answer.take(piece):
                    yield opening + data(shape.chunk({"content": text}))
                    opening = ""
                sent = True
                if answer.finish:
                    break
    except Exception as error:
        if not sent:
            raise
        public = reported(shape.id, "the completion broke off", error)
        yield data({"error": error_body(public.message, kind_of(public.code), public.code)})
        return
    await writing.end()
    usage = await count()
    rest = answer.end()
    said = [shape.chunk({"content": rest})] if rest else []
    called = [shape.called(index, call) for index, call in enumerate(answer.calls)]
    last = [shape.chunk({}, answer.finish), *([] if usage is None else [shape.usage(usage)])]
    yield opening + "".join(data(chunk) for chunk in [*said, *called, *last]) + DONE_EVENT


async def _rest(first: str, events: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    async with aclosing(events):
        yield first
        async for event in events:
            yield event


def _failed(id_: str, error: Exception) -> Response:
    """Return the response to a failed request, with the id under which the log has the details."""
    public = reported(id_, "the completion failed", error)
    busy = public.code == "overloaded"
    status = 503 if busy else 500 if public.ours else 400
    answer = error_response(status, public.message, public.code, retry=int(busy))
    answer.headers["X-Request-Id"] = id_  # where OpenAI's clients look for it
    return answer
