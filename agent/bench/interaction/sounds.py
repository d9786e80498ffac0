"""The sounds of scripted callers: backchannels, tics, and speech that is not directed at the agent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rejoinder.agent.bench.cases.levels import at_level
from rejoinder.agent.bench.cases.overlap import BACKCHANNEL, backchannels
from rejoinder.agent.bench.cases.recordings import Recording, read_set, speech_begin, speech_end
from rejoinder.agent.bench.interaction.definitions import ASIDE, TIC
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.wires.resampler import Resampler
from rejoinder.models.loading import Specs, open_models
from rejoinder.pipeline.audio.chunk import Samples, to_float

HESITATIONS = "mfa_hesitations"
"""The set of recordings with hesitations, laughter, breaths and a cough."""
MEETING_SET = "ami_meeting_excerpts"
"""The set of recordings of meetings."""
BROADCASTS = ("ljspeech", "librispeech_test_other")
"""Sets of recordings that a television plays."""
IMPULSE_RESPONSES = "rir"
"""The set of impulse responses of rooms."""
CUTS = (
    (BACKCHANNEL, "uh-huh", HESITATIONS, "mfa_uhuh.flac", 4.28, 5.34),
    (BACKCHANNEL, "uh-huh", HESITATIONS, "mfa_cutoffprogressive.flac", 6.55, 7.02),
    (BACKCHANNEL, "mm", HESITATIONS, "mfa_cutoffprogressive.flac", 8.18, 8.74),
    (BACKCHANNEL, "yeah", MEETING_SET, "ami_trn01.flac", 22.19, 22.81),
    (BACKCHANNEL, "oh, yeah", MEETING_SET, "ami_trn02.flac", 20.8, 21.2),
    (BACKCHANNEL, "okay", MEETING_SET, "ami_dev01.flac", 29.08, 29.61),
    (BACKCHANNEL, "hm", MEETING_SET, "ami_trn01.flac", 2.93, 3.35),
    (TIC, "laughter", HESITATIONS, "mfa_laughter.flac", 0.8, 1.48),
    (TIC, "laughter", HESITATIONS, "mfa_laughter.flac", 3.58, 5.2),
    (TIC, "laughter", HESITATIONS, "mfa_laughter.flac", 6.36, 7.4),
    (TIC, "laughter", HESITATIONS, "mfa_laughter.flac", 9.3, 9.95),
    (TIC, "breath", HESITATIONS, "mfa_breaths.flac", 2.26, 3.3),
    (TIC, "breath", HESITATIONS, "mfa_breaths.flac", 5.84, 6.42),
    (TIC, "cough", HESITATIONS, "mfa_cold_corpus3.flac", 16.95, 17.72),
    (TIC, "um", HESITATIONS, "mfa_um.flac", 3.75, 5.22),
    (TIC, "um", HESITATIONS, "mfa_crossword.flac", 5.8, 6.58),
    (TIC, "um", HESITATIONS, "mfa_acoustic_corpus.flac", 22.75, 23.55),
    (TIC, "um", HESITATIONS, "mfa_cold_corpus.flac", 9.75, 10.22),
    (TIC, "um", HESITATIONS, "mfa_cold_corpus3.flac", 14.55, 15.0),
    (TIC, "um", HESITATIONS, "mfa_uhum.flac", 5.08, 5.94),
    (TIC, "uh", HESITATIONS, "mfa_uhuh.flac", 1.88, 2.1),
    (TIC, "uh", HESITATIONS, "mfa_uhuh.flac", 3.2, 3.55),
    (TIC, "uh", HESITATIONS, "mfa_uh.flac", 2.34, 3.3),
    (TIC, "uh", HESITATIONS, "mfa_uhum.flac", 1.84, 2.28),
    (TIC, "uh", HESITATIONS, "mfa_cold_corpus3.flac", 3.34, 3.72),
)
"""Pieces of recordings: category, kind, set, file, begin and end in seconds. Cut by level and transcript."""
LISTENER = "listener's word, by a voice"
"""Kind of a backchannel that a voice speaks."""
MUFFLED = "muffled aside"
"""Kind of an aside: the caller speaks to somebody else, with a hand over the microphone."""
MEETING = "meeting"
"""Kind of an aside: a meeting in the caller's room."""
TELEVISION = "television"
"""Kind of an aside: a speaker in the caller's room, who reads."""
TO_OTHERS = (
    "Hold on a second.",
    "I'm on the phone.",
    "One moment, please.",
    "Not now, I'm on the phone.",
    "Can you close the door?",
    "Yes, I'll be right there.",
    "Give me a minute.",
    "No, put it on the table.",
)
"""What callers say to others. Voices speak it, because no recordings with a free licence are known."""
BREATH_DB = -10.0
"""Level of a breath, relative to the caller's speech, in decibels."""
MUFFLED_DB = -10.0
"""Level of muffled speech, relative to the caller's speech, in decibels."""
MUFFLED_HERTZ = 700.0
"""Frequency above which a hand over the microphone takes 12 dB per octave."""
MEETING_DB = -15.0
"""Level of a meeting, relative to the caller's speech, in decibels."""
TELEVISION_DB = -20.0
"""Level of a television, relative to the caller's speech, in decibels."""
ROOM_SECONDS = 3.0
"""Length of a piece of a meeting or of a broadcast."""
PIECES_OF_A_SET = 12
"""Pieces that are taken from a set of broadcasts."""


