"""A decoder in onnxruntime, and what it has read of a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.models.llm.ort.decoder_graph import CONTEXT
from rejoinder.models.llm.ort.kv_cache import shared
from rejoinder.models.onnx.session import open_session

Logits = np.ndarray[tuple[int], np.dtype[np.float32]]
Memory = np.ndarray[Any, np.dtype[np.float32]]


class Decoder:
    """The weights, shared by all ``Reader``s. Raises ModelError where the file cannot be loaded."""

    def __init__(self, path: Path, threads: int) -> None:
        self.session: Any = open_session(path, threads)
        shape = next(each.shape for each in self.session.get_inputs() if each.name == "past.0.key")
        self.cache_shape = (1, shape[1], CONTEXT, shape[3])
        self.layers = sum(each.name.startswith("past.") for each in self.session.get_inputs()) // 2

    def memory(self, places: int) -> list[Memory]:
        """Return room for the keys and values of so many conversations; it costs nothing until it is used."""
        return [np.zeros((places, *self.cache_shape[1:]), np.float32) for _ in range(2 * self.layers)]

    def bound(self, memory: Sequence[Memory]) -> Any:
        """Return a binding that reads from the memory, and writes over it."""
        import onnxruntime

        binding = self.session.io_binding()
        for index, part in enumerate(memory):
            name = f"{index // 2}.{('key', 'value')[index % 2]}"
            value = onnxruntime.OrtValue.ortvalue_from_numpy(part)
            binding.bind_ortvalue_input(f"past.{name}", value)
            binding.bind_ortvalue_output(f"present.{name}", value)
        return binding

    def run(self, binding: Any, tokens: list[list[int]], lengths: list[int], count: int) -> Any:
        """Return the logits of the last ``count`` of the new tokens of each conversation.

        lengths: of the conversations, with these tokens.
        """
        binding.bind_cpu_input("tokens", np.array(tokens, np.int64))
        binding.bind_cpu_input("last", np.array(lengths, np.int32) - 1)
        binding.bind_cpu_input("total", np.array([max(lengths)], np.int32))
        binding.bind_cpu_input("from", np.array([-count], np.int64))
        binding.bind_output("logits")  # anew: its memory has the shape of the last run
        self.session.run_with_iobinding(binding)
        return binding.get_outputs()[-1].numpy()  # the one bound last


class Reader:
    """The keys and values of one conversation, in one place of ``CONTEXT`` tokens that is written over.

    46 KB a token, 47 MB for each reader where that is full, with SmolLM2-135M. place: on its shelf.
    """

    def __init__(self, decoder: Decoder, memory: Sequence[Memory] = (), place: int | None = None) -> None:
        self.read: list[int] = []
        self.place = place
        self._decoder = decoder
        self._memory = memory or decoder.memory(1)  # which the binding does not keep alive
        self._binding = decoder.bound(self._memory)

    def logits(self, tokens: Sequence[int]) -> Logits:
        """Return what follows ``tokens``: the last row of ``rows``."""
        return self.rows(tokens, 1)[0]

    def rows(self, tokens: Sequence[int], count: int) -> list[Logits]:
        """Return what follows each of the last ``count`` of ``tokens``, at most ``CONTEXT`` of them.

        What was read before stays read. Runs for as long as the new ones take, on the thread that calls.
        """
        known = min(shared(self.read, tokens), len(tokens) - count)
        self.read = list(tokens[:known])  # stays true if the run fails
        logits = self._decoder.run(self._binding, [list(tokens[known:])], [len(tokens)], count)
        self.read = list(tokens)
        return list(logits[0])


class KvCachePool:
    """Readers side by side, which can read a token each in one run: it takes little longer than for one."""

    def __init__(self, decoder: Decoder, places: int) -> None:
        self._decoder = decoder
        self._memory = decoder.memory(places)
        self.readers = [
            Reader(decoder, [part[place : place + 1] for part in self._memory], place)
            for place in range(places)
        ]
        self._bindings: dict[tuple[int, int], Any] = {}

    def next(self, conversations: Mapping[int, list[int]]) -> list[Logits]:
        """Return what follows the tokens of each place, of which all but the last were read before.

        Who stands between them reads its last token again, which changes nothing; where somebody there has
        read nothing yet, they read one after the other.
        """
        first, end = min(conversations), max(conversations) + 1
        between = self.readers[first:end]
        if any(len(reader.read) < 2 for reader in between):
            return [self.readers[place].logits(tokens) for place, tokens in conversations.items()]
        whole = [conversations.get(place, reader.read) for place, reader in enumerate(between, first)]
        for place, tokens in conversations.items():
            self.readers[place].read = tokens[:-1]  # stays true if the run fails
        if (first, end) not in self._bindings:
            self._bindings[first, end] = self._decoder.bound([part[first:end] for part in self._memory])
        binding, lengths = self._bindings[first, end], [len(tokens) for tokens in whole]
        logits = self._decoder.run(binding, [[tokens[-1]] for tokens in whole], lengths, 1)
        for place, tokens in conversations.items():
            self.readers[place].read = tokens
        return [logits[place - first, 0] for place in conversations]
