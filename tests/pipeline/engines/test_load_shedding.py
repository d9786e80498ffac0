"""What is left out under load: decided on handed-in figures, and seen in conversations and at the door."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient, WebSocketDenialResponse
from websockets.frames import CloseCode

from rejoinder.agent.config import Settings
from rejoinder.agent.server.limiting.allowance import BUSY_SECONDS
from rejoinder.agent.server.server import Server
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedVad
from rejoinder.models.stt.whisper import window_seconds
from rejoinder.pipeline import Models, PartialTranscript
from rejoinder.pipeline.engines.engine import EngineStats
from rejoinder.pipeline.engines.load_shedding import (
    DOWN_SECONDS,
    MOST_BUSY,
    RECENT_SECONDS,
    TARGET_SECONDS,
    UP_SECONDS,
    Load,
    LoadLevel,
    LoadShedder,
    next_level,
)
from rejoinder.pipeline.events import TurnTraced
from rejoinder.pipeline.listening.schedule import PARTIAL_SAMPLES, is_worth_it
from rejoinder.pipeline.replying.stages import EARLY_END_TOKENS

LONG = 1000.0


def test_the_load_of_one_more_caller_is_predicted_from_current_ones() -> None:
    load = Load(busy=0.6, answer=0.5, callers=3)
    assert load.busy_with(4) == pytest.approx(0.8)
    assert load.alone == pytest.approx(0.2), "0.5 s in a queue that is free 40 % of the time"
    assert load.predicted(3) == pytest.approx(0.5), "with those there are it is what was measured"
    assert load.predicted(4) == pytest.approx(0.2 / 0.2)
    assert load.predicted(5) == math.inf, "there is no time for five"


loads = st.builds(Load, st.floats(0.0, 1.0), st.floats(0.0, 5.0), st.integers(0, 40))


@given(loads, st.integers(1, 40))
def test_more_callers_never_make_it_better(load: Load, callers: int) -> None:
    assert load.strain(callers + 1) >= load.strain(callers)


@pytest.mark.parametrize(
    ("level", "load", "since", "wanted", "then"),
    [
        (LoadLevel.NOTHING, Load(0.5, 0.3, 2), LONG, False, LoadLevel.NOTHING),
        (LoadLevel.NOTHING, Load(0.9, 0.3, 4), LONG, False, LoadLevel.PARTIALS),
        (LoadLevel.NOTHING, Load(0.7, 0.8, 4), LONG, False, LoadLevel.PARTIALS),
        (LoadLevel.NOTHING, Load(0.9, 0.3, 4), UP_SECONDS / 2, False, LoadLevel.NOTHING),
        (LoadLevel.PARTIALS, Load(0.7, 0.5, 4), LONG, False, LoadLevel.PARTIALS),
        (
            LoadLevel.PARTIALS,
            Load(0.7, 0.5, 4),
            UP_SECONDS,
            True,
            LoadLevel.WINDOW,
        ),  # there is no room for a fifth
        (LoadLevel.PARTIALS, Load(0.2, 0.3, 4), UP_SECONDS, True, LoadLevel.PARTIALS),  # there is
        (LoadLevel.WINDOW, Load(0.8, 0.7, 6), UP_SECONDS, False, LoadLevel.LENGTH),
        (LoadLevel.LENGTH, Load(0.9, 2.0, 6), LONG, False, LoadLevel.LENGTH),  # no call was refused
        (LoadLevel.LENGTH, Load(0.8, 0.5, 6), UP_SECONDS, True, LoadLevel.NEW_CALLS),
        (LoadLevel.NEW_CALLS, Load(0.95, 2.0, 6), LONG, False, LoadLevel.NEW_CALLS),
        (LoadLevel.NEW_CALLS, Load(0.3, 0.2, 3), DOWN_SECONDS / 2, False, LoadLevel.NEW_CALLS),
        (LoadLevel.NEW_CALLS, Load(0.3, 0.2, 3), DOWN_SECONDS, True, LoadLevel.NEW_CALLS),
        (LoadLevel.NEW_CALLS, Load(0.3, 0.2, 3), DOWN_SECONDS, False, LoadLevel.LENGTH),
        (LoadLevel.PARTIALS, Load(), DOWN_SECONDS, False, LoadLevel.NOTHING),
    ],
)
def test_the_level_moves_one_step_at_a_time(
    level: LoadLevel, load: Load, since: float, wanted: bool, then: LoadLevel
) -> None:
    assert next_level(level, load, since, wanted) is then


def test_a_model_that_is_slow_by_itself_is_no_load() -> None:
    """A hosted model takes 3 s for one caller and for ten, so refusing calls does not help."""
    load = Load(busy=0.1, answer=3.0, callers=1)
    assert load.strain(2) < 1.0 and load.room(2)


@dataclass
class Scripted:
    """An engine that is as busy as it is said to be."""

    name: str = "whisper"
    age: float = 0.0
    stats: EngineStats = field(default_factory=EngineStats)


COST = {
    LoadLevel.NOTHING: 0.16,
    LoadLevel.PARTIALS: 0.1,
    LoadLevel.WINDOW: 0.085,
    LoadLevel.LENGTH: 0.08,
    LoadLevel.NEW_CALLS: 0.08,
}
"""Share of an engine's time that the turns of one caller take at each level."""
ALONE = 0.2


