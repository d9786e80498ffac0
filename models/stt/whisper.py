"""Whisper through faster-whisper and CTranslate2, with an encoder window cut to the audio.

Whisper was trained on windows of 30 s, and as shipped a two-second question costs as much as half a
minute. CTranslate2 encodes shorter windows. Cutting them to the audio makes Whisper loop and invent; a floor
under the window, a ban on repeated trigrams and a budget of tokens keep its accuracy, as
``rejoinder bench stt`` shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.models.stt.languages import ENGLISH
from rejoinder.models.turn.head import Head, load_head
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples
from rejoinder.pipeline.engines.deadline import current
from rejoinder.pipeline.engines.engine import Engine
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Transcript

WINDOW_SECONDS = 30
SHORT_SECONDS, SHORT_WINDOW_SECONDS = 5, 10
LEAST_WINDOW_SECONDS, MARGIN_SECONDS = 15, 3
"""The window: 10 s for audio up to 5 s; above, the audio and 3 s, but at least 15 s (docs/lab/latency.md)."""
FRUGAL_MARGIN_SECONDS = 1
"""Where less will do, the audio and 1 s, but at least 10 s: a third faster, and a little less right."""
FREEZE_SECONDS = 24
"""Audio of a turn that is recognised again with each hypothesis; what is older has its words frozen."""
WORD_SECONDS, READINGS = 1.5, 5
"""Audio so short is a word or two, with nothing around them to tell them by: so many readings are weighed."""
NEARLY = math.log(3)
"""Readings that are at least a third as likely as the best are nearly as likely (docs/design/bargein.md)."""
INVENTED = ((0.6, -1.0), (0.2, -2.25))
"""Words count as invented above this probability of no speech and below this mean log-probability.

The first pair is Whisper's own rule (Radford et al. 2022, 4.5). The second came out of recordings of noise
and music: it passes hesitant speech, which is unsure of its words but sure to be speech.
"""
STATES = RATE // 50
"""Samples from one of the encoder's states to the next."""
LAST, BEFORE = (2, 0), (75, 10)
"""The last two states of the audio, and those from 1.5 to 0.2 s before its end: how it ends, and what."""


def name_of(folder: Path) -> str:
    """Return which Whisper a folder holds, by its name or the hub's: "tiny.en" of whisper-tiny.en.

    Its shape does not tell: large-v3 and large-v3-turbo are as wide, and their states differ.
    """
    at_hub = folder.parent.name == "snapshots"
    name = folder.parent.parent.name.rpartition("--")[2] if at_hub else folder.name
    return name.removeprefix("faster-").removeprefix("whisper-")


def head_of(name: str) -> Head | None:
    """Return what the states of a Whisper say about the end of a turn, None without (docs/lab/turns.md)."""
    path = Path(__file__).with_name(f"whisper_end.{name}.json")
    return load_head(path) if path.is_file() else None


@dataclass(frozen=True, slots=True)
class Words:
    """What came out of one window: the text, Whisper's doubts about it, and what it may be as well.

    ending: what the encoder made of the end of the audio, where it is kept. over: how likely it is that the
        speaker is done, by the sound of these words; None where unknown.
    """

    text: str
    no_speech: float = 1.0
    confidence: float = 0.0
    others: tuple[str, ...] = ()
    ending: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    over: float | None = None


NOTHING = Words("")


@dataclass(slots=True)
class Job:
    """Audio to be recognised, until nobody wants its words any more."""

    audio: Samples
    window: int
    wanted: bool = True

    @property
    def readings(self) -> int:
        """How many readings of it are weighed."""
        return READINGS if len(self.audio) <= WORD_SECONDS * RATE else 1


