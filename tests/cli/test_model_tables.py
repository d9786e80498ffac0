"""Several language models in the configuration: lists, tables, and what is said of mistakes in them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.serving import run_command

from rejoinder.agent import config
from rejoinder.agent.config import ConfigError, load
from rejoinder.agent.logs import safe, secrets_of
from rejoinder.models.llm.failover.opening import check_list, open_server, public_names, several
from rejoinder.models.llm.settings import ModelSettings
from rejoinder.models.llm.spec_list import listed
from rejoinder.pipeline import ModelError

SECRET = "sk-very-secret-key"
TABLES = """
[models.big]
url = "https://api.example.com/v1"
model = "big"
key_file = "key"
headers = {X-Team = "very-secret-team"}
temperature = 0.3
top_p = 0.9
seed = 7
stop = ["\\n\\n"]
extra = {reasoning_effort = "low"}
prefill = "vllm"
first_token_s = 0.9
between_tokens_s = 2
input_price = 0.5
output_price = 1.5

[models.small]
spec = "scripted:llm|Yes, I am small."
first_token_s = 2
"""


@pytest.fixture(autouse=True)
def key(alone: None) -> None:
    Path("key").write_text(f"{SECRET}\n")


def loaded(text: str, **flags: Any) -> config.Settings:
    Path("rejoinder.toml").write_text(text)
    return load(flags)[0]


@pytest.mark.parametrize(
    ("text", "names", "found"),
    [
        ("ort:", (), ["ort:"]),
        ("ort", (), ["ort"]),
        ("big small", ("big", "small"), ["big", "small"]),
        ("big,small", ("big", "small"), ["big", "small"]),
        (" big ,\n small, ", ("big", "small"), ["big", "small"]),
        ("big smal", ("big", "small"), ["big", "smal"]),
        ("big ort:x openai:http://h/v1#m", ("big",), ["big", "ort:x", "openai:http://h/v1#m"]),
        ("openai:http://h/v1#m, ort:", (), ["openai:http://h/v1#m", "ort:"]),
        ("scripted:llm|Yes, now: go.|No", (), ["scripted:llm|Yes, now: go.|No"]),
        ("scripted:llm|Yes, now ort:x", (), ["scripted:llm|Yes, now", "ort:x"]),
        ("llama:/my models/a b.gguf big", ("big",), ["llama:/my models/a b.gguf", "big"]),
        ("", (), []),
    ],
)
def test_a_list(text: str, names: tuple[str, ...], found: list[str]) -> None:
    assert listed(text, names) == found


def test_names_in_traces_have_no_address() -> None:
    specs = ["big", "openai:https://me:pw@h:1/v1#Qwen/Qwen3-4B", "openai:http://other/v1#Qwen3-4B"]
    specs += ["ort:", "llama:/home/me/m.gguf", "scripted:llm|Yes."]
    assert public_names(specs) == [
        "big",
        "openai:Qwen3-4B",
        "openai:Qwen3-4B (3)",
        "ort:",
        "llama:m.gguf",
        "scripted:llm",
    ]


@pytest.mark.parametrize(
    ("llm", "speculates"),
    [
        ("openai:https://api.example.com/v1#m", False),
        ("openai:http://gpu:8000/v1#m", True),
        ("triton:https://api.example.com#m", False),
        ("triton:HTTPS://api.example.com#m", False),
        ("triton:http://gpu:8000#m", True),
        ("ort: triton:https://api.example.com#m", False),
        ("scripted:llm|Go to https: now", True),
    ],
)
def test_guess_is_made_only_where_no_server_may_bill_it(llm: str, speculates: bool) -> None:
    assert loaded("", llm=llm).options().speculate is speculates
    assert loaded('speculate = "always"', llm=llm).options().speculate


def test_a_list_is_given_in_three_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    in_file = loaded('llm = ["big", "ort:"]' + TABLES)
    assert in_file.language_models() == ["openai:https://api.example.com/v1#big", "ort:"]
    assert loaded(TABLES, llm="big ort:").language_models() == in_file.language_models()
    monkeypatch.setenv("REJOINDER_LLM", "big,ort:")
    assert loaded(TABLES).language_models() == in_file.language_models()
    assert not in_file.options().speculate, "one of them bills guesses"
    assert in_file.models["small"].full_spec == "scripted:llm|Yes, I am small."


def test_a_table_becomes_a_client_of_its_server() -> None:
    settings = loaded('llm = "big"' + TABLES)
    assert several(settings.llm, settings.placement())
    chat = open_server("big", settings.models["big"])
    assert chat._extra == {
        "temperature": 0.3,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["\n\n"],
        "reasoning_effort": "low",
    }
    assert (chat.name, chat._key, chat.prefills) == ("big", SECRET, True)
    assert chat._options.headers == {"X-Team": "very-secret-team"}
    assert (chat._options.input_price, chat._options.between_s) == (0.5, 2.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('llm = "big smal"', "rejoinder.toml: llm: there is no model 'smal'; there are: big, small"),
        (
            "llm = []",
            "rejoinder.toml: llm is [] and has to be a spec such as openai:http://HOST/v1#MODEL, or",
        ),
        ('llm = ["big", 3]', "has to be a spec such as"),
        ("models = 3", "models is 3 and has to be tables: a line [models.NAME]"),
        ("[models.a]", "rejoinder.toml: models.a: it needs a url and a model, or a spec"),
        ('[models.a]\nurl = "https://h/v1"', "models.a: it needs a url and a model, or a spec"),
        (
            '[models.a]\nspec = "ort:"\nurl = "https://h/v1"',
            "models.a: spec stands in place of url and model: remove one of them",
        ),
        (
            '[models.a]\nspec = "ort:"\ntemperature = 1\nseed = 3',
            "models.a: temperature, seed: only a model with a url has that, not ort",
        ),
        (
            f'[models.a]\nurl = "https://h/v1"\nmodel = "m"\nkey = "{SECRET}"',
            "models.a: there is no setting 'key'; did you mean key_file or key_env?",
        ),
        (
            '[models.a]\nurl = "https://h/v1"\nmodel = "m"\ntemprature = 1',
            "models.a: there is no setting 'temprature'; did you mean temperature?",
        ),
        (
            '[models.a]\nurl = "https://h/v1"\nmodel = "m"\nkey_file = "a"\nkey_env = "b"',
            "models.a: the key is in key_file or in key_env: remove one of them",
        ),
        (
            '[models.a]\nurl = "https://h/v1"\nmodel = "m"\nfirst_token_s = 0',
            "models.a.first_token_s has to be a number above 0, 120 at most",
        ),
        (
            f'[models.a]\nurl = "{SECRET}"\nmodel = "m"',
            "models.a.url has to be an address that begins with http:// or https://",
        ),
        (
            f'[models.a]\nurl = "https://h/v1"\nmodel = "m"\nheaders = {{X = ["{SECRET}"]}}',
            "models.a.headers has to be",
        ),
        ('[models."a b"]\nspec = "ort:"', "models.a b: a name has letters, digits and . _ - only"),
    ],
)
def test_mistakes(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(text if "models" in text else text + TABLES)
    assert sentence in str(error.value) and SECRET not in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("llm", "change", "reason"),
    [
        ("big", ("", ""), ""),
        ("big small", ('"key"', '"missing"'), "big: cannot read key_file missing: No such file or directory"),
        ("big", ('key_file = "key"', 'key_env = "NO_KEY_HERE"'), "NO_KEY_HERE of key_env is empty"),
        ("big big", ("", ""), "big: it is in the list twice"),
        ("small smaller", ("", ""), "smaller: it is neither a spec nor a table"),
        ("big foo:x", ("", ""), "foo: there is no adapter of this name"),
    ],
)
def test_a_list_is_checked_before_any_model_is_loaded(llm: str, change: tuple[str, str], reason: str) -> None:
    placement = loaded(TABLES.replace(*change)).placement()
    if not reason:
        check_list(llm, placement)
        return
    with pytest.raises(ModelError, match=reason) as error:
        check_list(llm, placement)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("content", ["", " \n", "two\nlines", "\x00", "ключ"])
def test_a_file_without_a_key_is_refused(content: str) -> None:
    Path("key").write_text(content)
    with pytest.raises(ModelError, match="key_file key") as error:
        ModelSettings(url="http://h/v1", model="m", key_file="key").key("big")
    assert not content.strip() or content.strip() not in str(error.value)


def test_secrets_are_neither_shown_nor_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", SECRET)
    settings = loaded('llm = "big"' + TABLES.replace('key_file = "key"', 'key_env = "MY_KEY"'))
    secrets = secrets_of(settings, os.environ)
    assert safe(f"{SECRET} very-secret-team", secrets) == "*** ***"
    assert "secret" not in repr(settings)
    shown = run_command("serve", "--print-config", folder=tmp_path, COLUMNS="160", MY_KEY=SECRET)
    assert shown.returncode == 0 and "secret" not in shown.stdout + shown.stderr
    assert "big, small" in shown.stdout


def test_a_mistake_ends_the_server_before_it_listens(tmp_path: Path) -> None:
    Path("rejoinder.toml").write_text('llm = "big"' + TABLES.replace('"key"', '"missing"'))
    done = run_command("serve", "--port", "0", folder=tmp_path)
    assert done.returncode == 1 and "big: cannot read key_file missing" in done.stderr
