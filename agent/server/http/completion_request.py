"""The request of ``POST /v1/chat/completions``, validated and converted to the pipeline's types."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from rejoinder.agent.complaints import complaint
from rejoinder.agent.wires.failures import NO_CALLS
from rejoinder.agent.wires.json_limits import excess
from rejoinder.pipeline import Message, ProtocolError, Tools
from rejoinder.pipeline.interfaces import CallMessage

MAX_BODY = 2**20
"""Most bytes of a request: about 200,000 words, more than any context length served here."""
MAX_REQUEST_VALUES = 2**14
"""Most members of objects and entries of lists in a request."""
MAX_MESSAGES = 1000
"""Most messages in a request."""
MAX_STOPS = 4
"""Most stop sequences, as with OpenAI."""
MAX_STOP = 200
"""Most characters of a stop sequence."""
UNSPOKEN: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "logit_bias": ({},),
    "web_search_options": (),
}
"""Fields that are not supported, each with the values (beside null) that are allowed because they change
nothing."""


FIRST = Field(fail_fast=True)
"""Validation stops at the first wrong entry of a list: thousands of errors would take seconds."""


class TextPart(BaseModel):
    """A part of a message. Language models here read only text."""

    type: Literal["text"]
    text: str


Content = str | Annotated[list[TextPart], FIRST]


class Called(BaseModel):
    """The function of a tool call, with its arguments as JSON."""

    name: str
    arguments: str


class MadeCall(BaseModel):
    """A tool call that the model made before."""

    id: str
    type: Literal["function"] = "function"
    function: Called


class Said(BaseModel):
    """A message in a role that has only text."""

    role: Literal["system", "developer", "user"]
    content: Content


class Answered(BaseModel):
    """An earlier answer of the model, with its tool calls."""

    role: Literal["assistant"]
    content: Content | None = None
    tool_calls: Annotated[list[MadeCall], FIRST] | None = None


class Returned(BaseModel):
    """The result of a tool call."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str


class ChatFunction(BaseModel):
    """A function that the client runs. ``parameters`` is a JSON schema. Other fields are passed on."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(pattern="^[a-zA-Z0-9_-]+$", max_length=64)


class Tool(BaseModel):
    """A tool in OpenAI's chat shape."""

    type: Literal["function"]
    function: ChatFunction


class FunctionName(BaseModel):
    """The name of a function."""

    name: str


class NamedTool(BaseModel):
    """The tool that the model must call."""

    type: Literal["function"]
    function: FunctionName


class StreamOptions(BaseModel):
    """Options of a stream. It has the usage only where the language model counts tokens."""

    include_usage: StrictBool | None = None


class Completion(BaseModel):
    """A request for a completion.

    Unknown fields are ignored, and so are sampling fields: the model has its own.
    """

    model_config = ConfigDict(extra="allow")

    model: str = Field(min_length=1, max_length=256)
    messages: list[Annotated[Said | Answered | Returned, Field(discriminator="role")]] = Field(
        min_length=1, max_length=MAX_MESSAGES, fail_fast=True
    )
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stop: str | Annotated[list[str], FIRST] | None = None
    tools: list[Tool] = Field(default_factory=list, max_length=128, fail_fast=True)
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    parallel_tool_calls: StrictBool | None = None

    @property
    def most(self) -> int | None:
        """Most tokens of the answer, None for no limit."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def counts(self) -> bool:
        """Whether the answer has a usage."""
        return not self.stream or bool(self.stream_options and self.stream_options.include_usage)

    def stops(self) -> list[str]:
        """Return the stop sequences. Raises ProtocolError for too many, or too long ones."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(given) > MAX_STOPS or not all(0 < len(one) <= MAX_STOP for one in given):
            reason = f"stop: at most {MAX_STOPS} sequences of 1 to {MAX_STOP} characters"
            raise ProtocolError(reason, "invalid_value", "stop")
        return given

    def prompt(self) -> list[Message]:
        """Return the messages for the language model."""
        return [_message(message) for message in self.messages]

    def wanted(self, can_call: bool) -> Tools:
        """Return the tools that the answer may call.

        Raises ProtocolError where the model cannot call tools, or the chosen tool does not exist.
        """
        if not self.tools or self.tool_choice == "none":
            return Tools()
        if not can_call:
            raise ProtocolError(NO_CALLS, "tools_not_supported", "tools")
        choice = self.tool_choice or "auto"
        functions = [tool.model_dump(exclude_none=True) for tool in self.tools]
        parallel = self.parallel_tool_calls is not False
        if isinstance(choice, str):
            return Tools(functions, choice, parallel)
        if choice.function.name not in [tool.function.name for tool in self.tools]:
            reason = f"there is no tool {choice.function.name[:64]} to choose"
            raise ProtocolError(reason, "invalid_value", "tool_choice")
        return Tools(functions, choice.model_dump(), parallel)


def read(body: bytes) -> Completion:
    """Return the parsed body of a request. Raises ProtocolError."""
    if reason := excess(body.decode(errors="replace"), MAX_REQUEST_VALUES):
        raise ProtocolError(reason, "invalid_json")
    try:
        request = Completion.model_validate_json(body)
    except ValidationError as error:
        # The path of an error contains the names of the unions' branches: content has two, a message three.
        wrong = complaint(error, SHAPES)
        param = ".".join(wrong.place) or None
        codes = {"json_invalid": "invalid_json", "missing": "missing_required_parameter"}
        codes["union_tag_not_found"] = codes["missing"]
        code = "unsupported_content" if wrong.unread else codes.get(wrong.kind, "invalid_value")
        raise ProtocolError(wrong.sentence(param), code, param) from None
    for name, harmless in UNSPOKEN.items():
        value = (request.model_extra or {}).get(name)
        if value is not None and value not in harmless:
            raise ProtocolError(f"{name}: not spoken here", "unsupported_parameter", name)
    return request


SHAPES = frozenset(
    (
        *("system", "developer", "user", "assistant", "tool", "str", "list[TextPart]", "list[str]"),
        *("NamedTool", "literal['auto','none','required']"),
    )
)
"""Pydantic's names for the branches of the unions here. They appear in an error's path but are no fields."""


def _message(message: Said | Answered | Returned) -> Message:
    content = message.content or ""
    text = content if isinstance(content, str) else "".join(part.text for part in content)
    role = "system" if message.role == "developer" else message.role
    result = Message(role=role, content=text)
    if isinstance(message, Returned):
        result["tool_call_id"] = message.tool_call_id
    elif isinstance(message, Answered) and message.tool_calls:
        result["tool_calls"] = [
            CallMessage(id=call.id, type="function", function=call.function.model_dump())
            for call in message.tool_calls
        ]
    return result
