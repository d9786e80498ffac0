"""Embed the pipeline: a spoken question goes in, the spoken answer comes out.

python examples/embed.py question.wav answer.wav       (16 kHz mono, as from a microphone or a phone line)
"""

import asyncio
import sys

import soundfile

from rejoinder.models.loading import Specs, open_models
from rejoinder.pipeline import EndOfTurn, NothingSaid, Options, ReplyAudio, ReplyDone, ReplyText, open_session


async def main(question: str, answer: str) -> None:
    samples, rate = soundfile.read(question, dtype="int16")
    if rate != 16_000 or samples.ndim > 1:
        sys.exit(f"{question} is not 16 kHz mono")
    audio, by_hand = bytearray(), Options(detect_turns=False, max_tokens=60)  # a live line needs neither
    async with open_models(Specs()) as models, open_session(models, by_hand) as session:
        await session.hear(samples.tobytes())
        await session.end_user_turn()
        async for event in session.events:
            match event:
                case EndOfTurn(text):
                    print("you:  ", text)
                case ReplyText(text=text):
                    print("agent:", text)
                case ReplyAudio(chunk=chunk):
                    audio, rate = audio + chunk.pcm, chunk.rate
                case ReplyDone() | NothingSaid():
                    break
    if not audio:
        sys.exit(f"there is no answer to {question}")
    soundfile.write(answer, memoryview(audio).cast("h"), rate)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:])) if len(sys.argv) == 3 else sys.exit(__doc__)
