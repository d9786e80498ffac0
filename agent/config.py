"""The configuration: a TOML file, then environment variables, then flags; later ones win."""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from rejoinder.agent import mistakes
from rejoinder.agent.mistakes import DEFAULT, ENVIRONMENT, FLAG, PREFIX, PROFILE, place, variable
from rejoinder.agent.profiles import AUTO, PROFILES, chosen
from rejoinder.models.llm.openai import is_loopback
from rejoinder.models.llm.vllm.settings import VllmSettings
from rejoinder.models.loading import Specs
from rejoinder.models.placement import Placement
from rejoinder.models.registry import voice
from rejoinder.models.threads import Threads, plan
from rejoinder.pipeline import Endpointing, Message, Options, PipelineError
from rejoinder.pipeline.history import PROMPT_CHARACTERS

TABLE = "vllm"
"""The one table of the file."""
DEFAULT_FILE = Path("rejoinder.toml")
OTHER_VARIABLES = ("REJOINDER_CACHE", "REJOINDER_KEY", "REJOINDER_LLM_KEY", "REJOINDER_SPEECH")
"""Variables of ours that are no settings: they also count where no configuration is read."""
INSTRUCTIONS = (
    "You are a friendly voice assistant on a phone call. Your answers are short: one or two plain spoken "
    "sentences, without lists or symbols."
)
GREETING_CHARACTERS = 1_000
"""A minute of speech."""
TOYS = ("ort:smollm2-135m-instruct", "llama:smollm2-135m-instruct")
TOY_NOTE = (
    "  (SmolLM2-135M proves the pipeline without a key; it is fluent and often wrong. For a real model: "
    "--llm openai:http://HOST/v1#MODEL)"
)
TOY_EXAMPLES = (
    Message(role="user", content="Hello there."),
    Message(role="assistant", content="Hi! Nice to hear you. What can I do for you?"),
    Message(role="user", content="How long is a week?"),
    Message(role="assistant", content="It's seven days."),
)
"""What keeps the embedded model's answers short; a bigger one does not need to be shown."""
TOY_CHARACTERS = 1_200
"""It loses the thread of anything longer, and its context has 1,024 tokens."""


class ConfigError(PipelineError):
    """The configuration cannot be used; each line of the message says which value, from where, and why."""


