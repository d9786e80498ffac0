"""Speak a WAV file to a running server in real time, and write what it answers to another WAV file.

rejoinder serve
python examples/pcm.py question.wav answer.wav
"""

import asyncio
import json
import sys
import wave

from websockets.asyncio.client import connect

FRAME_SECONDS = 0.02


async def main(question: str, answer: str, url: str = "ws://127.0.0.1:8080/v1/pcm") -> None:
    with wave.open(question) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2), "16-bit mono, please"
        rate, pcm = file.getframerate(), file.readframes(file.getnframes())
    size = int(rate * FRAME_SECONDS) * 2
    heard = bytearray()
    async with connect(f"{url}?rate={rate}", proxy=None) as socket:

        async def speak() -> None:
            for first in range(0, len(pcm), size):
                await socket.send(pcm[first : first + size])
                await asyncio.sleep(FRAME_SECONDS)
            while True:  # a microphone does not stop, either: its silence ends the turn
                await socket.send(bytes(size))
                await asyncio.sleep(FRAME_SECONDS)

        speaking = asyncio.create_task(speak())
        async for message in socket:
            if isinstance(message, bytes):
                heard += message
                continue
            print(message)
            event = json.loads(message)
            if event["type"] == "clear":
                heard.clear()
            elif event["type"] == "reply_ended" and event["status"] != "cancelled":
                break
        speaking.cancel()
    with wave.open(answer, "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(heard)
    print(f"{len(heard) / 2 / rate:.1f} s of speech in {answer}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python examples/pcm.py question.wav answer.wav [URL]")
    asyncio.run(main(*sys.argv[1:]))
