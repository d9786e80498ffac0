"""The watch of calls: what freezes ends with a reason for its caller, a line in the log and a number."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.resuming import DELTA
from support.servers.faults import faulty_serving, metric, talking, until
from support.servers.frozen_models import TURN_STOPPED
from support.serving import Server, Talk, serving
from websockets.frames import CloseCode

from rejoinder.agent.bench.faults.models import HANG_VARIABLE
from rejoinder.agent.server.operating.call_watch import (
    END_SECONDS,
    ENDLESS,
    LATE_SECONDS,
    STUCK,
    CallLimits,
    CallWatch,
    Overdue,
    overdue,
)
from rejoinder.agent.settings.supervision import LAST_WORDS
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.wires.call import Call
from rejoinder.agent.wires.pcm.protocol import Pcm
from rejoinder.agent.wires.transport import Disconnected, Frame
from rejoinder.agent.wires.transport import Message as WireMessage
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedVad
from rejoinder.pipeline import EndOfTurn, Models, NothingSaid, Options, ReplyText, SpeechStarted
from rejoinder.pipeline.call_timer import longest_silence
from rejoinder.pipeline.engines.load_shedding import LoadShedder
from rejoinder.pipeline.interfaces import Message
from rejoinder.pipeline.options import Endpointing
from rejoinder.pipeline.pulse import Pulse
from rejoinder.pipeline.turns.floor import Floor

LIMIT = "4"
"""The setting ``max_stuck_s``."""

LOUD = np.tile(np.repeat(np.array([32767, -32767], "<i2"), 60), 100).tobytes()
"""Half a second at full scale."""


def type_in(call: Talk, words: str) -> None:
    """Type something that asks for an answer."""
    content = [{"type": "input_text", "text": words}]
    call.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    call.send("response.create")


def say_loudly(call: Talk) -> None:
    """Send half a second at full scale, and then ten seconds of silence."""
    call.append(LOUD)
    for _ in range(100):
        call.append(bytes(4_800))


def ended(server: Server, call: Talk, why: str = "stuck", times: int = 1) -> dict[str, Any]:
    """Wait for the end of a call; return its last error. times: how many calls have ended so."""
    code, reason = call.read_to_end()
    error: dict[str, Any] = next(event["error"] for event in reversed(call.seen) if event["type"] == "error")
    assert reason == error["message"]
    assert code == (CloseCode.INTERNAL_ERROR if why == "stuck" else CloseCode.GOING_AWAY)
    assert f"is ended from outside: {error['message']}" in server.log.read_text()
    assert metric(server, "ended_calls_total", why=why) == times
    return error


@pytest.mark.server
@pytest.mark.parametrize(
    ("role", "named"),
    [
        ("vad", "the recogniser"),
        ("stt", "the recogniser"),
        ("llm", "from the language model or the voice"),
        ("tts", "from the language model or the voice"),
    ],
)
def test_stage_that_freezes_ends_its_call_and_no_other(tmp_path: Path, role: str, named: str) -> None:
    with faulty_serving(tmp_path, max_stuck_s=LIMIT, **{role: f"frozen:{role}"}) as server:
        with talking(server) as others, Talk(server) as victim:
            others.answered(1)
            if role in ("vad", "stt"):
                say_loudly(victim)
            else:
                type_in(victim, "Please freeze." if role == "tts" else "The model freeze.")
            error = ended(server, victim)
            others.answered(1)
        assert (error["code"], error["message"]) == ("server_error", STUCK.format(float(LIMIT)))
        assert f"{named})\n" in server.log.read_text()
        if role != "tts":  # the voice works, so the caller is told
            said = [event["transcript"] for event in victim.seen if event["type"].endswith("transcript.done")]
            assert said[-1] == LAST_WORDS
        server.wait_idle()


@pytest.mark.server
def test_writer_that_freezes_ends_its_call_and_no_other(tmp_path: Path) -> None:
    """The answer takes longer than the limit: it is still owed at the limit, and none of it was sent."""
    with faulty_serving(tmp_path, max_stuck_s=LIMIT, llm="frozen:llm") as server:
        with talking(server) as others, Talk(server) as victim:
            others.answered(1)
            type_in(victim, f"The writer freeze. {'It goes on and on. ' * 20}")
            error = ended(server, victim)
            others.answered(1)
        assert (error["code"], error["message"]) == ("server_error", STUCK.format(float(LIMIT)))
        assert not [one for one in victim.seen if one["type"] == DELTA], "the writer went on"
        assert "(the task that sends to the client does not return)" in server.log.read_text()
        server.wait_idle()


@pytest.mark.server
def test_writer_that_freezes_at_a_short_answer_ends_its_call(tmp_path: Path) -> None:
    """The answer ends before the limit: the session owes nothing more, and the caller has none of it."""
    with faulty_serving(tmp_path, max_stuck_s="2", llm="frozen:llm") as server, Talk(server) as victim:
        type_in(victim, "The writer freeze.")
        until(lambda: metric(server, "ended_calls_total", why="stuck"), "nothing ends the silent call")
        assert ended(server, victim)["message"] == STUCK.format(2.0)


@pytest.mark.server
def test_turn_model_that_freezes_leaves_the_end_of_turns_to_the_silence(tmp_path: Path) -> None:
    with faulty_serving(tmp_path, max_stuck_s=LIMIT, turn="frozen:turn") as server, Talk(server) as talk:
        for _ in range(2):
            say_loudly(talk)
            assert talk.until("response.done")["response"]["status"] == "completed"
        assert server.log.read_text().count(TURN_STOPPED) >= 1
        assert metric(server, "ended_calls_total") == 0


@pytest.mark.server
def test_recogniser_that_freezes_is_noticed_without_more_audio(tmp_path: Path) -> None:
    """The client ends the turn, and sends nothing more; another one gives a recording to transcribe."""
    with faulty_serving(tmp_path, max_stuck_s=LIMIT, stt="frozen:stt") as server:
        with Talk(server) as talk:
            manual = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
            talk.send("session.update", session=manual)
            talk.append(LOUD)
            talk.send("input_audio_buffer.commit")
            talk.send("response.create")
            ended(server, talk)
        with Talk(server) as talk:
            content = [{"type": "input_audio", "audio": base64.b64encode(LOUD).decode()}]
            talk.send(
                "conversation.item.create", item={"type": "message", "role": "user", "content": content}
            )
            ended(server, talk, times=2)
        server.wait_idle()


@pytest.mark.server
def test_engine_thread_that_hangs_ends_the_call_where_no_step_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HANG_VARIABLE, "20")
    with faulty_serving(tmp_path, max_stuck_s=LIMIT, max_step_s="0") as server, Talk(server) as victim:
        type_in(victim, "Please hang now.")
        assert ended(server, victim)["message"] == STUCK.format(float(LIMIT))
        server.wait_idle()


@pytest.mark.server
def test_long_answer_and_a_caller_who_stops_sending_are_not_stuck(tmp_path: Path) -> None:
    llm = f"scripted:llm|{'It goes on and on. ' * 6}"
    with serving(tmp_path, llm=llm, max_stuck_s="2") as server, Talk(server) as talk:
        talk.speak(pause=0.1)  # no silence follows yet, so the turn does not end
        with pytest.raises(TimeoutError):
            while True:
                talk.event(4.0)
        talk.append(bytes(3 * 48_000))
        assert talk.until("response.done")["response"]["status"] == "completed"
        assert metric(server, "ended_calls_total") == 0


@pytest.mark.server
def test_message_that_takes_longer_than_the_limit_is_not_stuck(tmp_path: Path) -> None:
    """Each second of it is a sign of life."""
    with faulty_serving(tmp_path, vad="frozen:slow-vad", max_stuck_s="1") as server, Talk(server) as talk:
        began = time.monotonic()
        talk.append(bytes(12 * 48_000))
        type_in(talk, "Are you there?")
        assert talk.until("response.done")["response"]["status"] == "completed"
        assert time.monotonic() - began > 2.0, "it did not take longer than the limit"
        assert metric(server, "ended_calls_total") == 0


@pytest.mark.server
def test_speech_without_an_end_ends_the_call(tmp_path: Path) -> None:
    """Music does not stop, and does not drown the last words either."""
    with serving(tmp_path, max_turn_s="1", max_endless_turns="3") as server, Talk(server) as talk:
        talk.speak(seconds=30.0, pause=0.0)
        error = ended(server, talk, "endless")
        said = [event["transcript"] for event in talk.seen if event["type"].endswith("transcript.done")]
        assert said[-1] == LAST_WORDS
        assert (error["code"], error["message"]) == ("session_expired", ENDLESS.format(3))


@pytest.mark.server
def test_caller_who_says_nothing_is_asked_and_then_told_goodbye(tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_text("idle_s = 0.5\nidle_prompts = 1\nidle_ends = true\n")
    with serving(tmp_path, llm="scripted:llm|Hello?") as server, Talk(server) as talk:
        code, _ = talk.read_to_end()
        said = [event["transcript"] for event in talk.seen if event["type"].endswith("transcript.done")]
        assert said == ["Hello?", LAST_WORDS]
        assert talk.seen[-1]["error"]["message"] == longest_silence(0.5)
        assert code == CloseCode.GOING_AWAY
        assert metric(server, "ended_calls_total") == 0


class DeafLlm(ScriptedLlm):
    """Ends when ``over`` is set, and not when it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream no words."""
        while not self.over.is_set():
            with suppress(asyncio.CancelledError):
                await self.over.wait()
        yield ""


class Asking:
    """The connection of a client that asks for a reply, and waits. sent: the messages that it receives."""

    def __init__(self) -> None:
        self.sent: list[WireMessage] = []
        self._asked = False

    async def receive(self) -> list[Frame] | Disconnected:
        if self._asked:
            await asyncio.get_running_loop().create_future()
        self._asked = True
        return ['{"type": "reply"}']

    async def send(self, messages: Sequence[WireMessage]) -> None:
        self.sent += messages


def test_call_that_does_not_end_is_named_in_the_log_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    """In virtual time: a real call and its watch, and a model that ignores cancelling."""

    def named() -> int:
        said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        return sum("ignores cancelling" in line and calls[0].log.id in line for line in said)

    calls: list[Call] = []
    counted: list[str] = []

    async def run() -> tuple[int, str]:
        loop, llm = asyncio.get_running_loop(), DeafLlm()
        models = Models(ScriptedVad(), ScriptedStt(["hello"]), llm, ScriptedTts(), load_shedder=LoadShedder())
        calls.append(call := Call(Asking(), models, Options(), Pcm(Options()), None))
        call.pulse = Pulse(loop.time)
        watch = CallWatch(CallLimits(10.0, 0, ""), counted.append)
        watching = asyncio.create_task(watch.run(lambda: calls))
        calling = asyncio.create_task(call.run())
        await asyncio.sleep(10.0 + END_SECONDS - 1.0)
        assert counted == ["stuck"] and not calling.done() and named() == 0
        await asyncio.sleep(4.0)
        assert named() == 1
        await asyncio.sleep(END_SECONDS)
        assert named() == 2 and counted == ["stuck"] and not calling.done()
        llm.over.set()
        ended_with = await calling
        watching.cancel()
        await asyncio.wait([watching])
        return ended_with

    assert virtual_clock.run(run()) == (CloseCode.INTERNAL_ERROR, STUCK.format(10.0))


# --- the decision ---------------------------------------------------------------------------------------


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Waiting:
    """What is asked of a session. owes: whether the user waits for it. written: tokens of the reply."""

    def __init__(self, **options: Any) -> None:
        self.options = Options(**options)
        self.owes = False
        self.written = 0
        self.floor = SimpleNamespace(floor=Floor.NOBODY)


def begun(clock: Clock, **options: Any) -> tuple[Pulse, Waiting]:
    pulse, session = Pulse(clock), Waiting(**options)
    pulse.begin(session)  # type: ignore[arg-type]
    return pulse, session


ALL = CallLimits(10.0, 2, "Goodbye.")


def looked(pulse: Pulse, clock: Clock, seconds: float) -> Overdue | None:
    """Let time pass, look twice a second, and return what is found at the end."""
    for _ in range(int(2 * seconds)):
        clock.now += 0.5
        pulse.look()
    return overdue(pulse, ALL)


def test_call_is_stuck_where_it_owes_a_sign_of_life() -> None:
    clock = Clock()
    pulse, session = begun(clock)
    assert looked(pulse, clock, 1000.0) is None, "nobody says anything"
    session.owes = True
    assert looked(pulse, clock, 9.0) is None
    session.written = 1
    assert looked(pulse, clock, 9.0) is None, "the model thinks"
    pulse.take(ReplyText(1, "Well,"))
    assert looked(pulse, clock, 9.0) is None
    pulse.take(SpeechStarted(16_000))
    assert looked(pulse, clock, 2.0) is Overdue.STUCK, "the user's voice is no sign of life of the pipeline"
    assert overdue(pulse, CallLimits(0.0, 0, "")) is None
    session.owes = False
    assert looked(pulse, clock, 1.0) is None


def test_what_a_stuck_call_waits_for_is_named() -> None:
    clock = Clock()
    pulse, session = begun(clock)
    assert pulse.due == ""
    session.owes = True
    assert looked(pulse, clock, 20.0) is Overdue.STUCK
    assert pulse.due == "a reply is due, of which the language model has written nothing"
    session.written = 1
    assert pulse.due == "the rest of a reply is due, from the language model or the voice"
    session.floor.floor = Floor.PAUSE
    assert pulse.due == "the words of a pause are due, from the recogniser"
    pulse.taking_since = clock.now
    assert pulse.due == "the words of a pause are due, from the recogniser", "that is older"


@pytest.mark.parametrize("since", ["taking_since", "writing_since"])
def test_call_whose_reader_or_writer_does_not_return_is_stuck(since: str) -> None:
    clock = Clock()
    pulse, _ = begun(clock)
    setattr(pulse, since, clock.now)
    assert looked(pulse, clock, 9.0) is None
    assert looked(pulse, clock, 1.0) is Overdue.STUCK
    setattr(pulse, since, None)
    assert looked(pulse, clock, 100.0) is None


SECOND = 16_000


@pytest.mark.parametrize(
    ("turns", "is_endless"),
    [
        ([(0, 10), (10, 20)], True),
        ([(0, 10), (10, 19)], False),
        ([(0, 10), (10, 15), (15, 25)], False),
        ([(None, 10), (None, 90)], False),  # the client ends the turns
    ],
)
def test_turns_that_are_cut_are_endless(turns: list[tuple[int | None, int]], is_endless: bool) -> None:
    pulse, _ = begun(Clock(), endpointing=Endpointing(max_turn_ms=10_000))
    for begin, end in turns:
        if begin is not None:
            pulse.take(SpeechStarted(begin * SECOND))
        pulse.take(EndOfTurn("la la", end * SECOND))
    assert (overdue(pulse, ALL) is Overdue.ENDLESS) == is_endless


def test_sound_without_words_is_no_end_of_endless_speech() -> None:
    pulse, _ = begun(Clock(), endpointing=Endpointing(max_turn_ms=10_000))
    for begin in (0, 10):
        pulse.take(SpeechStarted(begin * SECOND))
        pulse.take(NothingSaid((begin + 10) * SECOND))
    assert overdue(pulse, ALL) is Overdue.ENDLESS


def test_call_that_does_not_end_by_itself_is_too_long() -> None:
    clock = Clock()
    pulse, _ = begun(clock, max_call_s=60.0)
    clock.now += 60.0 + LATE_SECONDS - 0.1
    assert overdue(pulse, ALL) is None
    clock.now += 0.2
    assert overdue(pulse, ALL) is Overdue.TOO_LONG
