"""A spoken conversation of openai-python, an independent client, with the server on real models."""

import asyncio
from pathlib import Path

import pytest
from support.callers.openai_client import REAL, STORY, Caller, client, question
from support.serving import Server, serving

pytestmark = pytest.mark.weights


def test_spoken_conversation_with_an_interruption(tmp_path: Path) -> None:
    pcm = question()

    async def converse(server: Server) -> None:
        async with client(server) as openai, openai.realtime.connect(model="default") as connection:
            caller = Caller(connection)
            await caller.until("session.created")
            await connection.session.update(session={"type": "realtime", "instructions": "Tell a story."})
            await caller.until("session.updated")
            speaking = asyncio.create_task(caller.say(pcm, 2.0))
            heard = await caller.until("conversation.item.input_audio_transcription.completed")
            assert "weather" in heard.transcript.lower()
            while len(caller.audio) // 48 < 1500:  # a busy machine may send it slower than it plays
                await caller.until("response.output_audio.delta")
            await speaking
            again = asyncio.create_task(caller.say(pcm, 2.0))
            await caller.until("input_audio_buffer.speech_started")
            cut = await caller.until("response.done")
            assert cut.response.status == "cancelled"
            played = len(caller.audio) // 48
            assert 1000 < played < 15_000, "some of the story was sent, and not much more than was heard"
            item = cut.response.output[0].id
            await connection.conversation.item.truncate(item_id=item, content_index=0, audio_end_ms=1000)
            assert (await caller.until("conversation.item.truncated")).audio_end_ms == 1000
            await caller.until("response.output_audio.delta")
            await again
            await connection.response.cancel()
            await caller.until("response.done")
            assert [event for event in caller.events if event.type == "error"] == []

    with serving(tmp_path, llm=f"scripted:llm|{STORY}", **REAL) as server:
        asyncio.run(converse(server))
        server.wait_idle()


def test_manual_turns_and_typed_text_with_the_embedded_model(tmp_path: Path) -> None:
    pcm = question()

    async def converse(server: Server) -> None:
        async with client(server) as openai, openai.realtime.connect(model="default") as connection:
            caller = Caller(connection)
            manual = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
            await connection.session.update(session=manual)
            await caller.until("session.updated")
            await caller.say(pcm)
            await connection.input_audio_buffer.commit()
            await connection.response.create()
            heard = await caller.until("conversation.item.input_audio_transcription.completed")
            assert "weather" in heard.transcript.lower()
            done = await caller.until("response.done")
            assert done.response.status == "completed" and len(caller.audio) > 24_000
            words = {"type": "input_text", "text": "Say hello."}
            await connection.conversation.item.create(
                item={"type": "message", "role": "user", "content": [words]}
            )
            await caller.until("conversation.item.done")
            await connection.response.create()
            done = await caller.until("response.done")
            assert done.response.status == "completed" and done.response.output[0].content[0].transcript

    with serving(tmp_path, llm="llama:smollm2-135m-instruct", stt=REAL["stt"]) as server:
        asyncio.run(converse(server))
        server.wait_idle()
