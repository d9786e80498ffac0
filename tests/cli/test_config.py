"""What is said of a wrong configuration: its place, what is accepted, and the nearest name."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.serving import run_command

from rejoinder.agent import config
from rejoinder.agent.config import ConfigError, load, unknown_variables
from rejoinder.pipeline import Endpointing, turn_taking

SECRET = "sk-very-secret"
HASHES = (
    "the hashes of keys, as `rejoinder key` prints them, "
    "HASH or HASH:CALLS:PER_MINUTE or HASH:CALLS:PER_MINUTE:AUDIO_S each"
)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read no configuration of this folder or environment."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("REJOINDER_") and name not in config.OTHER_VARIABLES:
            monkeypatch.delenv(name)


def mistakes_of(flags: Mapping[str, Any] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(flags or {})
    return str(error.value).split("\n")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ('tss = "x"', "there is no setting 'tss'; did you mean tts?"),
        ('Max-Sessions = "x"', "there is no setting 'Max-Sessions'; did you mean max_sessions?"),
        ('voice = "heart"', "there is no setting 'voice'; did you mean tts?"),
        ("max_model_len = 8", "there is no setting 'max_model_len': it belongs below a line [vllm]"),
        (
            '[models.big]\nurl = "http://a/v1"\nmodel = "x"\nfirst_tokn_s = 1.0',
            "there is no setting 'first_tokn_s' in [models.big]; did you mean first_token_s?",
        ),
        ("[vllm]\nport = 8", "there is no setting 'port' in [vllm]: port belongs above the line [vllm]"),
        (
            "[vllm]\nmax_modle_len = 8",
            "there is no setting 'max_modle_len' in [vllm]; did you mean max_model_len?",
        ),
        ('patience = "high"', "patience is 'high' and has to be a number above 0, 1000 at most"),
        ("patience = nan", "patience is nan and has to be a number above 0, 1000 at most"),
        ("port = 99999", "port is 99999 and has to be a whole number from 0 to 65535"),
        ("port = 80.5", "port is 80.5 and has to be a whole number from 0 to 65535"),
        ("host = 3", "host is 3 and has to be a string"),
        ('open_to_all = "maybe"', "open_to_all is 'maybe' and has to be true or false"),
        ('echo_gate = "maybe"', "echo_gate is 'maybe' and has to be true or false"),
        ('device = "gpu"', "device is 'gpu' and has to be cpu or cuda"),
        (
            'profile = "huge"',
            "profile is 'huge' and has to be auto, cpu-tiny, cpu-small, cpu, gpu or gpu-large",
        ),
        (
            'drain_url = "https://b.example.com"',
            "drain_url is 'https://b.example.com' and has to be the WebSocket address of a server, such as "
            "wss://b.example.com, without a path",
        ),
        (
            'public_url = "http://x"',
            "public_url is 'http://x' and has to be an address that begins with https://",
        ),
        (
            f'api_keys = "{SECRET}"',
            "api_keys has to be " + HASHES,
        ),
        (f'twilio_auth_token = ["{SECRET}"]', "twilio_auth_token has to be a string"),
        ("vllm = 3", "vllm is 3 and has to be a table: a line [vllm], and its settings below"),
        ("[vllm]\nmax_num_seqs = 0", "vllm.max_num_seqs is 0 and has to be a whole number of at least 1"),
        (
            '[vllm]\nload_format = "magic"',
            "vllm.load_format is 'magic' and has to be auto, safetensors, pt, mistral, sharded_state, "
            "runai_streamer or dummy",
        ),
        (
            "[vllm]\nspeculative_config = 3",
            "vllm.speculative_config is 3 and has to be "
            'a table, as {method = "ngram", num_speculative_tokens = 3}',
        ),
        (
            '[models.a]\nurl = "http://127.0.0.1/v1"\ncontext = 10',
            "models.a.context is 10 and has to be a whole number from 512 to 10000000",
        ),
        (
            '[models.a]\nurl = "http://127.0.0.1/v1"\ninput_price = -1',
            "models.a.input_price is -1 and has to be a number of at least 0",
        ),
        ('[guard]\nsay = ""', "guard.say is '' and has to be a string of 1 to 200 characters"),
        ("budget = 5", "budget is 5 and has to be a table: a line [budget], and its settings below"),
        (
            "min_wait_ms = 5000",
            "min_wait_ms is 5000, which is more than 2200, the value of max_wait_ms (balanced)",
        ),
    ],
)
def test_a_file(given: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_text(f"{given}\n")
    assert mistakes_of() == [f"rejoinder.toml: {sentence}"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (b"llm = openai:http://x/v1#m", ", line 1, column 7: Invalid value; text needs quotes"),
        (b"host = 'a'\nport 80\n", ", line 2, column 6: Expected '=' after a key in a key/value pair"),
        (b"port = 1\nport = 2\n", ", line 2, column 9: Cannot overwrite a value"),
        (b"host = 'a", ', end of document: Expected "\'"'),
        (b"host = '\xff'", " is not text in UTF-8"),
    ],
)
def test_a_file_that_is_no_toml(given: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_bytes(given)
    assert mistakes_of() == [f"rejoinder.toml{sentence}"]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("PORT", "99999", " is '99999' and has to be a whole number from 0 to 65535"),
        ("PORT", "", " is '' and has to be a whole number from 0 to 65535"),
        ("PATIENCE", "high", " is 'high' and has to be a number above 0, 1000 at most"),
        (
            "API_KEYS",
            SECRET,
            " has to be " + HASHES,
        ),
        ("VLLM_MAX_NUM_SEQS", "x", " is 'x' and has to be a whole number of at least 1"),
        ("VLLM", "{x", " has to be an object in JSON"),
        ("HOST", "x" * 99, ""),
    ],
)
def test_a_variable(name: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"REJOINDER_{name}", value)
    if sentence:
        assert mistakes_of() == [f"REJOINDER_{name}{sentence}"]
    else:
        load({})


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"port": "x"}, "--port is 'x' and has to be a whole number from 0 to 65535"),
        ({"max_sessions": "0"}, "--max-sessions is '0' and has to be a whole number from 1 to 10000"),
        ({"turn_taking": "hasty"}, "--turn-taking is 'hasty' and has to be eager, balanced or patient"),
        ({"log_level": "loud"}, "--log-level is 'loud' and has to be debug, info, warning or error"),
    ],
)
def test_a_flag(flags: dict[str, str], sentence: str) -> None:
    assert mistakes_of(flags) == [sentence]


def test_an_operating_point_and_what_replaces_parts_of_it(tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_text(
        'turn_taking = "eager"\nphone_turn_taking = "patient"\nmax_wait_ms = 1000\n'
    )
    settings, _ = load({})
    talk, phone = settings.options().endpointing, settings.options(phone=True).endpointing
    assert talk == turn_taking("eager", max_wait_ms=1000)
    assert phone == turn_taking("patient", max_wait_ms=1000)
    (tmp_path / "rejoinder.toml").write_text("patience = 7\n")
    settings, _ = load({})
    assert settings.options().endpointing == settings.options(phone=True).endpointing
    assert settings.options().endpointing == Endpointing(patience=7.0)


def test_a_long_value_is_shown_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_DEVICE", "x" * 1000)
    (sentence,) = mistakes_of()
    assert len(sentence) < 150 and "x…" in sentence


def test_a_variable_of_vllm_without_a_setting_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a warning, as one of any other name."""
    monkeypatch.setenv("REJOINDER_VLLM_MAX_NUM_SEQ", "3")
    load({})
    assert "did you mean REJOINDER_VLLM_MAX_NUM_SEQS?" in unknown_variables(os.environ)


