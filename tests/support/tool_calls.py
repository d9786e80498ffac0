"""A tool, and what a model answers when it may call it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from rejoinder.pipeline import Message, ToolCall, ToolLlm, Tools

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "Tells the weather.", "parameters": CITY},
}


async def answered(llm: ToolLlm, messages: Sequence[Message], tools: Tools) -> list[str | ToolCall]:
    async with aclosing(llm.answer(messages, tools)) as pieces:
        return [piece async for piece in pieces]
