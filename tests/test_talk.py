"""``rejoinder talk``: to and from PortAudio's threads, what is shown, and what is said without a device."""

import asyncio
import io
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

from rejoinder.agent import devices
from rejoinder.agent.cli import app
from rejoinder.agent.config import load
from rejoinder.agent.devices import Converter, Handover, NoDevice, Playback, choose, list_devices
from rejoinder.agent.talk import HEADPHONES, Transcript, run
from rejoinder.models.hints import install
from rejoinder.models.scripted import SECONDS_PER_CHARACTER
from rejoinder.pipeline import (
    AudioChunk,
    EndOfTurn,
    NothingSaid,
    PartialTranscript,
    ReplyDone,
    ReplyText,
    SpeechStarted,
    Trace,
    TurnTraced,
    to_float,
    to_pcm,
)

RATE = 48_000
BLOCK = RATE // 50
LOUD = (12_000 * np.sin(np.arange(BLOCK) * 0.05)).astype("<i2").tobytes()


class PortAudioError(Exception):
    """What sounddevice raises."""


class FakeStream:
    """A stream with a thread of its own that calls back in real time, as PortAudio's do."""

    def __init__(
        self, step: Callable[[Any], bool], callback: Any, finished_callback: Any, **how: Any
    ) -> None:
        self.how = how
        self._thread = threading.Thread(target=self._run, args=(step, callback, finished_callback))
        self._stopped = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def close(self, ignore_errors: bool = True) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self, step: Callable[[Any], bool], callback: Any, finished: Any) -> None:
        due = time.monotonic()
        while not self._stopped.wait(max(0.0, due - time.monotonic())) and step(callback):
            due += 0.02
        if finished:
            finished()


class FakeSounddevice:
    """Enough of sounddevice for one headset: speech for a second, then silence, unplugged once answered."""

    PortAudioError = PortAudioError

    def __init__(self) -> None:
        self.infos = [
            dict(
                index=0,
                name="Headset",
                default_samplerate=48000.0,
                max_input_channels=1,
                max_output_channels=2,
            )
        ]
        self.heard = bytearray()
        self.opened: list[dict[str, Any]] = []
        self._recorded = 0
        self._quiet: int | None = None

    def query_devices(self, device: Any = None, kind: str | None = None) -> Any:
        if kind is None:
            return self.infos
        if device in (None, 0, "Headset"):
            return self.infos[0]
        raise ValueError(f"No {kind} device matching {device!r}")

    def check_input_settings(self, samplerate: int, **how: Any) -> None:
        if samplerate != RATE:
            raise PortAudioError("Invalid sample rate [PaErrorCode -9997]")

    check_output_settings = check_input_settings

    def RawInputStream(self, **how: Any) -> FakeStream:
        self.opened.append(how)
        return FakeStream(self._record, **how)

    def RawOutputStream(self, **how: Any) -> FakeStream:
        self.opened.append(how)
        return FakeStream(self._play, **how)

    def _record(self, callback: Any) -> bool:
        self._recorded += 1
        callback(LOUD if self._recorded <= 50 else bytes(len(LOUD)), BLOCK, None, None)
        return self._recorded < 1000 and (self._quiet or 0) < 25

    def _play(self, callback: Any) -> bool:
        data = bytearray(2 * BLOCK)
        callback(data, BLOCK, None, None)
        self.heard += data
        if any(data):
            self._quiet = 0
        elif self._quiet is not None:
            self._quiet += 1
        return True


@pytest.fixture
def headset(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSounddevice]:
    fake = FakeSounddevice()
    monkeypatch.setattr(devices, "import_module", lambda name: fake)
    yield fake


def test_a_handover_gives_blocks_from_another_thread_in_order() -> None:
    async def main() -> list[bytes | None]:
        handover = Handover()
        recorder = threading.Thread(
            target=lambda: [handover.put(bytes([n])) for n in range(5)] + [handover.close()]
        )
        recorder.start()
        got = [await asyncio.wait_for(handover.get(), 5) for _ in range(6)]
        recorder.join()
        return got

    assert asyncio.run(main()) == [bytes([n]) for n in range(5)] + [None]


