"""A small language model in onnxruntime, read and written a step at a time between everybody's replies."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.models.hints import require
from rejoinder.models.llm.ort.ahead import ahead
from rejoinder.models.llm.ort.decoder import Decoder, KvCachePool, Logits, Reader
from rejoinder.models.llm.ort.decoder_graph import CONTEXT, prepared
from rejoinder.models.llm.ort.drafts import OPENINGS, Drafts
from rejoinder.models.llm.ort.kv_cache import Slots, shared
from rejoinder.models.llm.ort.sampling import Sampling, choose
from rejoinder.models.llm.priority_gate import PriorityGate
from rejoinder.pipeline.engines.deadline import SPARE_SECONDS, Deadline, current
from rejoinder.pipeline.engines.engine import Engine
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Message
from rejoinder.pipeline.prompt import is_long
from rejoinder.pipeline.replying.utterance import MAX_TOKENS

SLOTS = 8
"""Conversations whose prompts are kept; one reply or warming each."""
PROMPT_TOKENS, FORGET_MESSAGES = CONTEXT - 256, 8
"""A longer conversation loses its oldest messages, so many at a time: each time the cache is useless once."""
TEMPLATE_TOKENS = 6
"""What a template adds to a message, about."""
STEP_TOKENS = 64
"""Tokens of a prompt read at once: about 80 ms in which nobody else's step runs."""
TEXT_STEP_TOKENS = 16
"""The same for a text request, whose step a reply may have to wait for."""


@dataclass(frozen=True, slots=True)
class Step:
    """One run of the model: what follows each of the last ``rows`` tokens; ``reader`` knows most of them.

    drafted: how many of them at the end are guesses, and the reader knows all before them but one. Then they
        may be left out, so that others read a token in the same run. None for what is read alone.
    """

    reader: Reader
    tokens: list[int]
    rows: int = 1
    drafted: int | None = None

    def alike(self, sure: bool) -> object:
        """Return what is the same for all that can be run together; urgent or not, it costs them little."""
        return None if self.drafted is not None and self.reader.place is not None else id(self)


