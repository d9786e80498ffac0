"""/calls of a running server: who may read it, what it says of calls, and the same in a terminal."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from support.servers.in_process import served_here, until
from support.serving import LINE, PATIENCE, SCRIPTED
from typer.testing import CliRunner
from websockets.asyncio.client import ClientConnection, connect

from rejoinder.agent.cli import calls_terminal as terminal
from rejoinder.agent.cli.app import app
from rejoinder.agent.cli.views.calls import heard_and_cut, lists_view
from rejoinder.agent.config import ConfigError, load
from rejoinder.agent.server.calls import endpoints
from rejoinder.agent.server.keys import hashed
from rejoinder.agent.server.server import Server as Program

pytestmark = pytest.mark.server
HOSTILE = "<img src=x onerror=alert(1)> \x1b[2J"
TOOL = {"type": "function", "name": "look", "description": "Look.", "parameters": {"type": "object"}}
CALLS_TOOL = 'scripted:llm|Let me see. @look {"place": "Rome"}|It is warm.'


async def fetched(port: int, path: str, **headers: str) -> tuple[int, Any]:
    """Return the status and the JSON of a page, or its text."""

    def fetch() -> tuple[int, Any]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                status, body = response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                status, body = error.code, error.read().decode()
        try:
            return status, json.loads(body)
        except ValueError:
            return status, body

    return await asyncio.to_thread(fetch)


@asynccontextmanager
async def call(port: int) -> AsyncIterator[ClientConnection]:
    """Open a Realtime call that answers in text, which takes no time to play."""
    async with asyncio.timeout(PATIENCE):
        async with connect(f"ws://127.0.0.1:{port}/v1/realtime", proxy=None) as client:
            session = {"type": "realtime", "output_modalities": ["text"], "tools": [TOOL]}
            await client.send(json.dumps({"type": "session.update", "session": session}))
            yield client


async def ask(client: ClientConnection, text: str) -> dict[str, Any]:
    """Type a question and return the response to it."""
    content = [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": "user", "content": content}
    await client.send(json.dumps({"type": "conversation.item.create", "item": item}))
    await client.send(json.dumps({"type": "response.create"}))
    return await answered(client)


async def answered(client: ClientConnection) -> dict[str, Any]:
    while (event := json.loads(await client.recv()))["type"] != "response.done":
        pass
    response: dict[str, Any] = event["response"]
    return response


async def ended(program: Program, number: int = 1) -> None:
    await until(lambda: program.book.ended == number)


def test_running_and_earlier_calls_are_listed_and_shown_whole(tmp_path: Path) -> None:
    file = tmp_path / "calls.db"

    async def hold() -> None:
        async with served_here(llm=f"scripted:llm|{LINE}", calls_db=str(file)) as (program, port):
            async with call(port) as client:
                await client.send(json.dumps({"type": "input_audio_buffer.append", "audio": ""}))
                await ask(client, HOSTILE)
                (live,) = (await fetched(port, "/calls/api/calls"))[1]["live"]
                assert live["live"] and live["floor"] == "nobody" and live["turn_count"] == 1
                status, now = await fetched(port, f"/calls/api/calls/{live['id']}")
                assert status == 200 and now["live"] and now["turns"][0]["text"] == LINE
            await ended(program)
            listed = (await fetched(port, "/calls/api/calls?words=onerror"))[1]
            assert [one["id"] for one in listed["calls"]] == [live["id"]] and listed["live"] == []
            assert (await fetched(port, "/calls/api/calls?errors=1"))[1]["calls"] == []
            assert (await fetched(port, "/calls/api/calls?since=monday"))[0] == 400
            assert (await fetched(port, "/calls/api/calls/nothing"))[0] == 404
            by_log = (await fetched(port, f"/calls/api/calls/{live['call']}"))[1]
            assert by_log["id"] == live["id"] and by_log["turns"][0]["said"] == HOSTILE
        async with served_here(calls_db=str(file)) as (_, port):  # another process finds it again
            (kept,) = (await fetched(port, "/calls/api/calls"))[1]["calls"]
            assert kept["id"] == live["id"]
            assert (await fetched(port, f"/calls/api/calls/{live['id']}"))[1] == by_log

    asyncio.run(hold())


def test_tool_call_has_its_result_and_the_export_has_lines() -> None:
    async def hold() -> None:
        async with served_here(llm=CALLS_TOOL) as (program, port):
            async with call(port) as client:
                *_, asked = (await ask(client, "How is Rome?"))["output"]
                output = {"type": "function_call_output", "call_id": asked["call_id"], "output": "22 degrees"}
                await client.send(json.dumps({"type": "conversation.item.create", "item": output}))
                await client.send(json.dumps({"type": "response.create"}))
                await answered(client)
            await ended(program)
            status, whole = await fetched(port, "/calls/api/export")
            assert status == 200
            (tool,) = whole["turns"][0]["tools"]
            assert (tool["name"], json.loads(tool["arguments"])) == ("look", {"place": "Rome"})
            assert tool["result"] == "22 degrees" and tool["ms"] >= 0.0 and not tool["failed"]
            assert whole["turns"][1]["models"] == ["scripted"]
            _, lines = await fetched(port, "/calls/api/export?form=turns")
            turns = [json.loads(line) for line in lines.splitlines()]
            assert [turn["said"] for turn in turns] == ["How is Rome?", ""]
            assert (await fetched(port, "/calls/api/export?form=csv"))[0] == 400

    asyncio.run(hold())


def test_stream_sends_what_has_changed_and_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(endpoints, "MAX_READERS", 1)

    async def hold() -> None:
        async with served_here(llm=f"scripted:llm|{LINE}") as (program, port), call(port) as client:
            await until(lambda: bool(program.book.live))
            (id_,) = program.book.live
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET /calls/api/live?call={id_} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())

            async def message() -> dict[str, Any]:
                while not (line := await reader.readline()).startswith(b"data: "):
                    assert line, "the stream has ended"
                found: dict[str, Any] = json.loads(line[6:])
                return found

            first = await message()
            assert [one["id"] for one in first["live"]] == [id_] and first["call"]["turns"] == []
            assert (await fetched(port, "/calls/api/live"))[0] == 429, "another one would be too many"
            await ask(client, "Hello.")
            while not (turns := (await message()).get("call", {}).get("turns")):
                pass
            assert turns[0]["said"] == "Hello." and turns[0]["number"] == 1
            await client.close()
            while (last := await message())["live"]:
                pass
            assert last["ended"] == 1
            status = 429
            while status == 429:  # until the server has noticed
                writer.transport.abort()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                head = "GET /calls/api/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
                writer.write(head.encode())
                status = int((await reader.readline()).split()[1])
            assert status == 200, "the place of a client that has left is free again"
            program.end_streams()
            assert (await reader.read()).endswith(b"0\r\n\r\n"), "it ends in order with the server"
            writer.close()

    asyncio.run(hold())


PATHS = ("/calls", "/calls/api/calls", "/calls/api/calls/x", "/calls/api/export", "/calls/api/live")


def test_without_a_key_only_this_machine_reads_calls() -> None:
    async def check() -> None:
        async with served_here(host="0.0.0.0", open_to_all=True, api_keys=hashed("rj_other")) as (_, port):
            assert [(await fetched(port, path))[0] for path in PATHS] == [404] * len(PATHS)
        async with served_here(api_keys=hashed("rj_other")) as (_, port):
            assert (await fetched(port, "/calls"))[0] == 200
            assert (await fetched(port, "/calls/api/calls"))[0] == 200
            for path in PATHS:
                proxied = await fetched(port, path, **{"X-Forwarded-For": "127.0.0.1"})
                assert proxied == (404, "Not Found\n"), path
                assert (await fetched(port, path, Host="evil.example"))[0] == 403, path
            assert (await fetched(port, PATHS[1], Origin="https://evil.example"))[0] == 403
        async with served_here(public_url="https://agent.example.com") as (_, port):
            assert (await fetched(port, "/calls"))[0] == 404, "a proxy that names no client looks local"
        async with served_here(calls_page=False) as (_, port):
            assert [(await fetched(port, path))[0] for path in PATHS] == [404] * len(PATHS)

    asyncio.run(check())


def test_with_a_key_only_its_holders_read_calls() -> None:
    async def check() -> None:
        key = {"Authorization": "Bearer rj_calls"}
        proxy = {"X-Forwarded-For": "192.0.2.1", "Host": "agent.example.com"}
        given = {"calls_key": f"{hashed('rj_calls')} {hashed('rj_two')}", "api_keys": hashed("rj_other")}
        async with served_here(**given) as (_, port):
            for path in PATHS[1:]:
                for headers in ({}, proxy, {"Authorization": "Bearer rj_other"}):
                    status, body = await fetched(port, path, **headers)
                    assert status == 401 and "calls_key" in body["error"]["message"], path
                    wrong = body["error"]["message"].startswith("this key is none of those")
                    assert wrong == ("Authorization" in headers)
            assert (await fetched(port, "/calls", **proxy))[0] == 200, "the page asks for the key"
            assert (await fetched(port, "/calls/api/calls", **proxy, **key))[0] == 200
            status, _ = await fetched(port, "/calls/api/calls", Authorization="Bearer rj_two")
            assert status == 200
            evil = await fetched(port, "/calls/api/calls", **key, Origin="https://evil.example")
            assert evil[0] == 403

    asyncio.run(check())


def test_broken_database_hurts_no_call_and_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "calls.db"

    async def hold() -> None:
        async with served_here(llm=f"scripted:llm|{LINE}", calls_db=str(file)) as (program, port):
            with closing(sqlite3.connect(file)) as db:
                db.execute("DROP TABLE calls")
            async with call(port) as client:
                assert (await ask(client, "Hello."))["status"] == "completed"
            assert program.telemetry.metrics is not None
            value = program.telemetry.metrics.meters.registry.get_sample_value
            await until(lambda: bool(value("rejoinder_kept_calls_total", {"outcome": "failed"})))
            status, body = await fetched(port, "/calls/api/calls")
            assert status == 503 and "see the log" in body["error"]["message"]

    asyncio.run(hold())
    assert any("calls are not kept now" in line for line in caplog.messages)


def test_settings_that_cannot_work_are_refused_at_the_start(tmp_path: Path) -> None:
    settings, _ = load({**SCRIPTED, "calls_db": str(tmp_path)})
    with pytest.raises(ConfigError, match="calls_db: cannot open"):
        Program(settings, lambda name, seconds: None, lambda error: None)
    with pytest.raises(ConfigError, match="calls-key has to be the hashes of keys") as refused:
        load({"calls_key": "rj_the_key_itself"})
    assert "rj_the_key_itself" not in str(refused.value)


def test_terminal_shows_the_same_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command runs in a thread of this process: to start one takes longer than the whole test."""
    seen: list[int] = []

    def interrupt(*given: Any) -> None:
        raise KeyboardInterrupt

    def until_one_has_ended(live: Any, earlier: Any) -> Any:
        seen.append(len(live))
        return interrupt() if earlier else lists_view(live, earlier)

    monkeypatch.setattr(terminal, "lists_view", until_one_has_ended)
    monkeypatch.setattr(terminal.time, "sleep", interrupt)  # a lost stream ends the command, too

    async def hold() -> None:
        async with served_here(llm=CALLS_TOOL, calls_key=hashed("rj_calls")) as (program, port):

            async def shown(*arguments: str, key: str = "rj_calls") -> tuple[int, str]:
                given = ["calls", *arguments, "--url", f"http://127.0.0.1:{port}", "--key", key]
                wide = {"COLUMNS": "150", "TERM": "dumb"}
                ran = await asyncio.to_thread(CliRunner().invoke, app, given, env=wide)
                return ran.exit_code, ran.output

            async with call(port) as client:
                await ask(client, HOSTILE)
                watching = asyncio.create_task(shown())
                await until(lambda: bool(seen))
            status, text = await watching
            assert (status, seen[0]) == (0, 1), "it ran until the call was among the earlier ones"
            await ended(program)
            status, text = await shown("--once", "--json")
            (summary,) = json.loads(text)["calls"]
            status, text = await shown(summary["id"])
            assert status == 0 and "onerror" in text and "look({" in text and "\x1b" not in text
            status, text = await shown(summary["call"], "--json")
            assert json.loads(text)["turns"][0]["said"] == HOSTILE
            status, text = await shown("nothing")
            assert status == 1 and "no such call" in text
            for arguments in (("--once",), ()):
                status, text = await shown(*arguments, key="rj_wrong")
                assert status == 1 and "calls_key" in text

    asyncio.run(hold())


def test_words_that_were_cut_in_the_terminal() -> None:
    heard, cut = heard_and_cut("Good day. How are you?", "Good day. How")
    assert (heard.plain, cut.plain, cut.style) == ("Good day. How ", "are you?", "dim strike")
    heard, cut = heard_and_cut("Good day.", "Good day. ")
    assert (heard.plain, cut.plain) == ("Good day.", "")
