"""A Pipecat bot on the models that Rejoinder ships, with the Realtime events that the bench reads.

docs/lab/pipecat.md says how to install and run it, and what it measured. The pipeline is the one of Pipecat's
own examples, with its default settings; only the models and the wire are chosen here.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

from loguru import logger
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames.frames import (
    BotStoppedSpeakingFrame,
    Frame,
    InputAudioRawFrame,
    OutputAudioRawFrame,
    StartFrame,
)
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.piper.tts import PiperTTSService
from pipecat.services.whisper.stt import WhisperSTTService
from pipecat.transports.base_input import BaseInputTransport
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.config import load
from rejoinder.models.weights.fetch import locate
from rejoinder.pipeline import RATE

AUDIO = TransportParams(audio_in_enabled=True, audio_out_enabled=True)
GREETING = {"type": "session.created", "event_id": "event_0", "session": {"id": "session"}}
WARM_SECONDS = 2.0
"""Length of the silence that the recogniser transcribes before a call begins."""


class Ear(BaseInputTransport):
    """The caller's audio."""

    async def start(self, frame: StartFrame) -> None:
        """Begin to take audio."""
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def hear(self, pcm: bytes) -> None:
        """Take 16-bit mono audio at 24 kHz."""
        await self.push_audio_frame(InputAudioRawFrame(pcm, CLIENT_RATE, 1))


class Mouth(BaseOutputTransport):
    """The bot's audio, as events of the Realtime protocol. Each time the bot speaks is one response."""

    def __init__(self, socket: ServerConnection) -> None:
        super().__init__(AUDIO)
        self._socket = socket
        self._due = 0.0
        self._number = 0
        self._sent = 0
        self._speaking = False

    async def start(self, frame: StartFrame) -> None:
        """Begin to send audio."""
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        """Send one frame, and wait until it is played, as Pipecat's WebSocket transport does."""
        loop = asyncio.get_running_loop()
        if not self._speaking:
            if not any(frame.audio):
                return True
            self._speaking, self._number = True, self._number + 1
            response = {"id": f"resp_{self._number}", "status": "in_progress"}
            await self._say("response.created", response=response)
        data = base64.b64encode(frame.audio).decode("ascii")
        about = {"response_id": f"resp_{self._number}", "item_id": f"item_{self._number}"}
        await self._say("response.output_audio.delta", **about, output_index=0, content_index=0, delta=data)
        self._due = max(self._due, loop.time()) + len(frame.audio) / (2 * frame.sample_rate)
        await asyncio.sleep(max(0.0, self._due - loop.time()))
        return True

    async def stopped(self) -> None:
        """End the response: the bot has stopped speaking."""
        if self._speaking:
            self._speaking = False
            response = {"id": f"resp_{self._number}", "status": "completed", "output": []}
            await self._say("response.done", response=response)

    async def _say(self, kind: str, **fields: Any) -> None:
        self._sent += 1
        await self._socket.send(json.dumps({"type": kind, "event_id": f"event_{self._sent}", **fields}))


class Ends(BaseObserver):
    """Tells the mouth when the bot has stopped speaking."""

    def __init__(self, mouth: Mouth) -> None:
        super().__init__()
        self._mouth = mouth

    async def on_push_frame(self, data: FramePushed) -> None:
        """Look at one frame that a processor pushes."""
        frame: Frame = data.frame
        if isinstance(frame, BotStoppedSpeakingFrame) and data.source is self._mouth:
            await self._mouth.stopped()


async def answer(socket: ServerConnection, llm_url: str, voice: Path) -> None:
    """Hold one call: load and warm the models, greet the client, and run the pipeline to the end."""
    settings, _ = load({})
    stt = WhisperSTTService(
        device="cpu",
        compute_type="int8",
        settings=WhisperSTTService.Settings(model=str(locate("whisper-tiny.en"))),
    )
    llm = OpenAILLMService(
        api_key="none",
        base_url=llm_url,
        settings=OpenAILLMService.Settings(model="default", system_instruction=settings.instructions),
    )
    tts = PiperTTSService(download_dir=voice.parent, settings=PiperTTSService.Settings(voice=voice.stem))
    listener, assistant = LLMContextAggregatorPair(
        LLMContext(), user_params=LLMUserAggregatorParams(vad_analyzer=SileroVADAnalyzer())
    )
    ear, mouth = Ear(AUDIO), Mouth(socket)
    rates = PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=CLIENT_RATE)
    worker = PipelineWorker(
        Pipeline([ear, stt, listener, llm, tts, mouth, assistant]), params=rates, observers=[Ends(mouth)]
    )
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def on_pipeline_started(*_: Any) -> None:
        started.set()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    try:
        await started.wait()
        async for _ in stt.run_stt(bytes(int(2 * RATE * WARM_SECONDS))):
            pass
        await asyncio.to_thread(lambda: list(tts._voice.synthesize("Yes, I am listening.")))
        await socket.send(json.dumps(GREETING))
        async for message in socket:
            event = json.loads(message)
            if event["type"] == "input_audio_buffer.append":
                await ear.hear(base64.b64decode(event["audio"]))
    except ConnectionClosed:
        pass
    finally:
        await worker.cancel()
        await running


async def main() -> None:
    """Serve until the program is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--llm-url", default="http://127.0.0.1:8000/v1", help="a server of chat completions")
    arguments = parser.parse_args()
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    (voice,) = locate("piper-en_US-joe-medium").glob("*.onnx")

    async def call(socket: ServerConnection) -> None:
        await answer(socket, arguments.llm_url, voice)

    async with serve(call, "127.0.0.1", arguments.port, max_size=None) as server:
        await server.serve_forever()


asyncio.run(main())
