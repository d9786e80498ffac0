"""``rejoinder chat``: a conversation in text with an agent, its tools included, without speech."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace

from rich.console import Console

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call, CallInfo, RefusedCall
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.text_answers import agent_answer
from rejoinder.agent.config import Settings
from rejoinder.models.loading import open_llm
from rejoinder.models.registry import language_model
from rejoinder.pipeline import Llm, PipelineError
from rejoinder.pipeline.history import History

YOU = "you:   "
"""The prompt for the caller's words."""


def run(settings: Settings, agent: Agent | None, console: Console, read: Callable[[str], str] = input) -> str:
    """Hold the conversation until the end of the input; return the reason of a failure, "" without one.

    read: asks for a line and returns it; raises EOFError at the end.
    """
    try:
        asyncio.run(_converse(settings, AgentHost(agent or Agent()), console, read))
    except (PipelineError, RefusedCall) as error:
        return str(error)
    return ""


async def _converse(
    settings: Settings, host: AgentHost, console: Console, read: Callable[[str], str]
) -> None:
    options = host.options(settings.options())
    async with AsyncExitStack() as stack:
        opened = open_llm(settings.llm, settings.threads(), settings.placement())
        llm = await stack.enter_async_context(opened)
        await stack.enter_async_context(host.running())
        host.use(llm)
        for spec in host.worker_llms:
            opened = open_llm(language_model(spec), settings.threads(), settings.placement())
            host.llms[spec] = await stack.enter_async_context(opened)
        side = await host.answer(CallInfo("chat", "text"), options)
        call = side.call if side else host.new_call(CallInfo("chat", "text"), options)
        options = call.options
        examples = () if host.tools.functions else options.examples
        history = History.of(replace(options, examples=examples), llm)
        began = asyncio.get_running_loop().time()
        if options.greeting:
            _say(console, options.greeting)
            history.add("assistant", options.greeting)
        while (line := await asyncio.to_thread(_line, read)) is not None:
            if line.strip():
                history.add_user(line)
                await _answer(llm, history, host, call, console)
        if side:
            side.end("the input has ended", asyncio.get_running_loop().time() - began)
        await host.aclose()


async def _answer(llm: Llm, history: History, host: AgentHost, call: Call, console: Console) -> None:
    known = len(history.entries)
    words = ""
    async with aclosing(agent_answer(llm, history, host, call)) as pieces:
        async for piece in pieces:
            words += piece
    for entry in list(history.entries)[known:]:
        if entry.role in ("call", "tool"):
            did = f"{entry.name}({entry.text})" if entry.role == "call" else f"-> {entry.text}"
            console.print(f"       {did}", style="dim", markup=False, highlight=False, soft_wrap=True)
    history.add("assistant", words.strip())
    _say(console, words.strip())


def _say(console: Console, words: str) -> None:
    console.print(f"agent: {words}", markup=False, highlight=False, soft_wrap=True)


def _line(read: Callable[[str], str]) -> str | None:
    try:
        return read(YOU)
    except EOFError:
        return None
