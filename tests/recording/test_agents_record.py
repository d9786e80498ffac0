"""Agents begin and end recordings: ``call.record`` and ``call.stop_recording``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.callers.recorded import Client, Recorded

from rejoinder import Agent, Call, ToolError
from rejoinder.agent.app.agent_call import AgentCall
from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.app.call_line import CallLine
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.runs import ToolRuns
from rejoinder.agent.recording.no_recorder import NoRecorder
from rejoinder.agent.simulate import virtual_clock
from rejoinder.pipeline import Options


class RecordingAgent(Recorded):
    """A call with an agent. done: what its task has noted."""

    def __init__(self, folder: Path, agent: Agent, client: Client | None = None, **settings: object) -> None:
        super().__init__(folder, client or Client([], until=10.0), **settings)
        self.host = AgentHost(agent)

    async def agent_call(self) -> AgentCall | None:
        return await self.host.answer(CallInfo("call-1"), Options())


def test_agent_begins_and_ends_a_recording(tmp_path: Path) -> None:
    agent, noted = Agent("You answer."), list[float]()

    async def work(call: Call) -> None:
        await asyncio.sleep(1.0)
        await call.record()
        noted.append(asyncio.get_running_loop().time())
        await asyncio.sleep(3.0)
        call.stop_recording()

    tasks: list[asyncio.Task[None]] = []

    @agent.on_call
    async def begin(call: Call) -> None:
        tasks.append(asyncio.create_task(work(call)))

    (recording,) = RecordingAgent(
        tmp_path, agent, recording="on_request", recording_announcement="We record this."
    ).run([], [])
    assert recording.ended == "stopped" and recording.announced
    assert noted[0] > 1.5, "it returns when the caller knows"
    assert recording.seconds == pytest.approx(noted[0] - 1.0 + 3.0, abs=0.4)


def test_agent_that_changes_its_options_does_not_make_the_announcement_interruptible(tmp_path: Path) -> None:
    agent = Agent("You answer.")

    async def change(call: Call) -> None:
        await asyncio.sleep(0.4)
        call.instructions = "You answer in one sentence."

    tasks: list[asyncio.Task[None]] = []

    @agent.on_call
    async def begin(call: Call) -> None:
        tasks.append(asyncio.create_task(change(call)))

    client = Client([(0.6, 1.5)], until=9.0)
    call = RecordingAgent(tmp_path, agent, client, recording_announcement="We record this, as we always do.")
    (recording,) = call.run(["no, tomorrow please"], ["Fine."])
    assert recording.announced
    assert [one["response"]["status"] for one in client.of("response.done")] == ["completed"] * 2


def test_agent_of_a_server_without_recordings_reads_why() -> None:
    async def main() -> None:
        line = CallLine(None, ToolRuns(), bool, bool, bool, NoRecorder())  # type: ignore[arg-type]
        with pytest.raises(ToolError, match="records no calls"):
            await line.record(True)
        line.stop_recording()

    virtual_clock.run(main())
