"""What a restarted server knows of its conversations: tools, keys, owners and settings."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.ports import unused_port
from support.resuming import DELTA, conversation, words
from support.servers.chat import chat_server
from support.servers.operator import WORDS, Operator
from support.serving import LINE, PATIENCE, THREE_LINES, Server, Talk, serving
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rejoinder.agent.client.call import connect
from rejoinder.agent.client.events import AgentAudio, AgentDelta, Reconnected, ReplyDone
from rejoinder.agent.server.keys import hashed
from rejoinder.agent.settings.operating import DRAIN_GOODBYE
from rejoinder.agent.wires.realtime.restoring import UNKNOWN_RESULT

pytestmark = pytest.mark.server
AGENT = """
import asyncio
from rejoinder import Agent

agent = Agent("You book tables.")

@agent.tool
async def book(people: int) -> str:
    \"\"\"Book a table.

    people: how many come.
    \"\"\"
    with open("booked.txt", "a") as file:
        file.write(f"{people}\\n")
    await asyncio.sleep(WAIT)
    return "It is booked."
"""


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    return {"conversations": f"sqlite:{tmp_path / 'kept.db'}"}


def killed(server: Server) -> None:
    server.process.kill()
    server.process.wait(20.0)


@contextmanager
def again(folder: Path, server: Server, **settings: Any) -> Iterator[Server]:
    with serving(folder, port=server.port, **settings) as restarted:
        yield restarted


def returned(server: Server, before: Talk, **options: Any) -> Talk:
    talk = Talk(server, query=f"&conversation_id={conversation(before)}", **options)
    talk.until("rejoinder.resumed")
    return talk


@contextmanager
def booking(folder: Path, settings: dict[str, str], wait: str) -> Iterator[tuple[Operator, Server]]:
    """Serve an agent that books a table once it is asked. wait: seconds that its tool takes.

    It adds the agent and its language model to the settings, for the servers that follow.
    """
    llm, port = Operator("book", people=4), unused_port()
    (folder / "desk.py").write_text(AGENT.replace("WAIT", wait))
    settings |= {"agent": str(folder / "desk.py"), "llm": f"openai:http://127.0.0.1:{port}/v1#m"}
    with chat_server(port, llm.answer), serving(folder, clean=False, **settings) as server:
        yield llm, server


def test_a_tool_that_ran_at_the_kill_is_not_run_again(tmp_path: Path, settings: dict[str, str]) -> None:
    with booking(tmp_path, settings, wait="600") as (llm, server):
        with Talk(server) as talk:
            talk.speak()
            talk.until("response.done")
            booked = tmp_path / "booked.txt"
            wait_until(
                lambda: booked.exists() and booked.read_text() == "4\n"
            )  # it is written when it is closed
            killed(server)
        with again(tmp_path, server, **settings) as restarted, returned(restarted, talk):
            wait_until(lambda: llm.results == [UNKNOWN_RESULT])
            said = [message["content"] for message in llm.prompts[-1] if message["role"] == "assistant"]
            assert " ".join(said).startswith(WORDS), "what the agent said while it called the tool"
    assert (tmp_path / "booked.txt").read_text() == "4\n"


def test_a_tool_that_was_called_and_had_not_begun_is_called_after_the_restart(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    """The server is killed while the agent speaks the words in front of the call."""
    with booking(tmp_path, settings, wait="0") as (_, server):
        with Talk(server) as talk:
            talk.speak()
            for _ in range(10):
                talk.until(DELTA)
            killed(server)
        assert not (tmp_path / "booked.txt").exists()
        with again(tmp_path, server, **settings) as restarted, returned(restarted, talk) as after:
            while "Told: It is booked." not in words(after.seen):
                after.until(DELTA)
    assert (tmp_path / "booked.txt").read_text() == "4\n"


GREETING_AGENT = """
from rejoinder import Agent

agent = Agent("You are brief.")

@agent.on_call
async def greet(call):
    call.greeting = "Welcome to the bakery."
