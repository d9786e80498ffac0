"""A router in conversations in virtual time: the rules, failover below it, and openings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.llm.failover.candidate import Candidate, Request
from rejoinder.models.llm.failover.opening import open_list
from rejoinder.models.llm.routing.budget import DaySpending
from rejoinder.models.llm.routing.loading import open_router
from rejoinder.models.llm.routing.opening import OPENED
from rejoinder.models.llm.routing.router import Router, ToolRouter
from rejoinder.models.llm.routing.settings import RouteSettings, Routing
from rejoinder.models.placement import Placement
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedSttStream, ScriptedTurnModel
from rejoinder.pipeline import Message, ReplyDone, Tools, Transcript, TurnTraced
from rejoinder.pipeline.guarding.guard import Guard
from rejoinder.pipeline.guarding.refusal import Refusal
from rejoinder.pipeline.replying.upstream import Upstream, upstream
from rejoinder.pipeline.trace import Trace

OPENING = "Sure, let me look at that,"
REST = "the first train leaves at nine, and it takes an hour. You can pay with a card."
WHOLE = f"{OPENING} {REST}"
UNTOLD = "Hello! The first train leaves at nine."
EASY = "how are you"
HARD = "when does the train to boston leave tomorrow"
NIGHT = datetime(2026, 11, 23, 23, 30)
TOOLS = Tools([{"type": "function", "function": {"name": "book"}}])


class Big(ScriptedLlm):
    """Says the rest behind an opening that its prompt holds, and another answer without one."""

    def _line(self, messages: Sequence[Message]) -> str:
        self.prompts.append(list(messages))
        told = messages[-1]["content"] == OPENED and messages[-2]["content"] == OPENING
        return REST if told or messages[-1]["content"] == OPENING else UNTOLD


class Deaf:
    """A model that cannot call tools."""

    def __init__(self) -> None:
        self.open = 0

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        yield "I have no tools. "

    async def warm(self, messages: Sequence[Message]) -> None:
        pass


def rules(*tables: dict[str, Any]) -> list[RouteSettings]:
    return [RouteSettings.model_validate({"model": "small", **table}) for table in tables]


def router(routing: Routing, opener: Any = None, hour: datetime = NIGHT, **models: Any) -> Any:
    candidates = {name: Candidate(name, llm) for name, llm in models.items()}
    several: Any = ToolRouter(
        candidates, routing, opener=opener and Candidate("opener", opener), now=lambda: hour
    )
    several.open = 0  # the models' own count is checked
    return several


def talk_with(several: Router, *lines: str, **options: Any) -> Talk:
    talk = Talk(*lines or (HARD,), llm=several, **{"speculate": False, **options})
    talk.says(1.2, at=0.5)
    return talk


def done_of(talk: Talk) -> ReplyDone:
    (done,) = talk.of(ReplyDone)
    return done


# --- the rules ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "rule", "model", "reason"),
    [
        (EASY, {"difficulty": "easy"}, "small", "rule 1: difficulty easy"),
        (HARD, {"difficulty": "easy"}, "big", "no rule matches"),
        (EASY, {"max_words": 3, "tools": False}, "small", "rule 1: max_words 3, tools false"),
        (HARD, {"max_words": 3}, "big", "no rule matches"),
        ("请问明天去波士顿的火车几点出发", {"max_words": 3}, "big", "no rule matches"),
        (HARD, {"hours": "22:00-06:00"}, "small", "rule 1: hours 22:00-06:00"),
        (HARD, {"languages": ["de"]}, "small", "rule 1: languages de"),
        (HARD, {"languages": ["en"]}, "big", "no rule matches"),
        (HARD, {"keys": ["abcdef01"]}, "small", "rule 1: keys abcdef01"),
    ],
)
def test_a_rule_chooses_and_the_trace_says_who_and_why(
    said: str, rule: dict[str, Any], model: str, reason: str
) -> None:
    several = router(Routing(rules(rule)), big=ScriptedLlm(["I am big."]), small=ScriptedLlm(["I am small."]))
    specs = {"stt": "whisper:base@de"}
    talk = talk_with(several, said, key="abcdef01" * 8, specs=specs).run(until=8.0)
    assert done_of(talk).heard == f"I am {model}."
    trace = talk.of(TurnTraced)[-1].trace
    assert trace.route == {"model": model, "reason": reason} and trace.models == [model]
    assert trace.described()["route"] == trace.route


def test_without_rules_there_is_no_route_in_the_trace() -> None:
    talk = talk_with(router(Routing(), big=ScriptedLlm(["I am big."]))).run(until=8.0)
    assert "route" not in talk.of(TurnTraced)[-1].trace.described()


def test_a_chosen_model_that_fails_is_replaced_in_the_order_of_the_list() -> None:
    small = ScriptedLlm(["I am small."], fail_after=0)
    several = router(
        Routing(rules({"max_words": 20})),
        big=ScriptedLlm(["I am big."]),
        other=ScriptedLlm(["I am another."]),
        small=small,
    )
    talk = talk_with(several).run(until=8.0)
    assert done_of(talk).heard == "I am big." and len(small.prompts) == 1
    trace = talk.of(TurnTraced)[-1].trace
    assert (trace.route["model"], trace.models, trace.counts["failovers"]) == ("small", ["big"], 1)


def test_a_model_without_tools_is_not_chosen_for_a_reply_with_tools() -> None:
    routing = Routing(rules({"max_words": 20}))
    several = router(routing, big=ScriptedLlm(["I am big."]), small=Deaf())
    talk = talk_with(several, tools=TOOLS).run(until=8.0)
    assert done_of(talk).heard == "I am big."
    assert talk.of(TurnTraced)[-1].trace.route == {"model": "big", "reason": "no rule matches"}
    talk = talk_with(router(routing, big=ScriptedLlm(["I am big."]), small=Deaf())).run(until=8.0)
    assert done_of(talk).heard == "I have no tools."


class Warmed(ScriptedLlm):
    """Records the prompts that it is warmed with."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines)
        self.warmed: list[Sequence[Message]] = []

    async def warm(self, messages: Sequence[Message]) -> None:
        self.warmed.append(messages)


