"""The configuration: a TOML file, environment variables and flags. Later sources override earlier ones."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
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
from rejoinder.agent.instructions import EXAMPLES, INSTRUCTIONS, dated
from rejoinder.agent.language_models import TOYS, LanguageModelSettings
from rejoinder.agent.mistakes import DEFAULT, ENVIRONMENT, FLAG, PREFIX, PROFILE, variable
from rejoinder.agent.profiles import AUTO, PROFILES, chosen
from rejoinder.agent.settings.budget import BudgetSettings
from rejoinder.agent.settings.cache import CacheSettings
from rejoinder.agent.settings.calls import CallSettings
from rejoinder.agent.settings.context import ContextSettings
from rejoinder.agent.settings.conversations import ConversationSettings
from rejoinder.agent.settings.guard import GuardSettings
from rejoinder.agent.settings.limits import LimitSettings
from rejoinder.agent.settings.log import LogSettings
from rejoinder.agent.settings.operating import OperatingSettings
from rejoinder.agent.settings.recording import RecordingSettings
from rejoinder.agent.settings.security import SecuritySettings
from rejoinder.agent.settings.supervision import SupervisionSettings
from rejoinder.agent.settings.turns import TurnSettings
from rejoinder.agent.tables import SETTING_TABLES, TABLE_FIELDS, flat, nested
from rejoinder.models.llm.addresses import is_loopback
from rejoinder.models.llm.vllm.settings import VllmSettings
from rejoinder.models.loading import Specs
from rejoinder.models.placement import Placement
from rejoinder.models.registry import voice
from rejoinder.models.seed import SEED_VARIABLE
from rejoinder.models.specs import LANGUAGE_MODELS
from rejoinder.models.threads import Threads, plan
from rejoinder.pipeline import Message, Options, PipelineError

MODEL_TABLES = "models"
"""The setting that holds the tables [models.NAME]."""
DEFAULT_FILE = Path("rejoinder.toml")
"""The configuration file that is read if it exists and no other one is named."""
OTHER_VARIABLES = (
    "REJOINDER_CACHE",
    "REJOINDER_KEY",
    "REJOINDER_LLM_KEY",
    "REJOINDER_SPEECH",
    "REJOINDER_TEST_PATIENCE",
    SEED_VARIABLE,
)
"""Environment variables of Rejoinder that are not settings: they also work without a configuration."""
GREETING_CHARACTERS = 1_000
"""Most characters in a greeting: about one minute of speech."""
TOY_NOTE = (
    "  (SmolLM2-135M is fluent and often wrong. For a model that makes sense: rejoinder models fetch small, "
    "then --llm small; or --llm openai:http://HOST/v1#MODEL)"
)
"""What the commands print if the language model is one of ``TOYS``."""
TOY_EXAMPLES = (
    Message(role="user", content="Hello there."),
    Message(role="assistant", content="Hi! Nice to hear you. What can I do for you?"),
    Message(role="user", content="How long is a week?"),
    Message(role="assistant", content="It's seven days."),
)
"""Examples that keep the smallest model's answers short."""
TOY_TOKENS = 320
"""Most tokens of a conversation in the smallest model's prompt: it makes no sense of a longer one."""


class ConfigError(PipelineError):
    """The configuration is invalid. Each line of the message names a value, its source and the reason."""