"""


def test_greeting_of_a_hook_is_said_once(tmp_path: Path, settings: dict[str, str]) -> None:
    (tmp_path / "desk.py").write_text(GREETING_AGENT)
    settings |= {"agent": str(tmp_path / "desk.py")}
    with serving(tmp_path, clean=False, **settings) as server:
        with Talk(server) as talk:
            talk.until("response.done")
            assert words(talk.seen) == "Welcome to the bakery."
            talk.turn()
            killed(server)
        with again(tmp_path, server, **settings) as restarted, returned(restarted, talk) as after:
            after.speak()  # it may cut off the rest of the reply before it
            while after.until("response.done")["response"]["status"] != "completed":
                pass
            assert "Welcome" not in words(after.seen)


def test_kept_conversation_hears_no_goodbye(tmp_path: Path, settings: dict[str, str]) -> None:
    settings |= {"llm": THREE_LINES, "drain_s": "0.3"}
    with serving(tmp_path, **settings) as server, Talk(server) as talk:
        talk.speak()
        talk.until(DELTA)
        server.process.terminate()
        with pytest.raises(ConnectionClosed):
            talk.until("never")
        assert talk.socket.close_code == 1012 and DRAIN_GOODBYE not in words(talk.seen)
        assert server.process.wait(PATIENCE) == 0
    with again(tmp_path, server, **settings) as restarted, returned(restarted, talk) as after:
        while LINE.strip() not in words(after.seen):
            after.until(DELTA)


def test_a_tool_that_has_returned_keeps_its_result(tmp_path: Path, settings: dict[str, str]) -> None:
    with booking(tmp_path, settings, wait="0") as (llm, server):
        with Talk(server) as talk:
            talk.speak()
            while "Told: " not in words(talk.seen):
                talk.until(DELTA)
            killed(server)
        with again(tmp_path, server, **settings) as restarted, returned(restarted, talk) as after:
            asked = len(llm.prompts)
            while len(llm.prompts) == asked:
                after.turn()
            assert [one["content"] for one in llm.prompts[-1] if one["role"] == "tool"] == ["It is booked."]
    assert (tmp_path / "booked.txt").read_text() == "4\n"


def test_call_of_the_clients_tool_waits_for_its_result(tmp_path: Path, settings: dict[str, str]) -> None:
    llm, port = Operator("look", where="Rome"), unused_port()
    settings |= {"llm": f"openai:http://127.0.0.1:{port}/v1#m"}
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    with chat_server(port, llm.answer), serving(tmp_path, clean=False, **settings) as server:
        with Talk(server) as talk:
            talk.send("session.update", session={"type": "realtime", "tools": [tool], "instructions": "Hm."})
            talk.until("session.updated")
            talk.speak()
            called = talk.until("response.function_call_arguments.done")
            killed(server)
        with again(tmp_path, server, **settings) as restarted, returned(restarted, talk) as after:
            config = next(event for event in after.seen if event["type"] == "session.created")["session"]
            assert (config["instructions"], config["tools"][0]["name"]) == ("Hm.", "look")
            output = {"type": "function_call_output", "call_id": called["call_id"], "output": "It rains."}
            after.send("conversation.item.create", item=output)
            answered_at_last(after, lambda: llm.results == ["It rains."])


def test_a_typed_item_that_was_confirmed_is_kept(tmp_path: Path, settings: dict[str, str]) -> None:
    settings |= {"llm": "scripted:llm"}
    with serving(tmp_path, clean=False, **settings) as server:
        with Talk(server) as talk:
            part = {"type": "input_text", "text": "The number is seven."}
            item = {"id": "item_of_mine", "type": "message", "role": "user", "content": [part]}
            talk.send("conversation.item.create", item=item)
            talk.until("conversation.item.added")
            server.process.kill()
        server.process.wait(20.0)
        with again(tmp_path, server, **settings) as restarted, returned(restarted, talk) as after:
            assert after.until("conversation.item.done")["item"]["content"] == [part]
            after.send("response.create")
            after.until("response.done")
            assert words(after.seen) == "You said: The number is seven."


def test_another_server_takes_over_and_the_first_one_ends_its_call(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    (tmp_path / "second").mkdir()
    with (
        serving(tmp_path, **settings) as first,
        serving(tmp_path / "second", **settings) as second,
        Talk(first) as talk,
    ):
        talk.speak()
        talk.until(DELTA)
        with returned(second, talk) as after:
            while not words(after.seen).endswith(LINE.strip()[-10:]):
                after.until("response.done")
            first.wait_idle()
            with pytest.raises(ConnectionClosed, match="goes on at another server"):
                talk.until("never")
            assert after.turn()["status"] == "completed"
        second.wait_idle()
        wait_until(lambda: not kept(tmp_path / "kept.db"))
        with Talk(first, query=f"&conversation_id={conversation(talk)}") as late:
            assert late.until("error")["error"]["code"] == "conversation_not_found", "it has ended"


def test_only_the_key_that_began_it_resumes_a_conversation(tmp_path: Path, settings: dict[str, str]) -> None:
    keys = {name: f"rj_{name}-key-of-the-tests" for name in ("one", "other")}
    settings |= {"api_keys": " ".join(map(hashed, keys.values()))}

    def shown(name: str) -> dict[str, Any]:
        return {"additional_headers": {"Authorization": f"Bearer {keys[name]}"}}

    with serving(tmp_path, clean=False, **settings) as server:
        with Talk(server, **shown("one")) as talk:
            talk.turn()
            killed(server)
        with again(tmp_path, server, **settings) as restarted:
            with Talk(restarted, query=f"&conversation_id={conversation(talk)}", **shown("other")) as thief:
                assert thief.until("error")["error"]["code"] == "conversation_not_found"
            with pytest.raises(InvalidStatus, match="401"):
                returned(restarted, talk)
            with returned(restarted, talk, **shown("one")) as after:
                assert after.until("conversation.item.done")["item"]["role"] == "user"


def test_a_conversation_in_another_form_begins_anew(tmp_path: Path, settings: dict[str, str]) -> None:
    with serving(tmp_path, clean=False, **settings) as server:
        with Talk(server) as talk:
            talk.turn()
            killed(server)
        with sqlite3.connect(tmp_path / "kept.db") as file:
            (body,) = file.execute("SELECT body FROM parts WHERE name = 'state'").fetchone()
            newer = json.dumps({**json.loads(body), "version": 99}).encode()
            file.execute("UPDATE parts SET body = ? WHERE name = 'state'", (newer,))
        file.close()
        with again(tmp_path, server, **settings) as restarted:
            with Talk(restarted, query=f"&conversation_id={conversation(talk)}") as after:
                assert after.until("error")["error"]["code"] == "conversation_not_found"
                assert after.turn()["status"] == "completed"
            assert "cannot go on: it has form 99" in restarted.log.read_text()


def test_calls_go_on_without_their_store(tmp_path: Path, settings: dict[str, str]) -> None:
    with serving(tmp_path, **settings) as server, Talk(server) as talk:
        talk.turn()
        with sqlite3.connect(tmp_path / "kept.db") as file:
            file.execute("ALTER TABLE parts RENAME TO lost")
        assert talk.turn()["status"] == "completed"
        assert words(talk.seen).count(LINE.strip()) == 2
        wait_until(lambda: "conversations are not kept: no such table" in server.log.read_text())
        with sqlite3.connect(tmp_path / "kept.db") as file:
            file.execute("ALTER TABLE lost RENAME TO parts")
        file.close()
        talk.turn()
        while "conversations are kept again" not in server.log.read_text():
            talk.append(bytes(960))
            time.sleep(0.02)


def test_a_restart_keeps_the_conversations(tmp_path: Path, settings: dict[str, str]) -> None:
    """The agent goes on with the reply that was in progress, as after a kill."""
    settings |= {"llm": THREE_LINES}
    with serving(tmp_path, **settings) as server, Talk(server) as talk:
        talk.speak()
        talk.until(DELTA)
        server.process.terminate()
        assert server.process.wait(PATIENCE) == 0
    with again(tmp_path, server, **settings) as restarted, returned(restarted, talk) as after:
        assert "what is the weather" in json.dumps(after.until("conversation.item.done"))
        assert after.until("response.done")["response"]["status"] == "cancelled"
        while LINE.strip() not in words(after.seen):
            after.until(DELTA)


def test_python_client_goes_on_by_itself(tmp_path: Path, settings: dict[str, str]) -> None:
    """It asks again until the server is back. The reply in progress ends, and its unplayed words follow.

    The loudspeaker has played none, whatever the server's clock says.
    """
    with serving(tmp_path, clean=False, **settings) as server, ExitStack() as second:

        async def kill_and_restart() -> None:
            await asyncio.to_thread(killed, server)
            await asyncio.to_thread(second.enter_context, serving(tmp_path, port=server.port, **settings))

        async def talk() -> list[str]:
            seen: list[str] = []
            item, received, again = "", 0, ""
            async with (
                asyncio.timeout(2 * PATIENCE),
                connect(f"ws://127.0.0.1:{server.port}") as call,
                asyncio.TaskGroup() as tasks,
            ):
                await call.add_text("Hello.")
                await call.respond()
                call.follow_playback(lambda: (item, 1))
                async for event in call:
                    match event:
                        case AgentAudio(item=id_, pcm=pcm) if not seen:
                            item, received = id_, received + len(pcm)
                            if received > 24_000:  # half a second of two
                                server.process.kill()
                                tasks.create_task(kill_and_restart())
                                seen.append("started")
                        case AgentDelta(text=text) if len(seen) > 1:
                            again += text
                        case Reconnected(resumed, missed):
                            seen.append(f"resumed {resumed}, missed {missed}")
                        case ReplyDone(status=status):
                            seen.append(status)
                            if status == "completed":
                                return [*seen, again]
            return seen

        expected = ["started", "resumed True, missed True", "cancelled", "completed", LINE.strip()]
        assert asyncio.run(talk()) == expected


def test_a_setting_that_cannot_work_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, wait=False, clean=False, conversations="mysql://here") as server:
        assert server.process.wait(20.0) == 1
        assert "'mysql' is no store" in server.log.read_text()


def answered_at_last(talk: Talk, holds: Callable[[], bool]) -> None:
    """Request a response, again after the one in progress, until the model was asked with the result."""
    while not holds():
        talk.send("response.create")
        while not holds() and (event := talk.event())["type"] != "response.done":
            if event["type"] == "error":
                assert event["error"]["code"] == "conversation_already_has_active_response"


def kept(path: Path) -> int:
    """Return the number of conversations in the file."""
    file = sqlite3.connect(path)
    (count,) = file.execute("SELECT count(*) FROM conversations").fetchone()
    file.close()
    return int(count)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


WAITING_AGENT = """
import asyncio
from pathlib import Path
from rejoinder import Agent

