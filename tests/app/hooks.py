"""The hooks that docs/start/agent.md shows."""

from __future__ import annotations

from rejoinder import Agent, Call

agent: Agent[None, None] = Agent()

BLOCKED = {"+3220000000"}


@agent.on_call
async def prepare(call: Call) -> None:
    if call.info.caller in BLOCKED:
        call.refuse("this number is blocked")
    if call.info.called == "+3221234567":
        call.instructions = "Antwoord in het Nederlands."


@agent.on_turn
async def note(call: Call, words: str) -> None:
    print(call.info.id, words)


@agent.on_end
async def save(call: Call) -> None:
    print(call.ended, call.seconds, call.transcript)
