"""Conversations that outlive their server: two call servers with one store behind HAProxy."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.callers.recorded import noise
from support.scale.kills import KILLED_LLM, kill_one
from support.scale.pair import NAMES, Pair, pair
from support.servers.redis import RedisServer
from support.serving import PATIENCE, Talk

from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.client.call import Call, connect
from rejoinder.agent.client.events import (
    AgentAudio,
    AgentDelta,
    AgentSaid,
    Other,
    Reconnected,
    ReplyDone,
    ReplyStarted,
)

pytestmark = [pytest.mark.scale, pytest.mark.server]
KILLS = int(os.environ.get("REJOINDER_KILLS", "2"))
"""How often a server is killed."""
CALLS = 6
"""Calls at each kill, about half of them at the killed server."""
SEED = 1
NAMED = "Anna Bert Carl Dora Emil Fred Gina Hans Ivan Jane Kurt Lisa Mark Nora Otto Paul Rosa Sven Tina Vera"
END = "more."
"""The last word of each answer."""
ANSWERS = [f"{name} has a word to say, and then there are a few {END}" for name in NAMED.split()]
"""The agent's answers in their order. Each begins with another word, so that its rest is found."""
CALLERS = 8
SILENT_S = 8.0
"""A person says it again when nothing has come for so long."""


def question() -> bytes:
    """Return loud noise, which is speech to the scripted models, and silence."""
    return noise(0.6, CLIENT_RATE) + bytes(2 * int(1.2 * CLIENT_RATE))


def history(servers: Pair, id_: str) -> list[tuple[str, str]]:
    """Return the role and the words of each item of a conversation, as a client that resumes gets them."""
    with Talk(servers.balancer, query=f"&conversation_id={id_}") as talk:
        talk.until("rejoinder.resumed")
        talk.send("input_audio_buffer.clear")
        talk.until("input_audio_buffer.cleared")
        items = [event["item"] for event in talk.seen if event["type"] == "conversation.item.added"]
        if items[-1]["status"] == "in_progress":  # its last syllable is still to be played
            done = [event["item"] for event in talk.seen if event["type"] == "conversation.item.done"]
            if items[-1]["id"] not in [item["id"] for item in done]:
                done.append(talk.until("conversation.item.done")["item"])
            items[-1] = done[-1]
    return [(item["role"], " ".join(part["transcript"] for part in item["content"])) for item in items]


def said(items: list[tuple[str, str]]) -> list[str]:
    """Return all words of the agent in a history."""
    return " ".join(words for role, words in items if role == "assistant").split()


def test_clients_of_a_killed_server_go_on_at_the_other_one(tmp_path: Path, redis: RedisServer) -> None:
    """Each history has each word once: those that the client heard before the kill, and those after it."""
    dice = random.Random(SEED)
    with pair(tmp_path, conversations=redis.url, llm=KILLED_LLM) as servers:
        returns = []
        for _ in range(KILLS):
            victim = dice.choice(NAMES)

            async def kill(victim: str = victim) -> None:
                await asyncio.to_thread(servers.end, victim, signal.SIGKILL)

            returns += asyncio.run(kill_one(servers.balancer.port, CALLS, kill, dice))
            servers.start(victim)
            servers.until_ready(set(NAMES))
    cut = [one for one in returns if one.cut]
    for name in ("seconds", "audio_seconds"):
        values = [getattr(one, name) for one in cut]
        figures = ", ".join(f"{np.percentile(values, share):.2f}" for share in (50, 95, 100))
        print(f"{len(values)} of {len(returns)} calls, {name} from the kill: p50, p95, most {figures}")
    print(
        "characters said again:", sorted(len(one.played) - len(one.kept) for one in cut if not one.reported)
    )
    assert not [one for one in returns if one.wrong]
    assert cut and len(cut) < len(returns), "each server had calls"


