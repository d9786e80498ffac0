"""What stops the agent, and what does not."""

from __future__ import annotations

import pytest

from rejoinder.pipeline.interfaces import Transcript
from rejoinder.pipeline.turns.interruption import (
    OverlapEvidence,
    is_backchannel,
    is_echo,
    is_interruption,
    is_vocal_tic,
    prefer_backchannel,
)

BACKCHANNELS = [
    *(
        "",
        ".",
        "...",
        "Mm-hmm.",
        "Mmhmm",
        "Mhm.",
        "M-hm",
        "Hm.",
        "Hmm...",
        "Uh-huh.",
        "Uh huh",
        "Okay.",
        "OK",
        "Ok.",
    ),
    *(
        "Yeah.",
        "Yeah, yeah.",
        "Yep!",
        "Right.",
        "Oh, right.",
        "Sure.",
        "I see.",
        "Oh, I see!",
        "Got it. Okay.",
        "That makes sense.",
        "Make sense.",
    ),
    *(
        "All right.",
        "Um...",
        "Ha ha ha.",
        "Hahaha",
        "(coughs)",
        "[LAUGHTER]",
        "*sighs*",
        "(coughing) Mm.",
        "NMO",
        "Mama",
        "Thank you.",
    ),
]
WORDS = [
    *(
        "Stop.",
        "No.",
        "Wait",
        "Yeah, but what about Sunday?",
        "Okay stop",
        "What?",
        "Hello?",
        "I see a problem.",
    ),
    *("Right now?", "I", "She is here", "Hammer", "Noon", "(coughs) Sorry, go back."),
]


@pytest.mark.parametrize("text", BACKCHANNELS)
def test_a_backchannel(text: str) -> None:
    assert is_backchannel(text)


@pytest.mark.parametrize(
    "text", ["", "Um...", "Uh, um.", "Er", "Hmm.", "Ha ha ha!", "(coughs)", "[LAUGHTER] *sighs*"]
)
def test_a_vocal_tic(text: str) -> None:
    assert is_vocal_tic(text)


def test_a_hesitation_after_a_question_may_be_a_word() -> None:
    assert not is_vocal_tic("Um.", "Quantas pessoas?")
    assert is_vocal_tic("Um.", "It is sunny.") and is_vocal_tic("(laughs) ha ha", "How many?")


@pytest.mark.parametrize("text", ["Mm-hm.", "Yeah.", "Um, no.", "Oh.", "Huh?", "I", *WORDS])
def test_what_may_want_an_answer_is_no_vocal_tic(text: str) -> None:
    assert not is_vocal_tic(text)


@pytest.mark.parametrize("text", WORDS)
def test_words_that_mean_something(text: str) -> None:
    assert not is_backchannel(text)