class DeafWarmed(Deaf):
    """A model that cannot call tools, and records the prompts that it is warmed with."""

    def __init__(self) -> None:
        super().__init__()
        self.warmed: list[Sequence[Message]] = []

    async def warm(self, messages: Sequence[Message]) -> None:
        self.warmed.append(messages)


@pytest.mark.parametrize(
    ("rule", "small", "warmed"),
    [
        ({"max_words": 5}, Warmed, "small"),
        ({"max_words": 5, "tools": False}, Warmed, "big"),
        ({"max_words": 5}, DeafWarmed, "big"),
        ({"max_words": 5, "languages": ["en"]}, Warmed, "big"),
        ({"max_words": 5, "keys": ["abcdef01"]}, Warmed, "big"),
    ],
)
def test_the_default_is_warmed_where_a_rule_needs_what_is_not_known_yet(
    rule: dict[str, Any], small: type[Any], warmed: str
) -> None:
    models = {"big": Warmed(["I am big."]), "small": small() if small is DeafWarmed else small(["Small."])}
    several = router(Routing(rules(rule)), **models)
    asyncio.run(several.warm([Message(role="user", content=EASY)]))
    assert [name for name, model in models.items() if model.warmed] == [warmed]


def test_a_rule_that_cannot_match_does_not_decide_who_is_warmed() -> None:
    big, small = Warmed(["I am big."]), Warmed(["I am small."])
    several = router(Routing(rules({"min_words": 50, "tools": True}, {"max_words": 5})), big=big, small=small)
    asyncio.run(several.warm([Message(role="user", content=EASY)]))
    assert small.warmed and not big.warmed


def test_the_budget_of_the_day_chooses_by_what_the_models_have_spent() -> None:
    big, small = ScriptedLlm(["I am big."]), ScriptedLlm(["I am small."])
    big.spent = 9.5  # type: ignore[attr-defined]
    several = router(Routing(rules({"cost_left_below": 1.0}), day_budget=10.0), big=big, small=small)
    talk = talk_with(several).run(until=8.0)
    assert done_of(talk).heard == "I am small."
    big.spent = 2.0  # type: ignore[attr-defined]
    several = router(Routing(rules({"cost_left_below": 1.0}), day_budget=10.0), big=big, small=small)
    assert done_of(talk_with(several).run(until=8.0)).heard == "I am big."


def spent(cost: float) -> ScriptedLlm:
    model = ScriptedLlm(["I answer."])
    model.spent = cost  # type: ignore[attr-defined]
    return model


def test_the_budget_of_the_day_counts_the_opener_and_the_other_routers_of_the_server() -> None:
    routing, asked = Routing(rules({"cost_left_below": 1.0}), day_budget=10.0), Request([])

    def another(opener: float, big: float, spending: DaySpending | None = None) -> Router:
        models = {"big": Candidate("big", spent(big)), "small": Candidate("small", spent(0.0))}
        return Router(models, routing, opener=Candidate("opener", spent(opener)), spending=spending)

    assert another(opener=3.0, big=5.0).choose(asked).model == "big"
    assert another(opener=4.5, big=5.0).choose(asked).model == "small"
    spending = DaySpending()
    first, second = another(0.0, 5.0, spending), another(0.0, 4.5, spending)
    assert [one.choose(asked).model for one in (first, second, first)] == ["big", "small", "small"]
    models = {"big": Candidate("big", spent(5.0)), "small": Candidate("small", spent(0.0))}
    opening = Router(models, routing, opener=models["big"])
    assert opening.choose(asked).model == "big", "an opener that also answers counts once"


