"""The settings of the language models: which are asked, in which order, and what is said if none answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints
from pydantic_settings import BaseSettings

from rejoinder.agent.settings.budget import BudgetSettings
from rejoinder.models.llm.failover.hedge_budget import HEDGE_SHARE
from rejoinder.models.llm.model_settings import ModelSettings
from rejoinder.models.llm.routing.settings import OpeningSettings, RouteSettings
from rejoinder.models.llm.spec_list import all_listed, joined
from rejoinder.models.registry import language_model
from rejoinder.models.specs import LANGUAGE_MODELS

TOYS = ("ort:smollm2-135m-instruct", "llama:smollm2-135m-instruct")
"""The smallest language model, by its two specs: it is too small for real use."""
APOLOGY = "Sorry, I cannot answer right now. Please say that again in a moment."
"""Spoken if no language model answers."""
CUT_APOLOGY = "Sorry, I lost the thread there. Could you ask me again?"
"""Spoken if all language models fail in the middle of a reply."""
GIVE_UP_WORDS = "I still cannot answer. Please call again later. Goodbye."
"""Spoken before a call ends because of failed replies."""
LONGEST_APOLOGY = 1_000
"""Most characters of an apology."""


def _check_name(name: str) -> str:
    if name in LANGUAGE_MODELS:
        raise ValueError(f"{name} is a size of the embedded models: give the table another name")
    return name


def _as_share(given: object) -> object:
    """Return the share that "true" and "false" stand for, or what was given."""
    return {"true": 1.0, "false": 0.0}.get(str(given).lower(), given)


ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*$"), AfterValidator(_check_name)]
"""The name of a table of a language model: no blank and no colon, so that it is no spec."""


OpeningWords = Annotated[str, StringConstraints(min_length=1, max_length=100)]
"""The first words of an answer."""


class LanguageModelSettings(BaseSettings):
    """The settings of the language models."""

    llm: Annotated[str, BeforeValidator(joined), AfterValidator(language_model)] = Field(
        LANGUAGE_MODELS["small"],
        description="language model: tiny, small, medium, or openai:http://HOST/v1#MODEL; several: the next "
        "one takes over",
    )
    models: dict[ModelName, ModelSettings] = Field(
        {}, description="tables [models.NAME] with the settings of language models; llm refers to a NAME"
    )
    hedge: Annotated[float, BeforeValidator(_as_share)] = Field(
        HEDGE_SHARE,
        ge=0.0,
        le=1.0,
        description="largest share of the requests that may be sent to a second language model as well, "
        "because the first one is late; 0: none",
    )
    busy_llm: str = Field(
        "", description="smaller language model, which answers while the machine is busy; empty: none"
    )
    routes: list[RouteSettings] = Field(
        [], max_length=50, description="tables [[routes]]: rules that choose the language model of a question"
    )
    day_budget: float = Field(
        0.0, ge=0.0, description="what a day may cost, in the unit of the prices, for the rules; 0: no budget"
    )
    opening_model: str = Field(
        "",
        description="small language model that says the first words while another one is late; empty: none",
    )
    openings: list[OpeningWords] = Field(
        [], max_length=50, description="first words in place of those of opening_model, or where none fit"
    )
    opening_after_s: float = Field(
        0.3, ge=0.0, le=10.0, description="seconds that an answer may take before an opening is said"
    )
    apology: str = Field(
        APOLOGY, max_length=LONGEST_APOLOGY, description="spoken if no language model answers; empty: silence"
    )
    cut_apology: str = Field(
        CUT_APOLOGY,
        max_length=LONGEST_APOLOGY,
        description="spoken if all language models fail in the middle of a reply; empty: silence",
    )

    give_up_after: int = Field(
        0, ge=0, le=100, description="failed replies in a row after which a call ends; 0: never"
    )
    give_up_words: str = Field(
        GIVE_UP_WORDS, max_length=LONGEST_APOLOGY, description="last words of a call that ends so"
    )
    refuse_without_llm: bool = Field(
        False, description="refuse new calls while no language model of the list answers"
    )

    def language_model_names(self) -> list[str]:
        """Return the name of its table, or else the spec, of each of ``language_models``."""
        return all_listed(self.llm, self.busy_llm, self.models)

    def language_models(self) -> list[str]:
        """Return the specs of the language models in the order in which they are asked, ``busy_llm`` last."""
        names = self.language_model_names()
        return [self.models[one].full_spec if one in self.models else one for one in names]

    def wrong_budget(self, budget: BudgetSettings) -> str:
        """Return why a budget cannot work with these models and rules, "" if it can."""
        if any(rule.budget_above is not None for rule in self.rules()) and not budget.budgets():
            return "routes: budget_above needs a limit in [budget]"
        tables = [self.models[name] for name in self.language_model_names() if name in self.models]
        if budget.costs() and not any(table.input_price or table.output_price for table in tables):
            needed = "set input_price and output_price in its table [models.NAME]"
            return f"budget.{budget.costs()}: no model in llm has a price: {needed}"
        return ""

    def rules(self) -> Sequence[RouteSettings]:
        """Return the rules, with the specs of sizes."""
        return [rule.model_copy(update={"model": language_model(rule.model)}) for rule in self.routes]

    @property
    def opening_settings(self) -> OpeningSettings:
        """What is said while an answer is late."""
        return OpeningSettings(self.openings, language_model(self.opening_model or ""), self.opening_after_s)

    @property
    def hosted(self) -> bool:
        """Whether one of the language models probably bills each request: it has an address with TLS."""
        return any(spec.partition(":")[2].lower().startswith("https:") for spec in self.language_models())