def test_a_handover_to_a_late_loop_drops_the_oldest_and_counts_them() -> None:
    async def main() -> tuple[int, list[bytes | None]]:
        handover = Handover(size=3)
        for n in range(10):
            handover.put(bytes([n]))
        return handover.dropped, [await handover.get() for _ in range(3)]

    assert asyncio.run(main()) == (7, [b"\x07", b"\x08", b"\x09"])


def test_a_handover_that_is_cancelled_while_it_waits_loses_nothing() -> None:
    async def main() -> bytes | None:
        handover = Handover()
        waiting = asyncio.create_task(handover.get())
        await asyncio.sleep(0)
        waiting.cancel()
        handover.put(b"ab")
        await asyncio.wait([waiting])
        return await handover.get()

    assert asyncio.run(main()) == b"ab"


def test_a_device_that_outlives_the_loop_does_no_harm() -> None:
    async def main() -> Handover:
        return Handover()

    handover = asyncio.run(main())
    handover.put(b"ab")
    handover.close()


def test_playback_fills_up_with_silence_and_is_emptied_at_once() -> None:
    playback = Playback(rate=1000)
    playback.put(b"abcdef")
    assert playback.take(4) == b"abcd"
    assert playback.take(4) == b"ef\0\0"
    playback.put(b"abcdef")
    playback.clear()
    assert playback.take(4) == bytes(4)
    assert playback.dropped == 0


def test_held_audio_waits() -> None:
    playback = Playback(rate=1000)
    playback.put(b"abcdef")
    assert playback.take(2) == b"ab"
    playback.hold()
    playback.put(b"gh")
    assert playback.take(4) == b"\0\0\0\0"
    playback.release()
    assert playback.take(6) == b"cdefgh"
    playback.put(b"xy")
    playback.hold()
    playback.clear()
    playback.put(b"ab")
    assert playback.take(2) == b"ab"


def test_playback_to_a_stalled_speaker_drops_the_oldest_and_counts_it() -> None:
    playback = Playback(rate=2, seconds=1.0)
    playback.put(b"abc")
    playback.put(b"def")
    assert (playback.dropped, playback.take(4)) == (2, b"cdef")


