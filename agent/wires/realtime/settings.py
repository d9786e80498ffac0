"""The session object of the OpenAI Realtime protocol: what a client may set, and the options that makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationError

from rejoinder.agent.wires.merging import merged
from rejoinder.agent.wires.realtime.events import new_id
from rejoinder.agent.wires.realtime.formats import PCM, Format
from rejoinder.agent.wires.realtime.messages import ResponseParams, check_size, explain
from rejoinder.agent.wires.realtime.shapes import Base
from rejoinder.agent.wires.realtime.tools import Choice, Function, MostTokens, most_tokens, tools_of
from rejoinder.agent.wires.voices import DEFAULT, CustomVoice, check_voice
from rejoinder.pipeline import Options, ProtocolError, Tools

BETA = {
    "input_audio_format": "audio.input.format",
    "input_audio_noise_reduction": "audio.input.noise_reduction",
    "input_audio_transcription": "audio.input.transcription",
    "turn_detection": "audio.input.turn_detection",
    "output_audio_format": "audio.output.format",
    "voice": "audio.output.voice",
    "speed": "audio.output.speed",
    "modalities": "output_modalities",
    "max_response_output_tokens": "max_output_tokens",
}
"""What fields of the protocol's beta are called since."""
ECHOED = frozenset("id object expires_at tracing include prompt reasoning".split())
"""Fields that the protocol knows and that have no effect here."""
PATIENCE = {"high": (1.0, 1_400), "medium": (4.0, 2_200), "low": (15.0, 3_000)}
"""Patience, and the longest wait in milliseconds, for each eagerness; auto is as configured."""


class ServerVad(Base):
    """Turns end after a fixed silence; a threshold and times in milliseconds."""

    type: Literal["server_vad"]
    threshold: float = Field(0.5, ge=0.0, le=1.0)
    prefix_padding_ms: int = Field(300, ge=0, le=5_000)
    silence_duration_ms: int = Field(500, ge=100, le=10_000)
    create_response: bool = True
    interrupt_response: bool = True
    idle_timeout_ms: int | None = Field(None, ge=1_000, le=3_600_000)


class SemanticVad(Base):
    """Turns end when they sound finished; eagerness says how patient to be."""

    type: Literal["semantic_vad"]
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    create_response: bool = True
    interrupt_response: bool = True


class AudioInput(Base):
    """How the client's audio comes in and what is done with it."""

    format: Format = PCM
    transcription: dict[str, Any] | None = None
    noise_reduction: dict[str, Any] | None = None
    turn_detection: Annotated[ServerVad | SemanticVad, Field(discriminator="type")] | None = Field(
        default_factory=lambda: SemanticVad(type="semantic_vad")
    )


class AudioOutput(Base):
    """How the agent's audio goes out."""

    format: Format = PCM
    voice: str | CustomVoice = DEFAULT
    speed: float = Field(default=1.0, ge=1.0, le=1.0, description="voices have one speed")


class Audio(Base):
    """Both directions."""

    input: AudioInput = Field(default_factory=AudioInput)
    output: AudioOutput = Field(default_factory=AudioOutput)


class Retention(Base):
    """How much of a conversation that is too long is kept."""

    type: Literal["retention_ratio"]
    retention_ratio: float = Field(ge=0.0, le=1.0)


def _shape(truncation: Any) -> str:
    return "word" if isinstance(truncation, str) else "object"


Truncation = Annotated[
    Annotated[Literal["auto", "disabled"], Tag("word")] | Annotated[Retention, Tag("object")],
    Discriminator(_shape),
]


class SessionConfig(Base):
    """The session object, as the server echoes it."""

    type: Literal["realtime"] = "realtime"
    model: str = "default"
    instructions: str = Field("", max_length=100_000)
    output_modalities: list[Literal["audio", "text"]] = Field(default=["audio"], min_length=1, max_length=1)
    audio: Audio = Field(default_factory=Audio)
    tools: list[Function] = Field(default_factory=list, max_length=128)
    tool_choice: Choice = "auto"
    max_output_tokens: MostTokens = "inf"
    parallel_tool_calls: bool | None = True
    truncation: Truncation | None = "auto"


