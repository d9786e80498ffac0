"""Measures the accuracy of the heard text: cuts replies at random samples, and aligns their audio.

Each reply is split into clauses and spoken by the real voice, as in a call. At random samples, the bench asks
the play-out clock which words were heard. Ground truth comes from an independent aligner: PocketSphinx aligns
the hand-written words with the audio, to 10 ms. The figures include the aligner's error.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from rejoinder.agent.bench.cases.heard import Word, written
from rejoinder.agent.bench.cases.recordings import Recording
from rejoinder.agent.bench.reports.output import progress_bar
from rejoinder.models.hints import install
from rejoinder.models.registry import create
from rejoinder.models.threads import plan
from rejoinder.models.tts.spoken import spoken
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples, to_pcm
from rejoinder.pipeline.errors import PipelineError
from rejoinder.pipeline.interfaces import Tts
from rejoinder.pipeline.replying.playout import Playout, spread
from rejoinder.pipeline.replying.stages import SLICE_SECONDS
from rejoinder.pipeline.replying.text.clauses import ClauseSplitter

HEARD_SETS = ("phone_prompts_8k", "ljspeech", "librispeech_test_other", "speechocean762_adult")
"""Sets of recordings whose words have known times."""
ALIGNER_MARGIN_SECONDS = 0.3
"""Length of the faint noise on each side of a clause, so that the aligner finds silence there."""
MARGIN_NOISE = 0.001
"""RMS of that noise."""
ALIGNER_FRAME_SECONDS = 0.01
"""Length of one frame of the aligner, in seconds."""
LEAST_REPLY_WORDS = 5
"""Fewest words of a reply."""
CUTS_EACH = 5
"""Cuts of each reply."""
TRIES = 8
"""Most attempts to synthesise and align a clause."""
TOLD = "word times"
"""The play-out clock uses the voice's own word times."""
BY_LENGTH = "by length"
"""The play-out clock spreads words by their length in characters."""


@dataclass(frozen=True, slots=True)
class CutReply:
    """A reply that was cut after ``seconds``.

    has_spoken_forms: whether the spoken form of some word differs from the written one, as in numbers. truth:
    number of heard words by the alignment. heard: number by each play-out clock.
    """

    voice: str
    text: str
    has_spoken_forms: bool
    seconds: float
    truth: int
    heard: dict[str, int]


@dataclass(frozen=True, slots=True)
class Row:
    """Errors of one clock over the cuts of one voice, in words: shares within limits, worst and mean."""

    cuts: int
    exact: float
    within_one: float
    within_two: float
    worst: int
    mean: float


class Aligner:
    """Finds the end of each known word in audio, with PocketSphinx's English model.

    Raises PipelineError if PocketSphinx is not installed.
    """

    def __init__(self) -> None:
        if find_spec("pocketsphinx") is None:
            raise PipelineError(f"pocketsphinx is not installed; run: {install('bench')}")
        from pocketsphinx import Decoder

        # "batch": the result for a recording does not depend on earlier recordings.
        self._decoder: Any = Decoder(lm=None, cmn="batch", loglevel="FATAL")

    def knows(self, words: Iterable[str]) -> bool:
        """Return whether all words are in the aligner's dictionary."""
        return all(self._decoder.lookup_word(_spelled(word)) is not None for word in words)

    def ends(self, audio: Samples, rate: int, words: Sequence[str]) -> list[float]:
        """Return the end of each word in seconds. Raises PipelineError if the alignment fails."""
        import soxr

        margin = np.random.default_rng(0).normal(0.0, MARGIN_NOISE, int(ALIGNER_MARGIN_SECONDS * RATE))
        audio = np.concatenate((margin, soxr.resample(audio, rate, RATE), margin)).astype(np.float32)
        try:
            self._decoder.set_align_text(" ".join(map(_spelled, words)))
            self._decoder.start_utt()
            self._decoder.process_raw(to_pcm(audio), full_utt=True)
            self._decoder.end_utt()
        except RuntimeError as error:
            raise PipelineError(f"cannot align {' '.join(words)!r}: {error}") from error
        frames = [part.end_frame + 1 for part in self._decoder.seg() or () if part.word[0] not in "<[("]
        if len(frames) != len(words):
            raise PipelineError(
                f"the aligner found {len(frames)} words, not {len(words)}, in {' '.join(words)!r}"
            )
        return [frame * ALIGNER_FRAME_SECONDS - ALIGNER_MARGIN_SECONDS for frame in frames]


def _spelled(word: str) -> str:
    return "".join(c for c in word.lower() if c.isalpha() or c == "'").strip("'")


def replies(recordings: Sequence[Recording], aligner: Aligner, count: int) -> list[list[Word]]:
    """Return ``count`` replies: hand-written ones whose spoken form differs, and transcripts as written."""
    made = written()
    for recording in recordings:
        text = (recording.text or "").split()
        as_it_is = _bare(spoken(" ".join(text))) == _bare(" ".join(text))
        if len(text) >= LEAST_REPLY_WORDS and as_it_is and aligner.knows(text):
            made.append([(word, word) for word in text])
    return made[:count]


def _bare(text: str) -> list[str]:
    return ["".join(filter(str.isalnum, word)).lower() for word in text.split()]