class Settings(BaseSettings):
    """Everything that can be set. The environment's names are these in capitals after ``REJOINDER_``."""

    # REJOINDER_VLLM_MAX_MODEL_LEN is max_model_len in [vllm]: the first underscore parts them.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", env_nested_delimiter="_", env_nested_max_split=1
    )

    profile: str = Field(
        AUTO,
        pattern=f"^({'|'.join([AUTO, *PROFILES])})$",
        description="settings that fit together; auto: the largest that fits and whose weights are here",
    )
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8080, ge=0, le=65535, description="TCP port; 0 takes a free one")
    vad: str = Field("silero", description="voice activity detector")
    turn: str = Field("smart-turn", description="turn model, empty for none")
    stt: str = Field("whisper:tiny.en", description="speech recogniser")
    llm: str = Field(TOYS[0], description="language model, or openai:http://HOST/v1#MODEL")
    tts: Annotated[str, AfterValidator(voice)] = Field("piper:en_US-joe-medium", description="voice")
    device: str = Field(
        "cpu", pattern="^(cpu|cuda)$", description="where the recogniser and Piper run: cpu or cuda"
    )
    vllm: VllmSettings = Field(default=VllmSettings(), description="what vLLM is told, by its own names")
    instructions: str = Field(INSTRUCTIONS, description="what the agent is told about itself")
    greeting: str = Field(
        "",
        max_length=GREETING_CHARACTERS,
        description="what the agent says, word for word, when a call begins; empty for nothing",
    )
    patience: float = Field(
        4.0,
        gt=0.0,
        le=1000.0,
        description="how many times as likely as more speech a turn's end must be; less after a long pause",
    )
    min_wait_ms: int = Field(150, ge=100, le=10_000, description="silence before which no turn ends")
    max_wait_ms: int = Field(2200, ge=100, le=20_000, description="silence that ends any turn")
    assertiveness: float = Field(
        0.5,
        ge=0.0,
        le=1.0,
        description="how firmly the agent keeps the floor; at 0 any sound of speech ends it",
    )
    max_turn_s: float = Field(
        60.0, ge=1.0, le=3600.0, description="seconds after which a user's turn is ended"
    )
    idle_s: float = Field(
        0.0, ge=0.0, le=3600.0, description="seconds of silence after which the agent asks; 0: never"
    )
    idle_prompts: int = Field(2, ge=1, le=100, description="how often it asks before the user has spoken")
    max_call_s: float = Field(
        0.0, ge=0.0, le=86_400.0, description="seconds after which a call ends, when nobody speaks; 0: never"
    )
    max_reply_s: float = Field(
        120.0, ge=0.0, le=3600.0, description="seconds of speech after which a reply ends; 0: when it is over"
    )
    resume_s: float = Field(
        30.0,
        ge=0.0,
        le=3600.0,
        description="seconds for which a conversation waits whose client has lost its socket; 0: not at all",
    )
    echo_gate: bool | None = Field(
        None,
        description="take the agent out of what an open loudspeaker's microphone hears; unset: in talk",
    )
    max_sessions: int = Field(16, ge=1, le=10_000, description="calls at a time; one more is refused")
    max_completions: int = Field(
        2, ge=0, le=1000, description="text requests at a time; one more is told to come back"
    )
    allowed_origins: str = Field(
        "", description="web pages of others that may call: origins with blanks between them, * for any"
    )
    api_keys: str = Field(
        "",
        pattern=r"^\s*([0-9a-f]{64}(:\d{1,5}:\d{1,5})?(\s+|$))*$",
        description="who may call: SHA-256 of each key, with blanks between; rejoinder key makes one",
    )
    key_sessions: int = Field(0, ge=0, le=10_000, description="calls at a time of one key; 0: no limit")
    key_calls_per_min: int = Field(
        0, ge=0, le=10_000, description="calls and requests of one key in any 60 seconds; 0: no limit"
    )
    open_to_all: bool = Field(
        False, description="listen beyond this machine, though no key is needed to call"
    )
    public_url: str = Field(
        "",
        pattern=r"^(https://[\w.:-]+(/\S*)?)?$",
        description="address at which carriers reach this server, where a proxy is in between",
    )
    audiosocket_port: int = Field(
        0, ge=0, le=65535, description="TCP port for Asterisk's AudioSocket; 0: none"
    )
    wyoming_port: int = Field(0, ge=0, le=65535, description="TCP port for Home Assistant's Wyoming; 0: none")
    twilio_auth_token: SecretStr = Field(
        SecretStr(""),
        description="of your account; with it /v1/phone takes nobody but Twilio, by its signature",
    )
    speculate: str = Field(
        "auto",
        pattern="^(auto|always|never)$",
        description="start answers before a turn is surely over; auto: unless a hosted model would bill them",
    )
    trace_file: str = Field("", description="file to append one JSON line per turn to, with what was said")
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$", description="how much to log")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take only what is passed in: ``load`` reads the sources, and knows which one a value is from."""
        return (init_settings,)

    def specs(self) -> Specs:
        """Return which models to load."""
        return Specs(self.vad, self.turn, self.stt, self.llm, self.tts)

    def threads(self) -> Threads:
        """Return how many threads each model gets."""
        return plan(cuda=self.device == "cuda")

    def placement(self) -> Placement:
        """Return where the models run, and what vLLM is told."""
        return Placement(self.device == "cuda", self.vllm)

    @property
    def local(self) -> bool:
        """Whether only this machine can reach ``host``."""
        return is_loopback(f"//{authority(self.host, 0)}")

    def options(self) -> Options:
        """Return the options of a session that its client has not configured."""
        return Options(
            instructions=self.instructions,
            greeting=self.greeting.strip(),
            examples=TOY_EXAMPLES if self.llm in TOYS else (),
            prompt_characters=TOY_CHARACTERS if self.llm in TOYS else PROMPT_CHARACTERS,
            endpointing=Endpointing(
                patience=self.patience,
                min_wait_ms=self.min_wait_ms,
                max_wait_ms=self.max_wait_ms,
                assertiveness=self.assertiveness,
                max_turn_ms=int(self.max_turn_s * 1000),
            ),
            idle_s=self.idle_s,
            idle_prompts=self.idle_prompts,
            max_call_s=self.max_call_s,
            max_reply_s=self.max_reply_s,
            echo_gate=bool(self.echo_gate),
            speculate=self.speculate == "always"
            or (self.speculate == "auto" and not self.llm.startswith("openai:https:")),
        )


FIELDS = Settings.model_fields | {
    f"{TABLE}.{name}": field for name, field in VllmSettings.model_fields.items()
}
"""All settings by name; those of [vllm] as vllm.NAME."""


