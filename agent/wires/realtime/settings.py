"""The session object of the OpenAI Realtime protocol, and the session options that it sets."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationError

from rejoinder.agent.wires.ids import new_id
from rejoinder.agent.wires.merging import merged
from rejoinder.agent.wires.realtime.formats import PCM, Format
from rejoinder.agent.wires.realtime.messages import ResponseParams, check_size, explain
from rejoinder.agent.wires.realtime.shapes import Base
from rejoinder.agent.wires.realtime.tools import Choice, Function, MostTokens, most_tokens, tools_of
from rejoinder.agent.wires.voices import DEFAULT_VOICE, CustomVoice, check_voice
from rejoinder.pipeline import POINTS, Options, ProtocolError, Tools, TurnTaking

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
"""New names of the fields of the protocol's beta."""
ECHOED_FIELDS = frozenset("id object expires_at tracing include prompt reasoning".split())
"""Fields of the protocol that have no effect here."""
POINTS_BY_EAGERNESS: dict[str, TurnTaking] = {"high": "eager", "medium": "balanced", "low": "patient"}
"""The operating point for each eagerness. "auto" uses the server's settings."""


class ServerVad(Base):
    """Turns end after a fixed silence.

    Times are in milliseconds; the threshold is a probability of speech.
    """

    type: Literal["server_vad"]
    threshold: float = Field(0.5, ge=0.0, le=1.0)
    prefix_padding_ms: int = Field(300, ge=0, le=5_000)
    silence_duration_ms: int = Field(500, ge=100, le=10_000)
    create_response: bool = True
    interrupt_response: bool = True
    idle_timeout_ms: int | None = Field(None, ge=1_000, le=3_600_000)


class SemanticVad(Base):
    """Turns end when they sound finished. Higher eagerness ends them sooner."""

    type: Literal["semantic_vad"]
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    create_response: bool = True
    interrupt_response: bool = True


class AudioInput(Base):
    """The client's audio: its format and how it is processed."""

    format: Format = PCM
    transcription: dict[str, Any] | None = None
    noise_reduction: dict[str, Any] | None = None
    turn_detection: Annotated[ServerVad | SemanticVad, Field(discriminator="type")] | None = Field(
        default_factory=lambda: SemanticVad(type="semantic_vad")
    )


class AudioOutput(Base):
    """The agent's audio: format, voice and speed."""

    format: Format = PCM
    voice: str | CustomVoice = DEFAULT_VOICE
    speed: float = Field(default=1.0, ge=1.0, le=1.0, description="voices have one speed")


class Audio(Base):
    """The audio of both directions."""

    input: AudioInput = Field(default_factory=AudioInput)
    output: AudioOutput = Field(default_factory=AudioOutput)


class TokenLimits(Base):
    """The most tokens of a conversation in a prompt, after the instructions and the tools."""

    post_instructions: int | None = Field(None, ge=0, exclude_if=lambda limit: limit is None)


class Retention(Base):
    """The share of a conversation to keep when it is too long for the model."""

    type: Literal["retention_ratio"]
    retention_ratio: float = Field(ge=0.0, le=1.0)
    token_limits: TokenLimits | None = Field(None, exclude_if=lambda limits: limits is None)


def _shape(truncation: Any) -> str:
    return "word" if isinstance(truncation, str) else "object"


Truncation = Annotated[
    Annotated[Literal["auto", "disabled"], Tag("word")] | Annotated[Retention, Tag("object")],
    Discriminator(_shape),
]


class SessionConfig(Base):
    """The session object, which the server echoes."""

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
    """The session object of one conversation: the client's values over the server's defaults.

    can_call: whether the language model can call tools; if not, tools are refused. id: the session's
    identifier, "" for a new one. voice: the name of the server's voice.
    """

    def __init__(
        self,
        defaults: Options,
        model: str,
        can_call: bool = False,
        voice: str = DEFAULT_VOICE,
        id: str = "",
    ) -> None:
        self._defaults = defaults
        self._can_call = can_call
        self._voice = voice
        self._tools = Tools()
        self.id = id or new_id("sess")
        self._config = SessionConfig(model=model, instructions=defaults.instructions)

    def adopt(self, defaults: Options) -> None:
        """Replace the server's defaults, before the client has changed any."""
        self._defaults = defaults
        self._config.instructions = defaults.instructions

    def update(self, update: dict[str, Any]) -> None:
        """Merge an update into the session object, object by object. Raises ProtocolError."""
        for name in update:
            if name not in SessionConfig.model_fields and name not in ECHOED_FIELDS:
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
        """Return the format of the client's audio and of the agent's."""
        return self._config.audio.input.format, self._config.audio.output.format

    def describe(self) -> dict[str, Any]:
        """Return the session object for the client."""
        return {"id": self.id, "object": "realtime.session", **self._config.model_dump()}

    def saved(self) -> dict[str, Any]:
        """Return the client's values for another process, as an update.

        Values that the client has not changed are left out where the operator may change them.
        """
        config = self._config.model_dump()
        del config["model"]
        if config["instructions"] == self._defaults.instructions:
            del config["instructions"]
        return config

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
        """Check the options of one response. Raises ProtocolError for an unknown voice."""
        if response.voice is not None:
            check_voice(response.voice, self._voice, "response.audio.output.voice")

    def options(self) -> Options:
        """Return the pipeline's options for the session as the client has configured it."""
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
            point = POINTS[POINTS_BY_EAGERNESS[detection.eagerness]]
            endpointing = replace(
                endpointing,
                patience=point.patience,
                unsure_wait_ms=point.unsure_wait_ms,
                max_wait_ms=max(point.max_wait_ms, endpointing.min_wait_ms),
            )
        truncation = self._config.truncation
        retention = None if truncation == "disabled" else self._defaults.retention
        prompt_tokens = self._defaults.prompt_tokens
        if isinstance(truncation, Retention):
            retention = truncation.retention_ratio
            if truncation.token_limits and truncation.token_limits.post_instructions:
                given = truncation.token_limits.post_instructions
                prompt_tokens = min(given, prompt_tokens or given)
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
            prompt_tokens=prompt_tokens,
            retention=retention,
            detect_turns=detection is not None,
            create_response=detection is not None and detection.create_response,
            interrupt_response=detection is not None and detection.interrupt_response,
            speaks=self._config.output_modalities == ["audio"],
            tools=self._tools,
            max_tokens=most_tokens(self._config.max_output_tokens),
            idle_s=idle_s,
        )