async def measure(
    voices: Sequence[str], recordings: Sequence[Recording], cuts: int, seed: int, console: Console
) -> list[CutReply]:
    """Cut the replies of each voice ``cuts`` times. Raises PipelineError. Cancelling closes the voice."""
    aligner, found = Aligner(), list[CutReply]()
    spoken_by_each = replies(recordings, aligner, max(1, cuts // CUTS_EACH))
    with progress_bar(console) as progress:
        task = progress.add_task("speaking", total=len(voices) * len(spoken_by_each))
        for name in voices:
            voice, chance = create(name, plan()), random.Random(seed)
            try:
                for place, reply in enumerate(spoken_by_each):
                    share = cuts * (place + 1) // len(spoken_by_each) - cuts * place // len(spoken_by_each)
                    found += await cut_reply(name, voice, aligner, reply, share, chance)
                    progress.advance(task)
            finally:
                voice.close()
    return found


async def cut_reply(
    name: str, voice: Tts, aligner: Aligner, reply: Sequence[Word], cuts: int, chance: random.Random
) -> list[CutReply]:
    """Speak a reply as a call does, and cut it ``cuts`` times. Cancelling stops the voice."""
    splitter, text = ClauseSplitter(), " ".join(word for word, _ in reply)
    clocks, ends, words = {TOLD: Playout(), BY_LENGTH: Playout()}, list[float](), list(reply)
    for clause in [*splitter.feed(text + " "), splitter.flush()]:
        taken, words = words[: len(clause.split())], words[len(clause.split()) :]
        chunks, those = await _speak(voice, clause, aligner, taken)
        ends += [clocks[TOLD].seconds + end for end in those]
        _play(clause, chunks, clocks)
    seconds = clocks[TOLD].seconds
    has_words = [bool(said) for _, said in reply]
    differs = any(word != said for word, said in reply)
    found = []
    for _ in range(cuts):
        at = chance.uniform(0.0, seconds)
        heard = {way: sum(has_words[: len(clock.text(at).split())]) for way, clock in clocks.items()}
        found.append(CutReply(name, text, differs, at, bisect_right(ends, at), heard))
    return found


async def _speak(
    voice: Tts, clause: str, aligner: Aligner, words: Sequence[Word]
) -> tuple[list[AudioChunk], list[float]]:
    """Synthesise a clause and find the ends of its words; retry if the aligner does not find all of them.

    A voice with random sampling gives different audio each time, and the aligner misses words in about one of
    four attempts at "On 2024-05-17 it".
    """
    for left in range(TRIES, 0, -1):
        async with aclosing(voice.speak(clause)) as stream:
            chunks = [chunk async for chunk in stream]
        try:
            return chunks, _align(aligner, chunks, words)
        except PipelineError:
            if left == 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _play(clause: str, chunks: Sequence[AudioChunk], clocks: dict[str, Playout]) -> None:
    """Run the play-out clocks over the reply as a call does."""
    made = sum(chunk.seconds for chunk in chunks)
    for clock in clocks.values():
        clock.begin(clause)
    for chunk in chunks:
        for piece in chunk.slices(int(SLICE_SECONDS * chunk.rate)):
            clocks[TOLD].sent(piece.seconds, 0.0, chunk.words)
            clocks[BY_LENGTH].sent(piece.seconds, 0.0, spread(clause, made))
    for clock in clocks.values():
        clock.end()


def _align(aligner: Aligner, chunks: Sequence[AudioChunk], words: Sequence[Word]) -> list[float]:
    """Return the end of each spoken word, in order."""
    said = [said.split() for _, said in words if said]
    if not chunks or not said:
        return []
    audio = np.concatenate([chunk.samples() for chunk in chunks])
    ends = np.maximum.accumulate(
        aligner.ends(audio, chunks[0].rate, [word for each in said for word in each])
    )
    return [float(ends[place - 1]) for place in np.cumsum([len(each) for each in said])]


def row(cuts: Sequence[CutReply], way: str) -> Row:
    """Return the errors of one clock."""
    off = [reply.heard[way] - reply.truth for reply in cuts]
    exact, one, two = (sum(abs(words) <= most for words in off) / len(off) for most in range(3))
    return Row(len(off), exact, one, two, max(off, key=abs), sum(off) / len(off))


CUT_KINDS: dict[str, Callable[[CutReply], bool]] = {
    "all": lambda reply: True,
    "with numbers": lambda reply: reply.has_spoken_forms,
}
"""Kinds of replies in the report, each with the cuts that belong to it."""


def rows(cuts: Sequence[CutReply]) -> dict[str, Row]:
    """Return the errors by voice, kind of reply and clock."""
    found = {}
    for voice in dict.fromkeys(reply.voice for reply in cuts):
        for kind, belongs in CUT_KINDS.items():
            chosen = [reply for reply in cuts if reply.voice == voice and belongs(reply)]
            for way in (TOLD, BY_LENGTH):
                if chosen:
                    found[f"{voice}, {kind}, {way}"] = row(chosen, way)
    return found


def table(found: dict[str, Row]) -> Table:
    """Return the table for the terminal, one row each."""
    shown = Table(
        title="words heard, against the alignment", title_justify="left", title_style="bold", box=None
    )
    for name in ("", "cuts", "exact %", "±1 %", "±2 %", "worst", "mean"):
        shown.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, each in found.items():
        shares = (f"{100 * share:.1f}" for share in (each.exact, each.within_one, each.within_two))
        shown.add_row(name, str(each.cuts), *shares, f"{each.worst:+d}", f"{each.mean:+.2f}")
    return shown


def summary(found: dict[str, Row]) -> dict[str, float]:
    """Return the key figures: the share of cuts within one word, by voice."""
    last = f", all, {TOLD}"
    return {
        f"{name.removesuffix(last)}_within_one": each.within_one
        for name, each in found.items()
        if name.endswith(last)
    }
