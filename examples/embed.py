"""Embed the pipeline: a spoken question goes in, the spoken answer comes out.

    python examples/embed.py question.wav answer.wav

The WAV must be 16 kHz mono; anything that yields such audio, a microphone or a phone line, serves as well.
"""

import asyncio
import sys

import soundfile

from rejoinder.models.loading import Specs, open_models
from rejoinder.pipeline import EndOfTurn, ReplyAudio, ReplyDone, ReplyText, open_session


async def main(question: str, answer: str) -> None:
    pcm = soundfile.read(question, dtype="int16")[0].tobytes()
    audio, rate = bytearray(), 16_000
    async with open_models(Specs()) as models, open_session(models) as session:
        await session.hear(pcm)
        await session.hear(bytes(2 * 16_000))  # a second of silence: the turn is over
        async for event in session.events:
            match event:
                case EndOfTurn(text):
                    print("you:  ", text)
                case ReplyText(text=text):
                    print("agent:", text)
                case ReplyAudio(chunk=chunk):
                    audio, rate = audio + chunk.pcm, chunk.rate
                case ReplyDone():
                    break
    with soundfile.SoundFile(answer, "w", samplerate=rate, channels=1, subtype="PCM_16") as file:
        file.buffer_write(bytes(audio), dtype="int16")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
