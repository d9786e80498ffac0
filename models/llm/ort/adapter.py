"""A small language model in onnxruntime. The engine interleaves the steps of all replies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rejoinder.models.adapter import Adapter
from rejoinder.models.llm.ort.ahead import ahead
from rejoinder.models.llm.ort.call_guide import CallGuide
from rejoinder.models.llm.ort.decoder import Decoder, KvCachePool, KvCacheSlot, Logits
from rejoinder.models.llm.ort.decoder_graph import CONTEXT, prepared
from rejoinder.models.llm.ort.drafts import OPENINGS, Drafts
from rejoinder.models.llm.ort.kv_cache import Slots, common_prefix
from rejoinder.models.llm.ort.prompts import OrtPrompts
from rejoinder.models.llm.ort.sampling import Sampling, choose
from rejoinder.models.llm.priority_gate import PriorityGate
from rejoinder.models.placement import Placement
from rejoinder.models.seed import seed
from rejoinder.models.specs import catalogued_llms
from rejoinder.models.threads import cores
from rejoinder.pipeline.engines.deadline import SPARE_SECONDS, Deadline, current
from rejoinder.pipeline.engines.engine import Engine
from rejoinder.pipeline.engines.steps import AtWork
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import NO_TOOLS, Message, Tools
from rejoinder.pipeline.prompt import is_long
from rejoinder.pipeline.replying.text.answer_filter import MAX_TOKENS

SLOTS = 8
"""KV-cache slots for replies: most replies and warm-ups at the same time."""
STEP_TOKENS = 64
"""Most prompt tokens in one step: about 80 ms, in which no other step can run."""
TEXT_STEP_TOKENS = 16
"""Most prompt tokens in one step of a text request. A reply may have to wait for such a step."""
LARGE_BYTES = 300_000_000
"""Size of a file from which a model counts as large: a step of as many tokens takes several times as long."""
LARGE_STEP_TOKENS = 24
"""``STEP_TOKENS`` for a large model."""
LARGE_THREADS = 2
"""Fewest threads of a large model, if there are as many cores. A small one runs faster on a single thread."""
GIVE_WAY_TOKENS = 4
"""Words of an answer after which its tokens are not urgent: about the first clause."""
GIVE_WAY_SECONDS = 0.05
"""Longest wait of such a token for the voice. Speech takes 4 tokens a second, so the voice never runs dry."""
POLL_SECONDS = 0.003
"""Interval between two looks at the voice."""
FEWEST_COPIED = 8
"""Fewest tokens that are copied from another slot: fewer are read as fast."""
LARGE_SAMPLING = Sampling(temperature=0, penalty=1.05)
"""A large model answers right more often with its likeliest words (docs/lab/latency-models.md)."""


@dataclass(frozen=True, slots=True)
class Step:
    """One run of the model, which returns the logits after each of the last ``rows`` tokens.

    slot: the KV-cache slot of the conversation, which holds most of ``tokens`` already.
    drafted: number of guessed tokens at the end, if the slot holds all tokens before them but one. The
        guesses may then be left out, so that several conversations read one token each in one run. None if
        the step must run alone.
    source: index of the slot that ``tokens`` are copied from, in place of a run; None to run the model.
    """

    slot: KvCacheSlot
    tokens: list[int]
    rows: int = 1
    drafted: int | None = None
    source: int | None = None

    def alike(self, sure: bool) -> object:
        """Return the batch key: steps with equal keys can run together. Urgency makes no difference."""
        return None if self.drafted is not None and self.slot.index is not None else id(self)


def open_prompts(path: Path) -> OrtPrompts:
    """Return the prompts of a GGUF file, which is converted if it was not. Raises ModelError."""
    ADAPTER.require()
    name = f"ort:{path.stem}"
    try:
        return OrtPrompts(prepared(path), name)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(name, f"cannot prepare {path}: {error}") from error


class OrtLlm:
    """A GGUF model of the architecture "llama" or "qwen2" on this machine.

    The first start converts it for onnxruntime. prompts: what ``open_prompts`` returns for the file.
    prefills: it continues an assistant message at the end of the prompt.

    Raises ModelError if the file cannot be loaded or converted.
    """

    prefills = True

    def __init__(
        self,
        path: Path,
        threads: int,
        sampling: Sampling | None = None,
        prompts: OrtPrompts | None = None,
    ) -> None:
        self._prompts = prompts or open_prompts(path)
        self.name = self._prompts.name
        self._tokenizer = self._prompts.tokenizer
        is_large = path.stat().st_size >= LARGE_BYTES
        self._sampling = sampling or (LARGE_SAMPLING if is_large else Sampling())
        self._random = np.random.default_rng(seed())
        self._step_tokens = LARGE_STEP_TOKENS if is_large else STEP_TOKENS
        least = min(LARGE_THREADS, cores()) if is_large else 1
        decoder = Decoder(self._prompts.folder / "model.onnx", max(threads, least))
        self._cache_pool = KvCachePool(decoder, SLOTS)
        self._cache_slots = self._cache_pool.slots
        self._slots = Slots(SLOTS)
        self._drafts = Drafts()
        for opening in self._tokenizer.encode_batch(list(OPENINGS), add_special_tokens=False):
            self._drafts.learn(opening.ids)
        self.prompt_tokens = self.cached_tokens = 0
        self._priority_gate = PriorityGate()
        self._voice: AtWork | None = None
        self._decoder = decoder
        self._text_slot: KvCacheSlot | None = None
        self._text_lock = asyncio.Lock()
        self.engine: Engine[Step, list[Logits]] = Engine("ort", self._step, max_batch=SLOTS, alike=Step.alike)

    def give_way_to(self, engine: AtWork) -> None:
        """Let the tokens behind the first clause of an answer wait while ``engine``, the voice's, is at work.

        Otherwise both share the cores, and the first sound of a reply comes later.
        """
        self._voice = engine

    async def _give_way(self) -> None:
        until = time.perf_counter() + GIVE_WAY_SECONDS
        # The step ends on another thread, which knows nothing of this loop.
        while self._voice is not None and self._voice.running and time.perf_counter() < until:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)

    def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer; closing the generator stops the decoding. Raises ModelError."""
        return ahead(self._decode(messages), MAX_TOKENS)

    def write(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer to a text request, one request at a time and at lower priority than replies.

        A reply waits for at most one step of a text request. Closing the generator stops the decoding. Raises
        ModelError.
        """
        return ahead(self._compose(messages), MAX_TOKENS)

    async def _decode(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        prompt = await self._encoded(messages)
        with self._priority_gate.priority():
            async with self._slots.take(messages) as index:
                tokens = self._tokens(self._cache_slots[index], prompt, self._drafts)
                async with aclosing(self._text(tokens)) as pieces:
                    async for piece in pieces:
                        yield piece

    async def _compose(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        current.set(Deadline(SPARE_SECONDS))
        prompt = await self._encoded(messages)
        async with self._text_lock:
            if self._text_slot is None:  # at most 94 MB, allocated on the first text request
                allocating = asyncio.get_running_loop().run_in_executor(None, KvCacheSlot, self._decoder)
                self._text_slot = await allocating
            async with aclosing(self._text(self._tokens(self._text_slot, prompt))) as pieces:
                async for piece in pieces:
                    yield piece

    async def _text(self, tokens: AsyncGenerator[int, None]) -> AsyncGenerator[str, None]:
        from tokenizers.decoders import DecodeStream

        text = DecodeStream(skip_special_tokens=True)
        async with aclosing(tokens):
            async for token in tokens:
                if piece := text.step(self._tokenizer, token):
                    yield piece

    async def _tokens(
        self,
        slot: KvCacheSlot,
        prompt: Sequence[int],
        drafts: Drafts | None = None,
        guide: CallGuide | None = None,
        first: Logits | None = None,
    ) -> AsyncGenerator[int, None]:
        """Stream the tokens of an answer. A step yields several if the model chooses the guessed tokens.

        drafts: guesses for a reply. None for a text request, which has lower priority than replies.
        guide: chooses the tokens of an answer with tools. None for an answer without.
        first: the logits after the prompt, if they are known.
        """
        ends = self._prompts.ends if guide is None else self._prompts.ends_of_turn
        answer: list[int] = []
        longest = min(MAX_TOKENS, CONTEXT - len(prompt))
        decodes = False
        try:
            while len(answer) < longest:
                tokens = [*prompt, *answer]
                drafted = (
                    drafts.following(answer, prompt)[: longest - len(answer)] if drafts is not None else []
                )
                if drafts is not None and len(answer) >= GIVE_WAY_TOKENS:
                    await self._give_way()
                if first is None:
                    rows = await self._read(slot, tokens, drafted, drafts is None, decodes)
                else:
                    rows, drafted, first = [first], [], None
                for logits, guess in zip(rows, [*drafted, None], strict=False):
                    made = self._next(logits, tokens, guide)
                    for token in made:
                        if token in ends or len(answer) == longest:
                            return
                        tokens.append(token)
                        answer.append(token)
                        yield token
                    decodes = len(made) == 1
                    if made != [guess]:
                        break
        finally:
            if drafts is not None:
                drafts.learn(answer)

    def _next(self, logits: Logits, before: Sequence[int], guide: CallGuide | None) -> list[int]:
        if guide is not None:
            return guide.next(logits, before)
        return [choose(logits, before, self._sampling, self._random)]

    def count(self, messages: Sequence[Message]) -> int:
        """Return the number of prompt tokens that a reply to ``messages`` reads. Raises ModelError."""
        return len(self._prompt(messages))

    @property
    def context_tokens(self) -> int:
        """Most tokens of a prompt and its answer together."""
        return CONTEXT

    def tokens_in(self, text: str) -> int:
        """Return the number of tokens in a text, without those of the template."""
        return len(self._prompts.ids(text))

    async def warm(self, messages: Sequence[Message]) -> None:
        """Read the prompt into the cache of a slot. Cancelling keeps what was read. Raises ModelError."""
        await self._warm(messages)

    async def _warm(self, messages: Sequence[Message], tools: Tools = NO_TOOLS) -> None:
        prompt = await self._encoded(messages, tools)
        with self._priority_gate.priority():
            async with self._slots.take(messages, tools) as index:
                await self._read(self._cache_slots[index], prompt)

    async def aclose(self) -> None:
        """Stop the engine's thread. Cancelling changes nothing, because there is no wait."""
        self.engine.close()

    async def _read(
        self,
        slot: KvCacheSlot,
        tokens: list[int],
        drafted: Sequence[int] = (),
        low_priority: bool = False,
        decodes: bool = False,
    ) -> list[Logits]:
        """Read ``tokens`` and ``drafted``; return the logits after the last of ``tokens`` and each guess.

        low_priority: whether to wait for the replies of calls before each step.
        decodes: whether all of ``tokens`` but the last were read before. Then the guesses may be left out,
            and only the logits after the last of ``tokens`` are returned.

        A prompt is read in several steps, so that the steps of other replies run in between. The first token
        is a step of its own: its activations are far larger than those of the others, and a common scale
        would leave the others only a few bits.
        """
        if not decodes:
            await self._copy(slot, tokens)
        known = common_prefix(slot.cached, tokens)
        if not decodes:
            self.prompt_tokens += len(tokens)
            self.cached_tokens += known
        most = TEXT_STEP_TOKENS if low_priority else self._step_tokens
        for end in range(known + most if known else 1, len(tokens), most):
            if low_priority:
                await self._priority_gate.wait()
            await self.engine.run(Step(slot, tokens[:end]))
        if low_priority:
            await self._priority_gate.wait()
        left_out = len(drafted) if decodes else None
        return await self.engine.run(Step(slot, [*tokens, *drafted], 1 + len(drafted), left_out))

    async def _copy(self, slot: KvCacheSlot, tokens: list[int]) -> None:
        """Copy the beginning of a prompt from the slot of another call, such as the same instructions."""
        source, shared = self._cache_pool.longest_prefix(tokens)
        if slot.index is not None and shared >= common_prefix(slot.cached, tokens) + FEWEST_COPIED:
            await self.engine.run(Step(slot, tokens[:shared], source=source))

    async def _encoded(self, messages: Sequence[Message], tools: Tools = NO_TOOLS) -> list[int]:
        """Return the tokens of the prompt. A long prompt is encoded on a thread."""
        if tools.functions or is_long(messages):
            return await asyncio.to_thread(self._prompt, messages, tools)
        return self._prompt(messages)

    def _prompt(self, messages: Sequence[Message], tools: Tools = NO_TOOLS) -> list[int]:
        return self._prompts.tokens(messages, tools)

    def _step(self, batch: Sequence[Step]) -> list[list[Logits]]:
        if len(batch) == 1:
            (step,) = batch
            if step.source is None:
                return [step.slot.rows(step.tokens, step.rows)]
            self._cache_pool.copy(step.source, step.slot.index or 0, step.tokens)
            return [[]]
        known = [step.tokens[: len(step.tokens) - (step.drafted or 0)] for step in batch]
        indexes = [step.slot.index or 0 for step in batch]
        return [[logits] for logits in self._cache_pool.next(dict(zip(indexes, known, strict=True)))]


def _open(path: Path, threads: int, placement: Placement) -> OrtLlm:
    from rejoinder.models.llm.ort.tools import open_ort  # it builds on this module

    return open_ort(path, threads)


ADAPTER = Adapter(
    "ort",
    _open,
    packages=("onnxruntime", "onnx", "gguf", "tokenizers", "jinja2"),
    extra="local",
    weights="{}",
    default="smollm2-135m-instruct",
    suffix=".gguf",
    names=catalogued_llms,
    share="llm",
)
"""What the registry finds."""
