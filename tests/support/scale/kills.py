"""Kills a server in mid-reply, starts it again, and checks that its clients go on where they were.

The models are scripted, so the words of a reply and the time of each word are known. Each client plays what
it receives by its own clock. After the kill it comes back with the id of its conversation. Every other client
also reports how much it has played.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from support.callers.recorded import noise
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.models.scripted import SECONDS_PER_CHARACTER
from rejoinder.pipeline.errors import PipelineError
from rejoinder.pipeline.replying.next.position import unheard
from rejoinder.pipeline.replying.playout import Playout, spread

FIRST_ANSWER = "Good day to you."
"""The agent's first answer, which each client hears to its end."""
LONG_ANSWER = (
    "This is a rather long answer, which takes a while to say. It has a second sentence, and here it ends. "
    "Then there comes a third one, with a few words."
)
"""The answer during which the server is killed. Its end is not written when its beginning is heard."""
LAST_ANSWER = "It is all well again."
"""The answer after that."""
KILLED_LLM = "|".join(("scripted:llm", FIRST_ANSWER, LONG_ANSWER, LAST_ANSWER))
"""The language model of the server."""
SAID_AGAIN_SECONDS = 0.6
"""Most seconds between the last position on disk and the kill: one interval, and the load of the machine."""
LONGEST_LEAD_SECONDS = 2.0
"""Longest wait of a client before its second turn, so that the clients are at different words."""
COME_BACK_SECONDS = 0.1
"""Wait before a client that comes back tries again."""
LONGEST_STEP_SECONDS = 30.0
"""Longest wait for an event."""


class Wrong(PipelineError):
    """A conversation did not go on as it should have."""


@dataclass(slots=True)
class Return:
    """What one client met.

    played: the words that it had played at the kill. kept: those that the server has in the history. said:
    those that it said afterwards. reported: whether the client had reported its position. seconds: until the
    conversation was resumed, from the restart's readiness, or behind a balancer from the kill. audio_seconds:
    from there to the next audio, 0 where nothing was left to say. cut: whether the kill ended its socket.
    wrong: what was wrong, "" for nothing.
    """

    played: str
    kept: str
    said: str
    reported: bool
    seconds: float
    audio_seconds: float = 0.0
    cut: bool = True
    wrong: str = ""


@dataclass(slots=True)
class KilledCaller:
    """One client: what it receives, and how much of it has been played by its own clock.

    first_audio: when the first audio came over the socket that is open now, 0 for not yet.
    """

    port: int
    reports: bool
    conversation: str = ""
    playout: Playout = field(default_factory=Playout)
    item: str = ""
    words: dict[str, str] = field(default_factory=dict)
    first_audio: float = 0.0
    _socket: ClientConnection | None = None
    _clause: str = ""

    async def open(self, query: str = "") -> None:
        """Open a socket. Cancelling leaves none open. Raises OSError and WebSocketException."""
        url = f"ws://127.0.0.1:{self.port}/v1/realtime?model=default{query}"
        self.first_audio = 0.0
        self._socket = await connect(url, compression=None, max_size=None, proxy=None, ping_interval=None)

    async def hear(self, seconds: float = 0.6) -> None:
        """Say something: loud noise, which is speech to the scripted models. Cancelling stops in between."""
        loud = np.frombuffer(noise(seconds, CLIENT_RATE), "<i2")
        silence = np.zeros(int(1.2 * CLIENT_RATE), "<i2")
        for piece in np.array_split(np.concatenate((loud, silence)), 50):
            await self.send("input_audio_buffer.append", audio=base64.b64encode(piece.tobytes()).decode())

    async def send(self, type_: str, **fields: Any) -> None:
        """Send a message. Cancelling may leave it unsent."""
        assert self._socket is not None
        await self._socket.send(json.dumps({"type": type_, **fields}))

    async def until(self, *types: str) -> dict[str, Any]:
        """Receive events until one of a type; play what comes. Cancelling loses no event.

        Raises ConnectionClosed, and Wrong for an error or after ``LONGEST_STEP_SECONDS`` without the event.
        """
        assert self._socket is not None
        try:
            async with asyncio.timeout(LONGEST_STEP_SECONDS):
                while True:
                    event: dict[str, Any] = json.loads(await self._socket.recv())
                    self._take(event)
                    if event["type"] in types:
                        return event
        except TimeoutError:
            raise Wrong(f"no {' or '.join(types)} within {LONGEST_STEP_SECONDS:g} s") from None

    def _take(self, event: dict[str, Any]) -> None:
        now = asyncio.get_running_loop().time()
        match event["type"]:
            case "error":
                raise Wrong(f"error {event['error']['code']}: {event['error']['message']}")
            case "conversation.created":
                self.conversation = event["conversation"]["id"]
            case "response.output_audio_transcript.delta":
                if event["item_id"] != self.item:
                    self.item, self.playout = event["item_id"], Playout()
                self._clause = event["delta"].strip()
                self.words[self.item] = f"{self.words.get(self.item, '')} {self._clause}".strip()
                self.playout.begin(self._clause)
            case "response.output_audio.delta":
                seconds = len(base64.b64decode(event["delta"])) / 2 / CLIENT_RATE
                times = spread(self._clause, SECONDS_PER_CHARACTER * len(self._clause))
                self.playout.sent(seconds, now, times)
                self.first_audio = self.first_audio or now
            case "response.output_audio.done":
                self.playout.end()

    async def played_out(self) -> None:
        """Wait until all has been played. Cancelling stops waiting."""
        await asyncio.sleep(self.playout.left(asyncio.get_running_loop().time()))

    async def until_lost(self) -> None:
        """Play what comes until the socket breaks. Cancelling stops waiting."""
        try:
            while True:
                await self.until("")
        except ConnectionClosed:
            pass

    async def close(self) -> None:
        """Hang up. Cancelling leaves the socket to the server."""
        if self._socket:
            await self._socket.close()


