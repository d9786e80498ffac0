"""Tools, written replies and edited conversations on the real server, seen by openai-python."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from support.callers.openai_client import REAL, Caller, client, question
from support.patience import PATIENCE
from support.ports import unused_port
from support.published import conforms
from support.servers.chat import chat_server
from support.servers.tools import WEATHER, ChatServer
from support.serving import Server, Talk, serving

LISTENING = REAL | {"tts": "scripted:tts"}
"""Real models hear the question. test_openai_client.py has the real voice."""


@pytest.mark.weights
def test_spoken_question_calls_a_tool_and_the_answer_is_spoken(tmp_path: Path) -> None:
    port, chat, pcm = unused_port(), ChatServer(), question()

    async def converse(server: Server) -> None:
        async with client(server) as openai, openai.realtime.connect(model="default") as connection:
            caller = Caller(connection)
            await caller.until("session.created")
            await connection.session.update(session={"type": "realtime", "tools": [WEATHER]})
            await caller.until("session.updated")
            speaking = asyncio.create_task(caller.say(pcm, 1.5))
            done = await caller.until("response.function_call_arguments.done")
            assert (done.name, done.arguments, done.call_id) == ("weather", '{"city": "Rome"}', "call_rome")
            response = (await caller.until("response.done")).response
            assert [item.type for item in response.output] == ["function_call"]
            assert caller.audio == b""
            await speaking
            result: Any = {"type": "function_call_output", "call_id": done.call_id, "output": "sunny"}
            await connection.conversation.item.create(item=result)
            await connection.response.create()
            response = (await caller.until("response.done")).response
            assert response.output[0].content[0].transcript == "The weather is sunny."
            assert len(caller.audio) > 24_000
            conforms(event.model_dump(exclude_unset=True) for event in caller.events)

    with chat_server(port, chat.answer):
        with serving(tmp_path, llm=f"openai:http://127.0.0.1:{port}/v1#m", **LISTENING) as server:
            asyncio.run(converse(server))
            server.wait_idle()
    messages = chat.bodies[-1]["messages"]
    assert [message["role"] for message in messages[-3:]] == ["user", "assistant", "tool"]
    assert messages[-2]["tool_calls"][0]["id"] == messages[-1]["tool_call_id"] == "call_rome"


async def noted(connection: Any, type_: str, events: list[Any]) -> Any:
    async with asyncio.timeout(PATIENCE):
        while True:
            events.append(await connection.recv())
            if events[-1].type == type_:
                return events[-1]


def test_conversation_in_writing_that_is_edited(tmp_path: Path) -> None:
    async def converse(openai: AsyncOpenAI) -> None:
        async with openai.realtime.connect(model="default") as connection:
            events: list[Any] = []
            await connection.session.update(session={"type": "realtime", "output_modalities": ["text"]})
            await noted(connection, "session.updated", events)
            for id_, text, previous in (("a", "first", None), ("c", "third", "a"), ("b", "second", "a")):
                content: Any = [{"type": "input_text", "text": text}]
                item: Any = {"type": "message", "role": "user", "id": id_, "content": content}
                await connection.conversation.item.create(item=item, previous_item_id=previous)
            await connection.conversation.item.delete(item_id="c")
            assert (await noted(connection, "conversation.item.deleted", events)).item_id == "c"
            await connection.response.create()
            done = await noted(connection, "response.output_text.done", events)
            assert done.text.strip() == "You said: first second"
            await noted(connection, "response.done", events)
            beside: Any = {
                "conversation": "none",
                "metadata": {"client_event_id": "é"},
                "input": [{"type": "item_reference", "id": "b"}],
            }
            await connection.response.create(response=beside)
            created = await noted(connection, "response.created", events)
            assert created.response.metadata == {"client_event_id": "é"}
            response = (await noted(connection, "response.done", events)).response
            assert response.metadata == {"client_event_id": "é"} and response.conversation_id is None
            assert response.output[0].content[0].text.strip() == "You said: second"
            await connection.response.create()
            done = await noted(connection, "response.output_text.done", events)
            assert done.text.strip() == "You said: You said: first second", "what was beside it left no trace"
            conforms(event.model_dump(exclude_unset=True) for event in events)

    with serving(tmp_path, llm="scripted:llm") as server:

        async def run() -> None:
            async with client(server) as openai:
                await converse(openai)

        asyncio.run(run())
        server.wait_idle()


@pytest.mark.weights
def test_recorded_item_is_transcribed_and_answered(tmp_path: Path) -> None:
    audio = base64.b64encode(question()).decode()
    with serving(tmp_path, llm="scripted:llm", stt=REAL["stt"]) as server, Talk(server) as talk:
        content = [{"type": "input_audio", "audio": audio}]
        talk.send("session.update", session={"output_modalities": ["text"]})
        talk.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        talk.send("response.create")
        heard = talk.until("conversation.item.input_audio_transcription.completed")
        assert "weather" in heard["transcript"].lower()
        assert heard["transcript"] in talk.until("response.output_text.done")["text"]
        talk.until("response.done")
        conforms(talk.seen)
        talk.send("session.update", session={"tools": [WEATHER]})
        assert talk.until("session.updated")["session"]["tools"] == [WEATHER]


@pytest.mark.weights
def test_embedded_model_refuses_tools_in_words(tmp_path: Path) -> None:
    with serving(tmp_path, llm="ort:smollm2-135m-instruct") as server, Talk(server) as talk:
        talk.send("session.update", session={"tools": [WEATHER]})
        error = talk.until("error")["error"]
        assert error["code"] == "tools_not_supported" and "--llm openai:" in error["message"]
