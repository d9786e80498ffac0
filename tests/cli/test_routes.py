"""Rules and openings in the configuration, and what is said of mistakes in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rejoinder.agent import config
from rejoinder.agent.config import ConfigError, load

MODELS = """
llm = ["big", "small"]
{top}

[models.big]
spec = "scripted:llm|I am big."

[models.small]
spec = "scripted:llm|I am small."

"""
ROUTE = '[[routes]]\nmodel = "small"\n'


pytestmark = pytest.mark.usefixtures("alone")


def loaded(rules: str, top: str = "", **flags: Any) -> config.Settings:
    Path("rejoinder.toml").write_text(MODELS.format(top=top) + rules)
    return load(flags)[0]


def test_rules_and_openings_are_read() -> None:
    top = 'opening_model = "ort:"\nopenings = ["One moment,"]\nday_budget = 5'
    settings = loaded(f'{ROUTE}max_words = 12\nhours = "22:00-06:00"\n{ROUTE}difficulty = "easy"', top)
    routing = settings.placement().routing
    assert [rule.conditions for rule in routing.routes] == [
        {"max_words": 12, "hours": "22:00-06:00"},
        {"difficulty": "easy"},
    ]
    assert (routing.opening_model, routing.openings, routing.day_budget) == ("ort:", ["One moment,"], 5.0)
    assert routing.on and routing.opens
    assert not loaded("").placement().routing.on, "off by default"
    assert not settings.hosted
    assert loaded("", 'opening_model = "openai:https://h/v1#m"').hosted, "guesses at openings are billed, too"


def test_rules_in_the_environment_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_ROUTES", '[{"model": "small", "max_words": 3}]')
    assert loaded("").routes[0].max_words == 3
    monkeypatch.setenv("REJOINDER_ROUTES", "small")
    with pytest.raises(ConfigError, match="REJOINDER_ROUTES has to be a list in JSON"):
        loaded("")


@pytest.mark.parametrize(
    ("rules", "top", "sentence"),
    [
        (
            '[[routes]]\nmodel = "smal"\nmax_words = 3',
            "",
            "rejoinder.toml: routes: rule 1: 'smal' is none of the models in llm: big, small",
        ),
        (ROUTE, "", "rejoinder.toml: routes: rule 1: it has no condition: where no rule matches, the first"),
        ("[[routes]]\nmax_words = 3", "", "routes: rule 1 needs a model: one of the models in llm"),
        (
            f"{ROUTE}max_word = 3",
            "",
            "routes: rule 1: there is no setting 'max_word'; did you mean max_words?",
        ),
        (f"{ROUTE}max_words = 0", "", "routes: rule 1: max_words has to be a whole number from 1 to 1000"),
        (f'{ROUTE}hours = "9-17"', "", "routes: rule 1: hours has to be two times of day, as 22:00-06:00"),
        (f'{ROUTE}difficulty = "so-so"', "", "routes: rule 1: difficulty has to be easy or hard"),
        (
            f'{ROUTE}keys = ["me"]',
            "",
            "routes: rule 1: keys has to be a list of the first 8 to 64 characters",
        ),
        (f'{ROUTE}languages = ["English"]', "", 'rule 1: languages has to be a list of languages, as ["en"]'),
        (f"{ROUTE}load_above = 2", "", "routes: rule 1: load_above has to be a number from 0 to 1"),
        (f"{ROUTE}cost_left_below = 2", "", "routes: rule 1: cost_left_below needs a day_budget"),
        (
            f"{ROUTE}max_words = 9\n{ROUTE}max_words = 3",
            "",
            "routes: rule 2 is never reached: rule 1 matches all of its questions first",
        ),
        ("", "routes = 3", "rejoinder.toml: routes is 3 and has to be tables: lines [[routes]]"),
        ("", 'opening_model = "smal"', "rejoinder.toml: opening_model: there is no model 'smal'"),
        ("", 'opening_model = "big small"', "rejoinder.toml: opening_model: it is one model, not 2"),
        ("", 'openings = "One moment,"', "openings is 'One moment,' and has to be a list of first words"),
    ],
)
def test_mistakes_in_rules(rules: str, top: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(rules, top)
    assert sentence in str(error.value)
    assert len(str(error.value).splitlines()) == 1
