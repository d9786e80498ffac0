"""A reply and its parts: the commit gate, the outcome, the output, and what the history gets of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.agent.simulate import virtual_clock
from rejoinder.pipeline import (
    AudioChunk,
    History,
    Message,
    ModelError,
    Options,
    ProtocolError,
    ReplyRequest,
    Tools,
)
from rejoinder.pipeline.audio.chunk import RATE
from rejoinder.pipeline.engines.deadline import GUESS_SECONDS, PARTIAL_SECONDS
from rejoinder.pipeline.engines.load_shedding import LoadLevel, LoadShedder
from rejoinder.pipeline.interfaces import NO_TOOLS
from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks
from rejoinder.pipeline.replying.commit_gate import CommitGate
from rejoinder.pipeline.replying.generation import Generation
from rejoinder.pipeline.replying.prompt_warmer import PromptWarmer
from rejoinder.pipeline.replying.reply import Reply, ReplySettings
from rejoinder.pipeline.replying.reply_builder import ReplyBuilder
from rejoinder.pipeline.replying.reply_outcome import ReplyOutcome
from rejoinder.pipeline.replying.reply_records import LEAST_HEARD_SECONDS, MAX_SETTLED, ReplyRecords
from rejoinder.pipeline.turns.agent_side import AgentSide

FAILURE = ModelError("test", "out of order")
WEATHER = Tools([{"type": "function", "function": {"name": "weather"}}])


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run in virtual time."""
    virtual_clock.run(coroutine)


# --- the commit gate ------------------------------------------------------------------------------------


def test_the_gate_opens_once_and_pauses_as_often_as_needed() -> None:
    gate = CommitGate()
    assert (gate.committed, gate.paused) == (False, False)
    gate.pause()
    gate.commit()
    assert (gate.committed, gate.paused) == (True, True), "a reply may be paused when it is committed"
    assert gate.resume() and not gate.resume(), "only the first one resumes"
    gate.commit()
    assert (gate.committed, gate.paused) == (True, False)


def test_what_waits_at_the_gate_goes_on_when_it_opens() -> None:
    async def main() -> None:
        gate, passed = CommitGate(), list[str]()
        gate.pause()

        async def stage() -> None:
            await gate.wait_committed()
            passed.append("committed")
            await gate.wait_running()
            passed.append("running")

        task = asyncio.create_task(stage())
        await asyncio.sleep(1.0)
        assert passed == []
        gate.commit()
        await asyncio.sleep(1.0)
        assert passed == ["committed"]
        gate.resume()
        await task
        assert passed == ["committed", "running"]

    run(main())


# --- the outcome ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verbs", "status"),
    [
        ("", ""),
        ("shorten", ""),
        ("interrupt", ""),
        ("finish", "completed"),
        ("shorten finish", "incomplete"),
        ("fail", "failed"),
        ("shorten fail", "failed"),
        ("cancel", "cancelled"),
        ("interrupt cancel", "cancelled"),
        ("finish interrupt", "completed"),
        ("finish shorten", "completed"),
    ],
)
def test_a_reply_ends_with_a_status(verbs: str, status: str) -> None:
    outcome = ReplyOutcome()
    for verb in verbs.split():
        outcome.fail(FAILURE) if verb == "fail" else getattr(outcome, verb)()
    assert (outcome.status, outcome.ended) == (status, bool(status))
    assert outcome.failed == (outcome.error is FAILURE) == (status == "failed")
    assert outcome.interrupted == ("interrupt" in verbs)


@pytest.mark.parametrize(
    "second", [ReplyOutcome.finish, ReplyOutcome.cancel, lambda outcome: outcome.fail(FAILURE)]
)
@pytest.mark.parametrize(
    "first", [ReplyOutcome.finish, ReplyOutcome.cancel, lambda outcome: outcome.fail(FAILURE)]
)
def test_a_reply_ends_once(first: Any, second: Any) -> None:
    outcome = ReplyOutcome()
    first(outcome)
    before = outcome.status, outcome.error
    with pytest.raises(RuntimeError, match=f"the reply is {outcome.status}: it cannot become"):
        second(outcome)
    assert (outcome.status, outcome.error) == before


def test_an_error_decides_whether_a_reply_failed() -> None:
    finished, failed = ReplyOutcome(), ReplyOutcome()
    finished.end(None)
    failed.end(FAILURE)
    assert (finished.status, failed.status, failed.error) == ("completed", "failed", FAILURE)


# --- the output -----------------------------------------------------------------------------------------


def slice_of(seconds: float) -> AudioChunk:
    return AudioChunk(bytes(2 * int(seconds * RATE)), RATE)


def test_a_reply_in_text_only_is_heard_as_it_was_sent() -> None:
    async def main() -> None:
        reply = Reply(1, settings=ReplySettings(speaks=False))
        reply.commit()
        assert reply.output.deadline.due is not None
        for word in ("It ", "rains. "):
            reply.output.add_text(word)
        assert reply.output.heard(0.0) == "It rains."
        assert reply.output.deadline.due is None, "text has no play-out that could run dry"
        assert not reply.output.complete
        reply.output.end()
        assert reply.output.complete

    run(main())


