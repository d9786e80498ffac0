"""``rejoinder talk``: to and from PortAudio's threads, what is shown, and what is said without a device."""

import asyncio
import io
import re
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from rich.console import Console
from rich.text import Text
from support.patience import PATIENCE
from support.ports import unused_port
from support.serving import LINE, THREE_LINES, serving
from support.sound_card import LOUD, RATE, FakeSounddevice, PortAudioError
from typer.testing import CliRunner

from rejoinder.agent.cli.app import app
from rejoinder.agent.cli.talk import HEADPHONES, holding, run
from rejoinder.agent.cli.views.talk import TranscriptView
from rejoinder.agent.client import devices
from rejoinder.agent.client.converter import Converter
from rejoinder.agent.client.devices import NoDevice, choose_device, list_devices
from rejoinder.agent.client.events import (
    AgentDelta,
    Failed,
    Other,
    Reconnected,
    ReplyDone,
    SpeechStarted,
    UserDelta,
    UserSaid,
)
from rejoinder.agent.client.handover import Handover
from rejoinder.agent.client.loudspeaker import Loudspeaker
from rejoinder.agent.client.playback import Playback
from rejoinder.agent.config import load
from rejoinder.models.hints import install
from rejoinder.models.scripted import SECONDS_PER_CHARACTER
from rejoinder.pipeline import AudioChunk, to_float, to_pcm


class PatientSounddevice(FakeSounddevice):
    """A headset that stays until so many seconds of sound were heard: a busy machine leaves gaps in them."""

    sound = 0.0

    def _record(self, callback: Any) -> bool:
        goes_on = super()._record(callback)
        heard = np.count_nonzero(np.frombuffer(bytes(self.heard), "<i2")) / RATE if not goes_on else 0.0
        return goes_on or (heard < self.sound and self._recorded < 5000)


@pytest.fixture
def headset(monkeypatch: pytest.MonkeyPatch) -> Iterator[PatientSounddevice]:
    fake = PatientSounddevice()
    monkeypatch.setattr(devices, "import_module", lambda name: fake)
    yield fake


def test_a_handover_gives_a_block_that_arrives_just_before_the_end() -> None:
    class Lock:
        """Lets the recorder's thread run when ``get`` has looked for a block and leaves the lock."""

        entered = 0

        def __enter__(self) -> None:
            self.entered += 1

        def __exit__(self, *error: object) -> None:
            if self.entered == 1:
                handover.put(b"last")
                handover.close()

    async def main() -> list[bytes | None]:
        nonlocal handover
        handover = Handover()
        handover._lock = Lock()  # type: ignore[assignment]
        return [await handover.get(), await handover.get()]

    handover: Handover
    assert asyncio.run(main()) == [b"last", None]


def test_a_handover_gives_blocks_from_another_thread_in_order() -> None:
    async def main() -> list[bytes | None]:
        handover = Handover()
        recorder = threading.Thread(
            target=lambda: [handover.put(bytes([n])) for n in range(5)] + [handover.close()]
        )
        recorder.start()
        got = [await asyncio.wait_for(handover.get(), PATIENCE) for _ in range(6)]
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
    device = choose_device("input", None)
    assert devices.at_rate("input", device, 16_000).rate == 48_000
    monkeypatch.setattr(headset, "check_input_settings", lambda **how: None)
    assert devices.at_rate("input", device, 16_000).rate == 16_000


def shown(transcript: TranscriptView) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(transcript.changing())
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def struck(line: Text) -> str:
    return "".join(line.plain[span.start : span.end] for span in line.spans if "strike" in str(span.style))


def retrieved(heard: str, status: str = "incomplete", item: str = "i") -> Other:
    content = [{"type": "output_audio", "transcript": heard}]
    return Other("conversation.item.retrieved", {"item": {"id": item, "status": status, "content": content}})


def test_the_transcript_shows_what_changes_and_finishes_lines() -> None:
    transcript = TranscriptView()
    assert transcript.take(SpeechStarted("u", 0)) == []
    assert "you    …" in shown(transcript)
    transcript.take(UserDelta("u", "how is"))
    transcript.take(UserDelta("u", " [the] weather"))
    assert "you    how is [the] weather …" in shown(transcript)
    assert [line.plain for line in transcript.take(UserSaid("u", "How is it?"))] == ["you    How is it?"]
    assert shown(transcript).strip() == ""
    transcript.take(AgentDelta("r", "i", "It is fine,"))
    transcript.take(Other("rejoinder.trace", {"total_ms": 499.6}))
    transcript.take(AgentDelta("r", "i", " and warm."))
    assert transcript.take(ReplyDone("r", "completed")) == []
    assert "agent  It is fine, and warm.  500 ms" in shown(transcript)
    several = {"models": ["big", "little"], "counts": {"failovers": 1.0, "cost": 0.0012}, "total_ms": 499.6}
    transcript.take(Other("rejoinder.trace", several))
    named = "agent  It is fine, and warm.  500 ms by big, then little (failed over, cost 0.0012)"
    assert named in shown(transcript)
    transcript.take(Other("rejoinder.trace", {"total_ms": 499.6}))
    (line,) = transcript.take(AgentDelta("s", "j", "Are you there?"))
    assert line.plain == "agent  It is fine, and warm.  500 ms" and struck(line) == ""
    assert [line.plain for line in transcript.finish()] == ["agent  Are you there?"]
    assert shown(transcript).strip() == "" and transcript.finish() == []


