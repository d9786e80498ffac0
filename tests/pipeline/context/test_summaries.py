"""A summary replaces a whole block of older entries, and the prompt's start stays the same between two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise

import pytest

from rejoinder.agent.simulate import virtual_clock
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Message
from rejoinder.pipeline.context.block import block_text
from rejoinder.pipeline.context.summaries import Summaries, condensed, summarise, summarise_with, with_facts
from rejoinder.pipeline.context.tokens import estimated
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.history import MAX_ENTRIES, RESULT_TOKENS, SUMMARY_ENTRIES, History
from rejoinder.pipeline.interfaces import Llm, ToolCall
from rejoinder.pipeline.prompt import Entry
from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks

TOKENS = 600


def history(turns: int, tokens: int = TOKENS) -> History:
    """Return a conversation that may be summarised; its first words tell a name."""
    made = History("Be brief.", tokens=tokens)
    made.condenses = True
    made.add_user("my name is Adaeze Okafor")
    for turn in range(1, turns):
        made.begin_reply(turn)
        made.settle(turn, f"Certainly, that is a nice thing to say, number {turn}.", cut=False)
        made.add_user("and something that is not important at all")
    return made


def system(made: History) -> str:
    return made.messages()[0]["content"]


def test_short_conversation_has_no_block() -> None:
    assert history(5).block() is None


def test_summary_stands_in_front_of_what_is_left() -> None:
    made = history(14)
    block = made.block()
    assert block is not None and block.text.startswith("Caller: my name is Adaeze Okafor\nAgent: Certainly")
    before = made.size
    assert made.replace(block, "The caller is Adaeze Okafor.")
    messages = made.messages("so")
    assert messages[0]["content"] == (
        "Be brief.\n\nEarlier in this conversation:\nThe caller is Adaeze Okafor."
    )
    assert messages[1]["role"] == "user" and made.size < before / 2 + 100
    assert [one["role"] for one in messages[1:4]] == ["user", "assistant", "user"]
    assert "Adaeze" in made.transcript()[0]["content"], "the transcript has all words"
    assert made.block() is None, "it is not long any more"


def test_prefix_is_stable_between_summaries() -> None:
    made = history(2)
    starts = []
    for turn in range(100, 300):
        made.begin_reply(turn)
        made.settle(turn, "Certainly, that is a nice thing to say.", cut=False)
        made.add_user("and something that is not important at all")
        if block := made.block():
            assert made.replace(block, f"Summary {turn} of Adaeze.")
        messages = made.messages()
        starts.append((messages[0]["content"], messages[1]["content"]))
        assert made.size <= TOKENS
    changes = sum(one != other for one, other in pairwise(starts))
    assert 0 < changes < 200 / 6, "one change replaces many turns"


def test_conversation_that_outgrows_its_budget_is_condensed_at_once() -> None:
    made = history(60)
    assert "Adaeze Okafor" in system(made) and made.size <= TOKENS
    made.condenses = False
    assert "Adaeze" not in str(History("Be brief.", tokens=TOKENS).messages())


@pytest.mark.parametrize("size", range(350, 900, 50))
def test_no_call_is_parted_from_its_result(size: int) -> None:
    made = history(2, tokens=size)
    for number in range(20):
        id_ = f"c{number}"
        made.add_call(ToolCall(id_, "price", "{}"))
        made.insert(Entry("tool", f"it costs {number}99 euros", call=id_), ("call", id_))
        made.begin_reply(100 + number)
        made.settle(100 + number, "It is a very good price, I would say.", cut=False)
        made.add_user("and another one, please, if you have it")
        messages = made.messages()
        assert messages[1]["role"] == "user"
        assert f"{number}99" in str(messages), "the last result is in the prompt or its summary"


def test_block_that_has_changed_is_not_replaced() -> None:
    for change in ("settle", "remove", "forget"):
        made = history(14)
        block = made.block()
        assert block is not None
        if change == "settle":
            made.settle(1, "Certainly", cut=True)
        elif change == "remove":
            made.remove(("reply", 1))
        else:
            made.tokens = 100
            made.messages()
        assert not made.replace(block, "Never.") and "Never." not in system(made)


def test_removed_entry_is_not_remembered_by_its_summary() -> None:
    made = history(3)
    made.insert(Entry("user", "my code is 7731", ("item", "secret")), None)
    made.add_user("word " * 700)
    assert "7731" in system(made) and "Adaeze" in system(made)
    assert made.remove(("item", "secret"))
    assert "7731" not in str(made.messages()) and "Adaeze" in system(made)


def test_long_results_are_shortened_first() -> None:
    made = history(2)
    for id_ in ("c1", "c2"):
        made.add_call(ToolCall(id_, "search", "{}"))
        made.insert(Entry("tool", "row of data, " * 60, call=id_), ("call", id_))
    made.begin_reply(7)
    made.add_user("thank you")
    assert made.size > 0.85 * TOKENS
    assert made.block() is None and not made.summary, "shortening them suffices"
    results = [one["content"] for one in made.messages() if one["role"] == "tool"]
    assert (
        all(estimated(one) <= RESULT_TOKENS and "shortened" in one for one in results) and len(results) == 2
    )


def test_result_of_the_last_turn_stays_and_a_call_without_result_is_in_no_block() -> None:
    made = history(14)
    made.add_call(ToolCall("c1", "search", "{}"))
    block = made.block()
    assert block is not None and all(entry.role != "call" for entry in block.entries)
    made = history(2)
    call = made.add_call(ToolCall("c1", "search", "{}"))
    made.insert(Entry("tool", "row of data, " * 60, call=call.id), None)
    assert "shortened" not in str(made.messages())
    made.insert(Entry("tool", "row of data, " * 600, call="c2"), None)
    assert estimated(made.entries[0].prompted) <= TOKENS // 2, "no result may fill the context"


@pytest.mark.parametrize("summary", ["", "The caller is Adaeze Okafor. " * 5])
def test_a_large_result_of_the_last_turn_leaves_that_turn_in_the_prompt(summary: str) -> None:
    made = history(10)
    if summary:
        block = made.block() or made.block()
        made.replace(block, summary) if block else None
    made.add_call(ToolCall("c1", "search", "{}"))
    made.insert(Entry("tool", "row of data, " * 600, call="c1"), ("call", "c1"))
    messages = made.messages()
    assert made.size <= TOKENS
    assert [one["role"] for one in messages[-3:]] == ["user", "assistant", "tool"]
    assert "Adaeze" in str(messages)


def test_the_result_of_a_slow_tool_is_read_wherever_its_call_stands() -> None:
    made = history(2)
    call = made.add_call(ToolCall("slow", "search", "{}"))
    for turn in range(100, 112):
        made.begin_reply(turn)
        made.settle(turn, "I am still looking for it, one moment please.", cut=False)
        made.add_user("and something that is not important at all")
        made.messages()
    found = "the parcel is in Lisbon, " + "row of data, " * 30 + "and comes tomorrow"
    made.insert(Entry("tool", found, call=call.id), ("call", call.id))
    assert "the parcel is in Lisbon" in system(made), "its call had to leave the prompt"
    assert system(made).endswith("and comes tomorrow")
    assert made.messages()[1]["role"] == "user" and made.size <= TOKENS
    made.begin_reply(200)
    made.settle(200, "It is in Lisbon.", cut=False)
    made.add_user("thank you")
    made.messages()
    assert made.size <= TOKENS, "a reply has read it"


def test_a_call_whose_result_never_comes_does_not_let_the_prompt_grow() -> None:
    made = history(2)
    made.add_call(ToolCall("lost", "notify", "{}"))
    for turn in range(100, 160):
        made.begin_reply(turn)
        made.settle(turn, "Certainly, that is a nice thing to say.", cut=False)
        made.add_user("and something that is not important at all")
        made.messages()
        assert made.size <= TOKENS
    assert "Adaeze" in system(made)


def test_a_monologue_does_not_let_the_prompt_grow() -> None:
    made = history(2)
    for turn in range(100, 160):
        made.begin_reply(turn)
        made.settle(turn, "Certainly, that is a nice thing to say.", cut=False)
        made.messages()
        assert made.size <= TOKENS


def test_results_that_no_reply_reads_are_not_kept_for_ever() -> None:
    made = history(2)
    for number in range(MAX_ENTRIES + 100):
        call = made.add_call(ToolCall(f"c{number}", "look", "{}"))
        made.insert(Entry("tool", "found", call=call.id), ("call", call.id))
    assert len(made._unread) <= MAX_ENTRIES


def test_the_transcript_has_results_as_they_were() -> None:
    made = history(2)
    made.add_call(ToolCall("c1", "search", "{}"))
    made.insert(Entry("tool", "row of data, " * 600, call="c1"), ("call", "c1"))
    assert "shortened" in str(made.messages()) and "shortened" not in str(made.transcript())


def test_an_entry_over_the_budget_leaves_the_summary_as_it_is() -> None:
    made = history(14)
    block = made.block()
    assert block and made.replace(block, "A model's words.")
    made.add_user("word " * 900)
    before = made.messages()[0]["content"]
    assert made.messages()[0]["content"] == before


def test_many_short_entries_are_summarised_before_they_are_dropped() -> None:
    made = history(2, tokens=100_000)
    for _ in range(SUMMARY_ENTRIES):
        made.add_user("yes")
    block = made.block()
    assert block is not None and len(block.entries) >= SUMMARY_ENTRIES // 2


def test_without_retention_nothing_is_summarised() -> None:
    made = history(14)
    made.retention = None
    assert made.block() is None


class Failing(ScriptedLlm):
    """A model whose server is away."""

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        raise ModelError("test", "away")
        yield ""


def summed_up(llm: Llm, made: History, seconds: float, cancel: bool = False) -> Summaries:
    cancelled = CancelledTasks()
    summaries = Summaries(llm, made, cancelled)

    async def main() -> None:
        summaries.begin(summarise)
        summaries.begin(summarise)
        await asyncio.sleep(seconds)
        if cancel:
            summaries.cancel()
        await cancelled.wait()

    virtual_clock.run(main())  # a busy machine may come back late, with the summary in the middle
    return summaries


def test_model_summarises_in_the_background() -> None:
    llm, made = (
        ScriptedLlm(["A caller named Adaeze Okafor said little, number 1 to 6."], first=0.0, each=0.0),
        history(14),
    )
    assert not summed_up(llm, made, 0.2).running
    assert len(llm.prompts) == 1, "at most one runs"
    assert "Keep every name" in llm.prompts[0][0]["content"]
    assert "A caller named Adaeze Okafor" in system(made)


def test_cancelled_summary_changes_nothing() -> None:
    llm, made = ScriptedLlm(["Never."], first=10.0), history(14)
    before = made.messages()
    assert not summed_up(llm, made, 0.05, cancel=True).running
    assert llm.open == 0 and made.messages() == before


def test_facts_are_kept_where_the_model_fails(caplog: pytest.LogCaptureFixture) -> None:
    made = history(14)
    assert not summed_up(Failing(), made, 0.1).running
    assert "Adaeze Okafor" in system(made) and "the summary of a long conversation failed" in caplog.text


def test_facts_that_the_model_leaves_out_are_added() -> None:
    text = "Caller: my name is Adaeze Okafor\nCaller: the code is 7731\nAgent: Thank you."
    assert with_facts("The caller told a code, 7731.", text, 100) == (
        "The caller told a code, 7731.\nCaller: my name is Adaeze Okafor"
    )
    assert with_facts("", text, 100) == "Caller: my name is Adaeze Okafor\nCaller: the code is 7731"
    assert estimated(with_facts("word " * 10, text, 30)) <= 30


def test_another_model_and_no_model_may_compress() -> None:
    session, other = ScriptedLlm(["wrong"]), ScriptedLlm(["A short talk."], first=0.0, each=0.0)
    assert asyncio.run(summarise_with(other)("Caller: hm", 100, session)) == "A short talk."
    assert (
        asyncio.run(condensed("Caller: the code is 7731\nAgent: Ah.", 100, session))
        == "Caller: the code is 7731"
    )
    assert not session.prompts


def test_text_of_a_block_names_the_speakers() -> None:
    entries = [
        Entry("user", "hello\nthere"),
        Entry("assistant", ""),
        Entry("call", '{"city": "Rome"}', call="c", name="weather"),
        Entry("tool", "sunny", call="c"),
        Entry("system", "be kind"),
    ]
    assert block_text("A.\nB.", entries).splitlines() == [
        "Earlier: A.",
        "Earlier: B.",
        "Caller: hello there",
        'Note: called weather {"city": "Rome"}',
        "Tool: sunny",
        "Note: be kind",
    ]
