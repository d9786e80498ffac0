"""Plug in a language model and a voice of your own (docs/guides/plugging-in.md), beside our recogniser.

python examples/own_models.py question.wav answer.wav
"""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

import numpy as np
import soundfile
import soxr

from rejoinder import Specs, open_models
from rejoinder.pipeline import (
    RATE,
    AudioChunk,
    EndOfTurn,
    Message,
    NothingSaid,
    Options,
    PipelineError,
    ReplyAudio,
    ReplyDone,
    ReplyText,
    open_session,
    to_pcm,
)


class Echo:
    """A language model that repeats what the caller said."""

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        for word in f"You said: {messages[-1]['content']}".split():
            yield word + " "

    async def warm(self, messages: Sequence[Message]) -> None:
        pass


class Tones:
    """A voice that plays a tone for each word; shorter words get higher tones."""

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        said = 0
        for word in re.findall(r"[\w']+", text):
            times = np.arange(RATE // 4) / RATE
            tone = np.sin(2 * np.pi * 1000 / len(word) * times) * np.hanning(len(times))
            yield AudioChunk(to_pcm(0.3 * tone.astype(np.float32)), RATE, said)
            said += len(times)


async def main(question: str, answer: str) -> None:
    samples, rate = soundfile.read(question, dtype="float32", always_2d=True)
    pcm = to_pcm(soxr.resample(samples.mean(axis=1), rate, RATE))
    audio, by_hand = bytearray(), Options(detect_turns=False)  # not needed on a live line
    specs = Specs(turn="", llm="scripted:llm", tts="scripted:tts")  # placeholders, replaced below
    async with open_models(specs) as models:
        models = replace(models, llm=Echo(), tts=Tones())
        async with open_session(models, by_hand) as session:
            await session.hear(pcm)
            await session.end_user_turn()
            async for event in session.events:
                match event:
                    case EndOfTurn(text):
                        print("you:  ", text)
                    case ReplyText(text=text):
                        print("agent:", text)
                    case ReplyAudio(chunk=chunk):
                        audio += chunk.pcm
                    case ReplyDone() | NothingSaid():
                        break
    if not audio:
        sys.exit(f"there is no answer to {question}")
    soundfile.write(answer, memoryview(audio).cast("h"), RATE, format="WAV")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:])) if len(sys.argv) == 3 else sys.exit(__doc__)
    except (OSError, PipelineError, soundfile.LibsndfileError) as error:
        sys.exit(str(error))