def test_the_transcript_strikes_what_was_not_heard_as_soon_as_the_server_says_it() -> None:
    transcript = TranscriptView()
    transcript.take(AgentDelta("r", "i", "It is fine,"))
    transcript.take(AgentDelta("r", "i", " and warm."))
    assert transcript.item == "i"
    assert transcript.take(retrieved("", "in_progress")) == transcript.take(retrieved("It", item="j")) == []
    (line,) = transcript.take(retrieved("It is fine, and"))
    assert line.plain == "agent  It is fine, and warm." and struck(line) == " warm."
    assert transcript.item == "" and transcript.take(retrieved("It is fine, and")) == []


def test_the_transcript_keeps_words_that_a_server_has_forgotten() -> None:
    transcript = TranscriptView()
    transcript.take(AgentDelta("r", "i", "It is fine."))
    gone = {"id": "i", "status": "incomplete", "content": [{"type": "output_audio"}]}
    (line,) = transcript.take(Other("conversation.item.retrieved", {"item": gone}))
    assert line.plain == "agent  It is fine." and struck(line) == ""


def test_the_transcript_leaves_no_line_open_when_the_call_begins_anew() -> None:
    transcript = TranscriptView()
    transcript.take(AgentDelta("r", "i", "It is fine."))
    lines = transcript.take(Reconnected(resumed=False, missed=True))
    assert [line.plain.split()[0] for line in lines] == ["agent", "The"] and transcript.item == ""


def test_the_transcript_bears_with_servers_that_tell_less() -> None:
    transcript = TranscriptView()
    transcript.take(AgentDelta("r", "i", "It is fine."))
    assert transcript.take(Other("rejoinder.trace", {})) == []
    assert transcript.take(Other("conversation.item.retrieved", {})) == []
    (line,) = transcript.take(Other("conversation.item.retrieved", {"item": {"id": "i"}}))
    assert line.plain.startswith("agent  It is fine.")


def test_the_transcript_shows_failures_and_drops_noise() -> None:
    transcript = TranscriptView()
    (line,) = transcript.take(Failed("llm: gone", "model_error"))
    assert line.plain.strip() == "llm: gone"
    (line,) = transcript.take(Reconnected(resumed=False, missed=True))
    assert "remembers nothing" in line.plain
    transcript.take(SpeechStarted("u", 0))
    assert transcript.take(UserSaid("u", "")) == []
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
def test_a_missing_library_is_reported_with_its_fix(
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


def test_an_unknown_device_is_reported(headset: FakeSounddevice) -> None:
    code, _, err = talk("--input", "Studio [microphone]")
    assert code == 1
    assert err == (
        "error: No input device matching 'Studio [microphone]'; "
        "choose with --input from: rejoinder talk --list-devices\n"
    )
    assert "No output device matching 7;" in talk("--output", "7")[2]


def test_a_device_that_cannot_be_opened_is_reported(
    headset: FakeSounddevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**how: Any) -> Any:
        raise PortAudioError("Device unavailable [PaErrorCode -9985]")

    monkeypatch.setattr(headset, "RawInputStream", refuse)
    opened = devices.microphone(choose_device("input", None), SimpleNamespace(put=None, close=None))  # type: ignore[arg-type]
    with pytest.raises(NoDevice, match="cannot open Headset: Device unavailable"), opened:
        pass


def test_devices_are_listed(headset: FakeSounddevice) -> None:
    code, out, err = talk("--list-devices")
    assert (code, err) == (0, "")
    assert "Headset" in out and "48000" in out


@pytest.mark.parametrize("rate", [24_000, 48_000])
def test_a_loudspeaker_knows_how_much_of_an_item_was_played(rate: int) -> None:
    playback = Playback(rate, seconds=60.0)
    loudspeaker, second = Loudspeaker(playback, rate), LOUD * 25  # half a second at 48 kHz, a whole one at 24
    assert loudspeaker.cut() == []
    loudspeaker.play("a", second)
    loudspeaker.finish()
    loudspeaker.play("b", second)
    loudspeaker.finish()
    assert playback.waiting == pytest.approx(4 * rate, abs=8)
    playback.take(2 * rate // 4)
    loudspeaker.play("c", second)
    assert loudspeaker.cut() == [("a", 250), ("b", 0), ("c", 0)]
    loudspeaker.play("b", second)
    assert playback.waiting == 0, "what still comes of an item that was cut is not played"
    for item in ("d", "e"):
        loudspeaker.play(item, second)
        loudspeaker.finish()
        playback.take(playback.waiting)
    assert loudspeaker.cut() == [], "all of it was heard"


def test_an_address_requests_pause_events() -> None:
    assert holding("http://127.0.0.1:8080") == "ws://127.0.0.1:8080/v1/realtime?hold=true&trace=true"
    assert holding("wss://a.example/x?model=m") == "wss://a.example/x?model=m&hold=true&trace=true"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--url", "8080"), "is no address of a server"),
        (("--url", "ws://localhost:8080", "--llm", "ort:smollm2"), "--llm applies only to a server that"),
    ],
)
def test_an_unusable_address_is_reported(arguments: tuple[str, ...], complaint: str) -> None:
    code, out, err = talk(*arguments)
    assert (code, out) == (2, "") and complaint in " ".join(err.replace("│", "").split())


