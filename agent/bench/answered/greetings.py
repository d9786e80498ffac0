"""Greetings of people and machines as a telephone line carries them."""

from __future__ import annotations

import io
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import soxr

from rejoinder.agent.app.answering.phrases import AnsweredBy
from rejoinder.agent.bench.cases.overlap import NOISES
from rejoinder.agent.bench.cases.recordings import Recording, read_set, speech_end
from rejoinder.agent.wires import g711
from rejoinder.models.loading import Specs, open_models
from rejoinder.pipeline.audio.chunk import Samples, to_float, to_pcm
from rejoinder.pipeline.errors import PipelineError

LINE_RATE = 8_000
"""Sample rate of a telephone line in hertz."""
FLITE = "flite:"
"""Prefix of the voices of flite, a synthesiser that Debian packages under that name."""
PROMPTS = "phone_prompts_8k"
"""Set of recorded prompts of telephone systems."""
LONGEST_ANSWER_S = 4.5
"""Longest recording of a person that stands for an answer, in seconds."""
LEVELS_DB = (-30.0, -16.0)
"""Range of the level of a greeting, in dBFS."""
SNR_DB = (15.0, 40.0)
"""Range of the greeting's level over the noise's, in decibels."""
BEEP_HZ = (400.0, 440.0, 620.0, 800.0, 850.0, 1_000.0, 1_400.0)
"""Frequencies of beeps."""
BEEP_S = (0.15, 0.9)
"""Range of the length of a beep, in seconds."""
BEFORE_BEEP_S = (0.2, 2.5)
"""Range of the silence between a greeting and its beep, in seconds."""
WITH_BEEP = 0.85
"""Share of the mailboxes that beep."""
FAILED_HZ = (913.8, 1_370.6, 1_776.7)
"""Frequencies of the tones before an announcement that a call failed (ITU-T E.180)."""
FAILED_S = 0.33
"""Length of each of these tones, in seconds."""
WITH_TONES = 0.5
"""Share of the announcements with these tones."""
PICK_UP_S = (0.1, 1.5)
"""Range of the silence before a greeting, in seconds."""
AFTER_S = 12.0
"""Length of the line's noise after a greeting, in seconds: the other side waits."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a line carries after pick-up.

    kind: who answers. recorded: whether a recording of a person, and not a synthesised voice. audio: float32
    of shape (n,) at 8 kHz, as decoded from G.711. end: seconds to the end of the words. beep: seconds to the
    end of the beep, None without one.
    """

    kind: AnsweredBy
    name: str
    recorded: bool
    audio: Samples
    end: float
    beep: float | None


def texts(use: str) -> dict[AnsweredBy, list[str]]:
    """Return the texts of a use, "fit" or "judge", by who says them."""
    found = tomllib.loads((Path(__file__).parent / f"{use}.toml").read_text(encoding="utf-8"))
    return {AnsweredBy(kind): found[kind] for kind in found}


async def synthesised(
    use: str, voices: Sequence[str], noises: Sequence[Samples], seed: int
) -> list[Greeting]:
    """Return each text of a use by each voice. Raises PipelineError. Cancelling closes the voice's models.

    voices: as in the setting ``tts``, or "flite:NAME"; with "*0.9" behind, lower and slower by that factor.
    """
    made = []
    for voice in voices:
        name, _, pitch = voice.partition("*")
        spoken = await _speak(name, [text for said in texts(use).values() for text in said])
        for kind, said in texts(use).items():
            for text in said:
                draw = Random(f"{seed} {voice} {text}")
                audio = soxr.resample(*_at_pitch(spoken[text], float(pitch or 1)), LINE_RATE)
                made.append(_on_line(kind, f"{voice} {text}", False, audio, noises, draw))
    return made


def recorded(folder: Path, sets: Sequence[str], noises: Sequence[Samples], seed: int) -> list[Greeting]:
    """Return a recording of each speaker of some sets, as the short answer of a person.

    Raises RecordingsMissing.
    """
    chosen: dict[str, Recording] = {}
    for name in sets:
        for recording in read_set(folder, name):
            if recording.seconds <= LONGEST_ANSWER_S:
                chosen.setdefault(recording.speaker, recording)
    return [_of_recording(AnsweredBy.HUMAN, each, noises, seed) for each in chosen.values()]


