"""Personal data in what an agent says: found where it is, and nowhere else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.models.guard.guardrails import guardrails
from rejoinder.models.guard.personal_data import PERSONAL_DATA, cards, ibans, redactors
from rejoinder.pipeline import ModelError, Rules
from rejoinder.pipeline.guarding.screening import Screening


def redacted(text: str, *kinds: str, region: str = "US") -> str:
    return Rules(redactors=redactors(kinds or PERSONAL_DATA, region, "[{}]")).check("", text).text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Card 4111 1111 1111 1111, thanks.", "Card [card], thanks."),
        ("Card 4111-1111-1111-1111.", "Card [card]."),
        ("Amex 378282246310005!", "Amex [card]!"),
        ("Card 4111 1111 1111 1112.", "Card 4111 1111 1111 1112."),
        ("DE89 3704 0044 0532 0130 00 it is", "[iban] it is"),
        ("GB82WEST12345698765432.", "[iban]."),
        ("nl91 abna 0417 1643 00 please", "[iban] please"),
        ("DE88 3704 0044 0532 0130 00", "DE88 3704 0044 0532 0130 00"),
        ("Write to jane.doe+x@mail.example.co.uk.", "Write to [email]."),
        ("It is 5 @ 3 dollars, a@b.", "It is 5 @ 3 dollars, a@b."),
        ("Call 202-555-0143 or +49 30 901820.", "Call [phone] or [phone]."),
        ("Call 123-456.", "Call 123-456."),
        ("It costs 1,299 dollars in 2026, 12 months, 24.12.2026.",) * 2,
        ("Order 1234567890123 is on its way at 14:32.",) * 2,
        ("Nothing here.", "Nothing here."),
    ],
)
def test_each_kind_is_found_and_nothing_else(text: str, wanted: str) -> None:
    assert redacted(text) == wanted


def test_the_region_tells_numbers_without_a_country_code() -> None:
    assert redacted("Ruf 030 901820 an.", "phone", region="DE") == "Ruf [phone] an."
    assert redacted("Ruf 030 901820 an.", "phone") == "Ruf 030 901820 an."
    assert redacted("Call 202-555-0143.", "phone", region="DE") == "Call 202-555-0143."


def test_only_the_named_kinds_are_redacted() -> None:
    text = "Card 4111 1111 1111 1111, a@example.com."
    assert redacted(text, "email") == "Card 4111 1111 1111 1111, [email]."
    assert guardrails(redact=["card"]).rules.check("", text).text == "Card a private number, a@example.com."


def test_a_card_number_that_is_read_in_parts_is_redacted_whole() -> None:
    from rejoinder.pipeline.guarding.screening import Screening

    screening = Screening(guardrails(redact=["card"]).rules)
    clauses = ["It is 4111,", "1111, 1111,", "1111. All right?"]
    assert [screening.feed(clause).text for clause in clauses][:2] == ["", ""]


@given(st.text(alphabet="0123456789 -", max_size=60))
def test_a_card_number_found_has_a_right_check_digit(text: str) -> None:
    for start, end in cards(text):
        digits = [int(digit) for digit in re.sub(r"\D", "", text[start:end])]
        total = sum(digits[-1::-2]) + sum(sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
        assert total % 10 == 0 and 12 <= len(digits) <= 19


@given(st.text(alphabet="AB0123456789 ", max_size=80))
def test_text_like_an_iban_is_read_in_time(text: str) -> None:
    for start, end in ibans(text):
        assert 15 <= len(text[start:end].replace(" ", "")) <= 34


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="'passport' cannot be redacted: there are card"):
        guardrails(redact=["passport"])
    with pytest.raises(TypeError, match=r"block is a text: .*\['damn'\]"):
        guardrails(block="damn")
    with pytest.raises(ModelError, match="write openai:http://HOST"):
        guardrails(moderation="http://127.0.0.1/v1")


@pytest.mark.parametrize("apart", ["", " ", "-", "\u2011", "\u00a0", "\u202f", ", ", " - "[:2]])
def test_groups_of_a_number_may_be_apart_in_many_ways(apart: str) -> None:
    for kind, number in (("card", "4111 1111 1111 1111"), ("iban", "DE89 3704 0044 0532 0130 00")):
        said = Rules(redactors=redactors([kind])).check("", f"It is {apart.join(number.split())}.")
        assert said.text == "It is a private number."


def test_an_iban_whose_groups_end_in_letters_waits_for_its_rest() -> None:
    screening = Screening(Rules(redactors=redactors(["iban"])))
    said = [screening.feed(clause).text for clause in ("It is GB82 WEST", "1234 5698 7654 32.")]
    assert said == ["", "It is a private number."]
