"""The join of two models' words: no word twice, none lost, wherever the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.models.llm.failover.seam import LONGEST_HELD_WORD, Seam, WholeWords

BEFORE = "The first train leaves at nine, and the second one "


def joined(before: str, pieces: list[str], least: int = 1) -> str:
    seam = Seam(before, least)
    return before + "".join([seam.feed(piece) for piece in pieces]) + seam.flush()


@pytest.mark.parametrize(
    "continuation",
    [
        "leaves at ten.",
        " leaves at ten.",
        "one leaves at ten.",
        "second one leaves at ten.",
        "and the second one leaves at ten.",
        "And the Second one, leaves at ten.",
        BEFORE + "leaves at ten.",
        "…and the second one leaves at ten.",
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_what_is_out_already_is_not_said_again(continuation: str, size: int) -> None:
    pieces = [continuation[at : at + size] for at in range(0, len(continuation), size)]
    assert joined(BEFORE, pieces) == BEFORE + "leaves at ten."


@pytest.mark.parametrize(
    ("before", "continuation", "least", "whole"),
    [
        ("I think that ", "that train is late.", 3, "I think that that train is late."),
        ("I think that ", "that train is late.", 1, "I think that train is late."),
        ("the cat saw the ", "cat and the dog.", 1, "the cat saw the cat and the dog."),
        ("the cat saw the ", "the cat saw it", 1, "the cat saw the cat saw it"),
        ("a b ", "a b", 1, "a b "),
        ("a b ", "a", 1, "a b a"),
        ("a b a ", "b a c", 1, "a b a c"),
        ("a b", " c", 1, "a b c"),
        ("", "anything", 1, "anything"),
        ("Well — ", "— yes.", 1, "Well — yes."),
    ],
)
def test_examples(before: str, continuation: str, least: int, whole: str) -> None:
    assert joined(before, [continuation], least) == joined(before, list(continuation), least) == whole


WORDS = st.lists(st.sampled_from("a b c the train leaves".split()), min_size=1, max_size=8)


@given(WORDS, WORDS, st.integers(1, 3))
def test_where_the_continuation_is_cut_makes_no_difference(
    before: list[str], after: list[str], least: int
) -> None:
    start, text = " ".join(before) + " ", " ".join(after)
    whole = joined(start, [text], least)
    assert whole == joined(start, list(text), least)
    assert whole.startswith(start)
    assert whole.split()[: len(before)] == before
    assert after[len(after) - len(whole.split()) + len(before) :] == whole.split()[len(before) :]


@given(st.lists(st.text(st.sampled_from("ab .,\n"), max_size=8), max_size=8))
def test_only_whole_words_are_given_out(pieces: list[str]) -> None:
    words, given_out = WholeWords(), ""
    for piece in pieces:
        given_out += words.feed(piece)
        assert not given_out or given_out[-1].isspace()
    assert given_out + words.flush() == "".join(pieces)


@pytest.mark.parametrize(
    ("text", "given_out"),
    [
        ("天気", "天"),
        ("天気。", "天"),
        ("天気。今", "天気。"),
        ("天" * LONGEST_HELD_WORD, "天" * (LONGEST_HELD_WORD - 1)),
        ("今日はGPT", "今日"),  # the word after は may have begun
        ("GPT今", "GPT"),
        ("ข้าวสวย", "ข้าวสว"),
        ("ข้", ""),
        ("ไปเ", "ไป"),
        ("ไปเท", "ไป"),
        ("ไปเที่ย", "ไปเที่"),
        ("안녕하세요 여러", "안녕하세요 "),
    ],
)
def test_language_without_blanks_is_held_back_by_one_character(text: str, given_out: str) -> None:
    words = WholeWords()
    assert "".join(map(words.feed, text)) == given_out
    assert words.flush() == text.removeprefix(given_out)
    assert WholeWords().feed(text) == given_out


@pytest.mark.parametrize(
    ("before", "whole", "continuations"),
    [
        (
            "今日の東京は、",
            "今日の東京は、晴れです。",
            [
                "晴れです。",
                "東京は晴れです。",
                "…東京は、晴れです。",
                "今日の東京は、晴れです。",
                "京は晴れです。",
            ],
        ),
        (
            "第一班火车九点",
            "第一班火车九点出发，十点到。",
            [
                "出发，十点到。",
                "九点出发，十点到。",
                "火车九点，出发，十点到。",
                "第一班火车九点出发，十点到。",
            ],
        ),
        (
            "วันนี้อากาศ",
            "วันนี้อากาศดีมาก",
            ["ดีมาก", "อากาศดีมาก", "วันนี้อากาศดีมาก"],
        ),
        ("我用的是 GPT", "我用的是 GPT 模型。", [" 模型。", "GPT 模型。", "是 GPT 模型。"]),
    ],
)
def test_language_without_blanks_is_joined_by_characters(
    before: str, whole: str, continuations: list[str]
) -> None:
    for continuation in continuations:
        for size in (1, 2, 1000):
            pieces = [continuation[at : at + size] for at in range(0, len(continuation), size)]
            assert joined(before, pieces) == whole, continuation


@pytest.mark.parametrize(
    ("before", "continuation", "least"),
    [
        ("これは", "はい、そうです。", 1),  # one character on both sides by chance
        ("我想要", "要一杯水。", 1),
        ("ข้าว", "าวุธ", 1),
        ("火车九点", "九点半到。", 3),  # a server that continues the text itself repeats little
        ("ขาว", "ข้าว", 1),  # another word: a tone mark counts
        ("ab cd", "cdx", 1),
    ],
)
def test_chance_is_no_repetition(before: str, continuation: str, least: int) -> None:
    assert joined(before, [continuation], least) == before + continuation
    assert joined(before, list(continuation), least) == before + continuation


CHARACTERS = st.text(st.sampled_from("今日は天気が良い、。 aข้า"), max_size=10)


@given(CHARACTERS, CHARACTERS, st.integers(1, 3))
def test_where_a_continuation_without_blanks_is_cut_makes_no_difference(
    before: str, after: str, least: int
) -> None:
    whole = joined(before, [after], least)
    assert whole == joined(before, list(after), least)
    assert whole.startswith(before) and after.endswith(whole[len(before) :])


@given(CHARACTERS, st.integers(1, 3))
def test_where_characters_are_cut_makes_no_difference(text: str, size: int) -> None:
    words, pieces = WholeWords(), [text[at : at + size] for at in range(0, len(text), size)]
    given_out = "".join(map(words.feed, pieces))
    assert given_out + words.flush() == text
    assert given_out == WholeWords().feed(text)
