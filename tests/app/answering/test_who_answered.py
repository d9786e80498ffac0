"""Who answered, from times, words and beeps, without audio."""

from __future__ import annotations

import pytest

from rejoinder.agent.app.answering.beep import Beep
from rejoinder.agent.app.answering.phrases import AnsweredBy, Sign, signs
from rejoinder.agent.app.answering.who_answered import LIMIT_S, LONG_S, NOTHING_S, CallAnswer, WhoAnswered
from rejoinder.pipeline import RATE


def seconds(value: float) -> int:
    return int(value * RATE)


class Line:
    """The start of a call, in seconds. ``answers`` are those that the rules gave, at steps of 20 ms."""

    def __init__(self) -> None:
        self.who = WhoAnswered()
        self.now = 0.0
        self.answers: list[CallAnswer] = []

    def until(self, at: float) -> Line:
        while self.now < at:
            self.now = round(self.now + 0.02, 2)
            if answer := self.who.heard(seconds(self.now)):
                self.answers.append(answer)
        return self

    def says(self, words: str, at: float, to: float) -> Line:
        """Speak from a time to another; the words are final 0.2 s after it."""
        self.until(at)
        self.who.speech(seconds(at))
        self.until(to)
        self.who.pause(seconds(to))
        self.until(to + 0.2)
        self.who.words(words, final=True)
        return self

    def beeps(self, *hz: float, at: float, length: float = 0.3) -> Line:
        for each in hz:
            self.until(at + length)
            self.who.beep(Beep(seconds(at), seconds(at + length), each))
            at += length + 0.02
        return self

    @property
    def by(self) -> list[str]:
        return [str(answer.by) for answer in self.answers]


def test_short_answer_and_silence_is_a_human() -> None:
    line = Line().says("Hello?", 0.5, 0.9).until(5.0)
    assert line.by == ["human"] and line.answers[0].seconds < 1.5


@pytest.mark.parametrize(
    ("words", "length"),
    [
        ("Mario's, how can I help?", 1.8),
        ("Good afternoon, Lakeside Dental, this is Julie speaking, how can I help you today?", 5.0),
        ("Thank you for calling Bright Motors, this is Dave.", 3.0),
        ("He is not available at the moment, can I take a message?", 3.0),
        ("I'm in a meeting, can I call you back?", 2.0),
        ("Mario's, please hold.", 1.5),
        ("", 1.0),
    ],
)
def test_answers_of_people_are_human(words: str, length: float) -> None:
    line = Line().says(words, 0.5, 0.5 + length).until(15.0)
    assert line.by == ["human"]


@pytest.mark.parametrize(
    ("words", "by"),
    [
        ("Please leave a message after the tone", "voicemail"),
        ("I can't come to the phone right now", "voicemail"),
        ("Leave me your name and number", "voicemail"),
        ("The person you are calling is not available. Please record your message", "voicemail"),
        ("For sales, press one", "ivr"),
        ("Press 5 to leave a message", "ivr"),
        ("Your call is important to us", "ivr"),
        ("Record your name and reason for calling, I'll see if this person is available", "ivr"),
        ("The number you have dialed is not in service", "unavailable"),
        ("The mailbox is full and cannot accept messages", "unavailable"),
    ],
)
def test_words_of_machines(words: str, by: str) -> None:
    line = Line().says(words, 0.5, 3.0).until(6.0)
    assert line.by == [by] and "it said" in line.answers[0].reason


def test_words_count_while_the_machine_speaks() -> None:
    line = Line().until(0.5)
    line.who.speech(seconds(0.5))
    line.until(2.0).who.words("Please leave a message after", final=False)
    assert line.until(2.5).by == ["voicemail"] and line.answers[0].seconds < 2.1


def test_announcement_waits_for_a_mailbox_behind_it() -> None:
    line = Line().says("The person you are calling is not available.", 0.5, 3.0)
    line.says("The person you are calling is not available. Leave a message after the tone.", 3.8, 6.0)
    assert line.until(8.0).by == ["voicemail"]


def test_long_speech_without_a_question_is_a_machine() -> None:
    line = Line().says("and then it goes on", 0.2, 0.2 + LONG_S + 1.0).until(12.0)
    assert line.by == ["voicemail"] and line.answers[0].seconds == pytest.approx(0.2 + LONG_S, abs=0.05)


def test_long_answer_of_a_person_is_kept() -> None:
    line = Line().until(0.2)
    line.who.speech(seconds(0.2))
    line.until(4.0).who.words("Good morning, how can I help you", final=False)
    line.until(9.0).who.pause(seconds(9.0))
    line.who.words("Good morning, how can I help you, as I said", final=True)
    assert line.until(12.0).by == ["human"]


def test_beep_after_speech_is_a_mailbox() -> None:
    line = Line().says("Hi, it's Mike", 0.5, 1.5).beeps(1000, at=1.8).until(4.0)
    assert line.by == ["voicemail"] and "1000 Hz" in line.answers[0].reason


def test_late_beep_revises_a_human() -> None:
    line = Line().says("Hi, it's Mike.", 0.5, 1.5).until(4.0).beeps(1000, at=4.0).until(8.0)
    assert line.by == ["human", "voicemail"]


def test_machine_that_pauses_after_hello_is_revised() -> None:
    line = Line().says("Hello.", 0.5, 0.9).until(2.5)
    line.who.turn_over("Hello.")
    line.says("You have reached Tom, leave a message.", 2.5, 5.0)
    assert line.until(8.0).by == ["human", "voicemail"]


def test_nothing_revises_an_answer_after_the_limit() -> None:
    line = Line().says("Hello.", 0.5, 0.9).until(LIMIT_S + 1)
    line.who.words("leave a message after the tone", final=True)
    assert line.until(LIMIT_S + 2).by == ["human"]


def test_three_rising_tones_are_a_failed_call() -> None:
    assert Line().beeps(914, 1371, 1777, at=0.5, length=0.33).until(3.0).by == ["unavailable"]


def test_silence_is_unknown() -> None:
    line = Line().until(10.0)
    assert line.by == ["unknown"] and line.answers[0].seconds == pytest.approx(NOTHING_S, abs=0.05)


def test_noise_without_words_is_no_answer() -> None:
    line = Line().until(0.5)
    line.who.speech(seconds(0.5))
    line.until(0.8).who.pause(seconds(0.8))
    line.who.turn_over("")
    assert line.until(4.0).by == []
    assert line.says("Hello?", 4.0, 4.4).until(6.0).by == ["human"]


def test_answer_waits_for_its_words() -> None:
    """Under load a transcript is late, and the words may be a machine's."""
    line = Line().until(0.5)
    line.who.speech(seconds(0.5))
    line.until(1.5).who.pause(seconds(1.5))
    line.until(2.8).who.words("leave a message", final=True)
    assert line.until(4.0).by == ["voicemail"]


@pytest.mark.parametrize(
    "words", ["She left me a message", "I beat the drum", "press", "Hello, leave it there"]
)
def test_other_words_are_no_sign_of_a_machine(words: str) -> None:
    assert not signs(words).keys() & {Sign.SURE_VOICEMAIL, Sign.VOICEMAIL, Sign.IVR, Sign.UNAVAILABLE}


def test_answers_are_plain_strings() -> None:
    assert AnsweredBy.HUMAN == "human"
