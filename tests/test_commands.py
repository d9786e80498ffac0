"""``rejoinder ask``, ``doctor`` and ``talk`` as a user runs them."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from serving import run_command

from rejoinder.agent.recordings import RecordingsMissing, read_set, speech_folder

SCRIPTED = ("--llm", "scripted:llm|It is sunny today.", "--tts", "scripted:tts", "--turn", "scripted:turn")


@pytest.fixture
def question(tmp_path: Path) -> Path:
    try:
        recordings = read_set(speech_folder(), "assistant_utterances")
    except RecordingsMissing as error:
        pytest.skip(str(error))
    audio = next(r for r in recordings if r.path.stem == "azure_whatstheweatherlike").load(44_100)
    path = tmp_path / "question.wav"
    soundfile.write(path, np.stack((audio, audio), axis=1), 44_100)  # stereo, and not at 16 kHz
    return path


@pytest.mark.weights
def test_ask_answers_a_recording_in_words_and_sound(question: Path, tmp_path: Path) -> None:
    answer = tmp_path / "answer.wav"
    result = run_command("ask", str(question), "--out", str(answer), *SCRIPTED[:2], folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "weather" in result.stdout.lower() and "It is sunny today." in result.stdout
    again = run_command("ask", str(answer), "--out", str(tmp_path / "echo.wav"), *SCRIPTED, folder=tmp_path)
    assert "sunny" in again.stdout.lower(), "the spoken answer is understood by the recogniser"


@pytest.mark.weights
def test_ask_says_when_there_are_no_words(tmp_path: Path) -> None:
    silence = tmp_path / "silence.wav"
    soundfile.write(silence, np.zeros(32_000, np.float32), 16_000)
    result = run_command("ask", str(silence), "--out", str(tmp_path / "a.wav"), *SCRIPTED, folder=tmp_path)
    assert result.returncode == 1 and result.stderr.strip() and "Traceback" not in result.stderr


@pytest.mark.parametrize("kind", ["missing", "empty", "no audio"])
def test_ask_says_what_is_wrong_with_a_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "question.wav"
    if kind != "missing":
        path.write_bytes(b"" if kind == "empty" else b"this is no audio" * 100)
    result = run_command("ask", str(path), "--out", str(tmp_path / "a.wav"), *SCRIPTED, folder=tmp_path)
    assert result.returncode == 2 and "question.wav" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.weights
def test_doctor_finds_nothing_wrong_here(tmp_path: Path) -> None:
    result = run_command("doctor", "--json", "--port", "0", folder=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads(result.stdout)


def test_doctor_names_the_command_that_fetches_missing_weights(tmp_path: Path) -> None:
    result = run_command("doctor", "--port", "0", folder=tmp_path, REJOINDER_CACHE=str(tmp_path / "nothing"))
    assert result.returncode == 1 and "rejoinder models fetch" in result.stdout + result.stderr


def test_talk_says_what_it_lacks(tmp_path: Path) -> None:
    result = run_command("talk", "--list-devices", folder=tmp_path)
    said = result.stdout + result.stderr
    assert "Traceback" not in said and said.strip()
    if result.returncode:  # no library or no device: then it says what to do
        assert (
            "rejoinder[mic]" in said
            or "libportaudio2" in said
            or "microphone" in said.lower()
            or "device" in said
        )
