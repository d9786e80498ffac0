"""Several models as one, in virtual time: each dies, hangs or is slow, at every moment of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest

from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.llm.failover.candidate import Candidate
from rejoinder.models.llm.failover.continuation import GO_ON
from rejoinder.models.llm.failover.deadlines import START_CLAUSE_DEADLINE, START_DEADLINE
from rejoinder.models.llm.failover.failover import Failover, ToolFailover
from rejoinder.models.llm.failover.opening import all_missing, open_list
from rejoinder.models.loading import Specs, open_llm, open_models, open_variant
from rejoinder.models.placement import HERE, Placement
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.models.threads import plan
from rejoinder.pipeline import (
    Message,
    ModelError,
    ReplyCalled,
    ReplyDone,
    ToolCall,
    Tools,
    TurnTraced,
)
from rejoinder.pipeline.engines.deadline import Deadline, current
from rejoinder.pipeline.prompt import EMPTY_ANSWER
from rejoinder.pipeline.replying.text.clauses import ClauseSplitter
from rejoinder.pipeline.trace import Trace
from rejoinder.pipeline.upstream import Upstream, upstream

ANSWER = "The first train leaves at nine, and it takes an hour. You can pay with a card."
WORDS = ANSWER.split()
ASKED = [Message(role="user", content="When?")]
TOOLS = Tools([{"type": "function", "function": {"name": "book"}}])
HUNG = 10_000.0
SORRY = "Sorry, I cannot answer now."
LOST = "Sorry, I lost my thread."


class Speaker(ScriptedLlm):
    """Says the whole answer, or the rest of it where its prompt ends with the begin of it.

    repeats: how many words of what is out it says again.
    """

    def __init__(self, *, repeats: int = 0, line: str = ANSWER, **more: Any) -> None:
        super().__init__([line], **more)
        self.repeats = repeats
        self.line = line

    def _line(self, messages: Sequence[Message]) -> str:
        self.prompts.append(list(messages))
        last = messages[-2]["content"] if messages[-1]["content"] == GO_ON else messages[-1]["content"]
        begun = len(last.split()) if self.line.startswith(last) else 0
        return " ".join(self.line.split()[max(0, begun - self.repeats) :])


def candidates(*models: Any, **more: Any) -> list[Candidate]:
    return [Candidate(f"model{number}", llm, **more) for number, llm in enumerate(models)]


@asynccontextmanager
async def failover(*models: Any, hedge: bool = True, **more: Any) -> AsyncGenerator[ToolFailover, None]:
    several = ToolFailover(candidates(*models, **more), hedge)
    try:
        yield several
    finally:
        await several.aclose()
        assert [one.open for one in models] == [0] * len(models)


async def text_of(pieces: AsyncGenerator[Any, None]) -> str:
    async with aclosing(pieces):
        return "".join([piece async for piece in pieces if isinstance(piece, str)])


def run(scenario: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await scenario()

    return virtual_clock.run(main())


def now() -> float:
    return round(asyncio.get_running_loop().time(), 3)


def test_the_smaller_model_answers_while_the_machine_is_busy() -> None:
    async def scenario() -> None:
        large, small = Speaker(), Speaker(line="The small one says nine.")
        both = candidates(large, small)
        several = ToolFailover(both, busy=both[1])
        for frugal, expected in ((False, large), (True, small)):
            current.set(Deadline(frugal=frugal))
            assert (await text_of(several.reply(ASKED))).strip() == expected.line
            assert (await text_of(several.answer(ASKED, TOOLS))).strip() == expected.line
        await several.aclose()

    run(scenario)


def test_the_smaller_model_is_loaded_once() -> None:
    placement = Placement(busy_llm="scripted:llm|small")
    specs = Specs("scripted:vad", "", "scripted:stt", "scripted:llm|large", "scripted:tts")

    async def scenario() -> None:
        async with open_models(specs, placement=placement) as models:
            assert isinstance(models.llm, Failover)
            assert [one.name for one in models.llm.candidates] == ["scripted:llm", "scripted:llm (2)"]
            async with open_variant(models, {"llm": "scripted:llm|other"}, placement=placement) as variant:
                assert not isinstance(variant.llm, Failover)
        async with open_llm("scripted:llm|other", plan(), placement) as llm:
            assert not isinstance(llm, Failover)

    asyncio.run(scenario())


def test_the_larger_model_takes_over_on_a_busy_machine() -> None:
    async def scenario() -> None:
        large, small = Speaker(), Speaker(fail_after=0)
        both = candidates(large, small)
        several = ToolFailover(both, busy=both[1])
        current.set(Deadline(frugal=True))
        assert (await text_of(several.reply(ASKED))).strip() == ANSWER
        await several.aclose()

    run(scenario)


def test_a_model_in_time_is_asked_alone() -> None:
    async def scenario() -> None:
        first, second = Speaker(), Speaker()
        async with failover(first, second) as several:
            for _ in range(5):
                tasks = len(asyncio.all_tasks())
                async with aclosing(several.reply(ASKED)) as words:
                    got = []
                    async for word in words:
                        got.append(word)
                        assert len(asyncio.all_tasks()) == tasks, "it is awaited directly"
                assert "".join(got).split() == WORDS
        assert len(first.prompts) == 5 and not second.prompts

    run(scenario)


@pytest.mark.parametrize("repeats", [0, 3, 5, 100])
def test_death_at_every_character_is_not_heard(repeats: int) -> None:
    """In a language without blanks."""
    line = "今日の東京は晴れです。明日は雨が降ります。"

    class Characters(Speaker):
        def _line(self, messages: Sequence[Message]) -> str:
            self.prompts.append(list(messages))
            last = messages[-2]["content"] if messages[-1]["content"] == GO_ON else messages[-1]["content"]
            begun = len(last) if line.startswith(last) else 0
            return line[max(0, begun - self.repeats) :]

        async def _say(self, text: str) -> AsyncGenerator[str, None]:
            for count, character in enumerate(text):
                if count == self.fail_after:
                    raise ModelError("scripted", "dead")
                yield character

    async def scenario() -> None:
        for dies_after in range(len(line) + 1):
            async with failover(Characters(fail_after=dies_after), Characters(repeats=repeats)) as several:
                assert await text_of(several.reply(ASKED)) == line, dies_after

    run(scenario)


@pytest.mark.parametrize(
    ("prefills", "repeats"),
    [(False, 0), (False, 1), (False, 3), (False, 100), (True, 0), (True, 3), (True, 100)],
)
def test_death_at_every_word_is_not_heard(prefills: bool, repeats: int) -> None:
    async def scenario() -> None:
        for dies_after in range(len(WORDS) + 1):
            first, second = Speaker(fail_after=dies_after), Speaker(repeats=repeats)
            async with failover(first, second, prefills=prefills) as several:
                assert (await text_of(several.reply(ASKED))).split() == WORDS
            given = second.prompts[0][1:] if second.prompts else []
            assert [message["role"] for message in given] == (
                [] if dies_after in (0, len(WORDS)) else ["assistant"] if prefills else ["assistant", "user"]
            )

    run(scenario)


def test_three_models_that_die_in_turn_make_one_answer() -> None:
    async def scenario() -> None:
        models = Speaker(fail_after=4), Speaker(fail_after=3, repeats=1), Speaker(repeats=2)
        async with failover(*models) as several:
            assert (await text_of(several.reply(ASKED))).split() == WORDS

    run(scenario)


def test_the_error_of_the_last_model_is_raised_after_the_words() -> None:
    async def scenario() -> None:
        got = []
        async with failover(Speaker(fail_after=4), Speaker(fail_after=3)) as several:
            with pytest.raises(ModelError):
                async with aclosing(several.reply(ASKED)) as words:
                    async for word in words:
                        got.append(word)
        assert "".join(got).split() == WORDS[:7]

    run(scenario)


def test_a_late_model_is_hedged_and_the_first_answer_is_taken() -> None:
    async def scenario() -> None:
        for first_s, second_s, winner in ((HUNG, 0.1, 1), (START_DEADLINE + 0.2, 0.5, 0), (1.6, 0.05, 1)):
            first, second = Speaker(first=first_s), Speaker(first=second_s)
            async with failover(first, second) as several:
                began = now()
                async with aclosing(several.reply(ASKED)) as words:
                    await anext(words)
                    await asyncio.sleep(0)
                    assert (first.open, second.open) == ((1, 0), (0, 1))[winner]
                    assert now() - began == pytest.approx(min(first_s, START_DEADLINE + second_s))
                    assert len([word async for word in words]) > 2
            assert (len(first.prompts), len(second.prompts)) == (1, 1)

    run(scenario)


def test_a_late_model_goes_on_where_the_next_one_fails() -> None:
    async def scenario() -> None:
        async with failover(Speaker(first=2.5), Speaker(fail_after=0, first=0.0)) as several:
            assert (await text_of(several.reply(ASKED))).split() == WORDS
        async with failover(Speaker(first=HUNG), Speaker(fail_after=0, first=0.0)) as several:
            began = now()
            with pytest.raises(ModelError):
                await text_of(several.reply(ASKED))
            assert now() - began == 8.0
        async with failover(
            Speaker(first=HUNG), Speaker(fail_after=0, first=0.0), first_token_s=0.7
        ) as several:
            began = now()
            with pytest.raises(ModelError):
                await text_of(several.reply(ASKED))
            assert now() - began == pytest.approx(0.7)

    run(scenario)


class Same(Speaker):
    """Says its line, whatever is out already."""

    def _line(self, messages: Sequence[Message]) -> str:
        return self.line


def spoken() -> Upstream:
    """Make the requests of this task those of a reply that is spoken."""
    reply = Upstream(Trace(1), spoken=True, needs_words=True)
    upstream.set(reply)
    return reply


@pytest.mark.parametrize(
    ("each", "second", "answered_at", "asked", "winner"),
    [
        (0.5, {}, 1.1, 0, "model0"),  # three words within the deadline
        (2.0, {"first": 0.1}, 0.1 + START_CLAUSE_DEADLINE + 0.1 + 2 * 0.02, 1, "model1"),
        (0.8, {"first": 0.4}, 1.7, 1, "model0"),  # asked too, and not as fast
        (2.0, {"fail_after": 0}, 4.1, 1, "model0"),
    ],
)
def test_a_model_that_dribbles_is_late(
    each: float, second: dict[str, Any], answered_at: float, asked: int, winner: str
) -> None:
    async def scenario() -> None:
        models = Speaker(first=0.1, each=each), Speaker(**second)
        async with failover(*models) as several:
            reply = spoken()
            got, splitter, clause_at = "", ClauseSplitter(), None
            async with aclosing(several.reply(ASKED)) as words:
                async for word in words:
                    got += word
                    if splitter.feed(word) and clause_at is None:
                        clause_at = now()
            assert got.split() == WORDS, "nothing twice"
            assert clause_at == pytest.approx(answered_at)
            assert len(models[1].prompts) == asked
            assert reply._trace.models == [winner]

    run(scenario)


def test_a_model_that_dribbles_alone_is_given_up() -> None:
    async def scenario() -> None:
        async with failover(Speaker(first=0.5, each=9.0)) as several:
            spoken()
            with pytest.raises(ModelError, match=r"no clause within 8\.0 s of its first word"):
                await text_of(several.reply(ASKED))
            assert now() == 8.5
        async with failover(Speaker(first=0.5, each=9.0), first_clause_s=0.2) as several:
            began = now()
            with pytest.raises(ModelError, match="no clause"):
                await text_of(several.reply(ASKED))
            assert now() - began == pytest.approx(0.7)

    run(scenario)


def test_a_late_model_may_finish_its_clause_where_the_next_one_has_failed() -> None:
    async def scenario() -> None:
        async with failover(Speaker(first=7.9, each=0.5), Speaker(fail_after=0, first=0.0)) as several:
            spoken()
            assert (await text_of(several.reply(ASKED))).split() == WORDS

    run(scenario)


def test_second_requests_end_with_their_budget() -> None:
    async def scenario() -> None:
        first, second = Speaker(first=1.8), Speaker(first=0.5)
        async with failover(first, second, hedge=0.01) as several:
            several.candidates[0].breaker.failed = lambda now: False  # type: ignore[method-assign]
            took = []
            for _ in range(5):
                began = now()
                async with aclosing(several.reply(ASKED)) as words:
                    await anext(words)
                took.append(round(now() - began, 2))
        assert took == [1.8] * 3 + [START_DEADLINE + 0.5] * 2, "then the late one is given up"

    run(scenario)


def test_text_may_dribble_and_the_first_word_is_in_the_trace() -> None:
    async def scenario() -> None:
        second = Speaker()
        async with failover(Speaker(first=0.1, each=3.0), second) as several:
            async with aclosing(several.reply(ASKED)) as words:
                assert await anext(words) == "The " and now() == pytest.approx(0.1)
            assert not second.prompts
        async with failover(Speaker(first=0.1, each=0.3)) as several:
            began, reply = now(), spoken()
            async with aclosing(several.reply(ASKED)) as words:
                await anext(words)
            assert reply._trace.marks["first_token"] - began == pytest.approx(0.1)

    run(scenario)


def test_an_answer_without_words_is_a_failure_where_the_user_waits_for_one() -> None:
    returned = [*ASKED, Message(role="assistant", content="So."), Message(role="tool", content="Done.")]

    async def scenario() -> None:
        async with failover(Speaker(line=""), Speaker()) as several:
            assert await text_of(several.reply(ASKED)) == "", "a text request may be answered with nothing"
            spoken()
            assert (await text_of(several.reply(ASKED))).split() == WORDS
            assert await text_of(several.reply(returned)) == "", "nothing to add to a result"
        async with failover(Speaker(line="")) as several:
            for _ in range(4):
                with pytest.raises(ModelError, match=EMPTY_ANSWER):
                    await text_of(several.reply(ASKED))
            assert several.candidates[0].breaker.closed, "the prompt may have asked for it"

    run(scenario)


@pytest.mark.parametrize(
    ("dies_after", "is_whole", "rest"),
    [(4, False, ""), (len(WORDS) - 6, True, ""), (4, False, " ".join(WORDS[:4]))],
)
def test_a_continuation_without_new_words_is_a_failure_inside_a_sentence(
    dies_after: int, is_whole: bool, rest: str
) -> None:
    async def scenario() -> None:
        async with failover(Speaker(fail_after=dies_after), Same(line=rest)) as several:
            spoken()
            asking = text_of(several.reply(ASKED))
            if is_whole:
                assert (await asking).split() == WORDS[:dies_after]
                return
            with pytest.raises(ModelError, match=EMPTY_ANSWER):
                await asking

    run(scenario)


def test_hedging_is_off_for_tools_and_where_configured() -> None:
    async def scenario(hedge: bool, tools: bool) -> None:
        line = ANSWER + ' @book {"seats": 1}'
        first, second = Speaker(first=1.8, line=line), Speaker(first=0.1, line=line)
        most = 0
        async with failover(first, second, hedge=hedge) as several:
            asked = several.answer(ASKED, TOOLS) if tools else several.reply(ASKED)
            calls = []
            began = now()

            async def watch() -> None:
                nonlocal most
                while True:
                    most = max(most, first.open + second.open)
                    await asyncio.sleep(0.01)

            watching = asyncio.create_task(watch())
            async with aclosing(asked) as pieces:
                async for piece in pieces:
                    calls += [piece] if isinstance(piece, ToolCall) else []
            watching.cancel()
        assert most == (2 if hedge and not tools else 1)
        assert len(calls) == tools, "the call of one model only"
        assert now() - began < 4.5

    for hedge in (False, True):
        for tools in (False, True):
            run(lambda hedge=hedge, tools=tools: scenario(hedge, tools))  # type: ignore[misc]


def test_only_models_with_tools_get_them() -> None:
    class Plain:
        """A model without tools."""

        open = 0

        def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
            raise AssertionError("it is not asked")

        async def warm(self, messages: Sequence[Message]) -> None: ...

    async def scenario() -> None:
        async with failover(Plain(), Speaker(line='Yes. @book {"seats": 1}')) as several:
            pieces = [piece async for piece in several.answer(ASKED, TOOLS)]
        assert isinstance(pieces[-1], ToolCall) and pieces[-1].name == "book"

    run(scenario)


class Calls(ScriptedLlm):
    """Begins a tool call in time, and writes its arguments for long."""

    async def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        self.prompts.append(list(messages))
        await asyncio.sleep(0.3)
        yield ""
        await asyncio.sleep(20.0)
        yield ToolCall("1", "book", "{}")


def test_the_beginning_of_a_call_is_an_answer() -> None:
    async def scenario() -> None:
        second = Speaker()
        async with failover(Calls(), second) as several:
            assert [piece async for piece in several.answer(ASKED, TOOLS)] == [ToolCall("1", "book", "{}")]
        assert not second.prompts

    run(scenario)


def test_thoughts_are_no_answer_and_are_not_continued() -> None:
    async def scenario() -> None:
        thinks = Speaker(line="<think> hm " + "hm " * 100 + "</think> " + ANSWER, each=0.05)
        second = Speaker()
        async with failover(thinks, second) as several:
            assert (await text_of(several.reply(ASKED))).split() == WORDS
        assert len(second.prompts) == 1, "a model that thinks for longer than its deadline is late"
        never = Speaker(line="<think> hm hm", each=0.01)
        async with failover(never, second) as several:
            assert (await text_of(several.reply(ASKED))).split() == WORDS
        dies = Speaker(line=f"{WORDS[0]} <think> hm hm </think> {' '.join(WORDS[1:])}", fail_after=3)
        async with failover(dies, second) as several:
            assert (await text_of(several.reply(ASKED))).split() == WORDS

    run(scenario)


def test_a_guess_is_not_hedged_before_its_commit_and_opens_no_breaker() -> None:
    async def scenario() -> None:
        first, second = Speaker(first=HUNG), Speaker(first=0.1)
        async with failover(first, second) as several:
            for _ in range(20):
                current.set(Deadline())
                words = several.reply(ASKED)
                guess = asyncio.create_task(anext(words))
                await asyncio.sleep(5.0)
                assert not second.prompts, "no caller waits for it"
                guess.cancel()
                await asyncio.wait([guess])
                await words.aclose()
            assert several.candidates[0].breaker.closed
            deadline = Deadline()
            current.set(deadline)
            words = several.reply(ASKED)
            guess = asyncio.create_task(anext(words))
            await asyncio.sleep(5.0)
            deadline.due = committed = now()
            await guess
            assert now() - committed == pytest.approx(0.1, abs=0.051), "the deadline had passed already"
            await words.aclose()

    run(scenario)


def test_a_dead_model_is_not_asked_until_a_probe_succeeds() -> None:
    async def scenario() -> None:
        first, second = Speaker(fail_after=0), Speaker()
        async with failover(first, second) as several:
            for _ in range(8):
                assert (await text_of(several.reply(ASKED))).split() == WORDS
            asked = [prompt for prompt in first.prompts if prompt == ASKED]
            assert len(asked) == 3 and not several.candidates[0].breaker.closed
            await asyncio.sleep(60.0)
            probes = len(first.prompts) - len(asked)
            assert 4 <= probes <= 7, "they become rarer"
            first.fail_after = None
            await asyncio.sleep(60.0)
            assert not several.candidates[0].breaker.probe_wait
            before = len(second.prompts)
            await text_of(several.reply(ASKED))
            assert len(second.prompts) == before

    run(scenario)


def test_a_model_with_an_open_breaker_is_the_last_resort() -> None:
    async def scenario() -> None:
        first, second = Speaker(), Speaker(fail_after=0)
        async with failover(first, second) as several:
            several.candidates[0].breaker.open()
            assert (await text_of(several.reply(ASKED))).split() == WORDS, "it answers again"
            first.first, began = HUNG, now()
            with pytest.raises(ModelError):
                await text_of(several.reply(ASKED))
            waited = second.first + START_DEADLINE
            assert now() - began == pytest.approx(waited), "and not 8 s: the caller has waited already"

    run(scenario)


def test_if_all_breakers_are_open_all_models_are_asked() -> None:
    async def scenario() -> None:
        first, second = Speaker(fail_after=0), Speaker(fail_after=0)
        async with failover(first, second) as several:
            for _ in range(4):
                with pytest.raises(ModelError):
                    await text_of(several.reply(ASKED))
            second.fail_after = None
            assert (await text_of(several.reply(ASKED))).split() == WORDS

    run(scenario)


@pytest.mark.parametrize(
    ("first_s", "each"), [(0.1, 0.02), (HUNG, 0.02), (START_DEADLINE + 0.3, 0.02), (0.1, 2.0)]
)
def test_a_cancel_at_every_step_leaves_nothing_open(first_s: float, each: float) -> None:
    async def scenario() -> None:
        step = 0
        spoken()
        while True:
            models = (
                Speaker(first=first_s, each=each, fail_after=5),
                Speaker(first=0.3, fail_after=3),
                Speaker(),
            )
            async with failover(*models) as several:
                tasks = len(asyncio.all_tasks())
                step += 1
                cancelled = await virtual_clock.cancelled_at(step, text_of(several.reply(ASKED)))
                await asyncio.sleep(0)
                assert len(asyncio.all_tasks()) == tasks
            if not cancelled:
                break
        assert step > 20

    run(scenario)


# --- in a conversation ----------------------------------------------------------------------------------


def talk_with(several: Failover, **options: Any) -> Talk:
    llm: Any = several
    llm.open = 0  # the models' own count is checked
    talk = Talk("when is the train", llm=llm, speculate=False, **options)
    talk.says(1.2, at=0.5)
    return talk


@pytest.mark.parametrize("second", [False, True])
def test_death_at_every_word_of_a_reply(second: bool) -> None:
    for dies_after in range(len(WORDS) + 1):
        models = [Speaker(fail_after=dies_after), *([Speaker(repeats=1)] if second else [])]
        talk = talk_with(Failover(candidates(*models)), apology=SORRY, cut_apology=LOST).run(until=20.0)
        (done,) = talk.of(ReplyDone)
        heard = done.heard.split()
        assert talk.said()[-1] == ("assistant", done.heard), "the history says what was heard"
        if second or dies_after == len(WORDS):
            assert (done.status, heard) == ("completed", WORDS)
            assert done.heard == talk.heard(done.turn, 20.0)
            continue
        assert (done.status, done.error != "") == ("failed", True)
        apology = LOST if len(heard) > len(SORRY.split()) or done.heard.endswith(LOST) else SORRY
        words = done.heard.removesuffix(apology).split()
        assert done.heard.endswith(apology) and words == WORDS[: len(words)]
        assert bool(words) == (apology == LOST) and len(words) <= dies_after


def test_all_models_gone_is_told_at_the_deadline_and_the_next_turn_works() -> None:
    models = Speaker(first=HUNG), Speaker(first=HUNG)
    talk = talk_with(Failover(candidates(*models, first_token_s=0.5)), apology=SORRY, cut_apology=LOST)

    async def repaired(_: Any) -> None:
        models[1].first = 0.1

    talk.does(repaired, at=9.0)
    talk.says(1.2, at=10.0)
    talk.run(until=20.0)
    failed, works = talk.of(ReplyDone)
    assert (failed.status, failed.heard, works.status) == ("failed", SORRY, "completed")
    trace = talk.of(TurnTraced)[0].trace
    assert trace.marks["audio_sent"] - trace.marks["reply_started"] == pytest.approx(1.0, abs=0.1)
    assert "apology" in trace.marks and trace.counts["hedges"] == 1
    assert talk.of(TurnTraced)[-1].trace.models == ["model1"]
    assert next(words for role, words in talk.said() if role == "assistant") == SORRY


@pytest.mark.parametrize("apology", [SORRY, ""])
def test_a_single_model_without_words_is_excused(apology: str) -> None:
    talk = talk_with(Speaker(line=""), apology=apology).run(until=20.0)  # type: ignore[arg-type]
    (done,) = talk.of(ReplyDone)
    assert (done.status, done.heard) == (("failed", SORRY) if apology else ("completed", ""))


def test_a_failed_reply_calls_no_tool() -> None:
    line = ANSWER + ' @book {"seats": 1}'
    talk = talk_with(ToolFailover(candidates(Speaker(line=line, fail_after=6))), tools=TOOLS, apology=SORRY)
    talk.run(until=20.0)
    assert talk.of(ReplyDone)[0].status == "failed" and not talk.of(ReplyCalled)


def test_the_trace_names_the_models_and_says_what_happened() -> None:
    talk = talk_with(Failover(candidates(Speaker(first=HUNG), Speaker(fail_after=9), Speaker())))
    talk.run(until=20.0)
    trace = talk.of(TurnTraced)[0].trace
    assert trace.models == ["model1", "model2"]
    assert (trace.counts["hedges"], trace.counts["failovers"]) == (1, 1)
    assert trace.described()["models"] == trace.models
    parts = [name for name, _ in trace.budget()]
    assert parts.index("LLM deadline") < parts.index("LLM first token")
    assert talk.done()[0][1:] == ("completed", ANSWER)


class Foreign(Speaker):
    """An adapter of another distribution: it fails in a way of its own, also when it is closed."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Fail, or stream the answer."""
        self._fail("call")
        return self._failing(super().reply(messages))

    async def _failing(self, words: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
        self._fail("first")
        try:
            async with aclosing(words):
                async for word in words:
                    yield word
                    if word.startswith("nine"):
                        self._fail("later")
        finally:
            self._fail("closed")

    def _fail(self, where: str) -> None:
        if where == self.where:
            raise KeyError("choices")


@pytest.mark.parametrize("where", ["call", "first", "later"])
def test_failure_of_any_kind_is_one_of_the_model(where: str) -> None:
    first = Foreign(where)
    talk = talk_with(Failover(candidates(first, Speaker())), apology=SORRY, cut_apology=LOST)
    talk.run(until=20.0)
    assert talk.done()[-1][1:] == ("completed", ANSWER)
    assert first.open == 0


def test_failure_of_a_request_that_is_closed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with failover(Foreign("closed"), Speaker()) as several:
            async with aclosing(several.reply(ASKED)) as words:
                assert await anext(words) == "The "

    run(scenario)
    assert "model0 failed when its request was closed: KeyError('choices')" in caplog.text


def test_first_request_that_fails_in_any_way_leaves_the_model_to_the_probes() -> None:
    async def scenario() -> None:
        loaded = {"ort:1": Foreign("first"), "ort:2": Speaker()}

        async def load(spec: str) -> Any:
            return loaded[spec]

        async with AsyncExitStack() as stack:
            several = await open_list("ort:1 ort:2", HERE, load, stack)
            assert [one.breaker.closed for one in several.candidates] == [False, True]
            assert all_missing(several) is None

    run(scenario)