agent = Agent("You are brief.")
asked = 0

@agent.on_call
async def decide(call):
    global asked
    asked += 1
    number = asked
    Path(f"asked{number}").touch()
    while not Path(f"go{number}").exists():
        await asyncio.sleep(0.02)
"""


def test_client_that_returns_twice_while_the_agent_decides_has_one_call(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    (tmp_path / "desk.py").write_text(WAITING_AGENT)
    settings |= {"agent": str(tmp_path / "desk.py")}
    (tmp_path / "go1").touch()
    with serving(tmp_path, clean=False, **settings) as server, Talk(server) as talk:
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]}
        talk.send("conversation.item.create", item=item)
        talk.until("conversation.item.added")
        killed(server)
    (tmp_path / "go1").unlink()
    (tmp_path / "asked1").unlink()
    with again(tmp_path, server, **settings) as restarted, ExitStack() as stack:
        query = f"&conversation_id={conversation(talk)}"
        talks = []
        for number in (1, 2):
            talks.append(stack.enter_context(Talk(restarted, greeted=False, query=query)))
            wait_until((tmp_path / f"asked{number}").exists)
        first, second = talks
        (tmp_path / "go1").touch()
        first.until("rejoinder.resumed")
        (tmp_path / "go2").touch()
        second.until("rejoinder.resumed")
        with pytest.raises(ConnectionClosed, match="another"):
            first.until("never")
        second.send("response.create")
        assert second.until("response.done")["response"]["status"] == "completed"
