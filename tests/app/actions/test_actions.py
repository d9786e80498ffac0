"""Call actions in virtual time: when they happen, what interrupts them, and what the history keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from rejoinder.agent.app.actions import hang_up, hold, play_from, say_from, send_digits, transfer_to
from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call, NotConnected
from rejoinder.agent.app.call_actions import LAST_WORDS_S
from rejoinder.agent.app.control import CallControl, NoControl, cannot
from rejoinder.agent.app.recordings import load_recording
from rejoinder.agent.app.runs import CANCELLED
from rejoinder.agent.app.tones import COLUMNS, ROWS, TONE_KEYS, TONE_MS, tones
from rejoinder.agent.app.tool import ToolError
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.agent.simulate.virtual_clock import standing_still
from rejoinder.pipeline import EndOfTurn, Message, ReplyAudio, ReplyDone, ReplyStarted, ToolCall, Tools

WORDS = "One moment, I am putting you through to our sales team."


class Caller:
    """A language model that says a sentence and calls a tool at first, and then tells the result."""

    def __init__(self, name: str, arguments: str = "{}") -> None:
        self.open = 0
        self.prompts: list[Sequence[Message]] = []
        self._call = ToolCall("c1", name, arguments)

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        yield "No tools."

    async def warm(self, messages: Sequence[Message]) -> None:
        """Do nothing."""

    async def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        self.open += 1
        self.prompts.append(messages)
        try:
            await asyncio.sleep(0.05)
            results = [one["content"] for one in messages if one["role"] == "tool"]
            if results:
                yield "Yes." if messages[-1]["role"] == "user" else f"Told: {results[-1]}"
            else:
                yield WORDS
                yield self._call
        finally:
            self.open -= 1


class Line(CallControl):
    """A line that records what it is asked. error: what it cannot do. takes: seconds of each action."""

    def __init__(self, error: str = "", takes: float = 0.0) -> None:
        self.log: list[tuple[float, str]] = []
        self.error = error
        self.takes = takes
        self.unplayed = False

    @property
    def playing(self) -> bool:
        return self.unplayed

    async def act(self, action: str) -> None:
        self.log.append((round(asyncio.get_running_loop().time(), 2), action))
        await asyncio.sleep(self.takes)
        if self.error:
            raise cannot(self.error)

    async def hang_up(self) -> None:
        await self.act("hang up")

    async def transfer(self, to: str, briefing: str = "") -> None:
        await self.act(f"transfer {to} {briefing}".strip())

    async def send_digits(self, digits: str) -> None:
        await self.act(f"press {digits}")

    async def hold(self) -> None:
        await self.act("hold")

    async def resume(self) -> None:
        await self.act("resume")

    @property
    def actions(self) -> list[str]:
        return [action for _, action in self.log]


def held(tool: Any, arguments: str = "{}", line: CallControl | None = None, name: str = "") -> Talk:
    """Return a call in which the caller says something, and the agent then calls a tool."""
    agent: Agent[None, None] = Agent(tools=[tool])
    llm = Caller(name or tool.__name__, arguments)
    talk = Talk("what is the weather", "wait", "go on", llm=llm, agent=agent, control=line)
    talk.says(0.6, at=0.5)
    return talk


def silent_from(talk: Talk) -> float:
    """Return when the caller had heard the first reply."""
    return [at + event.chunk.seconds for at, event in talk.log if isinstance(event, ReplyAudio)][-1]


SALES = transfer_to({"sales": "+4930123456"})


def test_hang_up_waits_for_the_last_word_and_says_no_more() -> None:
    line = Line()
    talk = held(hang_up, line=line).run(12.0)
    [(at, action)] = line.log
    assert action == "hang up" and at >= silent_from(talk)
    assert talk.call.ended == "the agent has ended the call" and len(talk.llm.prompts) == 1
    assert [done.heard for done in talk.of(ReplyDone)] == [WORDS]


def test_hang_up_waits_for_what_the_line_has_not_played_but_not_forever() -> None:
    line = Line()
    line.unplayed = True
    talk = held(hang_up, line=line)
    talk.run(16.0)
    assert talk.call.ended, "a report that is lost does not keep the call"
    assert line.log[0][0] >= silent_from(talk) + LAST_WORDS_S


def test_carrier_that_does_not_hang_up_does_not_keep_the_call() -> None:
    talk = held(hang_up, line=Line("hang up")).run(12.0)
    assert talk.call.ended == "the agent has ended the call"


def test_transfer_leaves_the_call_without_hanging_up() -> None:
    line = Line(takes=1.0)
    talk = held(SALES, '{"to": "sales"}', line).run(12.0)
    assert line.actions == ["transfer +4930123456"], "hanging up would end the transferred call"
    assert talk.call.ended == "transferred to +4930123456" and len(talk.llm.prompts) == 1


def test_warm_transfer_passes_the_briefing() -> None:
    line = Line()
    tool = transfer_to({"sales": "200"}, warm=True)
    held(tool, '{"to": "sales", "briefing": "Ada asks."}', line).run(12.0)
    assert line.actions == ["transfer 200 Ada asks."]


def test_model_cannot_choose_another_number() -> None:
    line = Line()
    talk = held(SALES, '{"to": "+19005550100"}', line).run(12.0)
    assert not line.log and "The arguments do not fit" in talk.llm.prompts[-1][-1]["content"]


@pytest.mark.parametrize("line", [NoControl(), Line("transfer calls")], ids=["wire", "carrier"])
def test_model_is_told_that_a_transfer_failed_and_the_call_goes_on(line: CallControl) -> None:
    talk = held(SALES, '{"to": "sales"}', line)
    talk.run(14.0)
    assert talk.of(ReplyDone)[-1].heard == "Told: This line cannot transfer calls."
    assert talk.call.ended == "the caller has left"


@pytest.mark.parametrize("start_ms", range(1_500, 6_000, 250))
def test_caller_who_speaks_before_a_transfer_prevents_it(start_ms: int) -> None:
    """Words over the announcement or just after it cancel the transfer, unless it has happened."""
    line = Line(takes=0.3)
    talk = held(SALES, '{"to": "sales"}', line)
    talk.says(0.6, at=start_ms / 1000)
    talk.run(16.0)
    if talk.call.ended.startswith("transferred"):
        assert line.actions == ["transfer +4930123456"]
        assert line.log[0][0] >= silent_from(talk), "the announcement was heard"
    else:
        results = [one["content"] for one in talk.llm.prompts[-1] if one["role"] == "tool"]
        assert results in ([], [CANCELLED])


def test_digits_are_pressed_and_nothing_is_said_about_it() -> None:
    line = Line()
    talk = held(send_digits, '{"digits": "42#"}', line).run(12.0)
    assert line.actions == ["press 42#"]
    assert len(talk.llm.prompts) == 1, "the other side listens for digits, not for words"


class Tones(NoControl):
    """A line without a command for digits."""

    tones = True


def test_digits_are_tones_where_the_line_has_no_command() -> None:
    talk = held(send_digits, '{"digits": "42#"}', Tones()).run(12.0)
    assert [done.heard for done in talk.of(ReplyDone)] == [WORDS, "(pressed 42#)"]
    last = talk.of(ReplyStarted)[-1].turn
    heard = b"".join(event.chunk.pcm for event in talk.of(ReplyAudio) if event.turn == last)
    assert heard == tones("42#").pcm


def test_line_without_digits_says_so() -> None:
    talk = held(send_digits, '{"digits": "1"}', NoControl()).run(12.0)
    assert talk.of(ReplyDone)[-1].heard == "Told: This line cannot send digits."


@pytest.mark.parametrize("key", TONE_KEYS)
def test_tone_has_the_two_frequencies_of_its_key(key: str) -> None:
    """Goertzel's measure at all eight frequencies: the two of the key are 20 dB above the others."""
    chunk = tones(key)
    samples = chunk.samples()[: chunk.rate * TONE_MS // 1000]
    times = np.arange(len(samples)) / chunk.rate
    power = {
        frequency: abs(np.sum(samples * np.exp(-2j * np.pi * frequency * times)))
        for frequency in (*ROWS, *COLUMNS)
    }
    loudest = sorted(power, key=lambda frequency: -power[frequency])
    row, column = divmod(TONE_KEYS.index(key), 4)
    assert set(loudest[:2]) == {ROWS[row], COLUMNS[column]}
    assert power[loudest[1]] > 10 * power[loudest[2]]
    assert np.abs(chunk.samples()).max() <= 0.51 and not chunk.samples()[len(samples) :].any()


def test_hold_is_deaf_and_mute_and_ends() -> None:
    line = Line()
    talk = held(hold, '{"seconds": 5}', line)
    talk.says(0.6, at=7.0)  # nobody hears it
    talk.run(20.0)
    (begun, _), (ended, _) = line.log
    assert line.actions == ["hold", "resume"] and ended - begun == pytest.approx(5.0, abs=0.1)
    assert begun < 7.0 < ended and len(talk.of(EndOfTurn)) == 1
    spoken = [at for at, event in talk.log if isinstance(event, ReplyAudio)]
    assert not [at for at in spoken if begun < at < ended]
    assert talk.of(ReplyDone)[-1].heard == "Told: The caller is back: thank them for holding."


def test_what_the_agent_had_to_say_waits_for_the_end_of_the_hold() -> None:
    agent: Agent[None, None] = Agent()
    line = Line()

    @agent.tool
    async def look_up(call: Call[None, None]) -> str:
        """Look it up."""
        await call.hold()
        await asyncio.sleep(6.0)  # longer than the conversation waits for a tool
        await call.resume()
        return "found"

    talk = Talk("what is the weather", llm=Caller("look_up"), agent=agent, control=line)
    talk.says(0.6, at=0.5)
    talk.run(20.0)
    (begun, _), (ended, _) = line.log
    spoken = [at for at, event in talk.log if isinstance(event, ReplyAudio)]
    assert not [at for at in spoken if begun < at < ended], "it does not talk to music"
    told = [done.heard for done in talk.of(ReplyDone) if done.heard.startswith("Told")]
    assert told[-1] == "Told: found" and told.count("Told: found") == 1


def test_hold_that_the_carrier_refuses_is_none() -> None:
    talk = held(hold, '{"seconds": 5}', Line("play music"))
    talk.says(0.6, at=9.0)
    talk.run(20.0)
    assert talk.of(ReplyDone)[1].heard == "Told: This line cannot play music."
    assert len(talk.of(EndOfTurn)) == 2, "the caller is heard"


def test_caller_who_leaves_on_hold_leaves_no_error(caplog: pytest.LogCaptureFixture) -> None:
    line = Line()
    talk = held(hold, '{"seconds": 20}', line).run(9.0)
    assert line.actions[0] == "hold" and talk.call.ended == "the caller has left"
    assert not caplog.records


# --- recordings -------------------------------------------------------------------------------------------


@pytest.fixture
def jingle(tmp_path: Path) -> Path:
    """Return a file with four seconds of stereo sound at 22.05 kHz."""
    sound = np.random.default_rng(0).uniform(-0.3, 0.3, (4 * 22050, 2))
    soundfile.write(tmp_path / "jingle.wav", sound, 22050)
    return tmp_path / "jingle.wav"


SAID = "welcome to marios the best pizza in town"


def played(jingle: Path, **options: Any) -> Talk:
    agent: Agent[None, None] = Agent(**options)

    @agent.on_turn
    async def welcome(call: Call[None, None], words: str) -> None:
        if not call.transcript[1:]:
            with standing_still():  # a thread reads the file
                await call.play(jingle, SAID)

    talk = Talk("what is the weather", "wait", agent=agent, create_response=False)
    talk.says(0.6, at=0.5)
    return talk


def test_recording_is_played_whole_at_its_own_rate(jingle: Path) -> None:
    talk = played(jingle).run(12.0)
    audio = [event.chunk for event in talk.of(ReplyAudio)]
    assert b"".join(chunk.pcm for chunk in audio) == load_recording(jingle).pcm
    assert {chunk.rate for chunk in audio} == {22050}
    assert [chunk.start for chunk in audio][:2] == [0, 882]
    assert talk.said() == [("user", "what is the weather"), ("assistant", SAID)]


@pytest.mark.parametrize("start_ms", range(2_500, 5_000, 250))
def test_caller_interrupts_a_recording_and_the_history_has_what_was_heard(
    jingle: Path, start_ms: int
) -> None:
    talk = played(jingle)
    talk.says(0.8, at=start_ms / 1000)
    talk.run(10.0)
    done = talk.of(ReplyDone)[0]
    assert done.status == "cancelled" and SAID.startswith(done.heard) and done.heard != SAID
    sent = sum(event.chunk.seconds for event in talk.of(ReplyAudio) if event.turn == done.turn)
    longest = max(map(len, SAID.split()))
    assert 0 <= len(SAID) * sent / 4.0 - len(done.heard) <= longest + 1, "to a word"


def test_tool_plays_a_recording_and_says_nothing_about_it(jingle: Path) -> None:
    play = play_from({"jingle": jingle})

    async def played(call: Call[None, None], recording: str) -> str:
        """Play a recording."""
        with standing_still():
            return await play(call, recording)

    talk = held(played, '{"recording": "jingle"}').run(14.0)
    assert [done.heard for done in talk.of(ReplyDone)] == [WORDS, "(plays jingle)"]
    assert len(talk.llm.prompts) == 1


def test_tool_says_exact_words_once() -> None:
    talk = held(say_from({"notice": SAID}), '{"text": "notice"}').run(14.0)
    assert [done.heard for done in talk.of(ReplyDone)] == [WORDS, SAID]
    assert len(talk.llm.prompts) == 1
    refused = held(say_from({"notice": SAID}), '{"text": "a secret"}').run(14.0)
    assert SAID not in [done.heard for done in refused.of(ReplyDone)]


@pytest.mark.parametrize("content", [None, b"", b"no sound"], ids=["missing", "empty", "text"])
def test_file_that_cannot_be_played_is_told_without_its_path(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "x.wav"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ToolError) as error:
        load_recording(file)
    assert "x.wav" in str(error.value) and str(tmp_path) not in str(error.value)


@pytest.mark.parametrize("seconds", [0, 601])
def test_recording_has_a_length(tmp_path: Path, seconds: int) -> None:
    soundfile.write(tmp_path / "x.wav", np.zeros(seconds * 8000), 8000)
    with pytest.raises(ToolError, match="must have up to 600 s"):
        load_recording(tmp_path / "x.wav")


# --- mistakes ---------------------------------------------------------------------------------------------


def test_destinations_and_recordings_are_needed() -> None:
    with pytest.raises(ValueError, match="at least one destination"):
        transfer_to({})
    with pytest.raises(ValueError, match="at least one recording"):
        play_from({})
    for texts in ({}, {"notice": " "}):
        with pytest.raises(ValueError, match="at least one text"):
            say_from(texts)


def test_actions_need_a_running_call() -> None:
    talk = held(hang_up).run(12.0)

    async def act() -> None:
        for action in (talk.call.transfer("1"), talk.call.hold(), talk.call.resume(), talk.call.play("x")):
            with pytest.raises(NotConnected):
                await action
        with pytest.raises(NotConnected):
            talk.call.hang_up()

    asyncio.run(act())


# --- fillers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.0, 1.0, 2.0, 3.0])
def test_action_does_not_wait_for_the_reply_that_waits_for_it(seconds: float) -> None:
    """A tool takes its time, so that a filler begins the reply to its result, and then transfers the call."""
    agent: Agent[None, None] = Agent()
    line = Line()
    begun: list[float] = []

    @agent.tool
    async def connect(call: Call[None, None]) -> str:
        """Connect the caller."""
        await asyncio.sleep(seconds)
        begun.append(asyncio.get_running_loop().time())
        await call.transfer("200")
        return "done"

    talk = Talk("what is the weather", llm=Caller("connect"), agent=agent, control=line)
    talk.says(0.6, at=0.5)
    talk.run(16.0)
    assert line.actions == ["transfer 200"]
    assert line.log[0][0] - begun[0] < 1.5, "a filler may have to be heard out, and nothing else"
    audible = [at + event.chunk.seconds for at, event in talk.log if isinstance(event, ReplyAudio)]
    assert line.log[0][0] >= max(audible) - 0.25, "what was said was heard, up to what is sent ahead"


def test_no_filler_is_said_while_the_line_plays_the_last_words() -> None:
    line = Line()
    talk = held(SALES, '{"to": "sales"}', line)
    line.unplayed = True
    spoken = silent_from(held(SALES, '{"to": "sales"}', Line()).run(16.0))
    talk.does(lambda session: setattr(line, "unplayed", False), at=spoken + 2.5)
    talk.run(16.0)
    assert line.actions == ["transfer +4930123456"] and line.log[0][0] >= spoken + 2.5
    assert [done.heard for done in talk.of(ReplyDone)] == [WORDS]
