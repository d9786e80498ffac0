"""A decoder in onnxruntime, and the KV cache of each conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.models.llm.ort.decoder_graph import CONTEXT
from rejoinder.models.llm.ort.kv_cache import common_prefix
from rejoinder.models.llm.ort.kv_memory import KvMemory, Memory
from rejoinder.models.onnx.session import open_session

Logits = np.ndarray[tuple[int], np.dtype[np.float32]]
"""Scores of the next token, float32 [vocabulary]."""
SPARE_TOKENS = 128
"""Tokens that a slot may have room for beyond those it holds. The memory of further ones is given back."""


class Decoder:
    """The weights, shared by all ``KvCacheSlot``s. Raises ModelError if the file cannot be loaded."""

    def __init__(self, path: Path, threads: int) -> None:
        self.session: Any = open_session(path, threads)
        shape = next(each.shape for each in self.session.get_inputs() if each.name == "past.0.key")
        self.cache_shape = (1, shape[1], CONTEXT, shape[3])
        self.layers = sum(each.name.startswith("past.") for each in self.session.get_inputs()) // 2

    def allocate(self, slots: int) -> KvMemory:
        """Return keys and values of all layers for ``slots`` conversations. Unused pages cost no memory."""
        return KvMemory((slots, *self.cache_shape[1:]), 2 * self.layers)

    def bind(self, memory: Sequence[Memory]) -> Any:
        """Return a binding that reads keys and values from ``memory`` and writes new ones into it."""
        import onnxruntime

        binding = self.session.io_binding()
        for index, part in enumerate(memory):
            name = f"{index // 2}.{('key', 'value')[index % 2]}"
            value = onnxruntime.OrtValue.ortvalue_from_numpy(part)
            binding.bind_ortvalue_input(f"past.{name}", value)
            binding.bind_ortvalue_output(f"present.{name}", value)
        return binding

    def run(self, binding: Any, tokens: list[list[int]], lengths: list[int], count: int) -> Any:
        """Return the logits after the last ``count`` new tokens, float32 [conversations, count, vocabulary].

        tokens: the new tokens of each conversation, equally many for each.
        lengths: tokens of each conversation, including the new ones.
        """
        binding.bind_cpu_input("tokens", np.array(tokens, np.int64))
        binding.bind_cpu_input("last", np.array(lengths, np.int32) - 1)
        binding.bind_cpu_input("total", np.array([max(lengths)], np.int32))
        binding.bind_cpu_input("from", np.array([-count], np.int64))
        binding.bind_output("logits")  # bound again, because its buffer has the shape of the previous run
        self.session.run_with_iobinding(binding)
        return binding.get_outputs()[-1].numpy()  # the output that was bound last


class KvCacheSlot:
    """The keys and values of one conversation, in a fixed buffer of ``CONTEXT`` tokens.

    With SmolLM2-135M a token takes 46 KB, and a full slot 94 MB. cached: the tokens that were read. index:
    position in the ``KvCachePool``, None for a slot outside of one.
    """

    def __init__(self, decoder: Decoder, memory: KvMemory | None = None, index: int | None = None) -> None:
        self.cached: list[int] = []
        self.index = index
        self._decoder = decoder
        self._memory = memory or decoder.allocate(1)  # kept here: the binding does not keep it alive
        self._place = index or 0
        self._used = 0  # tokens whose memory was used since some was given back
        self._binding = decoder.bind([part[self._place : self._place + 1] for part in self._memory.parts])

    def logits(self, tokens: Sequence[int]) -> Logits:
        """Return the logits after ``tokens``: the last row of ``rows``."""
        return self.rows(tokens, 1)[0]

    def rows(self, tokens: Sequence[int], count: int) -> list[Logits]:
        """Return the logits after each of the last ``count`` of ``tokens``, at most ``CONTEXT`` tokens.

        The prefix that is cached is not read again. Blocks the calling thread while the new tokens are read.
        """
        known = min(common_prefix(self.cached, tokens), len(tokens) - count)
        self.cached = list(tokens[:known])  # stays true if the run fails
        logits = self._decoder.run(self._binding, [list(tokens[known:])], [len(tokens)], count)
        self.hold(tokens)
        return list(logits[0])

    def hold(self, tokens: Sequence[int]) -> None:
        """Record the tokens that the slot holds now."""
        self.cached = list(tokens)
        self._used = max(self._used, len(tokens))

    def shrink(self) -> None:
        """Give back the memory that a longer conversation has used. Call it when a prompt is read."""
        if self._used > len(self.cached) + SPARE_TOKENS:
            self._used = len(self.cached)
            self._memory.give_back(self._place, self._used)


class KvCachePool:
    """KV-cache slots in one buffer. One run can read a token for each, in little more time than for one."""

    def __init__(self, decoder: Decoder, slots: int) -> None:
        self._decoder = decoder
        self._memory = decoder.allocate(slots)
        self.slots = [KvCacheSlot(decoder, self._memory, index) for index in range(slots)]
        self._bindings: dict[tuple[int, int], Any] = {}

    def longest_prefix(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Return the index of the slot that holds the longest prefix of ``tokens``, and its length."""
        lengths = [common_prefix(slot.cached, tokens) for slot in self.slots]
        longest = max(lengths)
        return lengths.index(longest), longest

    def copy(self, source: int, target: int, tokens: Sequence[int]) -> None:
        """Copy from one slot to another what it holds of ``tokens``.

        Blocks the calling thread, which must be the one that runs the model.
        """
        count = common_prefix(self.slots[source].cached, tokens)
        self.slots[target].cached = []  # stays true if the copy fails
        for part in self._memory.parts:
            part[target, :, :count] = part[source, :, :count]
        self.slots[target].hold(tokens[:count])

    def next(self, conversations: Mapping[int, list[int]]) -> list[Logits]:
        """Return the logits after the tokens of each slot, of which all but the last were read before.

        conversations: tokens by the index of their slot.

        The run covers all slots from the first index to the last. Other slots in that range read their last
        token again, which changes nothing. If one of these slots is empty, the slots run one after another.
        """
        first, end = min(conversations), max(conversations) + 1
        between = self.slots[first:end]
        for index in conversations:  # their prompts are read: a token follows
            self.slots[index].shrink()
        if any(len(slot.cached) < 2 for slot in between):
            return [self.slots[index].logits(tokens) for index, tokens in conversations.items()]
        whole = [conversations.get(index, slot.cached) for index, slot in enumerate(between, first)]
        for index, tokens in conversations.items():
            self.slots[index].cached = tokens[:-1]  # stays true if the run fails
        if (first, end) not in self._bindings:
            self._bindings[first, end] = self._decoder.bind([part[first:end] for part in self._memory.parts])
        binding, lengths = self._bindings[first, end], [len(tokens) for tokens in whole]
        logits = self._decoder.run(binding, [[tokens[-1]] for tokens in whole], lengths, 1)
        for index, tokens in conversations.items():
            self.slots[index].hold(tokens)
        return [logits[index - first, 0] for index in conversations]