@dataclass(frozen=True, slots=True)
class CallerSound:
    """A sound of a caller. kind: in words, for the report. audio: float32 of shape (n,) at 24 kHz."""

    category: str
    kind: str
    name: str
    audio: Samples

    @property
    def seconds(self) -> float:
        """Its length."""
        return len(self.audio) / CLIENT_RATE


def recorded(folder: Path) -> list[CallerSound]:
    """Return the backchannels and tics that people made. Raises RecordingsMissing."""
    sets = {
        name: {each.path.name: each for each in read_set(folder, name)} for name in (HESITATIONS, MEETING_SET)
    }
    audio: dict[str, Samples] = {}
    found = []
    for category, kind, set_, file, begin, end in CUTS:
        if file not in audio:
            audio[file] = sets[set_][file].load(CLIENT_RATE)
        piece = audio[file][int(begin * CLIENT_RATE) : int(end * CLIENT_RATE)]
        decibels = BREATH_DB if kind == "breath" else 0.0
        found.append(CallerSound(category, kind, f"{file} {begin:g}", faded(at_level(piece, decibels))))
    return found


async def voiced(voices: Sequence[str], seed: int) -> list[CallerSound]:
    """Return backchannels by voices, and muffled speech to others. Raises ModelError.

    Cancelling stops the voice and closes its models.
    """
    made = await backchannels(voices, 1000, seed)
    found = [CallerSound(BACKCHANNEL, LISTENER, each.name, each.audio) for each in made]
    for voice in voices:
        specs = Specs(vad="scripted:vad", turn="", stt="scripted:stt", llm="scripted:llm", tts=voice)
        async with open_models(specs) as models:
            for text in TO_OTHERS:
                async with aclosing(models.tts.speak(text)) as spoken:
                    chunks = [chunk async for chunk in spoken]
                pcm = b"".join(chunk.pcm for chunk in chunks)
                audio = to_float(Resampler(chunks[0].rate, CLIENT_RATE).feed(pcm, last=True))
                trimmed = audio[speech_begin(audio, CLIENT_RATE) : speech_end(audio, CLIENT_RATE)]
                found.append(CallerSound(ASIDE, MUFFLED, f"{text} {voice}", muffled(trimmed)))
    return found


def rooms(folder: Path) -> list[CallerSound]:
    """Return pieces of meetings, and of broadcasts as a room echoes them. Raises RecordingsMissing."""
    found = []
    for recording in read_set(folder, MEETING_SET):
        audio = recording.load(CLIENT_RATE)
        for place, piece in enumerate(_loud_pieces(audio)):
            found.append(
                CallerSound(ASIDE, MEETING, f"{recording.path.name} {place}", at_level(piece, MEETING_DB))
            )
    response = max(read_set(folder, IMPULSE_RESPONSES), key=lambda each: each.seconds).load(CLIENT_RATE)
    for name in BROADCASTS:
        spoken = [each for each in read_set(folder, name) if each.seconds >= ROOM_SECONDS + 1.0]
        found += [_on_television(each, response) for each in spoken[:PIECES_OF_A_SET]]
    return found


def faded(audio: Samples) -> Samples:
    """Return audio whose first and last 10 ms fade: a cut within a recording must not click."""
    ramp = np.minimum(1.0, np.arange(len(audio)) / (0.01 * CLIENT_RATE))
    result: Samples = (audio * ramp * ramp[::-1]).astype(np.float32)
    return result


def muffled(audio: Samples) -> Samples:
    """Return speech as through a hand over the microphone."""
    spectrum = np.fft.rfft(audio)
    hertz = np.fft.rfftfreq(len(audio), 1 / CLIENT_RATE)
    low = np.fft.irfft(spectrum / (1 + (hertz / MUFFLED_HERTZ) ** 2), len(audio))
    return at_level(low.astype(np.float32), MUFFLED_DB)


def _loud_pieces(audio: Samples) -> list[Samples]:
    """Return the pieces of ``ROOM_SECONDS`` in which people soon speak, from their first word."""
    size = int(ROOM_SECONDS * CLIENT_RATE)
    found = []
    for first in range(0, len(audio) - size, size):
        piece = audio[first : first + size]
        begin = speech_begin(piece, CLIENT_RATE)
        if begin < size // 4:
            found.append(faded(piece[begin:]))
    return found


def _on_television(recording: Recording, response: Samples) -> CallerSound:
    audio = recording.load(CLIENT_RATE)
    begin = speech_begin(audio, CLIENT_RATE)
    piece = audio[begin : begin + int(ROOM_SECONDS * CLIENT_RATE)]
    size = len(piece) + len(response) - 1
    echoed = np.fft.irfft(np.fft.rfft(piece, size) * np.fft.rfft(response, size), size)[: len(piece)]
    level = at_level(echoed.astype(np.float32), TELEVISION_DB)
    return CallerSound(ASIDE, TELEVISION, recording.path.name, faded(level))
