"""Requests of callers, with the tool call that answers each; None where the model should just talk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """What a caller says, and the call that is right. arguments: compared in lower case."""

    words: str
    tool: str | None = None
    arguments: tuple[tuple[str, str], ...] = ()


def _definition(tool: str, description: str, /, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {
        "type": "function",
        "function": {"name": tool, "description": description, "parameters": schema},
    }


DEFINITIONS = [
    _definition("weather", "Tells the weather in a city.", city="string"),
    _definition("switch_light", "Switches the light of a room on or off.", room="string", state="string"),
    _definition("set_timer", "Sets a timer.", minutes="integer"),
    _definition("book_table", "Books a table for a number of people.", people="integer", name="string"),
    _definition("transfer", "Transfers the call to a department.", department="string"),
]
"""The tools, in OpenAI's chat format."""
REQUESTS = (
    ToolRequest("What is the weather like in Rome?", "weather", (("city", "rome"),)),
    ToolRequest("Is it raining in Boston?", "weather", (("city", "boston"),)),
    ToolRequest("Do I need an umbrella in London today?", "weather", (("city", "london"),)),
    ToolRequest("How warm is it in Berlin?", "weather", (("city", "berlin"),)),
    ToolRequest("Turn on the light in the kitchen.", "switch_light", (("room", "kitchen"), ("state", "on"))),
    ToolRequest(
        "Please switch off the bedroom light.", "switch_light", (("room", "bedroom"), ("state", "off"))
    ),
    ToolRequest("It is too dark in the hall.", "switch_light", (("room", "hall"), ("state", "on"))),
    ToolRequest("Lights out in the office.", "switch_light", (("room", "office"), ("state", "off"))),
    ToolRequest("Set a timer for ten minutes.", "set_timer", (("minutes", "10"),)),
    ToolRequest("Wake me in half an hour.", "set_timer", (("minutes", "30"),)),
    ToolRequest("The eggs need five minutes, tell me when.", "set_timer", (("minutes", "5"),)),
    ToolRequest(
        "A table for four, please, the name is Anna.", "book_table", (("people", "4"), ("name", "anna"))
    ),
    ToolRequest(
        "Can you book a table for two? I am Peter.", "book_table", (("people", "2"), ("name", "peter"))
    ),
    ToolRequest(
        "We are six people, my name is Maria, we want a table.",
        "book_table",
        (("people", "6"), ("name", "maria")),
    ),
    ToolRequest("I want to talk to the sales department.", "transfer", (("department", "sales"),)),
    ToolRequest("Put me through to support, please.", "transfer", (("department", "support"),)),
    ToolRequest("Hello, who are you?"),
    ToolRequest("Thank you very much."),
    ToolRequest("What is two plus two?"),
    ToolRequest("Tell me a joke."),
)
"""Twenty requests as callers make them; four of them need no tool."""
