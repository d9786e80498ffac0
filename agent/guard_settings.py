"""The settings of guardrails: what the agent's words must pass before the caller hears them."""

from __future__ import annotations

from functools import cached_property

from pydantic import BaseModel, Field, SecretStr, ValidationInfo, field_validator

from rejoinder.models.guard.guardrails import guardrails
from rejoinder.models.guard.personal_data import PERSONAL_DATA, REGION
from rejoinder.pipeline import Guard, Rules
from rejoinder.pipeline.guarding.guard import GUARD_WAIT_S
from rejoinder.pipeline.guarding.refusal import REFUSAL

SENTENCE_CHARACTERS = 200
"""Most characters of the sentence in place of a refused clause."""


class GuardSettings(BaseModel):
    """The settings of guardrails. None is on by default. An agent's own guard replaces them."""

    guard_block: list[str] = Field([], description="phrases that the agent does not say")
    guard_patterns: dict[str, str] = Field(
        {}, description="regular expressions for what the agent does not say, by a name of yours"
    )
    guard_redact: list[str] = Field(
        [], description=f"personal data that the agent does not say: {', '.join(PERSONAL_DATA)}"
    )
    guard_region: str = Field(
        REGION, pattern="^[A-Z]{2}$", description="country of phone numbers without a country code"
    )
    guard_scripts: list[str] = Field([], description="alphabets that the agent may use; empty: all")
    guard_max_characters: int = Field(
        0, ge=0, le=100_000, description="most characters of a reply; 0: no limit of the guard"
    )
    guard_moderation: str = Field(
        "",
        pattern=r"^(openai:https?://\S+)?$",
        description="moderation endpoint that judges each clause, openai:http://HOST/v1#MODEL",
    )
    guard_moderation_key: SecretStr = Field(SecretStr(""), description="API key of the moderation endpoint")
    guard_wait_s: float = Field(
        GUARD_WAIT_S, gt=0.0, le=5.0, description="longest time that a judge of a clause may take, in seconds"
    )
    guard_strict: bool = Field(
        False, description="refuse a clause whose judge fails or takes too long; false: say it"
    )
    guard_refusal: str = Field(
        REFUSAL,
        min_length=1,
        max_length=SENTENCE_CHARACTERS,
        description="sentence that replaces a refused clause and ends the reply",
    )
    guard_marks_injection: bool = Field(
        False, description="count turns that look like a prompt injection in the trace"
    )

    @field_validator("guard_block", "guard_patterns", "guard_redact", "guard_scripts")
    @classmethod
    def _check_rules(
        cls, given: list[str] | dict[str, str], info: ValidationInfo
    ) -> list[str] | dict[str, str]:
        """Refuse rules that cannot work."""
        match info.field_name, given:
            case "guard_block", list():
                Rules(block=given)
            case "guard_patterns", dict():
                Rules(patterns=given)
            case "guard_scripts", list():
                Rules(scripts=given)
            case _:
                if unknown := sorted(set(given) - set(PERSONAL_DATA)):
                    raise ValueError(
                        f"{unknown[0]!r} cannot be redacted: there are {', '.join(PERSONAL_DATA)}"
                    )
        return given

    @cached_property
    def guard(self) -> Guard | None:
        """The guard of these settings, which all calls share; None if no rule is set. Raises ModelError."""
        rules = (self.guard_block, self.guard_patterns, self.guard_redact, self.guard_scripts)
        if not any((*rules, self.guard_max_characters, self.guard_moderation, self.guard_marks_injection)):
            return None
        return guardrails(
            block=self.guard_block,
            patterns=self.guard_patterns,
            redact=self.guard_redact,
            region=self.guard_region,
            scripts=self.guard_scripts,
            max_characters=self.guard_max_characters,
            moderation=self.guard_moderation,
            key=self.guard_moderation_key.get_secret_value(),
            wait_s=self.guard_wait_s,
            strict=self.guard_strict,
            refusal=self.guard_refusal,
            marks_injection=self.guard_marks_injection,
        )