def test_a_reply_has_played_when_its_audio_has_and_not_while_it_is_paused() -> None:
    async def main() -> None:
        reply, loop = Reply(1, settings=ReplySettings(holds_audio=True)), asyncio.get_running_loop()
        reply.commit()
        reply.output.playout.begin("One two.")
        reply.output.add_synthesised(2.0)
        reply.output.sent("One two.", slice_of(2.0), ((0.5, 3), (1.9, 8)))
        reply.output.playout.end()
        begun, waiting = loop.time(), asyncio.create_task(reply.output.wait_played())
        await asyncio.sleep(1.0)
        reply.output.pause()
        await asyncio.sleep(5.0)
        assert reply.output.heard(reply.output.playout.played(loop.time())) == "One"
        reply.output.resume()
        await waiting
        assert loop.time() - begun == pytest.approx(7.0)
        assert reply.output.heard(reply.output.playout.played(loop.time())) == "One two."

    run(main())


@given(st.lists(st.sampled_from(("make", "send", "pause", "resume", "commit")), max_size=12))
def test_more_audio_is_due_when_the_synthesised_audio_runs_out(steps: list[str]) -> None:
    async def main() -> None:
        reply, loop, unsent = Reply(1), asyncio.get_running_loop(), 0
        for step in steps:
            match step:
                case "make":
                    reply.output.add_synthesised(0.5)
                    unsent += 1
                case "send" if reply.committed and not reply.gate.paused and unsent:
                    reply.output.sent("", slice_of(0.5), ())
                    unsent -= 1
                case "pause":
                    reply.output.pause()
                case "resume":
                    reply.output.resume()
                case "commit":
                    reply.commit()
        due = reply.output.deadline.due
        assert (due is not None) == (reply.committed and not reply.gate.paused)
        if due is not None:
            assert due == pytest.approx(loop.time() + reply.output.playout.left(loop.time()) + unsent * 0.5)

    run(main())


# --- a reply and its tasks ------------------------------------------------------------------------------


def test_a_cancelled_reply_ends_with_the_tasks_that_it_owns() -> None:
    async def main() -> None:
        reply, cancelled, ended = Reply(1), CancelledTasks(), list[str]()

        async def sleep(name: str) -> None:
            try:
                await asyncio.sleep(9.0)
            finally:
                ended.append(name)

        assert reply.task is None
        reply.cancel()
        reply.start(sleep("reply"), "reply-1")
        reply.own(asyncio.create_task(sleep("play")))
        await asyncio.sleep(1.0)
        assert reply.task is not None and reply.task.get_name() == "reply-1"
        reply.cancel()
        cancelled.add(reply.task)
        assert len(cancelled) == 1
        await cancelled.wait()
        await cancelled.wait()
        assert (sorted(ended), len(cancelled)) == (["play", "reply"], 0)

    run(main())


def test_a_task_that_does_not_end_is_cancelled_again() -> None:
    async def main() -> None:
        cancelled = CancelledTasks()

        async def stubborn() -> None:
            try:
                await asyncio.sleep(9.0)
            except asyncio.CancelledError:
                await asyncio.sleep(9.0)

        task, begun = asyncio.create_task(stubborn()), asyncio.get_running_loop().time()
        await asyncio.sleep(1.0)
        task.cancel()
        cancelled.add(task)
        await asyncio.sleep(1.0)
        cancelled.cancel_again()
        await cancelled.wait()
        assert asyncio.get_running_loop().time() - begun == pytest.approx(2.0)

    run(main())


# --- the settings and the prompt ------------------------------------------------------------------------


def test_a_request_overrides_the_options_of_its_session() -> None:
    options = Options(speaks=False, tools=WEATHER, max_tokens=7, max_reply_s=9.0, holds_audio=True)
    plain = ReplySettings("", False, WEATHER, 7, 9.0, True)
    assert ReplySettings.of(ReplyRequest(), options) == plain
    other = ReplyRequest(speaks=True, tools=Tools(), max_tokens=0, words="Hello.")
    assert ReplySettings.of(other, options) == ReplySettings("Hello.", True, Tools(), 0, 9.0, True)


def user(text: str) -> Message:
    return Message(role="user", content=text)