class Settings(
    LanguageModelSettings,
    CacheSettings,
    CallSettings,
    ContextSettings,
    ConversationSettings,
    RecordingSettings,
    LimitSettings,
    LogSettings,
    OperatingSettings,
    SecuritySettings,
    SupervisionSettings,
    TurnSettings,
):
    """All settings. The environment variable of a setting is its name in capitals after ``REJOINDER_``."""

    # REJOINDER_VLLM_MAX_MODEL_LEN sets max_model_len in [vllm]: the first underscore separates the two.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", env_nested_delimiter="_", env_nested_max_split=1
    )

    profile: str = Field(
        AUTO,
        pattern=f"^({'|'.join([AUTO, *PROFILES])})$",
        description="preset of settings; auto: the largest that fits this machine and has its weights here",
    )
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8080, ge=0, le=65535, description="TCP port; 0: any free port")
    vad: str = Field("silero", description="voice activity detector")
    turn: str = Field("smart-turn", description="turn model, empty for none")
    stt: str = Field("whisper:tiny.en", description="speech recogniser")
    tts: Annotated[str, AfterValidator(voice)] = Field("piper:en_US-joe-medium", description="voice")
    device: str = Field("cpu", pattern="^(cpu|cuda)$", description="device of the recogniser: cpu or cuda")
    vllm: VllmSettings = Field(default=VllmSettings(), description="vLLM's settings, by vLLM's names")
    guard: GuardSettings = Field(
        default=GuardSettings.model_validate({}),
        description="what the agent's words must pass before they are heard",
    )
    budget: BudgetSettings = Field(
        default=BudgetSettings.model_validate({}), description="what calls may use of the language model"
    )
    instructions: str = Field(
        INSTRUCTIONS, description="system prompt of the agent; {date}, {tomorrow} and {time} are filled in"
    )
    greeting: str = Field(
        "",
        max_length=GREETING_CHARACTERS,
        description="exact words that the agent says when a call begins; empty: none",
    )
    idle_s: float = Field(
        0.0, ge=0.0, le=3600.0, description="seconds of silence after which the agent asks; 0: never"
    )
    idle_prompts: int = Field(2, ge=1, le=100, description="most questions until the user speaks again")
    max_call_s: float = Field(
        0.0, ge=0.0, le=86_400.0, description="seconds until a call ends, at the next silence; 0: never"
    )
    max_reply_s: float = Field(
        120.0, ge=0.0, le=3600.0, description="longest reply, in seconds of speech; 0: no limit"
    )
    resume_s: float = Field(
        30.0,
        ge=0.0,
        le=3600.0,
        description="seconds that the server keeps a conversation whose socket is lost; 0: do not keep it",
    )
    echo_gate: bool | None = Field(
        None,
        description="remove the agent's voice from the microphone's audio; unset: only in talk",
    )
    max_sessions: int = Field(
        16, ge=1, le=10_000, description="most calls at a time; the server refuses more"
    )
    max_completions: int = Field(
        2, ge=0, le=1000, description="most text requests at a time; more get HTTP 429"
    )
    allowed_origins: str = Field(
        "", description="origins of other web pages that may call, separated by blanks; *: any"
    )
    api_keys: str = Field(
        "",
        pattern=r"^\s*([0-9a-f]{64}(:\d{1,5}:\d{1,5}(:\d{1,8})?)?(\s+|$))*$",
        description="SHA-256 of each API key, separated by blanks; rejoinder key makes one",
    )
    open_to_all: bool = Field(False, description="accept calls from other machines without a key")
    public_url: str = Field(
        "",
        pattern=r"^(https://[\w.:-]+(/\S*)?)?$",
        description="address at which carriers reach this server, if a proxy is in between",
    )
    audiosocket_port: int = Field(
        0, ge=0, le=65535, description="TCP port for Asterisk's AudioSocket; 0: none"
    )
    wyoming_port: int = Field(0, ge=0, le=65535, description="TCP port for Home Assistant's Wyoming; 0: none")
    twilio_auth_token: SecretStr = Field(
        SecretStr(""),
        description="your Twilio account's auth token; if set, /v1/phone accepts only signed Twilio calls",
    )
    speculate: str = Field(
        "auto",
        pattern="^(auto|always|never)$",
        description="start answers before the end of a turn is certain; auto: not with hosted models",
    )
    metrics: bool = Field(
        True, description="metrics for Prometheus at /metrics, for this machine or clients with a key"
    )
    trace_file: str = Field("", description="file that gets one JSON line per turn, with the words")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only the passed values: ``load`` reads the sources itself, to know the source of each value."""
        return (init_settings,)

    def specs(self) -> Specs:
        """Return the specs of the models to load."""
        return Specs(self.vad, self.turn, self.stt, self.llm, self.tts)

    def threads(self) -> Threads:
        """Return the number of threads of each model."""
        return plan(cuda=self.device == "cuda")

    def placement(self) -> Placement:
        """Return the device of the models, and vLLM's settings."""
        cuda, rules, budget = self.device == "cuda", self.rules(), self.day_budget
        placed = Placement(cuda, self.vllm, self.models, self.hedge, self.busy_llm, rules, budget)
        return replace(placed, openings=self.opening_settings)

    @property
    def local(self) -> bool:
        """Whether only this machine can reach ``host``."""
        return is_loopback(f"//{authority(self.host, 0)}")

    def _examples(self) -> Sequence[Message]:
        """Return the examples for the language model, which are in English.

        They go with the default instructions only, except for the smallest model.
        """
        first = self.language_models()[0]
        if first in TOYS:
            return TOY_EXAMPLES
        is_embedded = first in LANGUAGE_MODELS.values()
        return EXAMPLES if is_embedded and self.instructions == INSTRUCTIONS else ()

    def options(self, now: datetime | None = None, phone: bool = False) -> Options:
        """Return the options of a session before its client changes any.

        now: when the session begins, for the date and the time in the instructions; the default is the clock
        of this machine, in its time zone. phone: whether its call is a telephone call.
        """
        is_toy = self.language_models()[0] in TOYS
        return Options(
            instructions=dated(self.instructions, now or datetime.now()),
            greeting=self.greeting.strip(),
            examples=self._examples(),
            prompt_tokens=self.prompt_tokens or (TOY_TOKENS if is_toy else 0),
            compress=self.compress(is_toy),
            endpointing=self.endpointing(phone),
            idle_s=self.idle_s,
            idle_prompts=self.idle_prompts,
            idle_ends=self.idle_ends,
            max_call_s=self.max_call_s,
            last_words=self.last_words.strip(),
            max_reply_s=self.max_reply_s,
            echo_gate=bool(self.echo_gate),
            speculate=self.speculate == "always" or (self.speculate == "auto" and not self.hosted),
            apology=self.apology.strip(),
            cut_apology=self.cut_apology.strip(),
        )


