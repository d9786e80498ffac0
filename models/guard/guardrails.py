"""Builds a guard from plain settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rejoinder.models.guard.moderation import moderation as moderated_by
from rejoinder.models.guard.personal_data import REGION, redactors
from rejoinder.pipeline.guarding.guard import GUARD_WAIT_S, REFUSAL, Guard, Judge
from rejoinder.pipeline.guarding.rules import Rules


def guardrails(
    *,
    block: Sequence[str] = (),
    patterns: Mapping[str, str] | None = None,
    redact: Sequence[str] = (),
    region: str = REGION,
    scripts: Sequence[str] = (),
    max_characters: int = 0,
    moderation: str = "",
    key: str = "",
    judges: Sequence[Judge] = (),
    wait_s: float = GUARD_WAIT_S,
    strict: bool = False,
    say: str = REFUSAL,
    marks_injection: bool = False,
) -> Guard:
    """Return a guard, for ``Agent(guard=...)``.

    block, patterns, scripts, max_characters: as in ``Rules``. redact: kinds of personal data that are not
    spoken: card, email, iban and phone. region: country of telephone numbers without a country code.
    moderation: a moderation endpoint, such as ``openai:https://HOST/v1#MODEL``. key: its API key.
    judges, wait_s, strict, say, marks_injection: as in ``Guard``.

    Raises ValueError for a rule that cannot work, TypeError for one text in place of several, and ModelError
    for a wrong endpoint and for a package that is missing.
    """
    for name, given in {"block": block, "redact": redact, "scripts": scripts}.items():
        if isinstance(given, str):
            raise TypeError(f"{name} is a text: it must be a sequence of texts, such as [{given!r}]")
    rules = Rules(block, patterns, redactors(redact, region), scripts, max_characters)
    asked = [*judges]
    if moderation:
        asked.append(moderated_by(moderation, key))
    rule_set = [list(block), dict(patterns or {}), sorted(redact), region, sorted(scripts), max_characters]
    identity = "" if judges else repr([*rule_set, moderation, strict])
    return Guard(rules, asked, wait_s, strict, say, marks_injection, identity)
