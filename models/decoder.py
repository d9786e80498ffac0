"""A decoder in onnxruntime, and what it has read of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.models.decoder_graph import CONTEXT
from rejoinder.models.onnx import open_session
from rejoinder.models.slots import shared

Logits = np.ndarray[tuple[int], np.dtype[np.float32]]


class Decoder:
    """The weights, shared by all ``Reader``s. Raises ModelError where the file cannot be loaded."""

    def __init__(self, path: Path, threads: int) -> None:
        self.session: Any = open_session(path, threads)
        shape = next(each.shape for each in self.session.get_inputs() if each.name == "past.0.key")
        self.cache_shape = (1, shape[1], CONTEXT, shape[3])
        self.layers = sum(each.name.startswith("past.") for each in self.session.get_inputs()) // 2


class Reader:
    """The keys and values of one conversation, in one place of ``CONTEXT`` tokens that is written over.

    All of it is taken at the start, so that a long call costs no more than a short one: 46 KB a token, 47 MB
    for each reader, with SmolLM2-135M.
    """

    def __init__(self, decoder: Decoder) -> None:
        import onnxruntime

        self.read: list[int] = []
        self._decoder = decoder
        self._binding = decoder.session.io_binding()
        self._held = []
        for layer in range(decoder.layers):
            for part in ("key", "value"):
                memory = np.full(decoder.cache_shape, 0.0, np.float32)
                value = onnxruntime.OrtValue.ortvalue_from_numpy(memory)
                self._held.append((memory, value))
                self._binding.bind_ortvalue_input(f"past.{layer}.{part}", value)
                self._binding.bind_ortvalue_output(f"present.{layer}.{part}", value)

    def logits(self, tokens: Sequence[int]) -> Logits:
        """Return what follows ``tokens``: the last row of ``rows``."""
        return self.rows(tokens, 1)[0]

    def rows(self, tokens: Sequence[int], count: int) -> list[Logits]:
        """Return what follows each of the last ``count`` of ``tokens``, at most ``CONTEXT`` of them.

        What was read before stays read. Runs for as long as the new ones take, on the thread that calls.
        """
        known = min(shared(self.read, tokens), len(tokens) - count)
        self.read = list(tokens[:known])  # stays true if the run fails
        self._binding.bind_cpu_input("tokens", np.array([tokens[known:]], np.int64))
        self._binding.bind_cpu_input("last", np.array([len(tokens) - 1], np.int32))
        self._binding.bind_cpu_input("total", np.array([len(tokens)], np.int32))
        self._binding.bind_cpu_input("from", np.array([-count], np.int64))
        self._binding.bind_output("logits")  # anew: its memory has the shape of the last run
        self._decoder.session.run_with_iobinding(self._binding)
        self.read = list(tokens)
        return list(self._binding.get_outputs()[-1].numpy()[0])  # the one bound last