FIELDS = Settings.model_fields | TABLE_FIELDS
"""All settings by name. A setting in a table has the name TABLE.NAME, such as vllm.dtype."""


def load(flags: Mapping[str, Any], file: Path | None = None) -> tuple[Settings, dict[str, str]]:
    """Return the effective settings, and the source of each by name.

    flags: values from the command line, None for an omitted flag. file: the TOML file; the default is
    ``rejoinder.toml`` in the current folder, if it exists. Raises ConfigError.
    """
    if file is not None and not file.is_file():
        raise ConfigError(f"there is no configuration file {file}: mend the path, or leave --config out")
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
        settings = Settings.model_validate(nested(values))
    except ValidationError as error:
        raise ConfigError("\n".join(mistakes.mistakes(error, values, sources, FIELDS))) from error
    if reason := settings.wrong_budget(settings.budget):
        raise ConfigError(reason)
    for phone in (False, True):
        if reason := settings.disorder(sources, phone):
            raise ConfigError(reason)
    return settings, {
        name: f"{source} {variable(name)}" if source == ENVIRONMENT else source
        for name, source in sources.items()
    }


def _environment() -> dict[str, Any]:
    """Return the settings in the environment. Raises ValueError.

    Ignores variables without a setting; ``unknown_variables`` reports them.
    """
    try:
        layer = EnvSettingsSource(Settings)()
    except SettingsError as error:
        table = next((one for one in SETTING_TABLES if f'"{one}"' in str(error)), "vllm")
        if variable(table) in {name.upper() for name in os.environ}:
            raise ValueError(f"{variable(table)} has to be an object in JSON") from error
        raise ValueError(f"one of {variable(table)}_… has to be a list or an object in JSON") from error
    if variable(MODEL_TABLES) not in {name.upper() for name in os.environ}:
        layer.pop(MODEL_TABLES, None)  # of a variable with a longer name, which is no setting
    variables = {name.upper() for name in os.environ}
    for table, model in SETTING_TABLES.items():
        if isinstance(inner := layer.get(table), dict):
            layer[table] = {
                name: value
                for name, value in inner.items()
                if name in model.model_fields or variable(f"{table}.{name}") not in variables
            }
    return layer


def authority(host: str, port: int) -> str:
    """Return host and port in the form of a URL: an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unknown_variables(environment: Mapping[str, str]) -> str:
    """Return a sentence about REJOINDER_ variables that are not settings, or "" if there are none."""
    return mistakes.unknown_variables(environment, [*OTHER_VARIABLES, *map(variable, FIELDS)])


def check_open(settings: Settings) -> None:
    """Raise ConfigError if the server is open to other machines by accident, or has limits but no keys."""
    of_keys = ("key_sessions", "key_calls_per_min", "key_audio_s_per_day")
    if settings.tls_key and not settings.tls_cert:
        raise ConfigError("tls_key is the key of a certificate: set tls_cert too")
    has_keys = bool(settings.api_keys.strip() or settings.api_keys_file)
    if not has_keys and (name := next((n for n in of_keys if getattr(settings, n)), "")):
        raise ConfigError(f"{name} limits API keys: set api_keys or api_keys_file too")
    if settings.open_to_all or settings.local:
        return
    if not has_keys:
        raise ConfigError(
            f"any machine that reaches {settings.host} could call: set api_keys (rejoinder key makes one), "
            "or set open_to_all = true to allow that"
        )
    if settings.audiosocket_port:
        raise ConfigError(
            f"AudioSocket has no keys, so any machine that reaches {settings.host} could call at "
            f"audiosocket_port {settings.audiosocket_port}: let Asterisk use /v1/phone (chan_websocket), or "
            "set open_to_all = true if only Asterisk can reach it"
        )
