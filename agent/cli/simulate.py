"""``rejoinder simulate``: a conversation with an agent in virtual time, without sound or a server."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rejoinder.agent import logs
from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import CallInfo, RefusedCall
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.loading import load_agent
from rejoinder.agent.cli.options import LogLevelOption
from rejoinder.agent.config import ConfigError
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.actor import NothingHeard
from rejoinder.agent.simulate.call import Call
from rejoinder.agent.simulate.caller import Caller
from rejoinder.agent.simulate.language_model import language_model
from rejoinder.agent.simulate.story import story
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedVad
from rejoinder.pipeline import Llm, Models, Options, PipelineError, ReplyDone

HELLO = "Hello, what can you do for me?"
"""What the caller says without ``--script``."""
SPEAKER_STYLES = {"caller": "cyan", "agent": "green", "tool": "yellow", "error": "red"}
"""The colour of each kind of line."""


def simulate(
    agent: Annotated[
        str, typer.Argument(help="an agent of yours: my_agent.py, or my_package.my_agent:agent")
    ],
    script: Annotated[
        list[str] | None, typer.Option(help="what the caller says in a turn; once for each turn")
    ] = None,
    reply: Annotated[
        list[str] | None,
        typer.Option(help='what the scripted model answers: words, then calls such as @book {"people": 4}'),
    ] = None,
    llm: Annotated[
        str | None, typer.Option(help="a real language model, such as openai:http://HOST/v1#MODEL")
    ] = None,
    caller: Annotated[str, typer.Option(help="the caller's number, for the agent's hooks")] = "",
    events: Annotated[bool, typer.Option("--events", help="print all events of the session")] = False,
    log_level: LogLevelOption = "warning",
) -> None:
    """Hold a conversation with an agent in virtual time, and print it.

    The language model is scripted without --llm. Exits with 1 if a hook, a tool or a model fails, or the
    agent is silent.
    """
    logs.start(log_level)
    out, complaints = (
        Console(soft_wrap=True, highlight=False),
        Console(stderr=True, soft_wrap=True, highlight=False),
    )

    def complain(reason: object) -> None:
        complaints.print(Text.assemble(("error: ", "red"), str(reason)))

    def leave(reason: object, code: int) -> typer.Exit:
        complain(reason)
        return typer.Exit(code)

    if llm and reply:
        raise leave("--reply scripts the language model: omit it, or omit --llm", 2)
    try:
        loaded = load_agent(agent)
    except ConfigError as error:
        raise leave(error, 2) from None
    info = CallInfo(wire="simulation", caller=caller)
    try:
        call, ended_by = virtual_clock.run(hold(loaded, script or [HELLO], reply or [], llm, info))
    except PipelineError as error:
        raise leave(str(error).splitlines()[0], 1) from None
    show(call, out, events)
    problems = [str(failure) for failure in call.failures]
    if isinstance(ended_by, RefusedCall):
        if not problems:
            out.print(f"The agent refuses the call: {ended_by}", markup=False)
            return
    elif ended_by:
        problems.append(str(ended_by).splitlines()[0])
    problems += [f"a reply failed: {one.error}" for one in call.talk.of(ReplyDone) if one.status == "failed"]
    if not ended_by:
        latency = ", ".join(map(str, call.latency_ms)) or "none"
        reason = call.talk.call.ended
        out.print(
            f"{call.ended:.2f} s, ended: {reason}; latency of the answers in ms: {latency}", markup=False
        )
    for problem in problems:
        complain(problem)
    if problems:
        raise typer.Exit(1)


async def hold(
    agent: Agent[Any, Any], script: list[str], replies: list[str], spec: str | None, info: CallInfo
) -> tuple[Call, Exception | None]:
    """Hold the conversation; return it, and what ended it before the script did, None for nothing.

    script: what the caller says, turn by turn. replies: of the scripted model, if ``spec`` is None. Raises
    ModelError and ConfigError. Cancelling hangs up.
    """
    async with AsyncExitStack() as stack:
        if spec:
            llm: Llm = await stack.enter_async_context(language_model(spec))
            virtual_clock.restart()
        else:
            llm = ScriptedLlm(replies)
        AgentHost(agent).check(Models(ScriptedVad(), ScriptedStt([]), llm, ScriptedTts()))
        caller = Caller(llm, Options(), agent=agent, info=info, real_time=True)
        if agent.greeting:
            caller.hears_out()
        for words in script:
            caller.says(words).hears_out()
        call = caller.prepared()
        try:
            await call.converse()
        except (RefusedCall, NothingHeard, PipelineError) as error:
            return call, error
    return call, None


def show(call: Call, out: Console, events: bool) -> None:
    """Print a call that has begun, one line per event, or per thing that was said or done."""
    if not call.talk.opened:
        return
    if events:
        for line in call.timeline():
            out.print(line, markup=False)
        return
    for told in story(call):
        style = SPEAKER_STYLES[told.who]
        out.print(Text.assemble(f"{told.at:7.2f}  ", (f"{told.who:7}", style), told.text))