async def kill_one(
    port: int, calls: int, kill: Callable[[], Awaitable[None]], dice: random.Random
) -> list[Return]:
    """Let clients call through a balancer, kill a server in their long replies, and let all go on.

    port: of the balancer. kill: kills one of the servers. dice: chooses the moment. Cancelling hangs up.
    Raises what ``kill`` raises; a call that fails is one of the results.
    """
    callers = [KilledCaller(port, reports=bool(number % 2)) for number in range(calls)]
    begun = [asyncio.Event() for _ in callers]
    killed = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        holding = [
            tasks.create_task(_hold(caller, ready, killed, dice.uniform(0.0, LONGEST_LEAD_SECONDS)))
            for caller, ready in zip(callers, begun, strict=True)
        ]
        for ready in begun:
            await ready.wait()
        await asyncio.sleep(moment(dice))
        killed.set_result(asyncio.get_running_loop().time())
        await kill()
    return [task.result() for task in holding]


async def _hold(
    caller: KilledCaller, ready: asyncio.Event, killed: asyncio.Future[float], wait: float
) -> Return:
    """Hold two turns, come back if the socket is lost in the second one, and hold a third one.

    A call that fails is a result that is wrong, so that the results of the others are not lost.
    """
    result = Return("", "", "", False, 0.0, cut=False)
    try:
        await begin(caller, wait)
        ready.set()
        try:
            await caller.until("response.done")
        except ConnectionClosed:
            return await come_back(caller, asyncio.get_running_loop().time(), await killed)
        said = caller.words[caller.item]
        await caller.played_out()
        last = await last_turn(caller)
        result.wrong = last if said == LONG_ANSWER else f"an undisturbed client heard {said!r}"
    except (Wrong, OSError, WebSocketException) as error:
        result.wrong = str(error) or type(error).__name__
    finally:
        ready.set()  # of a call that did not begin, too
        await caller.close()
    return result


async def kill_once(
    port: int,
    calls: int,
    kill: Callable[[], Awaitable[None]],
    restart: Callable[[], Awaitable[None]],
    dice: random.Random,
) -> list[Return]:
    """Let clients call, kill the server in the long reply of each, and let them go on.

    kill: kills the server and waits for its end. restart: starts it on the same port and waits until it is
    ready. dice: chooses the moment. Cancelling hangs up. Raises OSError and WebSocketException.
    """
    callers = [KilledCaller(port, reports=bool(number % 2)) for number in range(calls)]
    begun = [asyncio.Event() for _ in callers]
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        for caller, ready in zip(callers, begun, strict=True):
            tasks.create_task(_until_killed(caller, ready, dice.uniform(0.0, LONGEST_LEAD_SECONDS)))
        for ready in begun:
            await ready.wait()
        await asyncio.sleep(moment(dice))
        await kill()
    lost = loop.time()
    await restart()
    ready_at = loop.time()
    return list(await asyncio.gather(*(come_back(caller, lost, ready_at) for caller in callers)))


def moment(dice: random.Random) -> float:
    """Return when to kill, in seconds since the last client's long reply began: all of them speak then."""
    return dice.uniform(0.0, SECONDS_PER_CHARACTER * len(LONG_ANSWER) - LONGEST_LEAD_SECONDS)