@pytest.mark.parametrize("failing", [RuntimeError("boom"), None])
def test_an_opener_that_fails_or_hangs_does_not_keep_the_server_from_starting(
    failing: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(ScriptedLlm):
        async def warm(self, messages: Sequence[Message]) -> None:
            if failing:
                raise failing
            await asyncio.get_running_loop().create_future()

    async def load(spec: str) -> Any:
        return Broken(["Sure,"]) if spec == "scripted:opener" else ScriptedLlm(["I am big."])

    async def scenario() -> None:
        placement = Placement(routing=Routing(opening_model="scripted:opener"))
        async with AsyncExitStack() as stack:
            failover = await open_list("scripted:big", placement, load, stack)
            await open_router("scripted:big", failover, placement, load, stack)

    virtual_clock.run(scenario())
    assert "the model of the openings does not answer yet" in caplog.text


class Growing(ScriptedStt):
    """Knows only the words that fit into the audio, in final transcripts, too."""

    def stream(self) -> ScriptedSttStream:
        return GrowingStream(self)


class GrowingStream(ScriptedSttStream):
    async def transcribe(self, is_final: bool) -> Transcript:
        return replace(await super().transcribe(False), is_final=is_final)


def test_a_guess_is_routed_by_its_own_words_and_dropped_with_them() -> None:
    big, small = ScriptedLlm(["I am big."]), ScriptedLlm(["I am small."])
    several = router(Routing(rules({"max_words": 4})), big=big, small=small)
    talk = Talk(llm=several, stt=Growing(["how are you doing on this very fine day"]))
    talk.says(1.0, at=0.5)
    talk.says(1.5, at=1.7)
    talk.run(until=10.0)
    assert small.prompts and all(len(prompt[-1]["content"].split()) <= 4 for prompt in small.prompts)
    assert small.open == 0 and done_of(talk).heard == "I am big."
    assert talk.of(TurnTraced)[-1].trace.route["model"] == "big"


# --- openings -------------------------------------------------------------------------------------------


def opening_router(big: ScriptedLlm, opener: Any = None, **routing: Any) -> Any:
    name = "opener" if opener else ""
    return router(Routing(**{"openings": [OPENING], "opening_model": name, **routing}), opener, big=big)


def test_an_opening_is_heard_first_and_both_are_one_reply() -> None:
    big = Big(first=1.5)
    talk = talk_with(opening_router(big)).run(until=15.0)
    assert done_of(talk).heard == WHOLE == talk.heard(1, 15.0)
    assert talk.said()[-1] == ("assistant", WHOLE)
    trace = talk.of(TurnTraced)[0].trace
    assert trace.counts["openings"] == 1 and "wait for the opening" in dict(trace.budget())
    assert trace.marks["audio_sent"] - trace.marks["reply_started"] < 0.5, "0.3 s and the voice"
    assert [message["content"] for message in big.prompts[-1][-2:]] == [OPENING, OPENED]
    assert len(big.prompts) == 2 and big.open == 0


def test_a_small_model_opens_and_the_trace_names_both() -> None:
    opener, big = ScriptedLlm([f"{OPENING} it leaves at ten."], first=0.1), Big(first=1.5)
    talk = talk_with(opening_router(big, opener, openings=[])).run(until=15.0)
    assert done_of(talk).heard == WHOLE and opener.open == big.open == 0
    assert talk.of(TurnTraced)[-1].trace.models == ["opener", "big"]


@pytest.mark.parametrize(
    "words", ["It leaves at 10 and", "No,", "one two three four five six seven eight nine ten"]
)
def test_words_of_the_small_model_that_do_not_fit_give_way_to_a_phrase(words: str) -> None:
    talk = talk_with(opening_router(Big(first=1.5), ScriptedLlm([words]))).run(until=15.0)
    assert done_of(talk).heard == WHOLE


@pytest.mark.parametrize("first", [0.05, 0.25])
def test_an_answer_in_time_has_no_opening(first: float) -> None:
    big = Big(first=first)
    talk = talk_with(opening_router(big)).run(until=15.0)
    assert done_of(talk).heard == UNTOLD and len(big.prompts) == 1


def test_an_answer_that_overtakes_the_small_model_has_no_opening() -> None:
    opener = ScriptedLlm([OPENING], first=5.0)
    talk = talk_with(opening_router(Big(first=1.0), opener, openings=[])).run(until=15.0)
    assert done_of(talk).heard == UNTOLD and opener.open == 0


def test_nothing_is_opened_while_a_reply_is_only_a_guess() -> None:
    big = Big(first=3.0)
    talk = talk_with(opening_router(big, opening_after_s=0.0), speculate=True, turn=ScriptedTurnModel(0.1))
    trace = talk.run(until=15.0).of(TurnTraced)[0].trace
    assert trace.marks["reply_started"] + 0.2 < trace.marks["committed"], "it was a guess"
    assert trace.marks["committed"] <= trace.marks["opened"] <= trace.marks["committed"] + 0.1
    assert done_of(talk).heard == WHOLE


def test_a_model_that_fails_behind_the_opening_is_continued_or_excused() -> None:
    sorry = "Sorry, I lost my thread."
    big = Big(first=1.5, fail_after=4)
    talk = talk_with(opening_router(big), cut_apology=sorry).run(until=15.0)
    done = done_of(talk)
    assert done.status == "failed" and done.heard.startswith(OPENING) and done.heard.endswith(sorry)
    several = router(Routing(openings=[OPENING]), big=Big(first=1.5, fail_after=4), other=Healthy())
    talk = talk_with(several).run(until=15.0)
    assert (done_of(talk).status, done_of(talk).heard) == ("completed", WHOLE)


class Healthy(ScriptedLlm):
    """Goes on wherever the whole answer broke off."""

    def _line(self, messages: Sequence[Message]) -> str:
        given = messages[-2]["content"].split()
        assert WHOLE.split()[: len(given)] == given, "it sees the opening, too"
        return " ".join(WHOLE.split()[len(given) :])


def test_a_guard_sees_the_opening_and_the_rest() -> None:
    seen = []

    async def judge(text: str) -> str:
        seen.append(text)
        return "no card" if "card" in text else ""

    guard = Guard(judges=[judge], refusal=Refusal("I must not say that."))
    talk = talk_with(opening_router(Big(first=1.5)), guard=guard).run(until=20.0)
    done = done_of(talk)
    assert done.heard.startswith(OPENING) and "card" not in done.heard and done.refused == "no card"
    assert seen[0] in OPENING


def test_barge_in_at_every_word_cancels_both_and_keeps_what_was_heard() -> None:
    heard = set()
    for tenths in range(22, 110, 3):
        big, opener = Big(first=1.5), ScriptedLlm([OPENING], first=0.1)
        talk = talk_with(opening_router(big, opener))
        talk.says(1.0, at=tenths / 10)
        talk.run(until=tenths / 10 + 2.5)
        first = talk.of(ReplyDone)[0]
        assert WHOLE.startswith(first.heard.rstrip("—").strip()), first.heard
        heard.add(len(first.heard.split()))
        said = [words for role, words in talk.said() if role == "assistant"]
        assert not first.heard or said[0].startswith(first.heard)
        assert big.open == opener.open == 0
    assert len(heard) > 12, heard


def test_cancelling_at_every_step_leaves_nothing_open() -> None:
    async def scenario() -> None:
        for step in range(1, 10_000):
            big, opener = Big(first=0.5), ScriptedLlm([OPENING], first=0.1)
            several = opening_router(big, opener)
            tasks = len(asyncio.all_tasks())
            cancelled = await virtual_clock.cancelled_at(step, _heard_of(several))
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == tasks and big.open == opener.open == 0, step
            if not cancelled:
                break
        assert step > 20

    virtual_clock.run(scenario())


async def _heard_of(several: Any) -> str:
    report = Upstream(Trace(1, HARD))
    report.speaks = True
    upstream.set(report)
    async with aclosing(several.reply([Message(role="user", content=HARD)])) as words:
        return "".join([word async for word in words])


def test_a_request_with_tools_is_sent_once_and_has_no_opening() -> None:
    big = Big(first=1.5)
    talk = talk_with(opening_router(big), tools=TOOLS).run(until=15.0)
    assert done_of(talk).heard == UNTOLD and len(big.prompts) == 1


def test_replies_in_text_and_cues_have_no_opening() -> None:
    talk = talk_with(opening_router(Big(first=1.5)), speaks=False).run(until=15.0)
    assert talk.said()[-1] == ("assistant", UNTOLD)
    talk = talk_with(opening_router(Big(first=1.5)), HARD, idle_s=3.0, idle_prompts=1).run(until=30.0)
    assert [done.heard for done in talk.of(ReplyDone)] == [WHOLE, UNTOLD]
