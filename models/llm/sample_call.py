"""A sample conversation with a tool call, which shows whether and how a chat template renders tools."""

from __future__ import annotations

import re
from typing import Any

from rejoinder.pipeline.interfaces import CallMessage, Message

NO_PARAMETERS = {"type": "object", "properties": {}}
"""The JSON schema of a function without parameters."""
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look_up", "description": "Looks.", "parameters": NO_PARAMETERS},
}
"""The function in prompts that show how a chat template renders tools."""
SAMPLE_CALL = CallMessage(id="call00001", type="function", function={"name": "look_up", "arguments": "{}"})
"""A call of ``TOOL``."""
CALLED = (
    Message(role="user", content="Look up."),
    Message(role="assistant", content="", tool_calls=[SAMPLE_CALL]),
    Message(role="tool", content="up", tool_call_id="call00001"),
)
"""A sample conversation, which shows how a chat template renders tools and calls."""
LIKE_HERMES = re.compile(r'<tool_call>\s*\{\s*"name":\s*"look_up",\s*"arguments":')
"""The call in ``CALLED`` as Qwen 2.5 and Hermes write it, and vLLM's ``hermes`` parser reads it."""
