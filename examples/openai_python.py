"""Use OpenAI's Python client with the server: send a spoken question, and write the spoken answer.

    python examples/openai_python.py question.wav answer.wav [http://127.0.0.1:8080]

Only the base URL differs from OpenAI. If the server requires a key, set REJOINDER_KEY.
"""

import asyncio
import base64
import os
import sys

import numpy as np
import soundfile
import soxr
from openai import AsyncOpenAI, OpenAIError
from websockets.exceptions import InvalidStatus, WebSocketException

RATE = 24_000
PIECE = RATE // 10
ACTIVE = "conversation_already_has_active_response"


async def main(question: str, answer: str, server: str = "http://127.0.0.1:8080") -> None:
    samples, rate = soundfile.read(question, dtype="float32", always_2d=True)
    wanted = soxr.resample(samples.mean(axis=1), rate, RATE)
    pcm = (np.clip(wanted, -1, 1) * 32767).astype("<i2").tobytes()
    audio = b""
    key = os.environ.get("REJOINDER_KEY", "none")
    async with AsyncOpenAI(base_url=f"{server}/v1", api_key=key) as client:
        async with client.realtime.connect(model="default") as call:
            # The recording is the whole turn, so it ends by hand; on a live line, leave this out.
            by_hand = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
            await call.session.update(session=by_hand)
            for first in range(0, len(pcm), 2 * PIECE):
                piece = base64.b64encode(pcm[first : first + 2 * PIECE]).decode()
                await call.input_audio_buffer.append(audio=piece)
            await call.input_audio_buffer.commit()
            wanted_response = {"metadata": {"answers": "question"}}
            await call.response.create(response=wanted_response)
            answers = refused = False
            async for event in call:
                if event.type == "conversation.item.input_audio_transcription.completed":
                    print("you:  ", event.transcript)
                elif event.type == "response.output_audio_transcript.done":
                    print("agent:", event.transcript)
                elif event.type == "response.created":
                    answers = answers or bool(event.response.metadata)
                elif event.type == "response.output_audio.delta" and answers:
                    audio += base64.b64decode(event.delta)
                elif event.type == "error" and event.error.code == ACTIVE:
                    refused = True  # the agent greets first
                elif event.type == "error":
                    sys.exit(event.error.message)
                elif event.type == "response.done" and refused:
                    refused = False
                    await call.response.create(response=wanted_response)
                elif event.type == "response.done" and answers:
                    if not getattr(event.response, "rejoinder", None):  # else the agent's tools run
                        break
    if not audio:
        sys.exit(f"there is no answer to {question}")
    soundfile.write(answer, np.frombuffer(audio, "<i2"), RATE, format="WAV")


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
    except (OSError, OpenAIError, WebSocketException, soundfile.LibsndfileError) as error:
        sys.exit(f"the call failed: {error}")
