"""openai-agents-python holds a spoken conversation: its session truncates by itself when the user speaks."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner
from driving import LISTEN, PATIENCE, RESULT, Microphone, Player, main


class Conversation:
    """Reads the session's events, and keeps what the client makes of them."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.player = Player()
        self.history: list[Any] = []
        self.errors: list[str] = []

    async def until(self, type_: str) -> Any:
        """Wait for an event of the session or, by its own name, of the server."""
        async with asyncio.timeout(PATIENCE):
            async for event in self.session:
                raw = {}
                match event.type:
                    case "audio":
                        self.player.add(event.audio.data)
                    case "history_updated":
                        self.history = event.history
                    case "error":
                        self.errors.append(str(event.error))
                    case "raw_model_event" if event.data.type == "raw_server_event":
                        raw = event.data.data
                        if raw["type"] == "response.created":
                            self.player = Player()
                if raw.get("type") == type_:
                    return raw
                if event.type == type_:
                    return event

    def said(self, role: str) -> dict[str, str]:
        """Return what the client's history holds of one side, by item."""
        items = [item for item in self.history if item.type == "message" and item.role == role]
        return {item.item_id: "".join(part.transcript or "" for part in item.content) for item in items}


async def drive(url: str, question: bytes, interruption: bytes) -> dict[str, Any]:
    called = []

    @function_tool
    def opened(bridge: str) -> str:
        """Tell when a bridge was opened."""
        called.append({"bridge": bridge})
        return RESULT

    agent = RealtimeAgent(name="teller", instructions="Tell a story.", tools=[opened])
    address = f"{url.replace('http', 'ws', 1)}/v1/realtime?model=default"
    async with await RealtimeRunner(agent).run(model_config={"url": address, "api_key": "none"}) as session:
        talk, microphone = Conversation(session), Microphone(session.send_audio)
        speaking = asyncio.create_task(microphone.run())
        microphone.say(question)
        await talk.until("audio")
        asyncio.get_running_loop().call_later(LISTEN, microphone.say, interruption)
        await talk.until("audio_interrupted")
        cut = (await talk.until("response.done"))["response"]
        truncated = await talk.until("conversation.item.truncated")
        done = cut
        while done is cut or done["output"][0]["type"] == "function_call":
            done = (await talk.until("response.done"))["response"]
        await talk.until("agent_end")
        speaking.cancel()
        answers = talk.said("assistant")
        return {
            "version": version("openai-agents"),
            "user": list(talk.said("user").values()),
            "cut": {"status": cut["status"], "text": cut["output"][0]["content"][0]["transcript"]},
            "truncated_ms": truncated["audio_end_ms"],
            "held": answers[truncated["item_id"]],
            "called": called,
            "answer": {
                "status": done["status"],
                "text": answers[done["output"][0]["id"]],
                "audio_ms": talk.player.sent_ms,
            },
            "errors": talk.errors,
        }


main(drive)
