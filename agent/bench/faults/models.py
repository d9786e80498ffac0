"""Models with real engines, whose steps fail on a word or on very loud audio.

``raise``: an exception. ``panic``: one that is no ``Exception``, as native code in Rust raises. ``exit``: the
step ends its thread. ``hang``: the step does not end. ``memory``: onnxruntime is asked for more memory than
there is.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence

import numpy as np

from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedSttStream
from rejoinder.models.tts.voice import Piece, Voice
from rejoinder.pipeline.audio.chunk import AudioChunk, Samples
from rejoinder.pipeline.engines.engine import Engine
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Message, Transcript

HANG_SECONDS = 60.0
"""A step that hangs ends after this time, in seconds, unless ``HANG_VARIABLE`` says another one."""
HANG_VARIABLE = "FAULT_SECONDS"
"""The environment variable with that time."""
VOICE_RATE = 24_000
"""The sample rate of the voice, in hertz."""
LETTER_SECONDS = 0.03
"""Length of the voice's tone for each letter, in seconds."""
FULL_SCALE = 0.99
"""Audio with a sample of at least this level makes the recogniser fail."""
FAULT_OF_STT = "FAULT_OF_STT"
"""The environment variable that names the recogniser's fault."""
SHAPE_OF_EVERYTHING = 2**44
"""Elements of a tensor of 64 TB."""


class Panic(BaseException):
    """An error of native code that is no ``Exception``, such as pyo3's ``PanicException``."""


def fail_on(words: str) -> None:
    """Fail as the first fault's name among some words says; return if there is none."""
    named = [word.strip(".,!?") for word in words.lower().split()]
    match next((word for word in named if word in FAULT_WORDS), ""):
        case "raise":
            raise RuntimeError("the step failed, on purpose")
        case "panic":
            raise Panic("the step panicked, on purpose")
        case "exit":
            sys.exit("the step ended its thread, on purpose")
        case "hang":
            logging.getLogger(__name__).warning("the step hangs, on purpose")
            threading.Event().wait(float(os.environ.get(HANG_VARIABLE, HANG_SECONDS)))
        case "memory":
            _allocate()


FAULT_WORDS = ("raise", "panic", "exit", "hang", "memory")
"""The words that make a step fail."""


def _allocate() -> None:
    """Run a real graph in onnxruntime whose output is larger than the memory of any machine."""
    import onnxruntime
    from onnx import TensorProto, helper

    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, [1])
    filled = helper.make_tensor_value_info("filled", TensorProto.FLOAT, [None])
    graph = helper.make_graph(
        [helper.make_node("ConstantOfShape", ["shape"], ["filled"])], "all", [shape], [filled]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    session.run(None, {"shape": np.array([SHAPE_OF_EVERYTHING], np.int64)})


def _tone(words: str) -> Iterator[Piece]:
    fail_on(words)
    times = np.arange(int(len(words) * LETTER_SECONDS * VOICE_RATE)) / VOICE_RATE
    yield Piece(0.3 * np.sin(2 * np.pi * 220 * times).astype(np.float32))


class FaultyLlm(ScriptedLlm):
    """Repeats the user's last sentence. A step of its engine fails on a word behind "model"."""

    def __init__(self) -> None:
        super().__init__()
        self.engine: Engine[str, str] = Engine("faulty-llm", self._step, shares_state=False)

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the words. Closing the generator stops it. Raises ModelError."""
        *_, last = messages[-1]["content"].strip(" .").split(".")  # those without an answer come again
        yield await self.engine.run(last.strip())

    def close(self) -> None:
        """Stop the engine's thread."""
        self.engine.close()

    def _step(self, batch: Sequence[str]) -> list[str]:
        for words in batch:
            fail_on(words.partition("model")[2])
        return [f"{words}." for words in batch]


class FaultyStt(ScriptedStt):
    """Hears one sentence. A step of its engine fails on audio at full scale."""

    def __init__(self) -> None:
        super().__init__(["tell me about the weather"])
        self.engine: Engine[Samples, None] = Engine("faulty-stt", self._step)

    def stream(self) -> ScriptedSttStream:
        """Open the state of one session."""
        return FaultySttStream(self)

    def close(self) -> None:
        """Stop the engine's thread."""
        self.engine.close()

    def _step(self, batch: Sequence[Samples]) -> list[None]:
        for audio in batch:
            if float(np.abs(audio).max(initial=0.0)) >= FULL_SCALE:
                fail_on(os.environ.get(FAULT_OF_STT, ""))
        return [None] * len(batch)


class FaultySttStream(ScriptedSttStream):
    """The state of one session."""

    def __init__(self, stt: FaultyStt) -> None:
        super().__init__(stt)
        self._run = stt.engine.run
        self._audio: list[Samples] = []

    def feed(self, chunk: AudioChunk) -> None:
        """Add audio of the turn."""
        super().feed(chunk)
        self._audio.append(chunk.samples())

    async def transcribe(self, is_final: bool) -> Transcript:
        """Return the words. Cancelling changes nothing. Raises ModelError."""
        await self._run(np.concatenate([np.zeros(1, np.float32), *self._audio]))
        return await super().transcribe(is_final)

    def reset(self) -> None:
        """End the turn."""
        super().reset()
        self._audio = []


def open_faulty(argument: str, threads: int) -> object:
    """Open ``stt``, ``llm`` or ``tts``. Raises ModelError for another name."""
    match argument:
        case "stt":
            return FaultyStt()
        case "llm":
            return FaultyLlm()
        case "tts":
            return Voice("faulty-tts", VOICE_RATE, _tone, shares_state=False)
    raise ModelError("faulty", f"there is no {argument!r}; there are stt, llm and tts")
