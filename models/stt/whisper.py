"""Whisper in faster-whisper and CTranslate2, with an encoder window cut to the length of the audio.

Whisper was trained on windows of 30 s. As shipped, two seconds of audio cost as much as 30 s. CTranslate2 can
encode shorter windows, but with windows cut to the audio Whisper repeats itself and invents words. Three
measures keep its accuracy: a minimum window, a ban on repeated trigrams, and a limit on tokens.
``rejoinder bench stt`` measures it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.models.adapter import Adapter
from rejoinder.models.hints import VERIFY
from rejoinder.models.placement import Placement
from rejoinder.models.stt.languages import ENGLISH, check_language, with_language
from rejoinder.models.turn.head import Head, Windows, load_head
from rejoinder.models.weights.catalog import catalog
from rejoinder.models.weights.hub import is_whisper, whisper_snapshot
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples
from rejoinder.pipeline.engines.deadline import current
from rejoinder.pipeline.engines.engine import Engine
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Transcript

WINDOW_SECONDS = 30
"""Longest encoder window."""
SHORT_SECONDS = 5
"""Audio up to this length gets the short window (docs/lab/latency-listening.md)."""
SHORT_WINDOW_SECONDS = 10
"""The short window, and the shortest frugal one."""
LEAST_WINDOW_SECONDS = 15
"""Shortest window for audio longer than ``SHORT_SECONDS``."""
WINDOW_MARGIN_SECONDS = 3
"""Window beyond the end of audio longer than ``SHORT_SECONDS``."""
FRUGAL_MARGIN_SECONDS = 1
"""Window beyond the end of the audio under load: a third faster and slightly less accurate."""
FREEZE_SECONDS = 24
"""Audio of a turn that each transcription recognises again. The words of older audio are frozen."""
WORD_SECONDS = 1.5
"""Audio up to this length, a word or two without context, gets a beam search."""
READINGS = 5
"""Beam size, and number of hypotheses, of that search."""
GPU_BATCH = 8
"""Most recordings in one batch on a GPU. Unbatched, Whisper falls behind from about 8 live streams
(SYSTRAN/faster-whisper #1192)."""
NEARLY = math.log(3)
"""Alternatives are at most this far, in log-probability, below the best (docs/design/bargein.md)."""
INVENTED = ((0.6, -1.0), (0.2, -2.25))
"""Words count as invented above this probability of no speech and below this mean log-probability.

The first pair is Whisper's own rule (Radford et al. 2022, 4.5). The second was found on recordings of noise
and music. It keeps hesitant speech, whose words are uncertain but whose probability of no speech is low.
"""
STATES = RATE // 50
"""Samples from one encoder state to the next."""
END_WINDOWS: Windows = ((2, 0), (6, 2), (12, 6), (25, 12), (50, 25), (100, 50))
"""Spans of the last 2 s whose mean states the end-of-turn layer sees: first and end, in states before the end
of the audio. The nearer the end, the shorter (docs/lab/turns-experiments.md)."""


def name_of(folder: Path) -> str:
    """Return the name of the Whisper in a folder, such as "tiny.en", from the folder's or the hub's name.

    The model's shape does not identify it: large-v3 and large-v3-turbo have the same width.
    """
    at_hub = folder.parent.name == "snapshots"
    name = folder.parent.parent.name.rpartition("--")[2] if at_hub else folder.name
    return name.removeprefix("faster-").removeprefix("whisper-")


def head_of(name: str) -> Head | None:
    """Return the end-of-turn layer for the encoder states of a Whisper, or None (docs/lab/turns.md)."""
    path = Path(__file__).with_name(f"whisper_end.{name}.json")
    return load_head(path) if path.is_file() else None


@dataclass(frozen=True, slots=True)
class Words:
    """The result of one window.

    text: the words, "" if there are none.
    no_speech: Whisper's probability that the window has no speech.
    confidence: mean log-probability of the tokens.
    others: alternative texts that are nearly as likely.
    ending: mean encoder states at the end of the audio, float32 [windows * width]; empty if not kept.
    over: probability that the turn is over, from ``ending``; None if unknown.
    """

    text: str
    no_speech: float = 1.0
    confidence: float = 0.0
    others: tuple[str, ...] = ()
    ending: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    over: float | None = None


NO_WORDS = Words("")
"""The result for audio without words."""


@dataclass(slots=True)
class Job:
    """Audio to recognise.

    audio: float32 [samples] at 16 kHz. window: encoder window in seconds. wanted: whether the caller still
    waits for the words.
    """

    audio: Samples
    window: int
    wanted: bool = True

    @property
    def readings(self) -> int:
        """Number of hypotheses to search."""
        return READINGS if len(self.audio) <= WORD_SECONDS * RATE else 1


class Whisper:
    """Shared weights behind one engine. Each session has a ``WhisperStream``.

    path: folder of the model.
    threads: CPU threads.
    language: code of the spoken language.
    batch: most jobs in one run. Jobs of one batch have the same window and the same urgency. On a CPU
        batching saves no time, and every job waits for the whole batch.
    cuda: run on the first NVIDIA GPU in float16, instead of the CPU in int8.

    name: name of the model, such as "tiny.en".
    keeps_endings: whether results have an ``ending``. They do in English, if the model has an end-of-turn
        layer: turns may end differently in other languages.
    """

    def __init__(
        self, path: Path, threads: int = 1, language: str = "en", *, batch: int = 1, cuda: bool = False
    ) -> None:
        ADAPTER.require()
        from faster_whisper import WhisperModel
        from faster_whisper.tokenizer import Tokenizer

        try:
            self._model: Any = WhisperModel(
                str(path),
                device="cuda" if cuda else "cpu",
                compute_type="float16" if cuda else "int8",
                cpu_threads=threads,
                local_files_only=True,
            )
        except Exception as error:
            raise ModelError("whisper", f"cannot load {path}: {error}; {VERIFY}") from error
        multilingual = self._model.model.is_multilingual
        self._tokenizer: Any = Tokenizer(self._model.hf_tokenizer, multilingual, "transcribe", language)
        self.name, self.language = name_of(path), language
        self._head = head_of(self.name) if language == ENGLISH else None
        self.keeps_endings = self._head is not None
        self._prompt = [*self._tokenizer.sot_sequence, self._tokenizer.no_timestamps]
        self.engine: Engine[Job, Words] = Engine(
            "whisper", self._step, max_batch=batch, alike=lambda job, sure: (job.window, job.readings, sure)
        )

    def stream(self) -> WhisperStream:
        """Open the state of one session."""
        return WhisperStream(self)

    async def recognise(self, audio: Samples) -> str:
        """Return the text of up to 30 s of 16 kHz audio, "" if Whisper doubts that there is speech.

        Cancelling and errors are those of ``words``.
        """
        return (await self.words(audio)).text

    async def words(self, audio: Samples) -> Words:
        """Return the result for up to 30 s of 16 kHz audio, float32 [samples].

        The text is "" if Whisper doubts that there is speech. Audio longer than ``WORD_SECONDS`` has no
        alternatives. Cancelling frees the engine after the encoder's run, if decoding has not begun. Raises
        ModelError.
        """
        if len(audio) < RATE // 10:
            return NO_WORDS
        deadline = current.get()
        job = Job(audio, window_seconds(len(audio) / RATE, deadline is not None and deadline.frugal))
        try:
            words = await self.engine.run(job)
        finally:
            job.wanted = False
        doubted = any(words.no_speech > silent and words.confidence < unsure for silent, unsure in INVENTED)
        nothing = doubted or not any(map(str.isalnum, words.text))
        return replace(words, text="", others=(), over=None) if nothing else words

    def close(self) -> None:
        """Stop the engine's thread."""
        self.engine.close()

    def _step(self, batch: Sequence[Job]) -> list[Words]:
        longest, window = max(len(job.audio) for job in batch) / RATE, batch[0].window
        cut = [job.audio[: window * RATE] for job in batch]
        padded = [np.pad(audio, (0, window * RATE - len(audio))) for audio in cut]
        features = np.stack(
            [self._model.feature_extractor(audio, padding=0)[:, : window * 100] for audio in padded]
        )
        encoded = self._model.encode(features)
        if not any(job.wanted for job in batch):  # a final transcript has cancelled this partial one
            return [NO_WORDS] * len(batch)
        results = self._model.model.generate(
            encoded,
            [self._prompt] * len(batch),
            beam_size=batch[0].readings,
            num_hypotheses=batch[0].readings,
            no_repeat_ngram_size=3,
            max_length=len(self._prompt) + 12 + int(10 * longest),
            return_scores=True,
            return_no_speech_prob=True,
        )
        words = [self._words(result) for result in results]
        if not self.keeps_endings:
            return words
        audios = zip(words, on_host(encoded), cut, strict=True)
        return [self._with_ending(one, states, len(audio)) for one, states, audio in audios]

    def _with_ending(self, words: Words, states: Samples, samples: int) -> Words:
        words = replace(words, ending=ending(states, samples))
        if self._head is None:
            return words
        seen = ending(states, samples, self._head.windows)
        # The folder's name may be wrong, so the width is compared.
        fits = len(self._head.weights) == len(seen)
        return replace(words, over=self._head.probability(seen) if fits else None)

    def _words(self, result: Any) -> Words:
        best, *others = [self._tokenizer.decode(ids).strip() for ids in result.sequences_ids]
        lengths = map(len, result.sequences_ids)  # CTranslate2 divides scores by the length
        likely, *rest = [score * length for score, length in zip(result.scores, lengths, strict=True)]
        near = [text for text, its in zip(others, rest, strict=True) if its > likely - NEARLY]
        return Words(best, result.no_speech_prob, result.scores[0], tuple(near))


class WhisperStream:
    """The audio of one turn: about the last ``FREEZE_SECONDS``, and the frozen words before that."""

    def __init__(self, whisper: Whisper) -> None:
        self._whisper = whisper
        self._frozen: list[str] = []
        self._chunks: list[Samples] = []
        self._length = 0
        self._end = 0

    def feed(self, chunk: AudioChunk) -> None:
        """Add audio of the turn. Raises ValueError if the audio is not at 16 kHz."""
        if chunk.rate != RATE:
            raise ValueError(f"Whisper listens at {RATE} Hz, not {chunk.rate}")
        self._chunks.append(chunk.samples())
        self._length += len(chunk)
        self._end = chunk.end

    async def transcribe(self, is_final: bool) -> Transcript:
        """Recognise the turn so far. Cancelling keeps the audio. Raises ModelError."""
        end = self._end
        while self._length > FREEZE_SECONDS * RATE:
            await self._freeze()
        words = await self._whisper.words(self._audio())
        if self._frozen:
            whole = " ".join(filter(None, [*self._frozen, words.text]))
            # The probability is None if the rest has no words.
            return Transcript(whole, is_final, end, end_probability=words.over)
        return Transcript(words.text, is_final, end, words.others, words.over)

    def reset(self) -> None:
        """Drop the audio and the words of the turn."""
        self._frozen, self._chunks, self._length = [], [], 0

    def _audio(self) -> Samples:
        self._chunks = [np.concatenate(self._chunks)] if self._chunks else [np.zeros(0, np.float32)]
        return self._chunks[0]

    async def _freeze(self) -> None:
        """Freeze the words up to the quietest moment in the second half of the audio."""
        audio = self._audio()[: FREEZE_SECONDS * RATE]
        cut = quietest(audio, len(audio) // 2)
        frozen = self._frozen
        text = await self._whisper.recognise(audio[:cut])
        if frozen is not self._frozen:
            return  # the turn was reset meanwhile
        frozen.append(text)
        self._chunks = [self._audio()[cut:]]
        self._length -= cut


def on_host(encoded: Any) -> Samples:
    """Return CTranslate2's encoder output as an array in CPU memory, [audio, time, width]."""
    from ctranslate2 import Device

    return np.asarray(encoded if encoded.device == "cpu" else encoded.to_device(Device.cpu))


def ending(states: Samples, samples: int, windows: Windows = END_WINDOWS) -> Samples:
    """Return the mean encoder states in each of the windows, joined: float32 [windows * width].

    states: float [time, width]. samples: length of the audio that they were computed from. A window before
    the beginning of the audio has its first state.
    """
    end = min(len(states), samples // STATES)
    places = (slice(max(0, end - since), max(1, end - until)) for since, until in windows)
    found: Samples = np.concatenate([states[place].mean(axis=0) for place in places]).astype(np.float32)
    return found


def window_seconds(audio: float, frugal: bool = False) -> int:
    """Return the encoder window in seconds for ``audio`` seconds. frugal: prefer speed to accuracy."""
    if frugal:
        return min(WINDOW_SECONDS, max(SHORT_WINDOW_SECONDS, math.ceil(audio + FRUGAL_MARGIN_SECONDS)))
    if audio <= SHORT_SECONDS:
        return SHORT_WINDOW_SECONDS
    return min(WINDOW_SECONDS, max(LEAST_WINDOW_SECONDS, math.ceil(audio + WINDOW_MARGIN_SECONDS)))


def quietest(audio: Samples, start: int) -> int:
    """Return the middle sample of the quietest 0.2 s of audio at or after sample ``start``."""
    width = RATE // 5
    power = np.concatenate(([0.0], np.cumsum(np.square(audio[start:], dtype=np.float64))))
    sums = power[width:] - power[:-width]
    return start + int(np.argmin(sums)) + width // 2


def _found(argument: str) -> tuple[Path, str]:
    name, language = with_language(argument)
    path = whisper_snapshot(name) if _of_hub(name) else ADAPTER.path(name)
    if language != ENGLISH:  # every Whisper model knows English
        check_language(path, language)
    return path, language


def _of_hub(name: str) -> str | None:
    known = ADAPTER.weights_name(name)
    return None if known is None or known in catalog() or not is_whisper(name) else known


def _open(found: tuple[Path, str], threads: int, placement: Placement) -> Whisper:
    path, language = found
    return Whisper(path, threads, language, batch=GPU_BATCH if placement.cuda else 1, cuda=placement.cuda)


ADAPTER = Adapter(
    "whisper",
    _open,
    packages=("ctranslate2", "faster_whisper"),
    extra="local",
    weights="whisper-{}",
    default="tiny.en",
    share="stt",
    finder=_found,
    named=lambda argument: with_language(argument)[0],
    hub=_of_hub,
)
"""What the registry finds."""