def prompts(folder: Path, noises: Sequence[Samples], seed: int) -> list[Greeting]:
    """Return recorded prompts of telephone systems, fragments too. Raises RecordingsMissing."""
    found = [each for each in read_set(folder, PROMPTS) if each.speaker == "allison_smith"]
    return [_of_recording(AnsweredBy.IVR, each, noises, seed) for each in found]


def noises(folder: Path) -> list[Samples]:
    """Return the recorded noises at 8 kHz. Raises RecordingsMissing."""
    return [recording.load(LINE_RATE) for recording in read_set(folder, NOISES)]


def _of_recording(kind: AnsweredBy, recording: Recording, noises: Sequence[Samples], seed: int) -> Greeting:
    draw = Random(f"{seed} {recording.path.name}")
    audio = recording.load(LINE_RATE)
    audio = audio[: speech_end(audio, LINE_RATE)]
    return _on_line(kind, f"{recording.set}/{recording.path.name}", True, audio, noises, draw)


def _on_line(
    kind: AnsweredBy, name: str, recorded: bool, audio: Samples, noises: Sequence[Samples], draw: Random
) -> Greeting:
    loud = audio[np.abs(audio) > 0.1 * np.abs(audio).max()]
    level = 10 ** (draw.uniform(*LEVELS_DB) / 20)
    audio = audio * (level / np.sqrt(np.mean(loud**2)))
    pieces = [_silence(draw.uniform(*PICK_UP_S))]
    if kind is AnsweredBy.UNAVAILABLE and draw.random() < WITH_TONES:
        pieces += [*(_tone(hz, FAILED_S, level) for hz in FAILED_HZ), _silence(0.5)]
    pieces.append(audio)
    end, beep = sum(map(len, pieces)), None
    if kind is AnsweredBy.VOICEMAIL and not recorded and draw.random() < WITH_BEEP:
        pieces += [
            _silence(draw.uniform(*BEFORE_BEEP_S)),
            _tone(draw.choice(BEEP_HZ), draw.uniform(*BEEP_S), level),
        ]
        beep = sum(map(len, pieces)) / LINE_RATE
    whole = np.concatenate([*pieces, _silence(AFTER_S)])
    noise = draw.choice(noises)
    noise = np.resize(noise, len(whole)) / max(1e-6, float(np.sqrt(np.mean(noise**2))))
    whole = whole + noise * level * 10 ** (-draw.uniform(*SNR_DB) / 20)
    decoded = to_float(g711.decode(g711.encode(to_pcm(whole.astype(np.float32)), "mulaw"), "mulaw"))
    return Greeting(kind, name, recorded, decoded, end / LINE_RATE, beep)


def _silence(seconds: float) -> Samples:
    return np.zeros(int(seconds * LINE_RATE), np.float32)


def _tone(hz: float, seconds: float, level: float) -> Samples:
    times = np.arange(int(seconds * LINE_RATE)) / LINE_RATE
    edges = np.minimum(1.0, np.minimum(times, times[::-1]) / 0.005)
    return (level * edges * np.sin(2 * np.pi * hz * times)).astype(np.float32)


def _at_pitch(spoken: tuple[Samples, int], pitch: float) -> tuple[Samples, float]:
    return spoken[0], spoken[1] * pitch


async def _speak(voice: str, said: Sequence[str]) -> dict[str, tuple[Samples, int]]:
    """Return each text with its audio and rate, by one voice."""
    if voice.startswith(FLITE):
        return {text: _flite(voice.removeprefix(FLITE), text) for text in said}
    made = {}
    specs = Specs(vad="scripted:vad", turn="", stt="scripted:stt", llm="scripted:llm", tts=voice)
    async with open_models(specs) as models:
        for text in said:
            async with aclosing(models.tts.speak(text)) as spoken:
                chunks = [chunk async for chunk in spoken]
            made[text] = np.concatenate([chunk.samples() for chunk in chunks]), chunks[0].rate
    return made


def _flite(voice: str, text: str) -> tuple[Samples, int]:
    import soundfile

    if not (program := shutil.which("flite")):
        raise PipelineError("the voice needs the program flite: apt install flite, or choose --voices")
    done = subprocess.run(
        [program, "-voice", voice, "-t", text, "-o", "/dev/stdout"], capture_output=True, check=False
    )
    if done.returncode or not done.stdout:
        raise PipelineError(f"flite has no voice {voice!r}; it has: slt, rms, awb, kal16")
    audio, rate = soundfile.read(io.BytesIO(done.stdout), dtype="float32")
    return audio, int(rate)
