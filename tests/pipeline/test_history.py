"""What was said and heard, and the prompt that follows from it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rejoinder.pipeline.context.tokens import CONVERSATION_TOKENS, ENTRY_TOKENS
from rejoinder.pipeline.history import MAX_ENTRIES, History
from rejoinder.pipeline.interfaces import Message

TOKENS = 1_600
"""Most tokens of the conversation in these tests."""


def said(history: History, text: str | None = None) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in history.messages(text)]


def add_reply(history: History, turn: int, heard: str, cut: bool) -> None:
    history.begin_reply(turn)
    assert history.settle(turn, heard, cut)


def test_the_prompt_has_instructions_examples_and_what_was_said() -> None:
    history = History(
        "Be brief.", [Message(role="user", content="Hm?"), Message(role="assistant", content="Ah.")]
    )
    history.add_user("Hello")
    add_reply(history, 1, "Hi there.", cut=False)
    expected = [("system", "Be brief."), ("user", "Hm?"), ("assistant", "Ah."), ("user", "Hello")]
    assert said(history, "Well?") == [*expected, ("assistant", "Hi there."), ("user", "Well?")]
    assert history.messages(None, "Shout.")[0]["content"] == "Shout."
    assert said(history) == [*expected, ("assistant", "Hi there.")]


def test_asking_for_the_prompt_changes_nothing() -> None:
    history = History("", [Message(role="user", content="Hm?")])
    history.add_user("Hello")
    assert said(history, "you") == said(history, "you") == [("user", "Hm? Hello you")]


def test_a_reply_that_was_cut_shows_it() -> None:
    history = History()
    history.add_user("Hello")
    add_reply(history, 1, "Once upon a", cut=True)
    assert said(history) == [("user", "Hello"), ("assistant", "Once upon a—")]


def test_an_unheard_reply_is_not_in_the_prompt() -> None:
    history = History()
    history.add_user("Hello")
    add_reply(history, 1, "", cut=True)
    assert said(history, "Well?") == [("user", "Hello Well?")]


def test_a_reply_stands_where_it_began() -> None:
    history = History()
    history.add_user("Hello")
    history.begin_reply(1)
    assert said(history, "Well?") == [("user", "Hello Well?")]
    history.add_user("Wait")
    assert history.settle(1, "Hi there", cut=True)
    assert said(history) == [("user", "Hello"), ("assistant", "Hi there—"), ("user", "Wait")]


def test_truncating_corrects_what_was_heard() -> None:
    history = History()
    history.add_user("Hello")
    add_reply(history, 1, "Once upon a time", cut=False)
    assert history.settle(1, "Once", cut=True)
    assert said(history) == [("user", "Hello"), ("assistant", "Once—")]
    assert history.settle(1, "", cut=True)
    assert said(history) == [("user", "Hello")]
    assert history.settle(1, "Once upon", cut=True)
    assert said(history) == [("user", "Hello"), ("assistant", "Once upon—")]
    assert not history.settle(2, "Once", cut=True)
    assert not history.settle(0, "Hello", cut=True)  # entries of users have no number


def test_forgetting_goes_by_blocks_so_that_the_beginning_stays_put() -> None:
    history = History(tokens=TOKENS)
    history.retention = 0.5
    beginnings = []
    for turn in range(400):
        history.add_user(f"{turn:03d} " + "x" * 98)
        add_reply(history, turn + 1, "y" * 102, cut=False)
        beginnings.append(history.messages()[0]["content"][:3])
        size = sum(len(entry["content"]) // 3 + ENTRY_TOKENS for entry in history.messages())
        assert size == history.size <= TOKENS
        assert size >= min(80 * (turn + 1), TOKENS // 2)
    changes = sum(one != other for one, other in pairwise(beginnings))
    assert 0 < changes <= 400 * 80 // (TOKENS // 2)


def test_truncating_what_was_forgotten_forgets_nothing_else() -> None:
    history = History(tokens=TOKENS)
    for turn in range(1, 41):
        history.add_user(f"question {turn:02d} " + "x" * 90)
        add_reply(history, turn, "y" * 100, cut=False)
    before = said(history)
    assert history.settle(1, "", cut=True)
    assert said(history) == before


def test_the_newest_words_stay_however_long() -> None:
    history = History()
    history.add_user("x" * (6 * CONVERSATION_TOKENS))
    assert len(said(history)[0][1]) == 6 * CONVERSATION_TOKENS


ENTRIES = st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), st.text("ab ", max_size=900)))


@given(ENTRIES, st.text("q", max_size=2))
def test_roles_alternate(entries: list[tuple[str, str]], text: str) -> None:
    history = History("Be brief.")
    for turn, (role, words) in enumerate(entries):
        if role == "assistant":
            add_reply(history, turn, words, cut=False)
        else:
            history.add(role, words)
    roles = [message["role"] for message in history.messages(text)]
    assert roles[0] == "system"
    assert all(one != other for one, other in pairwise(roles))
    assert not text or roles[-1] == "user"


def test_a_long_conversation_is_bounded() -> None:
    history = History()
    for turn in range(3 * MAX_ENTRIES):
        history.add_user(str(turn))
        if turn % 7 == 0:
            history.messages()
    assert len(history.entries) == MAX_ENTRIES
    assert said(history)[0][1].endswith(f" {3 * MAX_ENTRIES - 1}")
