"""Two call servers behind HAProxy, with the configuration that ships and a real Redis."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
import yaml
from support.callers.asterisk import calling
from support.resuming import conversation
from support.scale.pair import HAPROXY, Pair, haproxy, pair
from support.servers.redis import redis_server
from support.serving import PATIENCE, Server, Talk, run_command
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import InvalidStatus

from rejoinder.agent.bench.balancing import HAPROXY_PLACES, SERVER_NAMES, kill_one
from rejoinder.agent.bench.kills import LONG_ANSWER, Return
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
from rejoinder.agent.server.limiting.allowance import BUSY_SECONDS
from rejoinder.agent.server.own_server import free_port

pytestmark = [pytest.mark.scale, pytest.mark.server]
NAMES = "Anna Bert Carl Dora Emil Fred Gina Hans Ivan Jane Kurt Lisa Mark Nora Otto Paul Rosa Sven Tina Vera"
ANSWERS = [f"{name} has a word to say, and then there are a few more." for name in NAMES.split()]
"""The agent's answers in their order. Each begins with another word, so that its rest is found."""
CALLERS = 8
GOES_ON_WITHIN_S = 10.0
SILENT_S = 8.0
"""A person says it again when nothing has come for so long."""
BUSY = "all 1 lines are busy"
FORGED = "203.0.113.9"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


def question() -> bytes:
    """Return loud noise, which is speech to the scripted models, and silence."""
    loud = np.random.default_rng(0).normal(0.0, 6000.0, int(0.6 * CLIENT_RATE)).astype("<i2")
    return bytes(loud.tobytes()) + bytes(2 * int(1.2 * CLIENT_RATE))


def history(servers: Pair, id_: str) -> list[tuple[str, str]]:
    """Return the role and the words of each item of a conversation, as a client that comes back gets them."""
    with Talk(servers.door, query=f"&conversation_id={id_}") as talk:
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


def hold_a_turn(talks: list[Talk]) -> None:
    for talk in talks:
        talk.speak()
    for talk in talks:
        assert talk.until("response.done")["response"]["status"] == "completed"


def test_haproxy_accepts_its_configuration() -> None:
    checked = subprocess.run([haproxy(), "-c", "-f", str(HAPROXY)], capture_output=True, text=True)
    assert (checked.returncode, "WARNING" in checked.stderr) == (0, False), checked.stderr


def test_only_calls_with_keys_are_taken_from_other_machines() -> None:
    defaults = dict(re.findall(r'bind "\$\{(\w+)-(.*)\}"', HAPROXY.read_text()))
    assert len(defaults) == HAPROXY.read_text().count("\n    bind ")
    assert [name for name, address in defaults.items() if not address.startswith("127.0.0.1:")] == [
        "BALANCER_BIND"
    ]


def test_kubernetes_gets_the_same_balancing() -> None:
    values = yaml.safe_load((HAPROXY.parent.parent / "chart" / "values.yaml").read_text())
    given = values["service"]["annotations"]
    annotations = {name.removeprefix("haproxy.org/"): value for name, value in given.items()}
    lines = [line.strip() for line in HAPROXY.read_text().splitlines()]
    assert set(annotations.pop("backend-config-snippet").splitlines()) <= set(lines)
    assert f"balance {annotations.pop('load-balance')}" in lines
    assert f"http-check send meth GET uri {annotations.pop('check-http')}" in lines
    assert annotations == {"check": "true", "check-interval": "1s"}


def test_calls_are_shared_and_count_for_the_clients_address(tmp_path: Path, store: str) -> None:
    with pair(tmp_path, store) as servers, ExitStack() as calls:
        forged = {"X-Forwarded-For": FORGED}
        talks = [
            calls.enter_context(
                Talk(servers.door, additional_headers=forged, source_address=(f"127.0.0.{number}", 0))
            )
            for number in range(2, 6)
        ]
        assert [server.sessions() for server in servers.servers.values()] == [2, 2]
        hold_a_turn(talks)
        log = "".join(server.log.read_text() for server in servers.servers.values())
    assert "127.0.0.2" in log and "127.0.0.5" in log and FORGED not in log


def test_lost_socket_goes_back_to_its_server(tmp_path: Path, store: str) -> None:
    """That server still has the events that were missed; another one would begin the reply again."""
    with pair(tmp_path, store) as servers, ExitStack() as calls:
        for number in range(2, 6):  # two at each server
            talk = calls.enter_context(Talk(servers.door, source_address=(f"127.0.0.{number}", 0)))
            id_, _ = conversation(talk), talk.turn()
            last = talk.seen[-1]["event_id"]
            talk.cut()
            query = f"&conversation_id={id_}&last_event_id={last}"
            again = Talk(servers.door, greeted=False, query=query, source_address=(f"127.0.0.{number}", 0))
            calls.enter_context(again)
            assert again.until("rejoinder.resumed")["after"] == last
        for server in servers.servers.values():
            server.wait_idle(2)