class OrtLlm:
    """A GGUF model of the architecture llama on this machine, prepared for onnxruntime at its first start.

    Raises ModelError where the file cannot be loaded or prepared.
    """

    def __init__(self, path: Path, threads: int, sampling: Sampling | None = None) -> None:
        require("ort")
        import jinja2.sandbox
        from tokenizers import Tokenizer

        self.name = f"ort:{path.stem}"
        try:
            folder = prepared(path)
            settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
            self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
            environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
            environment.globals["raise_exception"] = _refuse
            self._template = environment.from_string(settings["template"])
            control = self._tokenizer.get_added_tokens_decoder()
            self._control = re.compile("|".join(re.escape(token.content) for token in control.values()))
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(self.name, f"cannot prepare {path}: {error}") from error
        self._ends = {settings["end"], *control}
        self._sampling = sampling or Sampling()
        self._random = np.random.default_rng()
        decoder = Decoder(folder / "model.onnx", threads)
        self._shelf = KvCachePool(decoder, SLOTS)
        self._readers = self._shelf.readers
        self._slots = Slots(SLOTS)
        self._drafts = Drafts()
        for opening in self._tokenizer.encode_batch(list(OPENINGS), add_special_tokens=False):
            self._drafts.learn(opening.ids)
        self._replying = PriorityGate()
        self._decoder = decoder
        self._writer: Reader | None = None
        self._writing = asyncio.Lock()
        self.engine: Engine[Step, list[Logits]] = Engine("ort", self._step, max_batch=SLOTS, alike=Step.alike)

    def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer; closing the generator stops the decoding. Raises ModelError."""
        return ahead(self._decode(messages), MAX_TOKENS)

    def write(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer to a text request, in a place of its own: one at a time, behind all replies.

        As ``reply`` otherwise. Once it is begun, a reply waits for one step of it at most.
        """
        return ahead(self._compose(messages), MAX_TOKENS)

    async def _decode(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        prompt = await self._encoded(messages)
        with self._replying.priority():
            async with self._slots.take(messages) as slot:
                tokens = self._tokens(self._readers[slot], prompt, self._drafts)
                async with aclosing(self._text(tokens)) as pieces:
                    async for piece in pieces:
                        yield piece

    async def _compose(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        current.set(Deadline(SPARE_SECONDS))
        prompt = await self._encoded(messages)
        async with self._writing:
            if self._writer is None:  # 47 MB, which who is only called does without
                making = asyncio.get_running_loop().run_in_executor(None, Reader, self._decoder)
                self._writer = await making
            async with aclosing(self._text(self._tokens(self._writer, prompt))) as pieces:
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
        self, reader: Reader, prompt: Sequence[int], drafts: Drafts | None = None
    ) -> AsyncGenerator[int, None]:
        """Stream the answer's tokens, several of a step where what was drafted is what is chosen.

        drafts: of replies; what is written has none, and gives way to them.
        """
        answer: list[int] = []
        longest = min(MAX_TOKENS, CONTEXT - len(prompt))
        try:
            while len(answer) < longest:
                tokens = [*prompt, *answer]
                drafted = drafts.following(answer)[: longest - len(answer)] if drafts is not None else []
                rows = await self._read(reader, tokens, drafted, drafts is None, decodes=bool(answer))
                for logits, guess in zip(rows, [*drafted, None], strict=False):
                    token = choose(logits, tokens, self._sampling, self._random)
                    if token in self._ends or len(answer) == longest:
                        return
                    tokens.append(token)
                    answer.append(token)
                    yield token
                    if token != guess:
                        break
        finally:
            if drafts is not None:
                drafts.learn(answer)

    def count(self, messages: Sequence[Message]) -> int:
        """Return how many tokens of these messages a reply reads. Raises ModelError."""
        return len(self._prompt(messages))

    async def warm(self, messages: Sequence[Message]) -> None:
        """Read the prompt into a slot's cache. Raises ModelError."""
        prompt = await self._encoded(messages)
        with self._replying.priority():
            async with self._slots.take(messages) as slot:
                await self._read(self._readers[slot], prompt)

    async def aclose(self) -> None:
        """End the engine's thread."""
        self.engine.close()

    async def _read(
        self,
        reader: Reader,
        tokens: list[int],
        drafted: Sequence[int] = (),
        gives_way: bool = False,
        decodes: bool = False,
    ) -> list[Logits]:
        """Read on to the end of ``drafted``; return what follows the last of ``tokens`` and each of those.

        decodes: whether all but the last token was read before. Then what follows that may come alone.

        A prompt is read in pieces, so that others' steps run in between. The first token is a piece of its
        own: its activations are far larger than all others', and one scale for both would leave the others a
        few bits only.
        """
        known, most = shared(reader.read, tokens), TEXT_STEP_TOKENS if gives_way else STEP_TOKENS
        for end in range(known + most if known else 1, len(tokens), most):
            if gives_way:
                await self._replying.wait()
            await self.engine.run(Step(reader, tokens[:end]))
        if gives_way:
            await self._replying.wait()
        left_out = len(drafted) if decodes else None
        return await self.engine.run(Step(reader, [*tokens, *drafted], 1 + len(drafted), left_out))

    async def _encoded(self, messages: Sequence[Message]) -> list[int]:
        """Return the prompt, of which a long one, it may be a book, does not hold the event loop up."""
        if is_long(messages):
            return await asyncio.to_thread(self._prompt, messages)
        return self._prompt(messages)

    def _prompt(self, messages: Sequence[Message]) -> list[int]:
        try:
            said = [Message(role=each["role"], content=self._plain(each["content"])) for each in messages]
            tokens = self._encode(said)
            if len(tokens) > PROMPT_TOKENS:
                tokens = self._encode(self._remembered(said))
        except Exception as error:
            raise ModelError(self.name, f"cannot read the conversation: {error}") from error
        if not 0 < len(tokens) < CONTEXT:
            raise ModelError(
                self.name,
                f"a prompt of {len(tokens)} tokens exceeds the context of {CONTEXT}: "
                "shorten the instructions, or take a model with more (llama:, openai:)",
                "context_length_exceeded",
            )
        return tokens

    def _encode(self, messages: Sequence[Message]) -> list[int]:
        text = self._template.render(messages=messages, add_generation_prompt=True)
        tokens: list[int] = self._tokenizer.encode(text).ids
        return tokens

    def _plain(self, text: str) -> str:
        """Return what somebody said without tokens that would begin another message."""
        text.encode()  # raises for half a character
        return self._control.sub(" ", text)

    def _remembered(self, messages: Sequence[Message]) -> list[Message]:
        """Leave out the oldest messages of a conversation that is too long, but not what leads it."""
        sizes = [len(self._tokenizer.encode(each["content"]).ids) + TEMPLATE_TOKENS for each in messages]
        lead = 1 if messages and messages[0]["role"] == "system" else 0
        first = lead
        while sum(sizes[:lead] + sizes[first:]) > PROMPT_TOKENS and first + FORGET_MESSAGES < len(messages):
            first += FORGET_MESSAGES
        return [*messages[:lead], *messages[first:]]

    def _step(self, batch: Sequence[Step]) -> list[list[Logits]]:
        if len(batch) == 1:
            return [batch[0].reader.rows(batch[0].tokens, batch[0].rows)]
        known = [step.tokens[: len(step.tokens) - (step.drafted or 0)] for step in batch]
        places = [step.reader.place or 0 for step in batch]
        return [[logits] for logits in self._shelf.next(dict(zip(places, known, strict=True)))]


def _refuse(reason: str) -> None:
    raise ValueError(reason)  # what chat templates call where they want other messages
