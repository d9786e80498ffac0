"""pipecat's OpenAIRealtimeLLMService holds a spoken conversation, in a pipeline between two transports.

As pipecat's bots do, it speaks first, so that the first question is what interrupts it. The service reads no
``conversation.item.truncated``: what it asked for stands in its place, and the item that it retrieves
afterwards shows that it was done. Errors end its receiving, so none may come.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version
from typing import Any

from driving import BYTES_PER_MS, LISTEN, PATIENCE, RESULT, Microphone, main
from loguru import logger
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import InputAudioRawFrame, LLMRunFrame, OutputAudioRawFrame, StartFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.transports.base_input import BaseInputTransport
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner

logger.remove()
logger.add(sys.stderr, level="WARNING")
AUDIO = TransportParams(
    audio_in_enabled=True, audio_out_enabled=True, audio_out_auto_silence=False, audio_out_end_silence_secs=0
)


class Ear(BaseInputTransport):
    """Where the microphone's audio comes in."""

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def hear(self, pcm: bytes) -> None:
        await self.push_audio_frame(InputAudioRawFrame(audio=pcm, sample_rate=24_000, num_channels=1))


class Mouth(BaseOutputTransport):
    """Where the answer is played, as slowly as a loudspeaker plays it."""

    def __init__(self, params: TransportParams) -> None:
        super().__init__(params)
        self.played_ms = 0.0
        self.speaks = asyncio.Event()

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        milliseconds = len(frame.audio) / BYTES_PER_MS
        self.played_ms += milliseconds
        self.speaks.set()
        await asyncio.sleep(milliseconds / 1000)
        return True


class Service(OpenAIRealtimeLLMService):
    """The stock service; what it asks to truncate is noted."""

    truncation: events.ConversationItemTruncateEvent | None = None

    async def send_client_event(self, event: events.ClientEvent) -> None:
        if isinstance(event, events.ConversationItemTruncateEvent):
            self.truncation = event
        await super().send_client_event(event)


async def drive(url: str, question: bytes, interruption: bytes) -> dict[str, Any]:
    called = []

    async def opened(params: FunctionCallParams, bridge: str) -> None:
        """Tell when a bridge was opened.

        Args:
            bridge: What it is called.
        """
        called.append({"bridge": bridge})
        await params.result_callback(RESULT)

    settings = OpenAIRealtimeLLMService.Settings(model="default", system_instruction="Tell a story.")
    address = f"{url.replace('http', 'ws', 1)}/v1/realtime"
    llm = Service(api_key="none", base_url=address, settings=settings)
    ear, mouth = Ear(AUDIO), Mouth(AUDIO)
    context = LLMContext(tools=ToolsSchema(standard_tools=[opened]))
    listener, assistant = LLMContextAggregatorPair(context)
    rates = PipelineParams(audio_in_sample_rate=24_000, audio_out_sample_rate=24_000)
    worker = PipelineWorker(Pipeline([ear, listener, llm, mouth, assistant]), params=rates)
    started, heard, answers = asyncio.Event(), asyncio.Queue[str](), asyncio.Queue[str]()
    errors, items = [], {}

    @worker.event_handler("on_pipeline_started")
    async def on_pipeline_started(*_: Any) -> None:
        started.set()

    @worker.event_handler("on_pipeline_error")
    async def on_pipeline_error(_: Any, frame: Any) -> None:
        errors.append(frame.error)

    @listener.event_handler("on_user_turn_message_added")
    async def on_user_turn_message_added(_: Any, message: Any) -> None:
        heard.put_nowait(message.content)

    @assistant.event_handler("on_assistant_turn_stopped")
    async def on_assistant_turn_stopped(_: Any, message: Any) -> None:
        answers.put_nowait(message.content)

    @llm.event_handler("on_conversation_item_updated")
    async def on_conversation_item_updated(_: Any, id_: str, item: Any) -> None:
        items[id_] = item or items[id_]

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    async with asyncio.timeout(2 * PATIENCE):
        await started.wait()
        microphone = Microphone(ear.hear)
        speaking = asyncio.create_task(microphone.run())
        await worker.queue_frame(LLMRunFrame())
        await mouth.speaks.wait()
        await asyncio.sleep(LISTEN)
        microphone.say(question)
        cut = await answers.get()
        mouth.played_ms = 0.0
        answer = await answers.get()
        played_ms = mouth.played_ms
        last = [known for known in items.values() if known.role == "assistant"][-1]
        user = [await heard.get()]
        microphone.say(interruption)
        user.append(await heard.get())
        assert llm.truncation, "the service has not truncated"
        item = await llm.retrieve_conversation_item(llm.truncation.item_id)
        speaking.cancel()
        await worker.cancel()
        await running
    return {
        "version": version("pipecat-ai"),
        "user": user,
        "cut": {"status": items[llm.truncation.item_id].status, "text": cut},
        "truncated_ms": llm.truncation.audio_end_ms,
        "held": item.content[0].transcript,
        "called": called,
        "answer": {"status": last.status, "text": answer, "audio_ms": played_ms},
        "errors": errors,
    }


main(drive)