class Shop:
    """Callers that arrive and stay, an engine they keep busy, and a load shedder that looks every second."""

    def __init__(self, every: int = 1) -> None:
        self.every = every  # seconds between the answers of one caller
        self.engine = Scripted()
        self.load_shedder = LoadShedder([self.engine])  # type: ignore[list-item]
        self.now = 0.0
        self.callers = 0
        self.answers: list[float] = []
        self.levels = [LoadLevel.NOTHING]
        self.refused = 0

    def leave(self, left: int) -> None:
        """End all calls but this many."""
        for caller in range(left, self.callers):
            self.load_shedder.left(caller)
        self.callers = left

    def pass_by(self, seconds: int, arriving: int = 0) -> None:
        """Let time pass; one caller arrives per second until this many are accepted."""
        for _ in range(seconds):
            if self.callers < arriving:
                if self.load_shedder.refuse(self.now):
                    self.refused += 1
                else:
                    self.load_shedder.joined(self.callers, self.now)
                    self.callers += 1
            busy = min(0.98, self.callers * COST[self.load_shedder.level])
            self.engine.stats.pressing += busy
            self.answers = [ALONE / (1.0 - busy)] * self.callers
            for caller, answer in enumerate(self.answers):
                if (int(self.now) + caller) % self.every == 0:
                    self.load_shedder.answered(caller, answer, self.now)
            self.now += 1.0
            self.load_shedder.look(self.now)
            if self.load_shedder.level is not self.levels[-1]:
                self.levels.append(self.load_shedder.level)


def test_few_callers_lose_nothing() -> None:
    shop = Shop()
    shop.pass_by(120, arriving=4)
    assert shop.callers == 4 and shop.levels == [LoadLevel.NOTHING]


def test_skipping_optional_work_makes_room_for_more_calls() -> None:
    shop = Shop()
    shop.pass_by(240, arriving=7)
    assert shop.callers == 7 and max(shop.levels) < LoadLevel.NEW_CALLS and len(shop.levels) > 1
    assert shop.refused < 5 * UP_SECONDS, "the last of them waited for it"
    assert max(shop.answers) <= 1.2 * TARGET_SECONDS


def test_new_calls_are_refused_before_current_ones_slow_down() -> None:
    shop = Shop()
    shop.pass_by(300, arriving=300)
    assert shop.levels[: len(LoadLevel)] == list(LoadLevel), "to make room for who is refused, all is tried"
    assert shop.refused > 200 and "can be answered in time" in shop.load_shedder.refuse(shop.now)
    assert shop.engine.stats.pressing / shop.now <= MOST_BUSY + 0.02
    assert max(shop.answers) < 2 * TARGET_SECONDS
    shop.leave(1)
    shop.pass_by(int(len(LoadLevel) * (DOWN_SECONDS + 5)))
    assert shop.load_shedder.level is LoadLevel.NOTHING and not shop.load_shedder.refuse(shop.now)


def test_callers_without_answers_for_a_while_do_not_count() -> None:
    shop = Shop()
    shop.pass_by(40, arriving=5)
    assert shop.load_shedder.load.callers == pytest.approx(5, abs=0.1)
    shop.callers = 2
    shop.pass_by(int(RECENT_SECONDS) + 20)
    assert shop.load_shedder.load.callers == pytest.approx(2, abs=0.1)


def test_a_call_is_accepted_right_after_a_step() -> None:
    """On an H100 no more than 11 calls were accepted, right after 32 others had been answered."""
    shop = Shop(every=6)
    shop.pass_by(60, arriving=8)
    shop.leave(4)
    stepped = len(shop.levels)
    while len(shop.levels) == stepped and shop.now < 120:
        shop.pass_by(1)
    shop.pass_by(1)
    assert shop.load_shedder.level is not LoadLevel.NOTHING
    assert not shop.load_shedder.refuse(shop.now), "the machine is half free"


