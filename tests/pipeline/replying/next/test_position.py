"""What is left to say of a reply of which a part was heard."""

from __future__ import annotations

import pytest

from rejoinder.pipeline.replying.next.position import unheard


@pytest.mark.parametrize(
    ("heard", "rest"),
    [("", "One two,  three."), ("One", "two,  three."), ("One two,", "three."), ("One two, three.", "")],
)
def test_unheard_words(heard: str, rest: str) -> None:
    assert unheard(" One two,  three.", heard) == rest


def test_unheard_words_behind_what_has_no_sound_and_without_blanks() -> None:
    assert unheard("---\nOne two three.", "One two") == "three."
    assert unheard("今天天气很好。明天有雨。", "今天天气很好。") == "明天有雨。"