def test_replies_are_numbered_and_know_their_prompt() -> None:
    history = History("be kind")
    builder, options = ReplyBuilder(history, LoadShedder(), None), Options()
    history.add_user("hello")
    system = Message(role="system", content="be kind")
    first = builder.in_conversation(
        ReplyRequest(), options, "there", is_guess=True, marks={"pause_seen": 1.0}
    )
    assert (first.id, first.text, first.is_guess) == (1, "there", True)
    assert first.generation.messages == [system, user("hello there")]
    assert (first.trace.said, first.trace.marks) == ("there", {"pause_seen": 1.0})
    cued = builder.in_conversation(ReplyRequest(cue="(silence)"), options)
    assert (cued.id, cued.text) == (2, "") and cued.generation.messages == [system, user("hello (silence)")]
    spoken = builder.in_conversation(ReplyRequest(words="Hi."), options)
    assert (spoken.id, spoken.generation.messages) == (3, [])
    aside = builder.out_of_band(ReplyRequest(prompt=[], instructions="be brief"), options)
    assert (aside.id, aside.generation.messages) == (4, [Message(role="system", content="be brief")])


def test_only_replies_of_a_loaded_machine_without_tools_end_early() -> None:
    shedder = LoadShedder()
    builder = ReplyBuilder(History(), shedder, None)
    plain, tools = Options(), Options(tools=WEATHER)
    assert not builder.in_conversation(ReplyRequest(), plain).generation.ends_early
    shedder.level = LoadLevel.LENGTH
    assert builder.in_conversation(ReplyRequest(), plain).generation.ends_early
    assert not builder.in_conversation(ReplyRequest(), tools).generation.ends_early
    assert not builder.out_of_band(ReplyRequest(), plain).generation.ends_early


def test_a_prompt_that_is_too_long_is_refused_when_the_request_begins() -> None:
    history = History(tokens=10)
    history.retention = None
    history.add_user("more than ten characters")
    reply = ReplyBuilder(history, LoadShedder(), None).in_conversation(ReplyRequest(), Options())
    with pytest.raises(ProtocolError, match="truncation is off"):
        reply.generation.begin()
    Generation().begin()


def test_a_reply_takes_over_the_deadline_of_the_prompt_that_is_being_sent() -> None:
    warmer = PromptWarmer(object(), History(), LoadShedder())  # type: ignore[arg-type]
    first, second = warmer.take_deadline(), warmer.take_deadline()
    assert first is not second
    assert first.slack == second.slack == GUESS_SECONDS < PARTIAL_SECONDS


@pytest.mark.parametrize("tools", [NO_TOOLS, Tools([{"type": "function", "function": {"name": "stop"}}])])
def test_a_prompt_is_warmed_with_the_tools_of_the_reply(tools: Tools) -> None:
    """A model that cannot warm prompts with tools gets the prompt without them."""
    warmed: list[object] = []

    class Plain:
        async def warm(self, messages: object) -> None:
            warmed.append(None)

    class Able(Plain):
        async def warm_answer(self, messages: object, tools: Tools) -> None:
            warmed.append(tools)

    async def warm() -> None:
        for model in (Plain(), Able()):
            warmer = PromptWarmer(model, History(), LoadShedder())  # type: ignore[arg-type]
            warmer.warm("Hello", tools)
            assert warmer.task is not None
            await warmer.task

    asyncio.run(warm())
    assert warmed == [None, tools if tools.functions else None]


# --- what the history gets ------------------------------------------------------------------------------


def settled(interrupted: bool, count: int = 1) -> tuple[History, AgentSide, ReplyRecords, list[Reply]]:
    history, agent = History(), AgentSide()
    replies, records = [Reply(number) for number in range(1, count + 1)], ReplyRecords(history, agent)
    for reply in replies:
        history.begin_reply(reply.id)
        reply.output.playout.begin("One two.")
        reply.output.playout.sent(1.0, 0.0, ((0.2, 3), (0.9, 8)))
        reply.output.playout.end()
        if interrupted:
            reply.outcome.interrupt()
    return history, agent, records, replies


@pytest.mark.parametrize(
    ("interrupted", "played", "cut", "heard"),
    [
        (False, 1.0, False, "One two."),
        (False, LEAST_HEARD_SECONDS - 0.01, True, "One"),
        (True, LEAST_HEARD_SECONDS - 0.01, True, ""),
        (True, LEAST_HEARD_SECONDS, True, "One"),
        (True, 1.0, False, "One two."),
    ],
)
def test_the_history_gets_the_heard_words(interrupted: bool, played: float, cut: bool, heard: str) -> None:
    history, agent, records, (reply,) = settled(interrupted)
    records.settle(reply, played, cut)
    (entry,) = history.entries
    assert (entry.text, entry.cut, agent.asked) == (heard, cut, heard)
    assert records.last is reply and records.numbered({1}) == [reply]


def test_the_last_replies_can_be_corrected() -> None:
    history, _, records, replies = settled(False, MAX_SETTLED + 1)
    assert records.last is None and records.truncate(1, 0.5) is None
    for reply in replies:
        records.settle(reply, 1.0, cut=False)
    assert records.truncate(1, 0.5) is None, "too old"
    assert [records.truncate(2, played) for played in (0.5, 1.0, 0.0)] == ["One", "One two.", ""]
    assert [entry.text for entry in history.entries][:3] == ["One two.", "", "One two."]
    assert records.last is replies[-1] and records.numbered({2, 9, 99}) == [replies[1], replies[8]]
