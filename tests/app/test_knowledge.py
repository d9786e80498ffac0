"""Knowledge is retrieved while the caller speaks, and reaches the prompt of that turn only."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call, CallInfo
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.knowledge import Knowledge
from rejoinder.agent.app.loading import load_agent
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Message, Options, ReplyDone, TurnTraced

LINE = "where can I park my car tonight"


class Library:
    """An agent whose lookups take ``seconds``, and a log of them."""

    def __init__(self, seconds: float) -> None:
        self.log: list[tuple[str, str]] = []
        self.running = 0
        self.agent = Agent[None, None]("Be brief.")

        @self.agent.context
        async def look_up(call: Call, words: str) -> str:
            assert self.running == 0, "two lookups ran at the same time"
            self.log.append(("begun", words))
            self.running += 1
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                self.log.append(("cancelled", words))
                raise
            finally:
                self.running -= 1
            self.log.append(("done", words))
            return f"about {words}"

    def of(self, kind: str) -> list[str]:
        return [words for one, words in self.log if one == kind]


def call() -> Call[Any, Any]:
    return Call(CallInfo(), None, None, Options(), {}, Agent())


async def _known(functions: list[Any], words: str) -> str:
    return await Knowledge(call(), functions, AgentHost(Agent()))(words)


def prompts(talk: Talk) -> list[list[tuple[str, str]]]:
    return [[(one["role"], one["content"]) for one in prompt] for prompt in talk.llm.prompts]


def first_traces(talk: Talk) -> list[Any]:
    traces = {event.trace.turn: event.trace for event in talk.of(TurnTraced)}
    return [traces[turn] for turn in sorted(traces)]


def test_lookups_follow_the_words_and_the_last_one_is_in_the_prompt() -> None:
    library = Library(0.9)
    talk = Talk(LINE, agent=library.agent, context_wait_s=2.0)
    talk.says(3.0, at=0.5)
    talk.run(8.0)
    begun = library.of("begun")
    assert len(begun) > 2 and begun[-1] == LINE
    assert begun == sorted(set(begun), key=len), "the words only change when they grow"
    assert set(library.of("cancelled")) | set(library.of("done")) == set(begun)
    assert library.of("cancelled"), "a lookup is cancelled when the words change"
    assert prompts(talk)[-1][-1] == (
        "user",
        f"Use this information if it helps:\nabout {LINE}\n\n{LINE}",
    )


def test_knowledge_of_one_turn_is_not_in_the_history() -> None:
    library = Library(0.01)
    talk = Talk(LINE, "and tomorrow", agent=library.agent)
    talk.says(2.0, at=0.5)
    talk.says(1.0, at=6.0)
    talk.run(12.0)
    assert talk.said() == [
        ("user", LINE),
        ("assistant", "Sunny."),
        ("user", "and tomorrow"),
        ("assistant", "Sunny."),
    ]
    last = prompts(talk)[-1]
    assert last[:-1] == [("system", "Be brief."), ("user", LINE), ("assistant", "Sunny.")]
    assert "about and tomorrow" in last[-1][1] and f"about {LINE}" not in last[-1][1]


def test_a_reply_does_not_wait_longer_than_the_limit() -> None:
    waits = []
    for seconds in (0.0, 0.2, 60.0):
        library = Library(seconds)
        talk = Talk(LINE, agent=library.agent, options=Options(instructions="", context_wait_s=0.5))
        talk.says(2.0, at=0.5)
        talk.run(9.0)
        (trace,) = first_traces(talk)
        waits.append(round(trace.marks["context"] - trace.marks["reply_started"], 3))
        assert ("about" in prompts(talk)[-1][-1][1]) is (seconds < 0.5)
        assert trace.counts.get("context_late", 0) == (seconds > 0.5)
        assert abs(trace.counts.get("context_ms", 0.0) - (seconds * 1000 if seconds < 1 else 0.0)) < 1.0
        assert talk.done()[-1][1] == "completed" and library.running == 0
    assert waits[0] == 0.0 and 0.0 < waits[1] <= 0.2 and waits[2] == 0.5


def test_a_lookup_that_is_ready_costs_the_turn_nothing() -> None:
    """The lookup of the final words begins with the transcript and ends before the turn is surely over."""
    library = Library(0.05)
    quick, plain = Talk(LINE, agent=library.agent), Talk(LINE)
    for talk in (quick, plain):
        talk.says(2.0, at=0.5)
        talk.run(8.0)
    ends = [round(sum(ms for _, ms in first_traces(talk)[0].budget())) for talk in (quick, plain)]
    assert ends[0] == ends[1]
    assert "wait for context" in dict(first_traces(quick)[0].budget())
    assert "wait for context" not in dict(first_traces(plain)[0].budget())


@pytest.mark.parametrize("start_ms", range(900, 6_000, 150))
def test_interruptions_lose_no_answer_and_leave_no_lookup(start_ms: int) -> None:
    library = Library(0.25)
    talk = Talk(LINE, "no wait", agent=library.agent)
    talk.says(2.0, at=0.5)
    talk.says(0.8, at=start_ms / 1000)
    talk.run(12.0)
    assert library.running == 0 and len(library.of("begun")) == len(
        library.of("done") + library.of("cancelled")
    )
    assert talk.done()[-1][1] == "completed"
    asked = talk.said()[-2][1]
    assert f"about {asked}" in prompts(talk)[-1][-1][1]


def test_a_failing_function_is_logged_and_the_others_count(caplog: pytest.LogCaptureFixture) -> None:
    async def good(call: Call, words: str) -> str:
        return " known "

    def broken(call: Call, words: str) -> str:
        raise ValueError("no index")

    async def nothing(call: Call, words: str) -> None:
        return None

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(_known([broken, good, nothing], "words")) == "known"
    assert "the context function broken (tests/app/test_knowledge.py" in caplog.text


def test_a_reply_to_a_tools_result_keeps_the_knowledge_of_its_turn() -> None:
    library = Library(0.01)

    @library.agent.tool
    async def fetch(call: Call) -> str:
        """Fetch it."""
        return "fetched"

    talk = Talk(LINE, agent=library.agent, llm=ScriptedLlm(["@fetch", "It is there."]))
    talk.says(2.0, at=0.5)
    talk.run(8.0)
    assert [done.heard for done in talk.of(ReplyDone)] == ["", "It is there."]
    assert all(
        f"about {LINE}" in prompt[-3 if number else -1][1] for number, prompt in enumerate(prompts(talk)[-2:])
    )
    assert library.of("begun").count(LINE) == 1


EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "rooms.md").write_text(
        "# Rooms\n\nAll rooms have a bath.\n\n## Parking\n\nCars park behind the house, for 9 euros.\n"
    )
    (tmp_path / "food.md").write_text(
        "Breakfast is from 7 to 10.\n\n# Dogs\n\nDogs are welcome, and eat for free.\n"
    )
    monkeypatch.setenv("KNOWLEDGE", str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_the_example_answers_from_its_folder(folder: Path) -> None:
    agent = load_agent(str(EXAMPLES / "knowledge.py"))
    talk = Talk(LINE, "can I bring two dogs", "thank you", agent=agent)
    for number in range(3):
        talk.says(1.5, at=5.0 + 5.0 * number)
    talk.run(22.0)
    last = [prompt[-1][1] for prompt in prompts(talk)]
    assert "Parking: Cars park behind the house" in next(one for one in last if one.endswith(LINE))
    assert "Dogs are welcome" in next(one for one in last if one.endswith("dogs"))
    assert last[-1] == "thank you"


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("Where do I park?", "Parking"),
        ("Is there breakfast", "food"),
        ("My dog's hungry", "Dogs"),
        ("a bath please", "Rooms"),
        ("what is it", ""),
        ('"; DROP TABLE section', ""),
        ("", ""),
    ],
)
def test_the_examples_search(folder: Path, words: str, title: str) -> None:
    load_agent(str(EXAMPLES / "knowledge.py"))
    example = sys.modules["knowledge"]
    db = example.index(folder)
    assert example.search(db, words).partition(":")[0] == title
    db.close()


class Cached(ScriptedLlm):
    """A model with a small context that notes what is read ahead."""

    context_tokens = 1_024

    def __init__(self) -> None:
        super().__init__(["Sunny."])
        self.warmed: list[str] = []

    def tokens_in(self, text: str) -> int:
        return len(text.split())

    async def warm(self, messages: Sequence[Message]) -> None:
        self.warmed.append(messages[-1]["content"])


def test_the_cache_reads_knowledge_while_the_caller_speaks() -> None:
    library, llm = Library(0.05), Cached()
    talk = Talk(LINE, agent=library.agent, llm=llm)
    talk.says(3.0, at=0.5)
    talk.run(8.0)
    (_, *partial) = [words for words in library.of("done") if words != LINE]
    assert partial, "there were partial transcripts"
    assert all(any(f"about {words}\n\n{words}" in one for one in llm.warmed) for words in partial)


def test_long_knowledge_is_shortened() -> None:
    agent = Agent[None, None]("Be brief.")

    @agent.context
    async def look_up(call: Call, words: str) -> str:
        return "fact " * 5_000

    talk = Talk(LINE, agent=agent, llm=Cached())
    talk.says(2.0, at=0.5)
    talk.run(8.0)
    asked = prompts(talk)[-1][-1][1]
    assert 200 < len(asked.split()) < 1_024 // 4 + 20 and asked.endswith(LINE)


def test_a_synchronous_function_has_one_thread_per_call() -> None:
    running, most, words_seen = 0, 0, []
    began, may_end = threading.Event(), threading.Event()

    def slow(call: Call, words: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        began.set()
        may_end.wait(20.0)
        running -= 1
        words_seen.append(words)
        return words

    async def main() -> str:
        knowledge = Knowledge(call(), [slow], AgentHost(Agent()))
        for words in ("one", "one two", "one two three"):
            lookup = asyncio.create_task(knowledge(words))
            await asyncio.to_thread(began.wait, 20.0)
            await asyncio.sleep(0.01)
            if words != "one two three":
                lookup.cancel()
        may_end.set()
        return await lookup

    assert asyncio.run(main()) == "one two three"
    assert most == 1 and words_seen == ["one", "one two three"], "the lookup in between never began"
