"""What the command line says about itself, its environment and its address, and the example program."""

import re
import shutil
import socket
import subprocess
import sys
import wave
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from support import speech
from support.paths import ROOT
from support.patience import PATIENCE
from support.serving import run_command, run_script
from typer.testing import CliRunner

from rejoinder.agent.bench.reports import output as bench_output
from rejoinder.agent.cli import commands
from rejoinder.agent.cli.app import app
from rejoinder.agent.config import OTHER_VARIABLES, Settings, authority, unknown_variables
from rejoinder.agent.server import serving
from rejoinder.pipeline import ModelError


def test_version_prints_the_version_and_no_command_prints_help() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"rejoinder {version('rejoinder')}\n")
    shown = CliRunner().invoke(app, [])
    assert "Talk to open models" in shown.output and "doctor" in shown.output


def test_commands_are_listed_as_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    for arguments, order in (([], commands.COMMAND_ORDER), (["bench"], bench_output.BENCH_ORDER)):
        shown = CliRunner().invoke(app, [*arguments, "--help"]).output
        rows = re.findall(r"^│ ([a-z]+) +(\S.*?) *│$", shown.partition("Commands")[2], re.MULTILINE)
        assert tuple(name for name, _ in rows) == order
        for name, sentence in rows:
            assert sentence.endswith("."), f"{name} is described in one sentence, on one line: {sentence}"


def test_help_imports_neither_the_server_nor_the_configuration() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from rejoinder.agent.cli.app import app;"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0;"
        "assert not {'starlette', 'pydantic', 'websockets', 'soxr'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    assert authority("127.0.0.1", 80) == "127.0.0.1:80"
    assert authority("::1", 80) == "[::1]:80"


def test_serve_prints_an_address_that_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(
        settings: Settings,
        sock: socket.socket,
        report: serving.Report,
        away: serving.Unreachable,
        agent: None,
        followed: str,
    ) -> None:
        for spec in ("a", "b", "c", "d"):
            report(spec, 0.1)
        away("e", ModelError("e", "it is down"))
        report("e", 0.1)

    class Listening:
        def getsockname(self) -> tuple[str, int, int, int]:
            return ("::1", 4711, 0, 0)

    monkeypatch.setattr(serving, "listen", lambda host, port: Listening())
    monkeypatch.setattr(serving, "serve", run)
    monkeypatch.setenv("REJOINDER_LOG_FORMAT", "pretty")
    result = CliRunner().invoke(app, ["serve", "--host", "::1"])
    assert result.stdout == "Talk to it at http://[::1]:4711/\n", "once"
    assert "no answer yet from e: it is down\n" in result.stderr


def test_unknown_rejoinder_variables_are_reported() -> None:
    known = {name: "" for name in OTHER_VARIABLES} | {"REJOINDER_TTS": "", "rejoinder_port": "", "PATH": ""}
    assert unknown_variables(known) == ""
    wrong = {**known, "REJOINDER_TSS": "x", "REJOINDER_QQQQQQQQQQ": "y"}
    assert unknown_variables(wrong) == (
        "there is no setting for: REJOINDER_QQQQQQQQQQ, REJOINDER_TSS (did you mean REJOINDER_TTS?)"
    )


def test_every_variable_that_the_program_reads_is_known() -> None:
    """A name in the code that ``serve`` would warn of is forgotten in OTHER_VARIABLES."""
    words = {
        word.strip("$`\"'.,:;)(=")
        for folder in ("agent", "models", "pipeline")
        for path in (ROOT / folder).rglob("*.py")
        for word in path.read_text().split()
        if "REJOINDER_" in word
    }
    named = {
        word for word in words if word.startswith("REJOINDER_") and word.isupper() and word != "REJOINDER_"
    }
    assert {"REJOINDER_CACHE", "REJOINDER_SPEECH"} <= named
    assert unknown_variables(dict.fromkeys(named, "")) == ""


def test_serve_warns_in_one_line(tmp_path: Path) -> None:
    result = run_command("serve", "--print-config", folder=tmp_path, REJOINDER_TSS="hibari")
    assert result.returncode == 0
    assert result.stderr == "warning: there is no setting for: REJOINDER_TSS (did you mean REJOINDER_TTS?)\n"


def example(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_script(ROOT / "examples" / "embed.py", *arguments)


def test_the_example_says_how_it_is_used_and_stays_small() -> None:
    for arguments in ((), ("one",), ("one", "two", "three")):
        result = example(*arguments)
        assert result.returncode == 1 and "embed.py question.wav answer.wav" in result.stderr
    assert len((ROOT / "examples" / "embed.py").read_text().splitlines()) < 55


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_other_extras_are_installed_where_some_already_are(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bin/python", ".installed-piper+hibari"):
        (tmp_path / name).touch()

    def planned(target: str, *extras: str) -> str:
        command = ["make", "-n", "-C", str(ROOT), target, f"VENV={tmp_path}", *extras]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=3 * PATIENCE
        ).stdout

    assert "pip install" not in planned("setup")
    assert "pip install" not in planned("setup", "EXTRAS=piper, hibari")
    assert "-e '.[server,local,openai,reload,hibari]'" in planned("setup", "EXTRAS=hibari")
    assert "-e '.[server,local,openai,reload,piper,hibari,demo]'" in planned("demo")
    assert "-e '.[server,local,openai,reload,piper,hibari,bench]'" in planned("bench")
    assert "-e '.[server,local,openai,reload,hibari,dev]'" in planned("check", "EXTRAS=hibari")
    assert "make run" in planned("setup") and "Next" not in planned("run")


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("target", ["setup", "demo", "check", "test-vllm"])
def test_editable_installs_do_without_the_warning_that_every_one_of_ours_gets(
    target: str, tmp_path: Path
) -> None:
    command = ["make", "-n", "-C", str(ROOT), target, f"VENV={tmp_path}"]
    planned = subprocess.run(command, capture_output=True, text=True, check=True, timeout=3 * PATIENCE).stdout
    installs = [line for line in planned.replace("\\\n", " ").splitlines() if "-e '." in line]
    assert installs
    for line in installs:
        assert line.startswith("PYTHONWARNINGS='ignore:Editable installation' "), line


def write(path: Path, samples: "np.typing.NDArray[np.int16]") -> str:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())
    return str(path)


@pytest.mark.weights
def test_the_example_ends_without_words_and_answers_a_question(tmp_path: Path) -> None:
    speech.need("smart-turn", "whisper:tiny.en", "piper")
    answer = tmp_path / "answer.wav"
    noise = np.random.default_rng(0).normal(0.0, 300.0, 32_000)
    for name, samples in (("silence", np.zeros(32_000)), ("noise", noise)):
        result = example(write(tmp_path / f"{name}.wav", samples), str(answer))
        assert result.returncode == 1 and "there is no answer to" in result.stderr, result.stderr
        assert not answer.exists()
    [question] = speech.recordings("assistant_utterances", 1)
    pcm = np.frombuffer(speech.heard(question).pcm, "<i2")
    result = example(write(tmp_path / "question.wav", pcm), str(answer))
    assert result.returncode == 0 and "you: " in result.stdout and "agent: " in result.stdout, result.stderr
    with wave.open(str(answer)) as file:
        assert file.getnframes() > 4000
