"""Measures what callers wait for greetings and tools: ``python agent/bench/waiting.py``.

It serves an agent with a real voice in a child process, and calls it over loopback. Each wire is called with
a greeting that ``on_call`` makes anew for each call, and with the agent's own, which is synthesised at
start-up. Then a caller asks for something that takes a tool two seconds, without and with fillers.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from rejoinder.agent.server.own_server import own_server

CALLS = 30
"""Calls for each row of the greetings."""
WAITING_QUESTIONS = 10
"""Calls for each row of the tools."""
CALLER_RATE = 16_000
"""Sample rate of the questions and the answers, in hertz."""
TICK = 0.02
"""Seconds of audio in a message of the caller."""
CALL_GAP_SECONDS = 0.2
"""Seconds between two calls."""
WAITING_AGENT = """
import asyncio
from itertools import count
from rejoinder import Agent, Call

agent = Agent(greeting="Caller one, good evening. How can I help you?")
calls = count(1)

@agent.on_call
def answer(call: Call) -> None:
    if "fresh" in (call.info.query, call.info.metadata)[call.info.wire != "pcm"]:
        call.greeting = f"Caller {next(calls)}, good evening. How can I help you?"
    if "fillers" in call.info.query:
        call.greeting = ""
        call.fillers = agent.fillers if call.info.query["fillers"] == "yes" else ()

@agent.tool
async def weather(city: str) -> str:
    "Tell the weather."
    await asyncio.sleep(2.0)
    return "sunny"
"""
"""The agent that is called."""
LLM = 'scripted:llm|@weather {"city": "Rome"}|It is sunny in Rome today.'
"""The language model: it costs no time, so that the table shows the tool's."""


TOOLS = """
| fillers | first audio, p50 | longest silence, p50 | first audio, worst | longest silence, worst |
|---|---|---|---|---|"""
"""The head of the second table."""


async def _pcm(socket: ClientConnection, fresh: bool) -> None:
    while not isinstance(await socket.recv(), bytes):
        pass


async def _twilio(socket: ClientConnection, fresh: bool) -> None:
    about = {"streamSid": "MZ1", "callSid": f"CA{time.time_ns()}", "accountSid": "AC1"}
    sound = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
    parameters = {"fresh": "yes"} if fresh else {}
    start = {**about, "tracks": ["inbound"], "mediaFormat": sound, "customParameters": parameters}
    await socket.send(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
    await socket.send(
        json.dumps({"event": "start", "sequenceNumber": "1", "streamSid": "MZ1", "start": start})
    )
    while json.loads(await socket.recv())["event"] != "media":
        pass


WIRES: dict[str, Callable[[ClientConnection, bool], Awaitable[None]]] = {"pcm": _pcm, "phone": _twilio}
"""What a caller sends on each wire, until the first audio comes."""


async def measure(url: str, wire: str, fresh: bool) -> list[float]:
    """Return the milliseconds from the open connection to the first audio, of ``CALLS`` calls in turn.

    url: of the server, without a path. Cancelling ends the call.
    """
    passed = []
    for _ in range(CALLS):
        query = "?fresh=yes" if fresh and wire == "pcm" else ""
        async with connect(f"{url}/v1/{wire}{query}", proxy=None, compression=None) as socket:
            begun = time.perf_counter()
            await WIRES[wire](socket, fresh)
            passed.append(1000 * (time.perf_counter() - begun))
        await asyncio.sleep(CALL_GAP_SECONDS)
    return passed


async def ask(url: str, fillers: bool) -> tuple[float, float]:
    """Ask for the weather; return the seconds to the first audio, and the longest silence until the answer.

    Both count from the end of the question. Cancelling ends the call.
    """
    noise = np.random.default_rng(0).normal(0.0, 6000.0, CALLER_RATE).astype("<i2").tobytes()
    query = f"rate={CALLER_RATE}&fillers={'yes' if fillers else 'no'}"
    async with connect(f"{url}/v1/pcm?{query}", proxy=None, compression=None) as socket:
        sending = asyncio.create_task(_speak(socket, noise))
        heard_until = asyncio.get_running_loop().time() + 1.0
        asked, first, longest, answered = heard_until, 0.0, 0.0, False
        while not answered:
            frame = await socket.recv()
            now = asyncio.get_running_loop().time()
            if isinstance(frame, bytes):
                first = first or now - asked
                longest = max(longest, now - heard_until)
                heard_until = max(heard_until, now) + len(frame) / (2 * CALLER_RATE)
            else:
                answered = bool(json.loads(frame).get("heard"))
        sending.cancel()
        return first, longest


async def _speak(socket: ClientConnection, pcm: bytes) -> None:
    """Send audio in real time, and silence behind it, until cancelled."""
    loop, size = asyncio.get_running_loop(), int(2 * CALLER_RATE * TICK)
    began = loop.time()
    for tick in count():
        await socket.send(pcm[tick * size : (tick + 1) * size].ljust(size, b"\x00"))
        await asyncio.sleep(max(0.0, began + TICK * (tick + 1) - loop.time()))


def _written(folder: str) -> str:
    path = Path(folder, "mario.py")
    path.write_text(WAITING_AGENT)
    return str(path)


async def run(voice: str) -> None:
    """Print the table. Cancelling ends the server."""
    models = {"VAD": "scripted:vad", "TURN": "", "STT": "scripted:stt", "LLM": LLM, "TTS": voice}
    environment = {f"REJOINDER_{role}": spec for role, spec in models.items()}
    with tempfile.TemporaryDirectory() as folder:
        agent = _written(folder)
        async with own_server({}, None, environment, agent) as url:
            root = url.partition("/v1/")[0]
            print("| wire | greeting | p50 | p95 | longest |\n|---|---|---|---|---|")
            for wire in WIRES:
                for fresh in (True, False):
                    ms = await measure(root, wire, fresh)
                    p50, p95 = np.percentile(ms, [50, 95])
                    named = "synthesised in the call" if fresh else "synthesised at start-up"
                    print(f"| {wire} | {named} | {p50:.1f} ms | {p95:.1f} ms | {max(ms):.1f} ms |")
            print(TOOLS)
            for fillers in (False, True):
                waits = np.array([await ask(root, fillers) for _ in range(WAITING_QUESTIONS)])
                figures = " | ".join(f"{one:.2f} s" for one in (*np.median(waits, 0), *waits.max(0)))
                print(f"| {'on' if fillers else 'off'} | {figures} |")


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1] if len(sys.argv) > 1 else "piper:en_US-joe-medium"))
