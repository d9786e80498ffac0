"""Embed the pipeline: read a spoken question, and write the spoken answer.

python examples/embed.py question.wav answer.wav
"""

import asyncio
import sys

import soundfile
import soxr

from rejoinder import (
    RATE,
    EndOfTurn,
    NothingSaid,
    Options,
    PipelineError,
    ReplyAudio,
    ReplyDone,
    ReplyText,
    Specs,
    open_models,
    open_session,
    to_pcm,
)


async def main(question: str, answer: str) -> None:
    samples, rate = soundfile.read(question, dtype="float32", always_2d=True)
    pcm = to_pcm(soxr.resample(samples.mean(axis=1), rate, RATE))
    audio, by_hand = bytearray(), Options(detect_turns=False, max_tokens=60)  # not needed on a live line
    async with open_models(Specs()) as models, open_session(models, by_hand) as session:
        await session.hear(pcm)
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
    soundfile.write(answer, memoryview(audio).cast("h"), rate, format="WAV")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:])) if len(sys.argv) == 3 else sys.exit(__doc__)
    except (OSError, PipelineError, soundfile.LibsndfileError) as error:
        sys.exit(str(error))