@pytest.mark.parametrize("rate", [16_000, 22_050, 44_100, 48_000])
def test_a_converter_keeps_a_tone_whole_across_chunks(rate: int) -> None:
    tone = (0.5 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate)).astype(np.float32)
    converter, step = Converter(24_000), rate // 50
    for _ in range(2):  # one reply after the other
        pcm = b"".join(
            converter.convert(AudioChunk(to_pcm(tone[start : start + step]), rate, start))
            for start in range(0, rate, step)
        )
        pcm += converter.finish()
        audio = to_float(pcm)[1000:-1000]
        assert abs(len(pcm) // 2 - 24_000) <= 1
        spectrum = np.abs(np.fft.rfft(audio * np.hanning(len(audio))))
        assert abs(np.argmax(spectrum) * 24_000 / len(audio) - 440) < 2
        assert np.sqrt(np.mean(audio**2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.01)


def test_a_rate_that_a_device_takes_is_used(
    headset: FakeSounddevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = choose("input", None)
    assert devices.at_rate("input", device, 16_000).rate == 48_000
    monkeypatch.setattr(headset, "check_input_settings", lambda **how: None)
    assert devices.at_rate("input", device, 16_000).rate == 16_000


def shown(transcript: Transcript) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(transcript.changing())
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def struck(line: Text) -> str:
    return "".join(line.plain[span.start : span.end] for span in line.spans if "strike" in str(span.style))


def test_the_transcript_shows_what_changes_and_finishes_lines() -> None:
    transcript = Transcript()
    assert transcript.take(SpeechStarted(0)) == []
    assert "…" in shown(transcript)
    transcript.take(PartialTranscript("how is [the] weather", "how is"))
    assert "you    how is [the] weather" in shown(transcript)
    assert [line.plain for line in transcript.take(EndOfTurn("How is it?", 1))] == ["you    How is it?"]
    assert shown(transcript).strip() == ""
    transcript.take(ReplyText(1, "It is fine,"))
    transcript.take(TurnTraced(Trace(1, {"speech_ended": 1.0, "committed": 1.3, "audio_sent": 1.5})))
    transcript.take(ReplyText(1, "and warm."))
    assert "agent  It is fine, and warm." in shown(transcript)
    (line,) = transcript.take(ReplyDone(1, "completed", "It is fine, and warm."))
    assert line.plain == "agent  It is fine, and warm.  500 ms" and struck(line) == ""
    assert shown(transcript).strip() == ""


def test_the_transcript_strikes_what_was_cut() -> None:
    transcript = Transcript()
    transcript.take(ReplyText(1, "It is fine,"))
    transcript.take(ReplyText(1, "and warm."))
    (line,) = transcript.take(ReplyDone(1, "cancelled", "It is fine, and"))
    assert line.plain == "agent  It is fine, and warm." and struck(line) == " warm."


def test_the_transcript_tells_of_failures_and_forgets_noise() -> None:
    transcript = Transcript()
    (line,) = transcript.take(ReplyDone(1, "failed", "", "llm: gone"))
    assert line.plain == "agent   failed: llm: gone"
    transcript.take(SpeechStarted(0))
    transcript.take(NothingSaid(1))
    assert shown(transcript).strip() == ""


def talk(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["talk", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("arguments", [(), ("--list-devices",)])
@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ImportError("no module"), install("mic")),
        (OSError("PortAudio library not found"), "apt install libportaudio2"),
    ],
)
def test_a_missing_library_is_told_with_its_remedy(
    arguments: tuple[str, ...], error: Exception, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> Any:
        raise error

    monkeypatch.setattr(devices, "import_module", fail)
    code, out, err = talk(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith("error: ") and remedy in err and err.count("\n") == 1


def test_a_machine_without_sound_says_so(headset: FakeSounddevice) -> None:
    headset.infos = []
    code, out, err = talk()
    assert (code, out) == (1, "")
    assert err.startswith("error: there is no sound device on this machine; ") and err.count("\n") == 1


def test_this_very_machine_says_what_it_lacks() -> None:
    try:
        list_devices()
    except NoDevice as lack:
        code, out, err = talk()
        assert (code, out, err) == (1, "", f"error: {lack}\n")
        assert ("pip install" in err) == (find_spec("sounddevice") is None)
    else:
        pytest.skip("this machine has sound devices")


def test_a_device_that_is_not_there_is_told(headset: FakeSounddevice) -> None:
    code, _, err = talk("--input", "Studio [microphone]")
    assert code == 1
    assert err == (
        "error: No input device matching 'Studio [microphone]'; "
        "choose with --input from: rejoinder talk --list-devices\n"
    )
    assert "No output device matching 7;" in talk("--output", "7")[2]


def test_a_device_that_cannot_be_opened_is_told(
    headset: FakeSounddevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**how: Any) -> Any:
        raise PortAudioError("Device unavailable [PaErrorCode -9985]")

    monkeypatch.setattr(headset, "RawInputStream", refuse)
    opened = devices.microphone(choose("input", None), SimpleNamespace(put=None, close=None))  # type: ignore[arg-type]
    with pytest.raises(NoDevice, match="cannot open Headset: Device unavailable"), opened:
        pass


def test_devices_are_listed(headset: FakeSounddevice) -> None:
    code, out, err = talk("--list-devices")
    assert (code, err) == (0, "")
    assert "Headset" in out and "48000" in out


def test_a_whole_conversation_until_the_headset_is_unplugged(headset: FakeSounddevice) -> None:
    flags = dict(vad="scripted:vad", turn="", stt="scripted:stt|are you [there]", llm="scripted:llm|Yes.")
    settings, _ = load({**flags, "tts": "scripted:tts"})
    console = Console(file=io.StringIO(), width=100)
    failure = run(settings, "Headset", None, console, lambda name, seconds: None)
    assert failure == "Headset has stopped recording"
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert HEADPHONES in told
    assert "you    are you [there]" in told and "agent  Yes." in told
    assert [(how["samplerate"], how["blocksize"], how["channels"]) for how in headset.opened] == [
        (48000, 960, 1)
    ] * 2
    heard = to_float(bytes(headset.heard))
    # Four characters of the scripted voice, whatever gaps a busy machine may have left between its slices.
    assert np.sum(heard**2) / RATE == pytest.approx(4 * SECONDS_PER_CHARACTER * 0.3**2 / 2, rel=0.05)