def test_rolling_restart_moves_calls_to_the_other_server(tmp_path: Path, redis: RedisServer) -> None:
    """Both servers are restarted one after the other, in mid-answer, and do not wait for their calls."""
    llm = "|".join(("scripted:llm", *ANSWERS))
    settings = {"conversations": redis.url, "drain_s": "2", "drain_goodbye": ""}
    with pair(tmp_path, llm=llm, **settings) as servers:
        url = f"ws://127.0.0.1:{servers.balancer.port}"

        async def hold(over: asyncio.Event) -> tuple[str, int]:
            async with connect(url) as talk:
                person = Person(talk)
                async with person.listening():
                    while not over.is_set() and person.completed < len(ANSWERS) - 1:
                        await talk.send_audio(question())
                        await person.answered()
                        await asyncio.sleep(0.6)  # of the player
                    await over.wait()
                    before = person.completed
                    await talk.send_audio(question())
                    await person.until(lambda: person.completed > before)
                    assert person.completed == before + 1, "the call does not go on"
                items = await asyncio.to_thread(history, servers, person.conversation)
            expected, heard = " ".join(ANSWERS).split(), said(items)
            assert len(heard) % len(ANSWERS[0].split()) == 0, f"an answer has lost its end: {items}"
            assert heard == expected[: len(heard)]
            return person.conversation, len(person.came_back)

        async def restart(name: str) -> None:
            await asyncio.to_thread(servers.end, name, patience=60.0)
            await asyncio.to_thread(servers.start, name)
            await asyncio.to_thread(servers.until_ready, set(NAMES))

        async def restart_all() -> list[tuple[str, int]]:
            over = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                people = [tasks.create_task(hold(over)) for _ in range(CALLERS)]
                await asyncio.sleep(2.0)  # in mid-answer
                for name in NAMES:
                    await restart(name)
                over.set()
            return [one.result() for one in people]

        people = asyncio.run(restart_all())
    assert len({id_ for id_, _ in people}) == CALLERS
    # Each was at one of the servers when that one ended, half of them at the second one again.
    assert min(moves for _, moves in people) >= 1


class Person:
    """A person who calls with the project's own client. listening: reads the events.

    audio: seconds of the agent's audio. words: of the newest reply. completed: number of answers that were
    heard to their end: after a move one may come in several replies, a clause that was begun and the rest.
    came_back: when the call went on over another socket.
    """

    def __init__(self, call: Call) -> None:
        self.conversation = ""
        self.audio = self.last_audio = 0.0
        self.words = ""
        self.completed = 0
        self.came_back: list[float] = []
        self._call = call
        self._stirred = asyncio.Event()

    @asynccontextmanager
    async def listening(self) -> Any:
        reading = asyncio.create_task(self._listen())
        try:
            yield
        finally:
            reading.cancel()
            await asyncio.wait([reading])

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        async for event in self._call:
            match event:
                case Other("conversation.created", raw=raw):
                    self.conversation = raw["conversation"]["id"]
                case AgentAudio(pcm=pcm):
                    self.audio += len(pcm) / 2 / CLIENT_RATE
                    self.last_audio = loop.time()
                case AgentSaid(text=words):
                    self.words = words
                case ReplyDone(status="completed") if self.words.endswith(END):
                    self.completed += 1
                case Reconnected(resumed=resumed):
                    assert resumed, "the conversation was lost"
                    self.came_back.append(loop.time())
                case AgentDelta() | ReplyStarted() | ReplyDone():
                    pass
                case _:
                    continue
            self._stirred.set()

    async def until(self, true: Any) -> None:
        async with asyncio.timeout(PATIENCE):
            while not true():
                self._stirred.clear()
                await self._stirred.wait()

    async def answered(self) -> None:
        """Wait for the end of a reply, or for a long silence: then the question was not heard."""
        before = self.completed
        while self.completed == before:
            self._stirred.clear()
            try:
                async with asyncio.timeout(SILENT_S):
                    await self._stirred.wait()
            except TimeoutError:
                return
