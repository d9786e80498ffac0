"""Measures word error rate and speed of the recogniser in a session, and of faster-whisper with its weights.

In a session, audio arrives in slices. The recogniser makes a partial transcript about every half second, and
the final one at the end of speech; the caller waits for that one. "As shipped" is faster-whisper's own
``transcribe`` of the whole recording, greedy, in windows of 30 s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from rich.table import Table

from rejoinder.agent.bench.cases.recordings import Recording
from rejoinder.agent.bench.reports.waterfall import Summary, ms, summarise
from rejoinder.models.hints import install
from rejoinder.models.registry import create, own_path, weights
from rejoinder.models.stt.languages import with_language
from rejoinder.models.stt.whisper import Whisper
from rejoinder.models.threads import plan
from rejoinder.models.weights.fetch import locate
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples, to_pcm
from rejoinder.pipeline.audio.loudness import Loudness
from rejoinder.pipeline.errors import ModelError, PipelineError
from rejoinder.pipeline.interfaces import Vad
from rejoinder.pipeline.listening.schedule import DIP_SAMPLES, PARTIAL_SAMPLES
from rejoinder.pipeline.listening.user_audio import HEAR_SLICE
from rejoinder.pipeline.options import Endpointing

STT_SETS = ("librispeech_test_other", "speechocean762_adult")
"""Sets of recordings for the recognisers."""


class ExtraMissing(PipelineError):
    """A package is not installed. The message names the extra that installs it."""


@dataclass(frozen=True, slots=True)
class RecognisedUtterance:
    """One recording, recognised both ways. The seconds are the caller's wait for the final transcript."""

    set: str
    file: str
    text: str
    streamed: str
    streamed_s: float
    shipped: str
    shipped_s: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both ways over some utterances: word error rates (0 to 1 and above) and milliseconds."""

    utterances: int
    streamed_wer: float
    shipped_wer: float
    streamed: Summary
    shipped: Summary

    @property
    def relative(self) -> float | None:
        """How much higher the streamed word error rate is, as a share of the shipped one."""
        return (self.streamed_wer - self.shipped_wer) / self.shipped_wer if self.shipped_wer else None


class Recognisers:
    """The same weights twice, with the same threads. Raises ModelError."""

    def __init__(self, spec: str) -> None:
        threads = plan()
        self.streaming = create(spec, threads)
        self._vad = create("silero", threads)
        if not isinstance(self.streaming, Whisper):
            raise ModelError(spec, "only whisper:… can be compared with faster-whisper")
        from faster_whisper import WhisperModel

        self._language = with_language(spec.partition(":")[2])[1]
        name = weights(spec)
        path = locate(name) if name else own_path(spec)
        self._shipped: Any = WhisperModel(
            str(path), device="cpu", compute_type="int8", cpu_threads=threads.stt, local_files_only=True
        )

    async def recognise(self, recording: Recording) -> RecognisedUtterance:
        """Recognise a recording both ways, one after the other. Cancelling stops the streaming one."""
        audio = recording.load(RATE)
        stream = self.streaming.stream()
        partial_at = 0
        for chunk in AudioChunk(to_pcm(until_quiet(audio, self._vad)), RATE).slices(HEAR_SLICE):
            stream.feed(chunk)
            if chunk.end - partial_at >= PARTIAL_SAMPLES:
                partial_at = chunk.end
                await stream.transcribe(is_final=False)
        began = time.perf_counter()
        streamed = (await stream.transcribe(is_final=True)).text
        middle = time.perf_counter()
        segments, _ = self._shipped.transcribe(audio, beam_size=1, language=self._language, vad_filter=False)
        shipped = " ".join(segment.text.strip() for segment in segments)
        end = time.perf_counter()
        return RecognisedUtterance(
            recording.set,
            recording.path.name,
            recording.text or "",
            streamed,
            middle - began,
            shipped,
            end - middle,
        )

    def close(self) -> None:
        """Stop the engine's thread."""
        self.streaming.close()


def until_quiet(audio: Samples, vad: Vad) -> Samples:
    """Return the audio of a session's final transcript: up to the sample where the speaker stops.

    If voice activity goes on after that sample, return all audio: a session would then transcribe it again.
    """
    loudness, heard = Loudness(), AudioChunk(to_pcm(audio), RATE)
    loudness.feed(heard)
    quiet, release = loudness.quiet_from, Endpointing().release
    voiced = max((end for end, speech in vad.stream().feed(heard) if speech >= release), default=0)
    return audio[: quiet + DIP_SAMPLES] if quiet is not None and loudness.ended_by(voiced) else audio


def normaliser() -> Callable[[str], str]:
    """Return Whisper's English normaliser: lower case, numbers as digits. Raises ExtraMissing."""
    if find_spec("whisper_normalizer") is None:
        raise ExtraMissing(f"whisper-normalizer is not installed; run: {install('bench')}")
    from whisper_normalizer.english import EnglishTextNormalizer

    normalise: Callable[[str], str] = EnglishTextNormalizer()
    return normalise


def error_rate() -> Callable[[Sequence[str], Sequence[str]], float]:
    """Return the word error rate after Whisper's English normaliser. Raises ExtraMissing."""
    if find_spec("jiwer") is None:
        raise ExtraMissing(f"jiwer is not installed; run: {install('bench')}")
    import jiwer

    normalise = normaliser()

    def rate(said: Sequence[str], recognised: Sequence[str]) -> float:
        return float(jiwer.wer([normalise(text) for text in said], [normalise(text) for text in recognised]))

    return rate


def compare(
    utterances: Sequence[RecognisedUtterance], rate: Callable[[Sequence[str], Sequence[str]], float]
) -> Comparison:
    """Return error rates over all words of the utterances, and the statistics of the seconds."""
    said = [utterance.text for utterance in utterances]
    return Comparison(
        len(utterances),
        rate(said, [utterance.streamed for utterance in utterances]),
        rate(said, [utterance.shipped for utterance in utterances]),
        summarise([utterance.streamed_s * 1000 for utterance in utterances]),
        summarise([utterance.shipped_s * 1000 for utterance in utterances]),
    )


def table(spec: str, compared: Mapping[str, Comparison]) -> Table:
    """Return a table of both ways, with one row per set."""
    shown = Table(title=f"{spec}: streaming / as shipped", title_justify="left", title_style="bold", box=None)
    for name in ("", "clips", "WER %", "relative", "p50 ms", "p95 ms"):
        shown.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, row in compared.items():
        shown.add_row(
            name,
            str(row.utterances),
            f"{100 * row.streamed_wer:.1f} / {100 * row.shipped_wer:.1f}",
            "–" if row.relative is None else f"{100 * row.relative:+.1f} %",
            f"{ms(row.streamed.p50)} / {ms(row.shipped.p50)}",
            f"{ms(row.streamed.p95)} / {ms(row.shipped.p95)}",
        )
    return shown