class Whisper:
    """Shared weights behind one engine; each session has a ``WhisperStream``.

    batch: how much is recognised together at most, of one window, and nothing that somebody waits for with
        what nobody does. On a processor that saves nothing, and the first waits for the last.
    cuda: on the first NVIDIA GPU in float16, else on the processor in int8.

    name: which Whisper it is, such as "tiny.en". language: what it is told to hear. keeps_endings: whether
    its words have an ``ending``; they do where a layer reads that, in English only: turns may end otherwise
    in another language.
    """

    def __init__(
        self, path: Path, threads: int = 1, language: str = "en", *, batch: int = 1, cuda: bool = False
    ) -> None:
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
            raise ModelError("whisper", f"cannot load {path}: {error}") from error
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
        """Return the words in up to 30 s of 16 kHz audio, or nothing where Whisper itself doubts them.

        Cancels and fails as ``words`` does.
        """
        return (await self.words(audio)).text

    async def words(self, audio: Samples) -> Words:
        """Return the words in up to 30 s of 16 kHz audio, and what else is known of them.

        They have no text where Whisper itself doubts it; audio of more than ``WORD_SECONDS`` has one reading.
        Cancelling before the words are written leaves the engine free after the encoder's step. Raises
        ModelError.
        """
        if len(audio) < RATE // 10:
            return NOTHING
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
        """End the engine's thread."""
        self.engine.close()

    def _step(self, batch: Sequence[Job]) -> list[Words]:
        longest, window = max(len(job.audio) for job in batch) / RATE, batch[0].window
        cut = [job.audio[: window * RATE] for job in batch]
        padded = [np.pad(audio, (0, window * RATE - len(audio))) for audio in cut]
        features = np.stack(
            [self._model.feature_extractor(audio, padding=0)[:, : window * 100] for audio in padded]
        )
        encoded = self._model.encode(features)
        if not any(job.wanted for job in batch):  # a final one waits behind this partial transcript
            return [NOTHING] * len(batch)
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
        endings = [ending(found, len(audio)) for found, audio in zip(on_host(encoded), cut, strict=True)]
        return [self._judged(one, its) for one, its in zip(words, endings, strict=True)]

    def _judged(self, words: Words, ending: Samples) -> Words:
        fits = self._head is not None and len(self._head.weights) == len(ending)  # a name proves little
        over = self._head.probability(ending) if self._head and fits else None
        return replace(words, ending=ending, over=over)

    def _words(self, result: Any) -> Words:
        best, *others = [self._tokenizer.decode(ids).strip() for ids in result.sequences_ids]
        lengths = map(len, result.sequences_ids)  # CTranslate2 divides by them
        likely, *rest = [score * length for score, length in zip(result.scores, lengths, strict=True)]
        near = [text for text, its in zip(others, rest, strict=True) if its > likely - NEARLY]
        return Words(best, result.no_speech_prob, result.scores[0], tuple(near))


class WhisperStream:
    """The audio of one turn: at most ``FREEZE_SECONDS`` of it, and the words of what came before."""

    def __init__(self, whisper: Whisper) -> None:
        self._whisper = whisper
        self._frozen: list[str] = []
        self._chunks: list[Samples] = []
        self._length = 0
        self._end = 0

    def feed(self, chunk: AudioChunk) -> None:
        """Add audio of the turn. Raises ValueError for audio that is not at 16 kHz."""
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
            return Transcript(whole, is_final, end, over=words.over)  # None where the rest has no words
        return Transcript(words.text, is_final, end, words.others, words.over)

    def reset(self) -> None:
        """Forget the turn."""
        self._frozen, self._chunks, self._length = [], [], 0

    def _audio(self) -> Samples:
        self._chunks = [np.concatenate(self._chunks)] if self._chunks else [np.zeros(0, np.float32)]
        return self._chunks[0]

    async def _freeze(self) -> None:
        """Settle the words up to the quietest moment in the second half of the audio."""
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
    """Return what CTranslate2 has encoded as an array, from wherever it is: [audio, time, width]."""
    from ctranslate2 import Device

    return np.asarray(encoded if encoded.device == "cpu" else encoded.to_device(Device.cpu))


def ending(states: Samples, samples: int) -> Samples:
    """Return what the encoder made of the end of so many samples: its states [time, width], at two places."""
    end = min(len(states), samples // STATES)
    places = (slice(max(0, end - since), max(1, end - until)) for since, until in (LAST, BEFORE))
    found: Samples = np.concatenate([states[place].mean(axis=0) for place in places]).astype(np.float32)
    return found


def window_seconds(audio: float, frugal: bool = False) -> int:
    """Return the length of the encoder's window for so many seconds of audio; frugal: less will do."""
    if frugal:
        return min(WINDOW_SECONDS, max(SHORT_WINDOW_SECONDS, math.ceil(audio + FRUGAL_MARGIN_SECONDS)))
    if audio <= SHORT_SECONDS:
        return SHORT_WINDOW_SECONDS
    return min(WINDOW_SECONDS, max(LEAST_WINDOW_SECONDS, math.ceil(audio + MARGIN_SECONDS)))


def quietest(audio: Samples, start: int) -> int:
    """Return the middle of the quietest fifth of a second at or after sample ``start``."""
    width = RATE // 5
    power = np.concatenate(([0.0], np.cumsum(np.square(audio[start:], dtype=np.float64))))
    sums = power[width:] - power[:-width]
    return start + int(np.argmin(sums)) + width // 2
