"""Silence and its opposite: a silent user, endless speech, an agent without words, calls that end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.published import conforms
from support.serving import Talk, serving
from websockets.exceptions import ConnectionClosedOK

from rejoinder.agent.config import Settings
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.call import Call
from rejoinder.agent.simulate.caller import Caller
from rejoinder.agent.simulate.invariants import check, hang_ups
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import (
    CallOver,
    EndOfTurn,
    Endpointing,
    Message,
    NobodySpoke,
    Options,
    ReplyDone,
    ReplyStarted,
    SpeechStarted,
)
from rejoinder.pipeline.budget import BudgetLimit, BudgetPlan, Budgets
from rejoinder.pipeline.call_timer import GRACE_SECONDS, CallTimer, Due
from rejoinder.pipeline.options import IDLE_CUE

FORECAST = "It is sunny today. Take a hat, if you go out."
HELLO = "Are you still there?"


class Attentive:
    """Prompts a silent user where the cue asks for it, and otherwise gives the weather."""

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        for word in (HELLO if messages[-1]["content"].endswith(IDLE_CUE) else FORECAST).split():
            yield word + " "

    async def warm(self, messages: Sequence[Message]) -> None:
        pass


def options(**more: Any) -> Options:
    return Options(instructions="", **more)


def test_the_agent_asks_into_a_silence_and_not_for_ever() -> None:
    call = Caller(Attentive(), options(idle_s=5.0)).says("how is it?").hears_out().waits(60.0).call()
    check(call)
    assert call.heard == [FORECAST, HELLO, HELLO]
    assert call.history == [
        ("user", "how is it?"),
        ("assistant", FORECAST),
        ("assistant", HELLO),
        ("assistant", HELLO),
    ]
    sound_ended = call.talk.ear.first(1) + len(FORECAST) * 0.06  # type: ignore[operator]
    assert call.talk.when(NobodySpoke)[0] == pytest.approx(sound_ended + 5.0, abs=0.25)
    first, second = call.talk.of(NobodySpoke)
    assert first.at - first.since == 5 * 16_000 < second.at - first.at


def test_speech_resets_the_idle_prompts() -> None:
    caller = Caller(Attentive(), options(idle_s=5.0, idle_prompts=1)).waits(30.0)
    call = caller.says("how is it?").hears_out().waits(30.0).call()
    check(call)
    assert call.heard == [HELLO, FORECAST, HELLO]


def test_typed_text_resets_the_idle_prompts() -> None:
    caller = Caller(Attentive(), options(idle_s=5.0, idle_prompts=1)).waits(30.0)
    call = caller.types("how is it?").hears_out().waits(30.0).call()
    assert call.heard == [HELLO, FORECAST, HELLO]


def test_the_cue_is_in_the_prompt_and_nowhere_else() -> None:
    call = Caller(Attentive(), options(idle_s=5.0, idle_prompts=1)).waits(9.0).says("hm?").hears_out().call()
    assert call.prompts[0] == [{"role": "user", "content": IDLE_CUE}]
    assert IDLE_CUE not in str(call.prompts[1:]) and IDLE_CUE not in str(call.history)


def test_a_prompt_can_be_interrupted() -> None:
    caller = Caller(Attentive(), options(idle_s=5.0)).waits(5.3).interrupts("how is it?", after=0.5)
    call = caller.hears_out().call()
    check(call)
    assert call.history == [("assistant", "Are you still—"), ("user", "how is it?"), ("assistant", FORECAST)]


@pytest.mark.parametrize(
    "quiet", [{}, {"idle_s": 5.0, "create_response": False}, {"idle_s": 5.0, "detect_turns": False}]
)
def test_no_idle_prompt_where_it_is_turned_off(quiet: dict[str, Any]) -> None:
    call = Caller(Attentive(), options(**quiet)).waits(60.0).call()
    assert call.talk.log == []


def test_no_idle_prompt_during_speech_or_before_a_reply() -> None:
    slow = ScriptedLlm(["Yes."], first=20.0)
    call = Caller(slow, options(idle_s=5.0)).says("well " * 25).pauses(1.0).says("is it?").hears_out().call()
    assert call.talk.of(NobodySpoke) == []
    assert call.heard == ["Yes."]


def test_it_can_be_turned_on_in_the_middle_of_a_call() -> None:
    caller = Caller(Attentive(), options()).waits(20.0)
    caller.does(lambda session: session.configure(replace(session.options, idle_s=5.0))).waits(12.0)
    call = caller.call()
    assert 20.0 < call.talk.when(NobodySpoke)[0] < 25.2


def test_a_silence_can_be_hung_up_on_anywhere() -> None:
    def caller() -> Caller:
        return Caller(Attentive(), options(idle_s=0.4, idle_prompts=1)).waits(1.5)

    assert sum(1 for _ in hang_ups(caller, every=7)) > 30


# --- calls that end -------------------------------------------------------------------------------------


def over(caller: Caller) -> Call:
    call = caller.prepared()
    with pytest.raises(CallOver, match="longest duration of 10 s"):
        virtual_clock.run(call.hold())
    check(call)
    return call


def test_a_call_that_lasts_too_long_ends_in_silence() -> None:
    assert over(Caller(Attentive(), options(max_call_s=10.0)).waits(60.0)).ended == pytest.approx(
        10.1, abs=0.11
    )


def test_a_user_who_speaks_at_the_end_of_a_call_may_finish() -> None:
    call = over(Caller(Attentive(), options(max_call_s=10.0)).waits(9.5).says("how is it?").waits(60.0))
    assert call.heard == [FORECAST]
    assert call.ended == pytest.approx(13.2, abs=0.2)


def test_the_grace_period_at_the_end_of_a_call_is_limited() -> None:
    call = over(Caller(Attentive(), options(max_call_s=10.0)).says("and then " * 99))
    assert call.ended == pytest.approx(10.0 + GRACE_SECONDS, abs=0.2)


def test_what_is_due() -> None:
    timer, wanted = CallTimer(), options(idle_s=2.0, idle_prompts=1, max_call_s=8.0)
    looks = [timer.look(now, now not in (3.0, 9.0), wanted) for now in (0.0, 1.0, 3.0, 4.0, 5.9, 6.0, 7.9)]
    assert looks == [None, None, None, None, None, Due.PROMPT, None]
    timer.user_spoke()
    assert timer.look(9.0, False, wanted) is None
    assert timer.look(9.1, True, wanted) is Due.END


def test_last_words_are_heard_before_the_end() -> None:
    call = over(Caller(Attentive(), options(max_call_s=10.0, last_words="Goodbye.")).waits(60.0))
    assert call.heard == ["Goodbye."]
    assert call.ended == pytest.approx(10.1 + len("Goodbye.") * 0.06, abs=0.4)


def test_user_who_never_stops_hears_no_last_words_and_the_call_ends() -> None:
    limits = options(max_call_s=10.0, last_words="Goodbye.")
    call = over(Caller(Attentive(), limits).says("and then " * 99))
    assert call.ended == pytest.approx(10.0 + 2 * GRACE_SECONDS, abs=0.3)


def test_silence_after_the_last_prompt_ends_the_call() -> None:
    limits = options(idle_s=5.0, idle_prompts=1, idle_ends=True, last_words="Goodbye.")
    call = Caller(Attentive(), limits).waits(60.0).prepared()
    with pytest.raises(CallOver, match="was asked, and has said nothing for another 5 s"):
        virtual_clock.run(call.hold())
    check(call)
    assert call.heard == [HELLO, "Goodbye."]
    assert 10.0 < call.ended < 13.5


def test_user_who_speaks_during_the_last_words_goes_on() -> None:
    limits = options(idle_s=5.0, idle_prompts=1, idle_ends=True, last_words="I have to end this call now.")
    caller = Caller(Attentive(), limits).waits(12.0).says("how is it?").hears_out().waits(4.0)
    call = caller.call()
    check(call)
    assert call.heard[-1] == FORECAST


def test_last_words_of_the_length_are_said_once_beside_a_budget() -> None:
    """A budget that is spent meanwhile begins no second goodbye, and the words do not begin anew."""
    budget = Budgets(BudgetPlan(call=BudgetLimit(tokens=1), words="The budget is spent.")).of("")
    wanted = options(max_call_s=8.0, last_words="Goodbye.", budget=budget)
    timer = CallTimer()
    timer.look(0.0, True, wanted)
    assert timer.look(8.0, True, wanted) is Due.GOODBYE and timer.words == "Goodbye."
    budget.spend(2)
    looks = [timer.look(now, False, wanted) for now in (8.1, 12.0, 17.9, 18.1)]
    assert looks == [None, None, None, Due.END]


def test_budget_that_was_parted_with_is_not_parted_with_again_at_the_longest_duration() -> None:
    budget = Budgets(BudgetPlan(call=BudgetLimit(tokens=1), words="The budget is spent.")).of("")
    wanted = options(max_call_s=8.0, last_words="Goodbye.", budget=budget)
    timer = CallTimer()
    timer.look(0.0, True, wanted)
    budget.spend(2)
    assert timer.look(17.0, True, wanted) is Due.GOODBYE and timer.words == "The budget is spent."
    budget.parted = True
    assert timer.look(18.1, False, wanted) is Due.END


def test_tool_that_runs_is_no_silence() -> None:
    timer, wanted = CallTimer(), options(idle_s=2.0, idle_prompts=1, idle_ends=True)
    assert [timer.look(now, True, wanted, awaited=True) for now in (0.0, 2.0, 30.0)] == [None, None, None]
    assert [timer.look(now, True, wanted) for now in (31.0, 33.0, 34.0, 36.0)] == [
        None, Due.PROMPT, None, Due.END,
    ]  # fmt: skip


# --- somebody never stops, or never begins --------------------------------------------------------------


def test_a_user_who_never_stops_is_understood_in_pieces_and_never_talked_over() -> None:
    words = " ".join(f"w{count}" for count in range(100))
    limited = options(endpointing=Endpointing(max_turn_ms=6_000))
    call = Caller(Attentive(), limited).says(words).hears_out().call()
    check(call)
    assert len(call.turns) > 3
    assert " ".join(call.turns).split() == words.split()  # no word is lost, and none is there twice
    assert [status for _, status, _ in call.talk.done()][-1] == "completed"
    assert call.heard[-1] == FORECAST
    assert all(len(text) < 60 for role, text in call.history if role == "assistant")


def test_an_agent_that_says_nothing_gives_the_floor_back() -> None:
    class Quiet(Attentive):
        async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
            if messages[-1]["content"].endswith("?"):
                async for token in super().reply(messages):
                    yield token

    call = Caller(Quiet(), options()).says("hello").waits(3.0).says("how is it?").hears_out().call()
    check(call)
    assert call.talk.done() == [(1, "completed", ""), (2, "completed", FORECAST)]
    assert call.floor_at(3.0) == "nobody" == call.floor[-1]
    assert call.prompts[-1] == [{"role": "user", "content": "hello how is it?"}]


def test_text_typed_during_speech_is_answered_with_the_speech() -> None:
    """The words keep their order, and one answer follows that does not overlap the user."""

    def type_into(call: Any) -> None:
        call.add_text("in Rome")
        call.respond()

    caller = Caller(Attentive(), options()).says("how is").does(type_into).says("the weather").hears_out()
    call = caller.call()
    assert call.talk.of(SpeechStarted, EndOfTurn, ReplyStarted, ReplyDone)[1:] == [
        EndOfTurn("how is the weather", call.talk.of(EndOfTurn)[0].at),
        ReplyStarted(call.talk.of(ReplyStarted)[0].turn),
        ReplyDone(call.talk.of(ReplyStarted)[0].turn, "completed", FORECAST),
    ]
    assert call.prompts[-1] == [{"role": "user", "content": "in Rome how is the weather"}]


def test_the_settings_reach_the_session() -> None:
    made = Settings(max_turn_s=5.0, idle_s=6.0, idle_prompts=3, max_call_s=700.0).options()
    assert made.endpointing.max_turn_ms == 5000
    assert (made.idle_s, made.idle_prompts, made.max_call_s) == (6.0, 3, 700.0)


# --- on the wire ----------------------------------------------------------------------------------------


def test_a_client_sets_its_own_idle_timeout_and_gets_the_event() -> None:
    wire = Realtime(options(idle_s=30.0, max_call_s=600.0))
    assert wire.options().idle_s == 30.0
    detection = '{"type": "server_vad", "idle_timeout_ms": 6000}'
    session = f'{{"type": "realtime", "audio": {{"input": {{"turn_detection": {detection}}}}}}}'
    list(wire.receive(f'{{"type": "session.update", "session": {session}}}'))
    assert (wire.options().idle_s, wire.options().max_call_s) == (6.0, 600.0)
    triggered, committed, *_ = wire.handle(NobodySpoke(16_000, 112_000))
    assert triggered["type"] == "input_audio_buffer.timeout_triggered"
    assert (triggered["audio_start_ms"], triggered["audio_end_ms"]) == (1000, 7000)
    assert committed["type"] == "input_audio_buffer.committed"
    assert committed["item_id"] == triggered["item_id"]


@pytest.mark.server
def test_the_server_asks_and_then_hangs_up_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_text("idle_s = 0.3\nidle_prompts = 1\nmax_call_s = 1\n")
    with serving(tmp_path, llm="scripted:llm|Hello?") as server, Talk(server) as talk:
        talk.until("input_audio_buffer.timeout_triggered")
        assert talk.until("response.done")["response"]["status"] == "completed"
        with pytest.raises(ConnectionClosedOK):
            talk.until("nothing more")
        conforms(talk.seen)
        error = talk.seen[-1]["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "session_expired")
        assert error["message"] == "Your session hit the maximum duration of 1 seconds."
        assert (talk.socket.close_code, talk.socket.close_reason) == (1001, error["message"])
        server.wait_idle()
