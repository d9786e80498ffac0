"""The settings of guardrails: what the agent's words must pass before the caller hears them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from rejoinder.models.guard.guardrails import guardrails
from rejoinder.models.guard.personal_data import PERSONAL_DATA, REGION
from rejoinder.pipeline import Guard, Rules
from rejoinder.pipeline.guarding.guard import GUARD_WAIT_S, REFUSAL

SENTENCE_CHARACTERS = 200
"""Most characters of the sentence in place of a refused clause."""


class GuardSettings(BaseModel):
    """The settings of guardrails. None is on by default. An agent's own guard replaces them."""

    model_config = ConfigDict(extra="forbid")

    block: list[str] = Field([], description="phrases that the agent does not say")
    patterns: dict[str, str] = Field(
        {}, description="regular expressions for what the agent does not say, by a name of yours"
    )
    redact: list[str] = Field(
        [], description=f"personal data that the agent does not say: {', '.join(PERSONAL_DATA)}"
    )
    region: str = Field(
        REGION, pattern="^[A-Z]{2}$", description="country of phone numbers without a country code"
    )
    scripts: list[str] = Field([], description="alphabets that the agent may use; empty: all")
    max_characters: int = Field(
        0, ge=0, le=100_000, description="most characters of a reply; 0: no limit of the guard"
    )
    moderation: str = Field(
        "",
        pattern=r"^(openai:https?://\S+)?$",
        description="moderation endpoint that judges each clause, openai:http://HOST/v1#MODEL",
    )
    moderation_key: SecretStr = Field(SecretStr(""), description="API key of the moderation endpoint")
    wait_s: float = Field(
        GUARD_WAIT_S, gt=0.0, le=5.0, description="longest time that a judge of a clause may take, in seconds"
    )
    strict: bool = Field(
        False, description="refuse a clause whose judge fails or takes too long; false: say it"
    )
    say: str = Field(
        REFUSAL,
        min_length=1,
        max_length=SENTENCE_CHARACTERS,
        description="sentence that replaces a refused clause and ends the reply",
    )
    marks_injection: bool = Field(
        False, description="count turns that look like a prompt injection in the trace"
    )

    @field_validator("block", "patterns", "redact", "scripts")
    @classmethod
    def _check_rules(
        cls, given: list[str] | dict[str, str], info: ValidationInfo
    ) -> list[str] | dict[str, str]:
        """Refuse rules that cannot work."""
        match info.field_name, given:
            case "block", list():
                Rules(block=given)
            case "patterns", dict():
                Rules(patterns=given)
            case "scripts", list():
                Rules(scripts=given)
            case _:
                if unknown := sorted(set(given) - set(PERSONAL_DATA)):
                    known = ", ".join(PERSONAL_DATA)
                    raise ValueError(f"{unknown[0]!r} cannot be redacted: there are {known}")
        return given

    def guard(self) -> Guard | None:
        """Return the guard of these settings; None if no rule is set. Raises ModelError."""
        rules = (self.block, self.patterns, self.redact, self.scripts)
        if not any((*rules, self.max_characters, self.moderation, self.marks_injection)):
            return None
        return guardrails(
            block=self.block,
            patterns=self.patterns,
            redact=self.redact,
            region=self.region,
            scripts=self.scripts,
            max_characters=self.max_characters,
            moderation=self.moderation,
            key=self.moderation_key.get_secret_value(),
            wait_s=self.wait_s,
            strict=self.strict,
            say=self.say,
            marks_injection=self.marks_injection,
        )