def test_a_call_that_replaces_an_ended_one_is_accepted() -> None:
    """The same number of others is no more load, though those who left are still in the measured past."""
    load_shedder = LoadShedder()
    load_shedder.level, load_shedder.load = LoadLevel.LENGTH, Load(busy=0.8, answer=0.5, callers=8)
    for caller in range(8):
        load_shedder.joined(caller, 1.0)
    assert load_shedder.refuse(2.0)
    load_shedder.left(0)
    assert not load_shedder.refuse(2.0)
    load_shedder.joined(8, 2.0)
    assert load_shedder.refuse(2.0), "and a second one is not"
    assert not load_shedder.refuse(12.0), "but where the others have not said a word for long"
    load_shedder.level = LoadLevel.NEW_CALLS
    assert load_shedder.refuse(3.0) and not load_shedder.refuse(60.0), "and never without an active call"
    load_shedder.load = Load(busy=0.4, answer=0.3, callers=8)
    assert not load_shedder.refuse(3.0), "nor where there is room, at any level"


def test_what_is_worth_a_transcript_before_a_pause() -> None:
    half = PARTIAL_SAMPLES
    assert is_worth_it(half, False, LoadLevel.NOTHING, False) and is_worth_it(
        1, True, LoadLevel.NOTHING, False
    )
    assert not is_worth_it(half - 1, False, LoadLevel.NOTHING, False)
    assert not is_worth_it(half, False, LoadLevel.PARTIALS, False), "partial words are left out"
    assert is_worth_it(half, True, LoadLevel.LENGTH, False), "but not what may be the last ones"
    assert not is_worth_it(4 * half, True, LoadLevel.NOTHING, True), "behind, nothing that is not awaited"


def test_the_smaller_window_holds_the_audio() -> None:
    for tenths in range(1, 300):
        whole, less = window_seconds(tenths / 10), window_seconds(tenths / 10, frugal=True)
        assert min(30, tenths / 10) <= less <= whole


ANSWER = "The first of them are twenty short words or so, one after the other and all in a row, to be long. "


def call(level: LoadLevel, **more: object) -> Talk:
    talk = Talk("what is it now", llm=ScriptedLlm([ANSWER + "And more. And on. And on it goes."]), **more)
    talk.load_shedder.level = level
    talk.says(3.0, at=0.5)
    return talk.run(until=25.0)


@pytest.mark.parametrize("level", list(LoadLevel))
def test_a_call_is_answered_at_every_level_and_its_trace_has_the_level(level: LoadLevel) -> None:
    talk = call(level)
    assert talk.of(TurnTraced)[-1].trace.counts["load_level"] == level
    partial = [told.text for told in talk.of(PartialTranscript) if told.text != "what is it now"]
    assert bool(partial) == (level < LoadLevel.PARTIALS), "but for the words at the end"
    (done,) = talk.done()
    assert done[1] == "completed"
    assert len(ANSWER.split()) > EARLY_END_TOKENS
    assert (done[2] == ANSWER.strip()) == (level >= LoadLevel.LENGTH), "it ends with a sentence"
    assert talk.load_shedder._answers, "and the time it took is recorded for load shedding"


def program(level: LoadLevel) -> Server:
    made = Server(Settings(), lambda name, seconds: None, lambda error: None)
    made.models = Models(ScriptedVad(), ScriptedStt(["hi"]), ScriptedLlm(), ScriptedTts())
    made.models.load_shedder.level = level
    made.models.load_shedder.load = Load(busy=0.9, answer=0.5, callers=1)
    made.models.load_shedder.joined(1, time.monotonic())
    return made


@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/phone", "/v1/pcm"])
def test_a_new_call_is_refused_with_a_reason_and_a_retry_time(path: str) -> None:
    client = TestClient(program(LoadLevel.NEW_CALLS).app(), base_url="http://127.0.0.1")
    with pytest.raises(WebSocketDenialResponse) as refused, client.websocket_connect(path):
        pass
    assert refused.value.status_code == 503 and "can be answered in time" in refused.value.text
    assert refused.value.headers["Retry-After"] == str(BUSY_SECONDS)


def test_a_page_gets_the_refusal_as_readable_text() -> None:
    client = TestClient(program(LoadLevel.NEW_CALLS).app(), base_url="http://127.0.0.1")
    with client.websocket_connect(
        "ws://127.0.0.1/v1/realtime", headers={"Origin": "http://127.0.0.1"}
    ) as socket:
        closed = socket.receive()
    assert closed["code"] == CloseCode.TRY_AGAIN_LATER and "all lines are busy" in closed["reason"]


def test_before_anything_is_left_out_a_call_is_taken_and_health_says_how_it_is() -> None:
    client = TestClient(program(LoadLevel.NOTHING).app(), base_url="http://127.0.0.1")
    with client.websocket_connect("/v1/realtime") as socket:
        assert socket.receive_json()["type"] == "session.created"
        health = client.get("/healthz").json()
    assert health["sessions"] == 1 and health["load"]["leaves_out"] == "nothing"
    assert health["load"]["one_more_ms"] is None and health["load"]["engines"] == {}
