"""The settings of the language models: which are asked, in which order, and what is said if none answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field, StringConstraints
from pydantic_settings import BaseSettings

from rejoinder.models.llm.routing.choosing import mistake
from rejoinder.models.llm.routing.settings import RouteSettings, Routing
from rejoinder.models.llm.settings import ModelSettings
from rejoinder.models.llm.spec_list import joined, listed, unknown

TOYS = ("ort:smollm2-135m-instruct", "llama:smollm2-135m-instruct")
"""Default language models, which are too small for real use."""
APOLOGY = "Sorry, I cannot answer right now. Please say that again in a moment."
"""Spoken if no language model answers."""
CUT_APOLOGY = "Sorry, I lost the thread there. Could you ask me again?"
"""Spoken if all language models fail in the middle of a reply."""
LONGEST_APOLOGY = 1_000
"""Most characters of an apology."""
ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*$")]
"""The name of a table of a language model: no blank and no colon, so that it is no spec."""


OpeningWords = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]
"""First words of an answer."""


class LanguageModelSettings(BaseSettings):
    """The settings of the language models."""

    llm: Annotated[str, BeforeValidator(joined)] = Field(
        TOYS[0],
        description="language model, or openai:http://HOST/v1#MODEL; several: the next one takes over",
    )
    models: dict[ModelName, ModelSettings] = Field(
        {}, description="tables [models.NAME] with the settings of language models; llm refers to a NAME"
    )
    hedge: bool = Field(
        True, description="wait for a late language model while the next one is asked; false: give it up"
    )
    apology: str = Field(
        APOLOGY, max_length=LONGEST_APOLOGY, description="spoken if no language model answers; empty: silence"
    )
    cut_apology: str = Field(
        CUT_APOLOGY,
        max_length=LONGEST_APOLOGY,
        description="spoken if all language models fail in the middle of a reply; empty: silence",
    )

    routes: list[RouteSettings] = Field(
        [], max_length=50, description="tables [[routes]]: rules that choose the language model of a question"
    )
    day_budget: float = Field(
        0.0, ge=0.0, description="most cost of a day, in the unit of the prices, for the rules; 0: none"
    )
    opening_model: str = Field(
        "", description="small language model that says the first words while another one works; empty: none"
    )
    openings: list[OpeningWords] = Field(
        [], max_length=50, description="first words in place of those of opening_model, or where none fit"
    )
    opening_after_s: float = Field(
        0.3, ge=0.0, le=10.0, description="seconds that an answer may take before an opening is said"
    )

    @property
    def routing(self) -> Routing:
        """How questions are routed."""
        openings, after = self.openings, self.opening_after_s
        return Routing(self.routes, self.day_budget, self.opening_model, openings, after)

    def language_models(self) -> list[str]:
        """Return the specs of the language models, in the order in which they are asked."""
        found = listed(self.llm, self.models)
        return [self.models[one].full_spec if one in self.models else one for one in found]

    @property
    def hosted(self) -> bool:
        """Whether one of the language models probably bills each request."""
        opening = self.models.get(self.opening_model)
        specs = [*self.language_models(), opening.full_spec if opening else self.opening_model]
        return any(map(_is_hosted, specs))


def _is_hosted(spec: str) -> bool:
    """Return whether a spec has an address with TLS, whatever its adapter: few servers of one's own do."""
    return spec.partition(":")[2].lower().startswith("https:")


def unknown_model(llm: str, models: Mapping[str, ModelSettings]) -> str:
    """Return the sentence about a wrong list of models, "" for one that is fine."""
    if not (wrong := unknown(listed(llm, models), models)):
        return ""
    there = f"there are: {', '.join(models)}" if models else f"write a line [models.{wrong[0]}]"
    return f"there is no model {wrong[0]!r}; {there}"


def wrong_model(settings: LanguageModelSettings) -> tuple[str, str] | None:
    """Return the setting that holds a wrong language model or rule, and the sentence; None if all is fine."""
    if wrong := unknown_model(settings.llm, settings.models):
        return "llm", wrong
    found = listed(settings.llm, settings.models)
    if wrong := mistake(settings.routes, found, settings.day_budget):
        return "routes", wrong
    if len(opening := listed(settings.opening_model, settings.models)) > 1:
        return "opening_model", f"it is one model, not {len(opening)}"
    wrong = unknown_model(settings.opening_model, settings.models)
    return ("opening_model", wrong) if wrong else None