def load(flags: Mapping[str, Any], file: Path | None = None) -> tuple[Settings, dict[str, str]]:
    """Return the effective settings, and for each where its value came from.

    flags: values from the command line, None where a flag was not given. file: the TOML file; by default
    ``rejoinder.toml`` in the current folder if there is one. Raises ConfigError.
    """
    if file is not None and not file.is_file():
        raise ConfigError(f"there is no configuration file {file}")
    path = file or DEFAULT_FILE
    try:
        layers: list[tuple[str, dict[str, Any]]] = [
            (str(path), mistakes.read_toml(path)),
            (ENVIRONMENT, _environment()),
            (FLAG, {name: value for name, value in flags.items() if value is not None}),
        ]
    except ValueError as error:
        raise ConfigError(str(error)) from error
    profile = next((layer["profile"] for _, layer in reversed(layers) if "profile" in layer), AUTO)
    if profile == AUTO:
        profile = chosen()
    values: dict[str, Any] = {}
    defaults = flat(Settings.model_construct().model_dump())
    sources = dict.fromkeys(defaults, DEFAULT)
    fitting = flat(PROFILES.get(str(profile), {}))
    changed = {name: value for name, value in fitting.items() if value != defaults[name]}
    for source, layer in [(f"{PROFILE}{profile}", changed), *layers]:
        values.update(flat(layer))
        sources.update(dict.fromkeys(flat(layer), source))
    values["profile"] = profile
    try:
        settings = Settings.model_validate(_nested(values))
    except ValidationError as error:
        raise ConfigError("\n".join(mistakes.mistakes(error, values, sources, FIELDS))) from error
    if settings.min_wait_ms > settings.max_wait_ms:
        raise ConfigError(_disorder(settings, sources))
    return settings, {
        name: f"{source} {variable(name)}" if source == ENVIRONMENT else source
        for name, source in sources.items()
    }


def _environment() -> dict[str, Any]:
    """Return what the environment sets; a variable without a setting is left to ``unknown_variables``.

    Raises ValueError.
    """
    try:
        layer = EnvSettingsSource(Settings)()
    except SettingsError as error:
        raise ValueError(f"{variable(TABLE)} has to be an object in JSON") from error
    if isinstance(inner := layer.get(TABLE), dict):
        variables = {name.upper() for name in os.environ}
        layer[TABLE] = {
            name: value
            for name, value in inner.items()
            if name in VllmSettings.model_fields or variable(f"{TABLE}.{name}") not in variables
        }
    return layer


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with those of [vllm] one by one, as vllm.NAME."""
    return {
        key: value
        for name, given in settings.items()
        for key, value in (
            ((f"{TABLE}.{inner}", value) for inner, value in given.items())
            if name == TABLE and isinstance(given, Mapping)
            else [(name, given)]
        )
    }


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Undo ``flat``."""
    nested = {name: value for name, value in values.items() if not name.startswith(f"{TABLE}.")}
    if TABLE not in nested:
        inner = {
            name.removeprefix(f"{TABLE}."): value for name, value in values.items() if name not in nested
        }
        nested[TABLE] = inner
    return nested


def _disorder(settings: Settings, sources: Mapping[str, str]) -> str:
    least, most = (place(name, sources[name]) for name in ("min_wait_ms", "max_wait_ms"))
    return (
        f"{least} is {settings.min_wait_ms}, which is more than {settings.max_wait_ms}, the value of {most}"
    )


def authority(host: str, port: int) -> str:
    """Return host and port as a URL has them: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unknown_variables(environment: Mapping[str, str]) -> str:
    """Return which of the environment's variables look like ours and are not, in a sentence; "" for none."""
    return mistakes.unknown_variables(environment, [*OTHER_VARIABLES, *map(variable, FIELDS)])


def check_open(settings: Settings) -> None:
    """Refuse to serve strangers, unless that is wanted in words, and limits of no key. Raises ConfigError."""
    if (settings.key_sessions or settings.key_calls_per_min) and not settings.api_keys.strip():
        raise ConfigError("key_sessions and key_calls_per_min are limits of keys: set api_keys")
    if settings.open_to_all or settings.local:
        return
    if not settings.api_keys.strip():
        raise ConfigError(
            f"whoever reaches {settings.host} could call: set api_keys (rejoinder key makes one), "
            "or open_to_all = true where that is wanted"
        )
    if settings.audiosocket_port:
        raise ConfigError(
            f"AudioSocket knows no keys, so whoever reaches {settings.host} could call at audiosocket_port "
            f"{settings.audiosocket_port}: let Asterisk use /v1/phone (chan_websocket), or set "
            "open_to_all = true where only Asterisk can reach it"
        )


def open_traces(settings: Settings) -> FileIO | None:
    """Open the file for traces, None for none. Raises ConfigError."""
    if not settings.trace_file:
        return None
    try:
        return FileIO(os.path.expanduser(settings.trace_file), "a")
    except OSError as error:
        raise ConfigError(f"trace_file {settings.trace_file}: {error.strerror}") from error