def test_asterisk_is_balanced_too(tmp_path: Path, store: str) -> None:
    with pair(tmp_path, store) as servers:

        async def call() -> None:
            port = servers.balancer.audiosocket
            async with calling(port) as one, calling(port) as other:
                one.loud(0.6)
                other.loud(0.6)
                await one.until(lambda: one.seconds_heard > 1.0 and other.seconds_heard > 1.0)
                for server in servers.servers.values():
                    assert await asyncio.to_thread(server.sessions) == 1

        asyncio.run(call())


def test_call_goes_on_at_the_other_server_when_its_server_is_killed(tmp_path: Path, store: str) -> None:
    with pair(tmp_path, store, llm=f"scripted:llm|{LONG_ANSWER}|And this is the end.") as servers:

        async def call() -> None:
            async with connect(f"ws://127.0.0.1:{servers.balancer.port}") as talk:
                person = Person(talk)
                async with person.listening():
                    await talk.send_audio(question())
                    await person.until(lambda: person.audio > 2.0)
                    holder = await asyncio.to_thread(servers.busiest)
                    killed = asyncio.get_running_loop().time()
                    await asyncio.to_thread(servers.end, holder, signal.SIGKILL)
                    await person.until(lambda: person.came_back and person.last_audio > person.came_back[0])
                    went_on = person.last_audio - killed
                    await person.until(lambda: person.completed == 1)
                    await asyncio.sleep(0.6)
                    await talk.send_audio(question())
                    await person.until(lambda: person.completed == 2)
                    assert went_on < GOES_ON_WITHIN_S
                    items = await asyncio.to_thread(history, servers, person.conversation)
            assert [role for role, _ in items] == ["user", "assistant", "assistant", "user", "assistant"]
            assert said(items) == f"{LONG_ANSWER} And this is the end.".split()

        asyncio.run(call())


def test_call_that_finds_all_lines_busy_goes_to_the_other_server(tmp_path: Path) -> None:
    """A call that did not come through the balancer fills a server, so the balancer sends it one more."""
    with pair(tmp_path, "", max_sessions="1", behind_balancer="true") as servers:
        same: dict[str, Any] = {"source_address": ("127.0.0.2", 0)}
        with Talk(servers.door, **same):
            full = servers.servers[servers.busiest()]
        full.wait_idle()
        back = "&conversation_id=conv_gone"  # who comes back is sent to the server that it called last
        with Talk(full), Talk(servers.door, query=back, **same) as talk:
            assert talk.turn()["status"] == "completed"
            assert [server.sessions() for server in servers.servers.values()] == [1, 1]
            assert refusals(full) == 1, "the balancer asked the full server first"
            with pytest.raises(InvalidStatus) as error, Talk(servers.door):
                pass
            answer = error.value.response
            assert (answer.status_code, answer.body) == (503, f"{BUSY}\n".encode())
            assert answer.headers["Retry-After"] == str(BUSY_SECONDS)
            with pytest.raises(HTTPError) as plain:  # as the page asks
                urlopen(f"{servers.door.http}/v1/realtime", timeout=PATIENCE)
            with plain.value:
                assert plain.value.read() == answer.body
            assert min(refusals(server) for server in servers.servers.values()) >= 1, "it asked both"


def refusals(server: Server) -> int:
    return server.log.read_text().count(f" was refused: {BUSY}")


def test_rolling_restart_drops_no_call(tmp_path: Path, store: str) -> None:
    """Both servers are restarted one after the other. Calls go on, and new ones are taken all the time."""
    llm = "|".join(("scripted:llm", *ANSWERS))
    with pair(tmp_path, store, llm=llm, drain_s="2", drain_goodbye="") as servers:
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
            assert len(heard) % len(ANSWERS[0].split()) == 0, "an answer has lost its end"
            assert heard == expected[: len(heard)]
            return person.conversation, len(person.came_back)

        async def knock(over: asyncio.Event) -> int:
            """Begin one short call after another; return their number."""
            calls = 0
            while not over.is_set():
                async with connect(url, reconnect_s=0.0):  # raises where the call is refused
                    calls += 1
                await asyncio.sleep(0.1)
            return calls

        async def restart(name: str) -> None:
            await asyncio.to_thread(servers.end, name, patience=60.0)
            await asyncio.to_thread(servers.start, name)
            await servers.balancer.until_all_ready()

        async def restart_all() -> tuple[list[tuple[str, int]], int]:
            over = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                people = [tasks.create_task(hold(over)) for _ in range(CALLERS)]
                knocking = tasks.create_task(knock(over))
                await asyncio.sleep(2.0)  # in mid-answer
                for name in SERVER_NAMES:
                    await restart(name)
                over.set()
            return [one.result() for one in people], knocking.result()

        people, knocks = asyncio.run(restart_all())
    assert len({id_ for id_, _ in people}) == CALLERS and knocks > 10
    # Each was at one of the servers when that one ended, half of them at the second one again.
    assert min(moves for _, moves in people) >= 1