def hold(headset: FakeSounddevice, *given: Any, colour: bool = False, **more: Any) -> tuple[str, str]:
    """Talk until the headset is unplugged; return what was shown, and why it ended."""
    system: Any = "standard" if colour else None
    console = Console(file=io.StringIO(), width=200, force_terminal=colour, color_system=system)
    failure = run(*given, "Headset", None, console, **more)
    return console.file.getvalue(), failure  # type: ignore[attr-defined]


def test_a_whole_conversation_until_the_headset_is_unplugged(
    headset: PatientSounddevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_VAD", "scripted:vad")
    flags = {
        "turn": "",
        "stt": "scripted:stt|are you [there]",
        "llm": "scripted:llm|Yes.",
        "tts": "scripted:tts",
    }
    before = set(
        psutil.Process().children()
    )  # other tests in this process may have left a helper of Python's
    headset.sound = 0.9 * 4 * SECONDS_PER_CHARACTER
    output, failure = hold(headset, flags, load(flags)[0])
    assert failure == "Headset has stopped recording"
    assert HEADPHONES in output
    assert output.index("you    are you [there]") < output.index("agent  Yes.")
    assert [(how["samplerate"], how["blocksize"], how["channels"]) for how in headset.opened] == [
        (48000, 960, 1)
    ] * 2
    heard = to_float(bytes(headset.heard))
    # Four characters of the scripted voice, whatever gaps a busy machine may have left between its slices.
    assert np.sum(heard**2) / RATE == pytest.approx(4 * SECONDS_PER_CHARACTER * 0.3**2 / 2, rel=0.05)
    assert set(psutil.Process().children()) <= before, "its server has ended with it"


def test_struck_words_are_those_that_the_headset_has_not_played(
    headset: PatientSounddevice, tmp_path: Path
) -> None:
    headset.interrupts, headset.patience = 60, 100
    # All of the second answer, and a part of the first one.
    headset.sound = len(3 * LINE) * SECONDS_PER_CHARACTER + 0.3
    with serving(tmp_path, llm=THREE_LINES) as server:
        output, failure = hold(headset, {}, load({})[0], colour=True, server=(server.http, None))
        server.wait_idle()
    assert failure == "Headset has stopped recording"
    (line, heard, cut) = re.findall(r"agent  \x1b\[0m((.*)\x1b\[2;9m(.*)\x1b\[0m.* ms\x1b\[0m)\n", output)[0]
    assert heard.startswith("This is a") and (heard + cut) in 3 * LINE
    assert output.count(line) == 1 and output.index(line) < output.rindex("what is the weather")
    # All of the second answer was heard; of the first one what is not struck, and a part of the next word.
    energy = np.sum(to_float(bytes(headset.heard)) ** 2) / (0.3**2 / 2)
    characters = energy / RATE / SECONDS_PER_CHARACTER - len(3 * LINE)
    assert len(heard) - 5 < characters < len(heard) + len(cut.split()[0]) + 5


def test_a_server_that_is_down_or_cannot_start_is_reported(headset: FakeSounddevice) -> None:
    place = (f"ws://127.0.0.1:{unused_port()}", None)
    assert "is the server running there?" in hold(headset, {}, load({})[0], server=place)[1]
    flags = {"llm": "nonsense:model"}
    failure = hold(headset, flags, load(flags)[0])[1]
    assert failure.startswith("the server did not start") and "nonsense" in failure
