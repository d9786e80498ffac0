"""What two hypotheses agree on stays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rejoinder.pipeline.listening.agreement import LocalAgreement


def test_two_hypotheses_must_agree() -> None:
    agreement = LocalAgreement()
    assert agreement.feed("I want") == ""
    assert agreement.feed("I want to fly") == "I want"
    assert agreement.feed("I want to buy") == "I want to"
    assert agreement.feed("I want two by") == "I want to"  # what was agreed on is not taken back
    assert agreement.feed("I want two by four") == "I want to by"


def test_punctuation_and_case_do_not_matter() -> None:
    agreement = LocalAgreement()
    agreement.feed("well i")
    assert agreement.feed("Well, I see") == "Well, I"


@given(st.lists(st.lists(st.sampled_from(["a", "b", "A,", "c."]), max_size=8).map(" ".join), max_size=12))
def test_it_only_grows(hypotheses: list[str]) -> None:
    agreement, last = LocalAgreement(), ""
    for hypothesis in hypotheses:
        agreed = agreement.feed(hypothesis)
        assert agreed.split()[: len(last.split())] == last.split()
        last = agreed