def test_nginx_shares_calls_and_asks_the_other_server(tmp_path: Path, store: str) -> None:
    with pair(tmp_path, store) as servers, nginx(tmp_path, servers) as door:
        with ExitStack() as calls:
            talks = [calls.enter_context(Talk(door)) for _ in range(4)]
            assert [server.sessions() for server in servers.servers.values()] == [2, 2]
            hold_a_turn(talks)
            conversations = [conversation(talk) for talk in talks]
            servers.end(SERVER_NAMES[0], signal.SIGKILL)
            queries = [f"&conversation_id={id_}" for id_ in conversations]
            again = [calls.enter_context(Talk(door, query=query)) for query in queries]
            for talk in again:  # of the killed server, and of the other one
                talk.until("rejoinder.resumed")
            assert servers.servers[SERVER_NAMES[1]].sessions() == 4
            for talk in again:
                talk.cut()  # with unread audio, a close frame would wait for it


@contextmanager
def nginx(folder: Path, servers: Pair) -> Iterator[Server]:
    """Run NGINX in front of the servers, with the addresses of this machine in its configuration."""
    program = shutil.which("nginx") or shutil.which("nginx", path=HAPROXY_PLACES)
    assert program, "apt-get install nginx"
    port, file = free_port(), folder / "nginx.conf"
    text = HAPROXY.with_name("nginx.conf").read_text().replace("listen 8080", f"listen 127.0.0.1:{port}")
    for address, own in zip(("10.0.0.11:8080", "10.0.0.12:8080"), servers.ports.values(), strict=True):
        assert address in text
        text = text.replace(address, f"127.0.0.1:{own}")
    file.write_text(text)
    command = [program, "-c", str(file), "-g", f"daemon off; pid {folder / 'nginx.pid'};"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            await_port(port, process)
            one = servers.servers[SERVER_NAMES[0]]
            yield Server(port, one.process, one.log)
        finally:
            process.terminate()


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, "NGINX has not started"
            time.sleep(0.05)


def test_nginx_asks_the_other_server_where_all_lines_are_busy(tmp_path: Path) -> None:
    with pair(tmp_path, "", max_sessions="1", behind_balancer="true") as servers:
        first, other = servers.servers.values()
        with nginx(tmp_path, servers) as door, Talk(first), Talk(door) as talk:
            assert talk.turn()["status"] == "completed"
            assert (refusals(first), other.sessions()) == (1, 1)


def test_bench_kills_servers_behind_the_balancer(tmp_path: Path, store: str) -> None:
    arguments = ("--balancer", str(HAPROXY), "--store", store, "--times", "1", "--calls", "2", "--json")
    done = run_command("bench", "kills", *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    returns = json.loads(done.stdout)["returns"]
    assert [one["wrong"] for one in returns] == [""] * 2
    assert {one["cut"] for one in returns} == {True, False}, "each server had a call"


def test_bench_keeps_the_results_of_calls_that_fail() -> None:
    async def refuse(socket: ServerConnection) -> None:
        error = {"code": "session_limit_reached", "message": "All lines are taken."}
        await socket.send(json.dumps({"type": "error", "error": error}))
        await socket.wait_closed()

    async def nothing() -> None:
        pass

    class AtOnce(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return a

    async def bench() -> list[Return]:
        async with serve(refuse, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await kill_one(port, 2, nothing, AtOnce())

    assert ["All lines are taken" in one.wrong for one in asyncio.run(bench())] == [True] * 2


class Person:
    """Someone who calls with the project's own client. listening: reads the events.

    audio: seconds of the agent's audio. completed: number of replies that were heard to their end. came_back:
    when the call went on over another socket.
    """

    def __init__(self, call: Call) -> None:
        self.conversation = ""
        self.audio = self.last_audio = 0.0
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
                case ReplyDone(status="completed"):
                    self.completed += 1
                case Reconnected(resumed=resumed):
                    assert resumed, "the conversation was lost"
                    self.came_back.append(loop.time())
                case AgentDelta() | AgentSaid() | ReplyStarted():
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
        """Wait for the end of a reply, or for a long silence: then nobody has heard the question."""
        before = self.completed
        while self.completed == before:
            self._stirred.clear()
            try:
                async with asyncio.timeout(SILENT_S):
                    await self._stirred.wait()
            except TimeoutError:
                return