def test_the_tutorial_says_the_same_in_three_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tutorial = (ROOT / "docs" / "start" / "tutorial.md").read_text()
    section = tutorial.partition("## 3. Change the voice, the model, the prompt\n")[2].partition("\n##")[0]
    commands = re.findall(r"^    \.venv/bin/rejoinder (serve .*)$", section, re.MULTILINE)
    assert len(commands) == 3
    flags = {}
    for command in commands:
        shown = run_command(*shlex.split(command), "--print-config", folder=tmp_path, COLUMNS="160")
        assert (shown.returncode, shown.stderr) == (0, "")
        names = [word for word in shlex.split(command) if word.startswith("--")]
        given = dict(zip(names, shlex.split(command)[2::2], strict=True))
        flags |= {name.removeprefix("--").replace("voice", "tts"): value for name, value in given.items()}
    expected = load(flags)[0]
    file = tmp_path / "said.toml"
    file.write_text(section.partition("```toml\n")[2].partition("```")[0])
    assert load({}, file)[0] == expected
    script = section.partition("```sh\n")[2].partition("```")[0]
    for word in shlex.split(script.replace("export ", "")):
        name, _, value = word.partition("=")
        monkeypatch.setenv(name, value)
    assert load({})[0] == expected
    assert (expected.tts, expected.greeting) == ("hibari:heart", "Hello, this is Ada.")


def test_all_mistakes_are_reported_at_once_one_line_each(tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_text(
        f'patience = "high"\ntss = 3\ntwilio_auth_token = ["{SECRET}"]\n'
    )
    result = run_command(
        "serve", "--port", "eighty", "--max-sessions", "many", folder=tmp_path, REJOINDER_DEVICE="gpu"
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        "error: rejoinder.toml: patience is 'high' and has to be a number above 0, 1000 at most",
        "error: --port is 'eighty' and has to be a whole number from 0 to 65535",
        "error: REJOINDER_DEVICE is 'gpu' and has to be cpu or cuda",
        "error: --max-sessions is 'many' and has to be a whole number from 1 to 10000",
        "error: rejoinder.toml: twilio_auth_token has to be a string",
        "error: rejoinder.toml: there is no setting 'tss'; did you mean tts?",
    ]


def test_cost_limit_without_a_price_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rejoinder.toml"
    model = '[models.big]\nurl = "http://127.0.0.1/v1"\nmodel = "m"\n'
    file.write_text(f'llm = "big"\n[budget]\nday_cost = 5.0\n{model}')
    needed = "set input_price and output_price in its table [models.NAME]"
    assert mistakes_of() == [f"budget.day_cost: no model in llm has a price: {needed}"]
    file.write_text(f'llm = "big"\n[budget]\nday_cost = 5.0\n{model}output_price = 1.0\n')
    assert load({})[0].budget.day_cost == 5.0
