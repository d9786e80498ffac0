"""Talk to a local or remote server through this machine's microphone and headphones; Ctrl-C ends.

python -m pip install -e '.[mic]'        (in a clone)
python examples/local_mic.py [ws://127.0.0.1:8080]        (key: REJOINDER_KEY)
"""

import asyncio
import os
import sys

from rejoinder.client import (
    CLIENT_RATE,
    AgentAudio,
    AgentSaid,
    Call,
    CallLost,
    Device,
    Handover,
    Loudspeaker,
    NoDevice,
    OutputPaused,
    OutputResumed,
    Playback,
    Reconnected,
    ReplyDone,
    SpeechStarted,
    UserSaid,
    at_rate,
    choose_device,
    connect,
    microphone,
    speaker,
)


async def listen(call: Call, playback: Playback, rate: int) -> None:
    loudspeaker = Loudspeaker(playback, rate)
    async for event in call:
        match event:
            case AgentAudio(item=item, pcm=pcm):
                loudspeaker.play(item, pcm)
            case ReplyDone(status="completed"):
                loudspeaker.finish()
            case SpeechStarted():
                for item, played_ms in loudspeaker.cut():
                    await call.truncate(item, played_ms)  # the agent forgets the words that were not played
            case Reconnected(missed=True):
                loudspeaker.clear()
            case OutputPaused():
                playback.hold()
            case OutputResumed():
                playback.release()
            case UserSaid(text=text):
                print("you:  ", text)
            case AgentSaid(text=text):
                print("agent:", text)
    print(call.over)


async def speak(call: Call, source: Device) -> None:
    handover = Handover()  # PortAudio records in a thread of its own
    with microphone(source, handover):
        while (block := await handover.get()) is not None:
            await call.send_audio(block, source.rate)
    raise NoDevice(f"{source.name} has stopped recording")


async def main(url: str = "ws://127.0.0.1:8080") -> None:
    source = at_rate("input", choose_device("input", None), CLIENT_RATE)
    sink = at_rate("output", choose_device("output", None), CLIENT_RATE)
    playback = Playback(sink.rate, seconds=60.0)
    async with connect(f"{url}?hold=true", os.environ.get("REJOINDER_KEY")) as call:
        with speaker(sink, playback):
            speaking = asyncio.create_task(speak(call, source))
            listening = asyncio.create_task(listen(call, playback, sink.rate))
            try:
                done, _ = await asyncio.wait((speaking, listening), return_when=asyncio.FIRST_COMPLETED)
                done.pop().result()
            finally:
                speaking.cancel()
                listening.cancel()
                await asyncio.wait((speaking, listening))


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except (NoDevice, CallLost, ValueError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        print("Goodbye.")