class SessionSettings:
    """One connection's session object: what its client has set, over what the server was started with.

    can_call: whether the language model can call tools; else the session has none. id: what it is known by.
    voice: the name of the server's own.
    """

    def __init__(self, defaults: Options, model: str, can_call: bool = False, voice: str = DEFAULT) -> None:
        self._defaults = defaults
        self._can_call = can_call
        self._voice = voice
        self._tools = Tools()
        self.id = new_id("sess")
        self._config = SessionConfig(model=model, instructions=defaults.instructions)

    def update(self, update: dict[str, Any]) -> None:
        """Lay an update over the session object, object by object. Raises ProtocolError."""
        for name in update:
            if name not in SessionConfig.model_fields and name not in ECHOED:
                hint = f": it is session.{BETA[name]} since the beta" if name in BETA else ""
                reason = f"Unknown parameter: 'session.{name}'{hint}."
                raise ProtocolError(reason, "unknown_parameter", f"session.{name}")
        try:
            config = SessionConfig.model_validate(merged(self._config.model_dump(), update))
        except ValidationError as error:
            raise explain(error, "session") from None
        check_voice(config.audio.output.voice, self._voice, "session.audio.output.voice")
        check_size(config.model_dump(), "session")
        parallel = config.parallel_tool_calls is not False
        self._tools = tools_of(config.tools, config.tool_choice, self._can_call, "session", parallel)
        self._config = config

    def formats(self) -> tuple[Format, Format]:
        """Return how audio comes in, and how it goes out."""
        return self._config.audio.input.format, self._config.audio.output.format

    def describe(self) -> dict[str, Any]:
        """Return the session object as the client is told it."""
        return {"id": self.id, "object": "realtime.session", **self._config.model_dump()}

    def tools(self, response: ResponseParams) -> Tools | None:
        """Return the tools of one response, None for the session's own. Raises ProtocolError."""
        if response.tools is None and response.tool_choice is None and response.parallel_tool_calls is None:
            return None
        functions = self._config.tools if response.tools is None else response.tools
        choice = response.tool_choice or self._config.tool_choice
        given = response.parallel_tool_calls
        parallel = self._config.parallel_tool_calls if given is None else given
        return tools_of(functions, choice, self._can_call, "response", parallel is not False)

    def check(self, response: ResponseParams) -> None:
        """Check what one response is to be like. Raises ProtocolError for a voice that there is not."""
        if response.voice is not None:
            check_voice(response.voice, self._voice, "response.audio.output.voice")

    def options(self) -> Options:
        """Return the session's options as the client has configured them."""
        detection = self._config.audio.input.turn_detection
        endpointing = self._defaults.endpointing
        if isinstance(detection, ServerVad):
            endpointing = replace(
                endpointing,
                threshold=detection.threshold,
                release=max(detection.threshold - 0.15, detection.threshold / 2),
                padding_ms=detection.prefix_padding_ms,
                min_wait_ms=detection.silence_duration_ms,
                max_wait_ms=detection.silence_duration_ms,
            )
        elif isinstance(detection, SemanticVad) and detection.eagerness != "auto":
            patience, longest = PATIENCE[detection.eagerness]
            endpointing = replace(
                endpointing, patience=patience, max_wait_ms=max(longest, endpointing.min_wait_ms)
            )
        truncation = self._config.truncation
        retention = None if truncation == "disabled" else self._defaults.retention
        if isinstance(truncation, Retention):
            retention = truncation.retention_ratio
        idle_s = self._defaults.idle_s
        if isinstance(detection, ServerVad) and detection.idle_timeout_ms is not None:
            idle_s = detection.idle_timeout_ms / 1000.0
        return replace(
            self._defaults,
            instructions=self._config.instructions,
            examples=self._defaults.examples
            if self._config.instructions == self._defaults.instructions
            else (),
            endpointing=endpointing,
            retention=retention,
            detect_turns=detection is not None,
            create_response=detection is not None and detection.create_response,
            interrupt_response=detection is not None and detection.interrupt_response,
            speaks=self._config.output_modalities == ["audio"],
            tools=self._tools,
            max_tokens=most_tokens(self._config.max_output_tokens),
            idle_s=idle_s,
        )
