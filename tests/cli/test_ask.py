"""``rejoinder ask``: a recording goes in, the spoken answer comes out, at any speed of the machine."""

import asyncio
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import soundfile
from support import speech
from typer.testing import CliRunner

from rejoinder.agent.cli.app import app
from rejoinder.agent.cli.ask import RecordedConversation, ask, read_audio
from rejoinder.agent.simulate import virtual_clock
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedTurnModel, ScriptedVad
from rejoinder.pipeline import RATE, Endpointing, Models, Options

TALK = {"llm": "scripted:llm|Yes.", "tts": "scripted:tts"}
SCRIPTED = {**TALK, "vad": "scripted:vad", "turn": "", "stt": "scripted:stt|are you there"}
QUIET = np.zeros(RATE, np.float32)
LOUD = (0.3 * np.sin(np.arange(RATE))).astype(np.float32)


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["ask", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use models that need no weights."""
    for name, spec in SCRIPTED.items():
        monkeypatch.setenv(f"REJOINDER_{name.upper()}", spec)


@pytest.fixture
def question(tmp_path: Path) -> Path:
    """Return noise that the scripted models take for a question."""
    path = tmp_path / "question.wav"
    soundfile.write(path, np.concatenate((QUIET, LOUD)), RATE)
    return path


def recorded(*names: str, rate: int = RATE) -> np.ndarray:
    """Return recordings of the assistant set, one after the other, a second apart."""
    found = {recording.path.stem: recording for recording in speech.recordings("assistant_utterances")}
    return np.concatenate([part for name in names for part in (found[name].load(rate), np.zeros(rate))])


def held(
    audio: np.ndarray, *lines: str, stt_seconds: float, **options: Endpointing
) -> tuple[RecordedConversation, list[str]]:
    """Hold a conversation with scripted models in virtual time."""
    said: list[str] = []
    models = Models(
        ScriptedVad(),
        ScriptedStt(lines, seconds=stt_seconds),
        ScriptedLlm(["Yes, I am."]),
        ScriptedTts(),
        ScriptedTurnModel(seconds=stt_seconds),
    )
    return virtual_clock.run(ask(models, Options(**options), audio.astype(np.float32), said.append)), said


@pytest.mark.weights
def test_a_recorded_question_gets_a_spoken_answer(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "question.flac", recorded("azure_whatstheweatherlike"), RATE)
    reply = tmp_path / "reply.wav"
    code, out, err = run(tmp_path / "question.flac", "--out", reply)
    assert code == 0, err
    you, _, agent, latency, written = out.splitlines()
    assert you.startswith("you:") and "weather" in you
    assert agent.startswith("agent:   ") and len(agent.split()) > 1
    assert latency.startswith("latency: ") and "LLM first token" in latency
    assert written.startswith(f"{reply}: ")
    whisper = speech.model("whisper:tiny.en")
    try:
        assert asyncio.run(whisper.recognise(read_audio(reply)))
    finally:
        whisper.close()


@pytest.mark.weights
def test_two_questions_in_a_stereo_file_are_two_turns_however_busy_the_machine_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, spec in TALK.items():
        monkeypatch.setenv(f"REJOINDER_{name.upper()}", spec)
    audio = recorded("azure_whatstheweatherlike", "azure_TurnOnTheLamp", rate=48_000)
    soundfile.write(tmp_path / "two.wav", np.stack((audio, 0.3 * audio), axis=1), 48_000)

    def turns() -> list[str]:
        code, out, err = run(tmp_path / "two.wav", "--out", tmp_path / "reply.wav")
        assert code == 0, err
        return [line for line in out.splitlines() if line.startswith(("you", " "))]

    alone = turns()
    done = threading.Event()

    def burn() -> None:
        while not done.is_set():
            np.linalg.svd(np.ones((200, 200)))

    burners = [threading.Thread(target=burn) for _ in range(2)]
    for burner in burners:
        burner.start()
    try:
        beside_others = turns()
    finally:
        done.set()
        for burner in burners:
            burner.join()
    assert alone == beside_others
    assert len(alone) == 4 and "weather" in alone[0] and "lamp" in alone[2]


@pytest.mark.parametrize("seconds", [0.3, 5.0])
def test_the_turns_do_not_depend_on_how_slow_the_recogniser_is(seconds: float) -> None:
    audio = np.concatenate((QUIET, LOUD, QUIET[:8000], LOUD, QUIET, LOUD))
    (conversation, said), (_, at_once) = (
        held(audio, "are you", "there", stt_seconds=taken) for taken in (seconds, 0.0)
    )
    assert conversation.turns == 3
    assert [line for line in said if line.startswith(("you", "agent"))] == [
        "you:     are you",
        "agent:   Yes, I am.",
        "you:     there",
        "agent:   Yes, I am.",
        "you:     there",
        "agent:   Yes, I am.",
    ]
    assert [line for line in said if line.startswith(" ")] == [
        line for line in at_once if line.startswith(" ")
    ]
    assert len(conversation.pcm) > 0 and conversation.rate == 24_000


def test_a_pause_shorter_than_the_wait_does_not_cut_a_question_in_two() -> None:
    audio = np.concatenate((LOUD, QUIET[:1600], LOUD))  # of 150 ms one window may be unknown
    assert held(audio, "are you there", stt_seconds=2.0)[0].turns == 1


def test_a_wait_is_as_long_as_it_is_configured() -> None:
    patient = Endpointing(min_wait_ms=5000, max_wait_ms=5000)
    conversation, said = held(LOUD, "are you there", stt_seconds=0.1, endpointing=patient)
    assert conversation.turns == 1 and said[0] == "you:     are you there"
    assert said[1].strip() == "(ended by 4996 ms of silence)"


def test_a_failed_reply_is_reported() -> None:
    models = Models(ScriptedVad(), ScriptedStt(["hello"]), ScriptedLlm(["No."], fail_after=0), ScriptedTts())
    conversation = virtual_clock.run(ask(models, Options(), LOUD, lambda line: None))
    assert conversation.turns == 1 and "failed after 0 tokens" in conversation.error


def test_all_replies_are_written(scripted: None, question: Path, tmp_path: Path) -> None:
    code, out, err = run(question, "--out", tmp_path / "reply.wav")
    assert code == 0, err
    assert out.startswith("you:     are you there\n")
    audio, rate = soundfile.read(tmp_path / "reply.wav")
    assert rate == 24_000 and np.abs(audio).max() > 0.2


def test_silence_holds_no_words(scripted: None, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "quiet.wav", QUIET, RATE)
    code, out, err = run(tmp_path / "quiet.wav", "--out", tmp_path / "reply.wav")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == f"error: no words were heard in {tmp_path / 'quiet.wav'}"
    assert not (tmp_path / "reply.wav").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "there is no file "),
        (b"", "cannot read "),
        (b"this is no recording", "cannot read "),
        (
            b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x80\x3e\0\0\0\x7d\0\0\2\0\x10\0data\0\0\0\0",
            "holds no audio",
        ),
    ],
)
def test_a_question_that_cannot_be_used(
    scripted: None, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / "question.wav").write_bytes(content)
    code, out, err = run(tmp_path / "question.wav", "--out", tmp_path / "reply.wav")
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and reason in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere/reply.wav", "there is no folder"),
        ("reply", "end its name in .wav"),
        ("folder.wav", "it is a folder"),
    ],
)
def test_an_unwritable_reply_is_reported_before_models_load(
    scripted: None, question: Path, tmp_path: Path, name: str, reason: str
) -> None:
    (tmp_path / "folder.wav").mkdir()
    code, out, err = run(question, "--out", tmp_path / name)
    assert (code, out) == (2, "")
    assert (
        err.startswith(f"error: cannot write {tmp_path / name}: ") and reason in err and err.count("\n") == 1
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_reported(scripted: None, question: Path, tmp_path: Path) -> None:
    (tmp_path / "reply.wav").symlink_to("/dev/full")
    code, _, err = run(question, "--out", tmp_path / "reply.wav")
    assert code == 2 and f"error: cannot write {tmp_path / 'reply.wav'}: " in err


def test_missing_weights_come_with_the_command_that_fetches_them(
    question: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path / "cache"))
    code, out, err = run(question, "--out", tmp_path / "reply.wav")
    assert (code, out) == (1, "")
    assert err.startswith("error: silero-vad: ") and err.endswith("run: rejoinder models fetch silero-vad\n")


def test_a_float_recording_with_impossible_samples_is_heard(tmp_path: Path) -> None:
    samples = np.array([0.5, np.nan, np.inf, -np.inf] * 400, np.float32)
    soundfile.write(tmp_path / "odd.wav", samples, RATE, subtype="FLOAT")
    assert np.isfinite(read_audio(tmp_path / "odd.wav")).all()
