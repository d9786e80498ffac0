"""openai-python holds a spoken conversation: its typed connection, and a player of the application's own."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import openai
from driving import LISTEN, PATIENCE, RESULT, TOOL, Microphone, Player, main
from openai import AsyncOpenAI


class Conversation:
    """Reads events until one of a kind comes, and keeps what was said on the way."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.player = Player()
        self.user: list[str] = []
        self.errors: list[str] = []

    async def until(self, type_: str) -> Any:
        async with asyncio.timeout(PATIENCE):
            async for event in self.connection:
                match event.type:
                    case "conversation.item.input_audio_transcription.completed":
                        self.user.append(event.transcript)
                    case "response.created":
                        self.player = Player()
                    case "response.output_audio.delta":
                        self.player.add(base64.b64decode(event.delta))
                    case "error":
                        self.errors.append(event.error.message)
                if event.type == type_:
                    return event


async def drive(url: str, question: bytes, interruption: bytes) -> dict[str, Any]:
    client = AsyncOpenAI(api_key="none", base_url=f"{url}/v1")
    async with client, client.realtime.connect(model="default") as connection:

        async def send(pcm: bytes) -> None:
            await connection.input_audio_buffer.append(audio=base64.b64encode(pcm).decode())

        talk, microphone = Conversation(connection), Microphone(send)
        await talk.until("session.created")
        about = {"type": "realtime", "instructions": "Tell a story.", "tools": [TOOL]}
        await connection.session.update(session=about)
        await talk.until("session.updated")
        speaking = asyncio.create_task(microphone.run())
        microphone.say(question)
        await talk.until("response.output_audio.delta")
        asyncio.get_running_loop().call_later(LISTEN, microphone.say, interruption)
        await talk.until("input_audio_buffer.speech_started")
        played = talk.player.played_ms()
        cut = (await talk.until("response.done")).response
        item = cut.output[0].id
        await connection.conversation.item.truncate(item_id=item, content_index=0, audio_end_ms=played)
        truncated = await talk.until("conversation.item.truncated")
        await connection.conversation.item.retrieve(item_id=item)
        held = (await talk.until("conversation.item.retrieved")).item
        call = await talk.until("response.function_call_arguments.done")
        await talk.until("response.done")
        result = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
        await connection.conversation.item.create(item=result)
        await connection.response.create()
        done = (await talk.until("response.done")).response
        speaking.cancel()
        return {
            "version": openai.__version__,
            "user": talk.user,
            "cut": {"status": cut.status, "text": cut.output[0].content[0].transcript},
            "truncated_ms": truncated.audio_end_ms,
            "held": held.content[0].transcript,
            "called": [json.loads(call.arguments)],
            "answer": {
                "status": done.status,
                "text": done.output[0].content[0].transcript,
                "audio_ms": talk.player.sent_ms,
            },
            "errors": talk.errors,
        }


main(drive)
