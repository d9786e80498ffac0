"""LiveKit's plugin holds a spoken conversation: an AgentSession without a room, which truncates by itself."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any

from driving import LISTEN, PATIENCE, RESULT, Microphone, main
from livekit import rtc
from livekit.agents import Agent, AgentSession, function_tool
from livekit.agents.voice.io import AudioInput, AudioOutput, AudioOutputCapabilities
from livekit.plugins import openai


class Ear(AudioInput):
    """Where the microphone's audio comes in."""

    def __init__(self) -> None:
        super().__init__(label="ear")
        self._frames = asyncio.Queue[bytes]()

    async def hear(self, pcm: bytes) -> None:
        self._frames.put_nowait(pcm)

    async def __anext__(self) -> rtc.AudioFrame:
        pcm = await self._frames.get()
        return rtc.AudioFrame(pcm, sample_rate=24_000, num_channels=1, samples_per_channel=len(pcm) // 2)


class Mouth(AudioOutput):
    """Where the answer is played: it ends when it has been heard, or when it is cleared."""

    def __init__(self) -> None:
        super().__init__(label="mouth", capabilities=AudioOutputCapabilities(pause=False), sample_rate=24_000)
        self.seconds = 0.0
        self.speaks = asyncio.Event()
        self._started = 0.0
        self._cleared = asyncio.Event()
        self._playing = set[asyncio.Task[None]]()

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        if not self.speaks.is_set():
            self._started, self.seconds = asyncio.get_running_loop().time(), 0.0
            self._cleared.clear()
            self.speaks.set()
        self.seconds += frame.duration

    def flush(self) -> None:
        super().flush()
        if self.speaks.is_set():
            self.speaks.clear()
            playing = asyncio.create_task(self._play())
            self._playing.add(playing)
            playing.add_done_callback(self._playing.discard)

    def clear_buffer(self) -> None:
        self._cleared.set()

    async def _play(self) -> None:
        left = self._started + self.seconds - asyncio.get_running_loop().time()
        try:
            await asyncio.wait_for(self._cleared.wait(), max(0.0, left))
        except TimeoutError:
            self.on_playback_finished(playback_position=self.seconds, interrupted=False)
            return
        elapsed = asyncio.get_running_loop().time() - self._started
        self.on_playback_finished(playback_position=min(elapsed, self.seconds), interrupted=True)


class Model(openai.realtime.RealtimeModel):
    """The stock model; what its session receives can be waited for too."""

    def session(self, **options: Any) -> Any:
        self.opened = super().session(**options)
        self.received = asyncio.Queue[dict[str, Any]]()
        self.opened.on("openai_server_event_received", self.received.put_nowait)
        return self.opened

    async def until(self, type_: str) -> dict[str, Any]:
        while (event := await self.received.get())["type"] != type_:
            pass
        return event


async def drive(url: str, question: bytes, interruption: bytes) -> dict[str, Any]:
    called = []

    @function_tool
    async def opened(bridge: str) -> str:
        """Tell when a bridge was opened."""
        called.append({"bridge": bridge})
        return RESULT

    model = Model(base_url=f"{url}/v1", api_key="none", model="default")
    ear, mouth, errors, remembered = Ear(), Mouth(), [], asyncio.Queue[Any]()
    microphone = Microphone(ear.hear)
    async with AgentSession(llm=model) as session, asyncio.timeout(2 * PATIENCE):
        session.input.audio, session.output.audio = ear, mouth
        session.on("conversation_item_added", lambda event: remembered.put_nowait(event.item))
        session.on("error", lambda event: errors.append(str(event.error)))
        await session.start(Agent(instructions="Tell a story.", tools=[opened]))
        speaking = asyncio.create_task(microphone.run())
        microphone.say(question)
        await mouth.speaks.wait()
        await asyncio.sleep(LISTEN)
        microphone.say(interruption)
        cut = (await model.until("response.done"))["response"]
        truncated = await model.until("conversation.item.truncated")
        model.opened.send_event({"type": "conversation.item.retrieve", "item_id": truncated["item_id"]})
        held = (await model.until("conversation.item.retrieved"))["item"]
        await model.until("response.done")  # of the call
        done = (await model.until("response.done"))["response"]
        while (await remembered.get()).id != done["output"][0]["id"]:
            pass
        speaking.cancel()
    await model.aclose()
    said = [item for item in session.history.items if item.type == "message"]
    return {
        "version": version("livekit-plugins-openai"),
        "user": [item.text_content for item in said if item.role == "user"],
        "cut": {"status": cut["status"], "text": cut["output"][0]["content"][0]["transcript"]},
        "truncated_ms": truncated["audio_end_ms"],
        "held": held["content"][0]["transcript"],
        "called": called,
        "answer": {
            "status": done["status"],
            "text": [item.text_content for item in said if item.role == "assistant"][-1],
            "audio_ms": mouth.seconds * 1000,
        },
        "errors": errors,
    }


main(drive)