@pytest.mark.parametrize(
    ("overlap", "assertiveness", "stops"),
    [
        (OverlapEvidence(200), 0.5, None),
        (OverlapEvidence(800), 0.5, True),
        (OverlapEvidence(800, text="what is"), 0.5, True),
        (OverlapEvidence(800, text=""), 0.5, None),
        (OverlapEvidence(800, text="Mm-hm"), 0.5, None),
        (OverlapEvidence(1000, text=""), 0.5, None),
        (OverlapEvidence(1600, text=""), 0.5, True),
        (OverlapEvidence(1000, text="", agent_audible=True), 0.5, True),
        (OverlapEvidence(1500), 1.0, None),
        (OverlapEvidence(96), 0.0, True),
        (OverlapEvidence(64), 0.0, None),
        (OverlapEvidence(64, 64), 0.5, None),
        (OverlapEvidence(64, 96), 0.5, False),
        (OverlapEvidence(96, 96), 0.5, False),
        (OverlapEvidence(160, 96), 0.5, None),
        (OverlapEvidence(200, 500, "stop"), 0.5, None),
        (OverlapEvidence(200, 32, "stop", True), 0.5, True),
        (OverlapEvidence(200, 32, "", True), 0.5, False),
        (OverlapEvidence(200, 32, "Okay.", True), 0.5, False),
        (OverlapEvidence(200, 32, "Okay.", True, agent_finishing=True), 0.5, True),
        (OverlapEvidence(399, 0, goes_on=True), 0.5, None),
        (OverlapEvidence(400, 0, goes_on=True), 0.5, True),
        (OverlapEvidence(400, 0, "right", goes_on=True), 0.5, None),
        (OverlapEvidence(400, 0, goes_on=True, agent_audible=True), 0.5, None),
        (OverlapEvidence(400, 96, "If I...", True), 0.5, None),
        (OverlapEvidence(400, 700, "If I...", True), 0.5, False),
        (OverlapEvidence(501, 96, "If I...", True), 0.5, True),
        (OverlapEvidence(400, 96, "No...", True), 0.5, True),
        (OverlapEvidence(300, 96, "And my", True, goes_on=True), 0.5, True),
        (OverlapEvidence(200, 32, "(coughs)", True, agent_finishing=True), 0.5, False),
        (OverlapEvidence(1500, text="the ship sailed", is_echo=True), 0.5, None),
        (OverlapEvidence(200, 32, "the ship sailed", is_echo=True), 0.5, None),
        (OverlapEvidence(200, 32, "the ship sailed", True, is_echo=True), 0.5, False),
        (OverlapEvidence(200, 128, "I think", True), 0.5, True),
        (OverlapEvidence(200, 128, "I think", True, agent_audible=True), 0.5, False),
        (OverlapEvidence(300, 128, "Stop.", True, agent_audible=True), 0.5, True),
        (OverlapEvidence(300, 128, "I think.", True, agent_audible=True, echo_learnt=False), 0.5, False),
        (OverlapEvidence(550, 128, "Stop that.", True, agent_audible=True, echo_learnt=False), 0.5, True),
    ],
)
def test_the_decision(overlap: OverlapEvidence, assertiveness: float, stops: bool | None) -> None:
    assert is_interruption(overlap, 96, assertiveness) is stops


SAYING = "On day two the ship sailed to the next island, and the people there told them about the weather."


@pytest.mark.parametrize(
    ("text", "least", "echo"),
    [
        ("the ship sailed to the next island", 1, True),
        ("The sheep sailed to the next island.", 1, True),
        ("island", 1, True),
        ("island", 3, False),
        ("the weather", 3, False),
        ("about the weather", 3, True),
        ("the ship sailed to stop please wait a moment", 1, False),
        ("Two day.", 1, True),
        ("people weather next about", 3, False),
        ("stop", 1, False),
        ("", 1, False),
    ],
)
def test_an_echo_has_the_agents_words_in_their_order(text: str, least: int, echo: bool) -> None:
    assert is_echo(text, SAYING, least) is echo
    assert not is_echo(text, "", least)


@pytest.mark.parametrize(
    "text, others, kind",
    [
        ("Rate.", ("Right.", "Write."), "Right."),
        ("It hurts.", ("It has.", "Aha."), "Aha."),
        ("Mm-hm.", ("Oh.",), "Mm-hm."),
        ("Stop.", ("Top.", "Stock."), "Stop."),
        ("Right and", ("Right.", "Right in"), "Right and"),  # only leaves out a word that was said
        ("Not right.", ("Right.",), "Not right."),
        ("No, okay.", ("Okay.",), "No, okay."),
        ("Who?", ("You?",), "Who?"),  # recognisers make that up
        ("Stop.", ("[BLANK_AUDIO]", "(sighs)"), "Stop."),
        ("", (), ""),
        ("No.", ("", "..."), "No."),
    ],
)
def test_a_backchannel_that_is_nearly_as_likely_is_believed(
    text: str, others: tuple[str, ...], kind: str
) -> None:
    assert prefer_backchannel(Transcript(text, True, 1, others)) == kind