async def _until_killed(caller: KilledCaller, ready: asyncio.Event, wait: float) -> None:
    await begin(caller, wait)
    ready.set()
    await caller.until_lost()


async def begin(caller: KilledCaller, wait: float) -> None:
    """Hold the first turn, wait, and begin the second one, whose reply is long.

    wait: in seconds. Cancelling leaves the call open. Raises Wrong, OSError and WebSocketException.
    """
    await caller.open()
    await caller.until("conversation.created")
    await caller.hear()
    await caller.until("response.done")
    await caller.played_out()
    await asyncio.sleep(wait)
    await caller.hear()
    await caller.until("response.created")


async def come_back(caller: KilledCaller, lost: float, since: float) -> Return:
    """Resume the conversation, hear the rest, and hold one more turn. Cancelling hangs up.

    lost: when the client lost its socket. since: from when the seconds of the result count; both by the
    loop's clock.
    """
    loop = asyncio.get_running_loop()
    played_s = caller.playout.played(lost) if caller.words.get(caller.item, "") != FIRST_ANSWER else 0.0
    item = caller.item if caller.words.get(caller.item, "") != FIRST_ANSWER else ""
    result = Return(caller.playout.text(played_s) if item else "", "", "", caller.reports and bool(item), 0.0)
    query = f"&conversation_id={caller.conversation}"
    if result.reported:
        query += f"&item_id={item}&audio_end_ms={int(played_s * 1000)}"
    conversation = caller.conversation
    try:
        await _resume(caller, query)
        result.seconds = loop.time() - since
        if caller.conversation != conversation:
            raise Wrong("the conversation has another id")
        history = await _items(caller)
        result.kept = history.get(item, "")
        before = set(history)
        while unheard(LONG_ANSWER, f"{result.kept} {result.said}"):
            await caller.until("response.done")
            result.said = " ".join(text for id_, text in caller.words.items() if id_ not in before | {item})
            if len(result.said) > 2 * len(LONG_ANSWER):
                break
        result.audio_seconds = caller.first_audio - since if caller.first_audio else 0.0
        await caller.played_out()
        result.wrong = _judge(result, list(history.values()))
        last = await last_turn(caller)
        result.wrong = result.wrong or last
    except (Wrong, OSError, WebSocketException) as error:
        result.wrong = str(error) or type(error).__name__
    finally:
        await caller.close()
    return result


async def _resume(caller: KilledCaller, query: str) -> None:
    """Open sockets until one resumes the conversation. Raises as ``open`` and ``until`` do."""
    loop = asyncio.get_running_loop()
    until = loop.time() + LONGEST_STEP_SECONDS
    while True:
        try:
            await caller.open(query)
            await caller.until("rejoinder.resumed")
            return
        except (OSError, WebSocketException):  # of a server or a balancer that is busy, or not there
            if loop.time() > until:
                raise
            await asyncio.sleep(COME_BACK_SECONDS)


async def last_turn(caller: KilledCaller) -> str:
    """Hold one more turn; return what is wrong with its answer, "" for nothing.

    Cancelling leaves the call open. Raises Wrong and WebSocketException.
    """
    await caller.hear()
    await caller.until("response.done")
    answer = caller.words[caller.item]
    return "" if answer == LAST_ANSWER else f"the next answer is {answer!r}"


async def _items(caller: KilledCaller) -> dict[str, str]:
    """Return the words of each item that a resumed client gets, by id, in order."""
    kept: dict[str, str] = {}
    await caller.send("input_audio_buffer.clear")
    while (
        event := await caller.until(
            "conversation.item.added", "response.created", "input_audio_buffer.cleared"
        )
    )["type"] == "conversation.item.added":
        item = event["item"]
        if item["status"] != "in_progress":
            kept[item["id"]] = " ".join(part.get("transcript", "") for part in item["content"])
    return kept


def _judge(result: Return, history: list[str]) -> str:
    """Return what is wrong with a resumed conversation, "" for nothing."""
    if FIRST_ANSWER not in history:
        return f"the history has lost the first answer: {history}"
    if f"{result.kept} {result.said}".split() != LONG_ANSWER.split():
        return f"kept {result.kept!r}, then said {result.said!r}"
    if result.reported and result.kept != result.played:
        return f"played {result.played!r}, and the history has {result.kept!r}"
    late = len(result.played) - len(result.kept)
    if not 0 <= late * SECONDS_PER_CHARACTER <= SAID_AGAIN_SECONDS + 1.0:
        return f"played {result.played!r}, and without a report the history has {result.kept!r}"
    return ""
