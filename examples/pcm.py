"""Send a recording to a running server in real time, and write the answer to a WAV file.

    rejoinder serve
    python examples/pcm.py question.wav answer.wav [ws://127.0.0.1:8080/v1/pcm]

If the server requires a key, set REJOINDER_KEY. Exits with 1 if there is no answer.
"""

import asyncio
import json
import os
import sys
from contextlib import suppress

import numpy as np
import soundfile
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

FRAME_SECONDS = 0.02
PATIENCE = 8.0
"""Longest wait after the recording if the server detects no speech, in seconds."""
TOOL_SECONDS = 40.0
"""Longest wait for an answer after the end of a reply that calls tools, in seconds."""


async def main(question: str, answer: str, url: str = "ws://127.0.0.1:8080/v1/pcm") -> None:
    samples, rate = soundfile.read(question, dtype="float32", always_2d=True)
    pcm = (np.clip(samples.mean(axis=1), -1, 1) * 32767).astype("<i2").tobytes()
    size = int(rate * FRAME_SECONDS) * 2
    heard = bytearray()
    key = os.environ.get("REJOINDER_KEY")
    shown = {"Authorization": f"Bearer {key}"} if key else {}
    async with connect(f"{url}?rate={rate}", additional_headers=shown, proxy=None) as socket:

        async def speak() -> None:
            for first in range(0, len(pcm), size):
                await socket.send(pcm[first : first + size])
                await asyncio.sleep(FRAME_SECONDS)
            while True:  # as a microphone does: the silence ends the turn
                await socket.send(bytes(size))
                await asyncio.sleep(FRAME_SECONDS)

        async def listen(patience: asyncio.Timeout) -> str:
            """Return why there is no complete answer, or "" if there is one."""
            longest, asked, answers = patience.when(), False, False
            async for message in socket:
                if isinstance(message, bytes):
                    heard.extend(message if answers else b"")
                    continue
                print(message)
                match json.loads(message):
                    case {"type": "speech_started"}:
                        patience.reschedule(None)
                    case {"type": "transcript", "text": ""}:
                        patience.reschedule(longest)
                    case {"type": "transcript"}:
                        asked = True
                    case {"type": "reply_started"}:
                        answers = asked  # a greeting is no answer
                        if answers:
                            patience.reschedule(None)
                    case {"type": "clear"}:
                        heard.clear()
                    case {"type": "reply_ended", "calls": int()}:  # another reply follows
                        patience.reschedule(asyncio.get_running_loop().time() + TOOL_SECONDS)
                    case {"type": "reply_ended", "status": "completed" | "incomplete"} if answers:
                        return ""
                    case {"type": "reply_ended", "status": "failed"} as ended:
                        return f"the answer failed: {ended.get('error')}"
            return f"the server hung up: {socket.close_reason}"

        speaking = asyncio.create_task(speak())
        try:
            async with asyncio.timeout(len(pcm) / 2 / rate + PATIENCE) as patience:
                missing = await listen(patience)
        except TimeoutError:
            missing = f"the server detected no speech in {question}"
            if heard:
                missing = "the agent's tools have not ended"
        finally:
            speaking.cancel()
            with suppress(asyncio.CancelledError, ConnectionClosed):
                await speaking
    if heard:
        soundfile.write(answer, np.frombuffer(heard, "<i2"), rate, format="WAV")
        print(f"{len(heard) / 2 / rate:.1f} s of speech in {answer}")
    if missing or not heard:
        sys.exit(missing or "the answer has no sound")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    try:
        asyncio.run(main(*sys.argv[1:]))
    except ConnectionRefusedError as error:
        sys.exit(f"the call failed: {error}; is the server running there?")
    except InvalidStatus as error:
        said = (error.response.body or b"").decode(errors="replace").strip()
        sys.exit(f"the server refused the call: HTTP {error.response.status_code} {said}")
    except (OSError, WebSocketException, soundfile.LibsndfileError) as error:
        sys.exit(f"the call failed: {error}")
