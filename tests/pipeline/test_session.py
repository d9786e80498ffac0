"""Conversations in virtual time: who has the floor, what is heard, and what is remembered."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rejoinder.agent.simulate.scenario import LOUDEST, SOFT, Talk
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedTurnModel
from rejoinder.pipeline import (
    EagerEndOfTurn,
    EndOfTurn,
    Endpointing,
    NothingSaid,
    Overloaded,
    PartialTranscript,
    PauseStarted,
    ReplyAudio,
    ReplyDone,
    ReplyRequest,
    ReplyStarted,
    ReplyText,
    Session,
    SpeechStarted,
    TurnResumed,
    TurnTraced,
)
from rejoinder.pipeline.audio.chunk import Samples
from rejoinder.pipeline.listening.recent_audio import MEMORY_SAMPLES
from rejoinder.pipeline.listening.schedule import ASK_SAMPLES

WEATHER = "It is sunny today. Take a hat, if you go out."


def test_a_turn() -> None:
    talk = Talk("what is the weather", replies=(WEATHER,))
    talk.says(1.2, at=0.2)
    talk.run(until=8.0)
    assert talk.timeline() == [
        "0.300 SpeechStarted(at=3072, interrupts=True)",
        "0.560 partial: what",
        "1.060 partial: what is the",
        "1.480 PauseStarted(at=22528)",
        "1.540 Transcribed(text='what is the weather')",
        "1.540 EagerEndOfTurn(text='what is the weather')",
        "1.740 EndOfTurn(text='what is the weather', at=22528)",
        "1.740 reply 1 starts",
        "1.740 text 1: It is sunny",
        "1.740 audio 1: 0.66 s until 2.180",
        "2.200 text 1: today.",
        "2.200 audio 1: 0.36 s until 2.520",
        "2.560 text 1: Take a hat, if you go out.",
        "2.560 audio 1: 1.56 s until 4.080",
        f"4.120 reply 1 completed: {WEATHER}",
    ]
    assert talk.said() == [("user", "what is the weather"), ("assistant", WEATHER)]
    assert talk.llm.prompts == [[{"role": "user", "content": "what is the weather"}]]


def test_the_trace_says_where_the_time_went() -> None:
    talk = Talk()
    talk.says(1.2, at=0.2)
    talk.run(until=8.0)
    (traced,) = talk.of(TurnTraced)
    parts = {name: round(ms) for name, ms in traced.trace.budget()}
    assert parts == {
        "notice the pause": 60,
        "final transcript": 60,
        "start the reply": 0,
        "LLM first token": 80,
        "LLM first clause": 0,
        "TTS first audio": 50,
        "wait for the end of the turn": 70,
        "send": 0,
    }
    # The last loud sample arrives at 1.42 s.
    assert sum(parts.values()) == round((talk.when(ReplyAudio)[0] - 1.42) * 1000)


def test_a_guess_is_hidden_behind_the_wait() -> None:
    """The answer is there at once; without a guess it takes the models' time."""
    fast, slow = Talk(), Talk(create_response=False)
    slow.does(lambda session: session.respond(), at=1.75)
    for talk in (fast, slow):
        talk.says(1.2, at=0.2)
        talk.run(until=8.0)
        assert talk.when(EndOfTurn) == [1.74]
    assert fast.when(ReplyAudio)[0] == 1.74
    assert slow.when(ReplyAudio)[0] == 1.88  # 80 ms to the first token, 50 ms to its audio
    assert fast.said() == slow.said()


def test_a_guess_emits_no_events_before_the_end_of_the_turn() -> None:
    talk = Talk(turn=ScriptedTurnModel(0.0))
    talk.says(1.2, at=0.2)
    talk.run(until=1.9)  # the guess is complete, and the wait is not over
    assert len(talk.llm.prompts) == 1
    assert talk.of(ReplyStarted, ReplyText, ReplyAudio, EndOfTurn) == []
    assert talk.said() == []


def test_a_guess_is_dropped_when_the_user_goes_on() -> None:
    talk = Talk("what is the weather")
    talk.says(1.2, at=0.2)
    talk.says(0.8, at=1.6)
    talk.run(until=6.0)
    assert talk.timeline() == [
        "0.300 SpeechStarted(at=3072, interrupts=True)",
        "0.560 partial: what",
        "1.060 partial: what is the",
        "1.480 PauseStarted(at=22528)",
        "1.540 Transcribed(text='what is the weather')",
        "1.540 EagerEndOfTurn(text='what is the weather')",
        "1.680 TurnResumed()",
        "2.040 partial: what is the weather",
        "2.480 PauseStarted(at=38400)",
        "2.540 Transcribed(text='what is the weather')",
        "2.540 EagerEndOfTurn(text='what is the weather')",
        "2.720 EndOfTurn(text='what is the weather', at=38400)",
        "2.720 reply 2 starts",
        "2.720 text 2: Sunny.",
        "2.720 audio 2: 0.36 s until 2.840",
        "2.880 reply 2 completed: Sunny.",
    ]
    assert len(talk.llm.prompts) == 2
    assert talk.said() == [("user", "what is the weather"), ("assistant", "Sunny.")]


def test_a_guess_with_the_same_words_is_kept() -> None:
    talk = Talk()
    talk.says(1.2, at=0.2)
    talk.does(lambda session: session._react(EagerEndOfTurn("What is the weather?")), at=1.6)
    talk.run(until=8.0)
    assert len(talk.llm.prompts) == 1
    assert talk.done() == [(1, "completed", "Sunny.")]


def test_a_guess_with_other_words_is_replaced() -> None:
    talk = Talk()
    talk.says(1.2, at=0.2)
    talk.does(lambda session: session._react(EagerEndOfTurn("what is the whether")), at=1.6)
    talk.run(until=8.0)
    assert [prompt[-1]["content"] for prompt in talk.llm.prompts] == [
        "what is the weather",
        "what is the whether",
        "what is the weather",
    ]
    assert talk.done() == [(3, "completed", "Sunny.")]


def test_a_yes_to_the_agents_question_is_answered_sooner() -> None:
    def waited(question: str) -> float:
        talk = Talk("book a table", "yes", replies=(question, "Done."), turn=ScriptedTurnModel(0.75))
        talk.says(1.2, at=0.2)
        talk.says(0.6, at=7.0)
        talk.run(until=14.0)
        assert talk.done()[0] == (1, "completed", question)
        return talk.when(EndOfTurn)[1]

    assert waited("Shall I book it now?") < waited("I can book it now.")


def test_barge_in() -> None:
    talk = Talk("what is the weather", "never mind", replies=(WEATHER, "Fine."))
    talk.says(1.2, at=0.2)
    talk.says(1.0, at=3.0)
    talk.run(until=8.0)
    assert talk.timeline()[12:] == [
        "2.560 text 1: Take a hat, if you go out.",
        "2.560 audio 1: 0.52 s until 3.040",
        "3.040 OverlapStarted(at=47616)",
        "3.780 SpeechStarted(at=47616, interrupts=True)",
        "3.780 reply 1 cancelled: It is sunny today. Take a",  # what was sent before the pause was played
        "3.800 partial: never mind",
        "4.080 PauseStarted(at=64000)",
        "4.140 Transcribed(text='never mind')",
        "4.140 EagerEndOfTurn(text='never mind')",
        "4.320 EndOfTurn(text='never mind', at=64000)",
        "4.320 reply 2 starts",
        "4.320 text 2: Fine.",
        "4.320 audio 2: 0.30 s until 4.400",
        "4.420 reply 2 completed: Fine.",
    ]
    assert talk.heard(1, at=3.78) == "It is sunny today. Take a"
    assert [message["content"] for message in talk.llm.prompts[1]] == [
        "what is the weather",
        "It is sunny today. Take a—",
        "never mind",
    ]
    assert talk.said()[-1] == ("assistant", "Fine.")


def test_barge_in_while_the_last_audio_plays() -> None:
    """A reply that was sent completely is remembered only as far as it was played."""
    talk = Talk("one", "two", replies=("It is a fine day.",))
    talk.says(1.2, at=0.2)
    talk.does(lambda session: session.interrupt(), at=2.65)
    talk.run(until=2.9)
    assert talk.done() == [(1, "completed", "It is a fine day.")]
    assert talk.said() == [("user", "one"), ("assistant", "It is a fine—")]
    assert talk.heard(1, at=2.65) == "It is a fine"


def test_speech_before_anything_was_heard_leaves_no_reply_behind() -> None:
    talk = Talk("one", "two", llm=ScriptedLlm(["Yes."], first=1.0))
    talk.says(1.2, at=0.2)
    talk.says(0.6, at=2.0)
    talk.run(until=8.0)
    assert talk.done() == [(1, "cancelled", ""), (2, "completed", "Yes.")]
    assert talk.said() == [("user", "one"), ("user", "two"), ("assistant", "Yes.")]
    assert talk.llm.prompts[1] == [{"role": "user", "content": "one two"}]


def test_speech_does_not_stop_the_agent_when_it_may_not() -> None:
    talk = Talk("one", "two", replies=(WEATHER, "Fine."), interrupt_response=False)
    talk.says(1.2, at=0.2)
    talk.says(0.6, at=2.0)
    talk.run(until=8.0)
    assert talk.when(EndOfTurn) == [1.74, 2.94]
    assert talk.done() == [(1, "completed", WEATHER), (2, "completed", "Fine.")]  # one answer after the other
    assert talk.when(ReplyStarted)[1] > talk.when(ReplyDone)[0] > 2.96
    assert talk.said() == [("user", "one"), ("assistant", WEATHER), ("user", "two"), ("assistant", "Fine.")]


@pytest.mark.parametrize("noise", [False, True])
def test_the_answer_to_words_during_such_a_reply_has_a_latency_from_their_last_sample(noise: bool) -> None:
    words = ("one", "two", "")[: 2 + noise]
    talk = Talk(*words, replies=(WEATHER, "Fine."), interrupt_response=False)
    talk.says(1.2, at=0.2)
    talk.says(0.6, at=2.0)
    if noise:
        talk.says(0.3, at=3.3)
    talk.run(until=8.0)
    answered = talk.of(TurnTraced)[-1].trace
    assert answered.said == "two"
    audible = next(at for at, event in talk.log if isinstance(event, ReplyAudio) and event.turn == 2)
    last_word = [event.at for event in talk.of(EndOfTurn)][1] / 16_000
    assert answered.latency == pytest.approx(audible - last_word, abs=0.04)
    parts = dict(answered.parts())
    waited = talk.when(ReplyStarted)[1] - last_word - parts["pause_seen"] - parts["transcribed"]
    assert parts["floor_free"] == pytest.approx(waited, abs=0.04)
    assert answered.silence == pytest.approx(audible - talk.when(ReplyStarted)[1], abs=0.04)
    assert answered.making() < 0.5  # what the load shedder looks at


def test_the_words_of_several_turns_during_such_a_reply_are_answered_together() -> None:
    long = " ".join([WEATHER] * 2)
    talk = Talk("one", "two", "three", replies=(long, "Fine."), interrupt_response=False)
    talk.says(1.2, at=0.2)
    talk.says(0.6, at=2.0)
    talk.says(0.6, at=3.6)
    talk.run(until=12.0)
    assert talk.of(TurnTraced)[-1].trace.said == "two three"
    assert talk.done()[-1] == (2, "completed", "Fine.")


def test_speech_at_the_end_of_a_reply_is_answered_after_it() -> None:
    talk = Talk("one", "two", "three", replies=(WEATHER, "Fine."), interrupt_response=False)
    talk.says(1.2, at=0.2)
    talk.says(0.6, at=2.0)
    talk.says(1.4, at=3.6)  # the reply ends at 4.1
    talk.run(until=8.0)
    assert talk.done() == [(1, "completed", WEATHER), (2, "completed", "Fine.")]
    assert talk.when(ReplyStarted)[1] == talk.when(EndOfTurn)[2] > 5.0
    assert talk.said()[2:] == [("user", "two"), ("user", "three"), ("assistant", "Fine.")]


def test_the_next_reply_cuts_nothing_off_the_one_that_is_done() -> None:
    talk = Talk("one", replies=("Sunny.", "Fine."))
    talk.says(1.2, at=0.2)
    talk.run(until=6.0)
    (done,) = talk.when(ReplyDone)
    talk = Talk("one", replies=("Sunny.", "Fine."))
    talk.says(1.2, at=0.2)
    talk.does(lambda session: session.add_text("typed"), at=done + 0.02)
    talk.does(lambda session: session.respond(), at=done + 0.02)
    talk.run(until=6.0)
    assert talk.said() == [
        ("user", "one"),
        ("assistant", "Sunny."),
        ("user", "typed"),
        ("assistant", "Fine."),
    ]


def test_truncating_the_end_of_a_reply_starts_the_owed_answer() -> None:
    talk = Talk("one", "two", replies=(WEATHER, "Fine."), interrupt_response=False)
    talk.says(1.2, at=0.2)
    talk.says(0.6, at=2.0)
    talk.run(until=8.0)
    done = talk.when(ReplyDone)[0]
    talk = Talk("one", "two", replies=(WEATHER, "Fine."), interrupt_response=False)
    talk.says(1.2, at=0.2)
    talk.says(0.6, at=2.0)

    def truncate(session: Session) -> None:
        session.truncate(1, 1.0)

    talk.does(truncate, at=done + 0.05)
    talk.run(until=8.0)
    assert [status for _, status, _ in talk.done()] == ["completed", "completed"]
    assert talk.said()[1][1].endswith("—") and talk.said()[-1] == ("assistant", "Fine.")


def test_interrupting_the_agent_drops_the_owed_answer() -> None:
    talk = Talk("one", "two", replies=(WEATHER, "Fine."), interrupt_response=False)
    talk.says(1.2, at=0.2)
    talk.says(0.6, at=2.0)
    talk.does(lambda session: session.interrupt(), at=3.0)
    talk.run(until=8.0)
    assert [status for _, status, _ in talk.done()] == ["cancelled"]
    assert talk.said()[-1] == ("user", "two")


def test_the_last_request_during_a_turn_is_answered_once_when_it_ends() -> None:
    talk = Talk("one", replies=("Sunny.", "Fine."), create_response=False)
    talk.says(2.0, at=0.2)
    talk.does(lambda session: session.respond(ReplyRequest(tag=1)), at=1.0)
    talk.does(lambda session: session.respond(ReplyRequest(tag=2)), at=1.5)
    talk.run(until=6.0)
    assert [event.tag for event in talk.of(ReplyStarted)] == [2]
    assert talk.done() == [(1, "completed", "Sunny.")]
    assert talk.said() == [("user", "one"), ("assistant", "Sunny.")]


def test_no_guess_starts_with_speculation_off() -> None:
    talk = Talk("one", speculate=False)
    talk.says(0.6, at=0.2)
    talk.says(0.6, at=1.0)
    talk.run(until=6.0)
    assert len(talk.llm.prompts) == 1
    assert talk.when(ReplyStarted) == talk.when(EndOfTurn)


def test_noise_without_words_is_nothing() -> None:
    talk = Talk("", "hello")
    talk.says(0.4, at=0.2)
    talk.says(0.6, at=2.0)
    talk.run(until=6.0)
    assert talk.when(NothingSaid) == [1.5]
    assert talk.done() == [(1, "completed", "Sunny.")]
    assert talk.said() == [("user", "hello"), ("assistant", "Sunny.")]


def test_noise_without_words_does_not_stop_an_agent_that_may_not_be_stopped() -> None:
    talk = Talk("one", "", replies=(WEATHER,), interrupt_response=False)
    talk.says(1.2, at=0.2)
    talk.says(0.4, at=2.0)
    talk.run(until=6.0)
    assert len(talk.of(NothingSaid)) == 1
    assert talk.done() == [(1, "completed", WEATHER)]


def test_a_reply_without_a_full_stop_is_spoken_to_its_end() -> None:
    talk = Talk("one", replies=("Yes. It is so",))
    talk.says(1.2, at=0.2)
    talk.run(until=6.0)
    assert talk.said()[-1] == ("assistant", "Yes. It is so")


def test_a_judgement_that_comes_late_is_about_its_own_pause() -> None:
    talk = Talk("one", turn=ScriptedTurnModel(1.0, seconds=0.5))
    talk.says(1.2, at=0.2)
    talk.says(0.34, at=1.62)  # the answer about the first pause comes in the second one
    talk.run(until=6.0)
    assert talk.when(PauseStarted) == [1.48, 2.06]
    assert talk.when(EndOfTurn)[0] >= 2.06 + 0.5


@pytest.mark.parametrize("hundredths", range(60, 130, 2))
def test_a_partial_transcript_does_not_hold_up_the_final_one(hundredths: int) -> None:
    talk = Talk("one two three four")
    talk.says(hundredths / 100, at=0.2)
    talk.run(until=2.5)
    assert talk.when(EagerEndOfTurn)[0] - talk.when(PauseStarted)[0] < 0.081  # itself, or one chunk more


def test_a_click_is_not_even_speech() -> None:
    talk = Talk()
    talk.says(0.04, at=0.2)
    talk.run(until=3.0)
    assert talk.log == []


def test_a_late_transcript_starts_one_reply() -> None:
    """The end of the turn comes with the transcript; the prompt holds the words a single time."""
    talk = Talk(stt=ScriptedStt(["hello there"], seconds=1.5))
    talk.says(1.2, at=0.2)
    talk.run(until=8.0)
    assert talk.when(EagerEndOfTurn) == talk.when(EndOfTurn)
    assert talk.llm.prompts == [[{"role": "user", "content": "hello there"}]]
    assert talk.said() == [("user", "hello there"), ("assistant", "Sunny.")]


def test_a_slow_recogniser_does_not_delay_the_floor() -> None:
    talk = Talk(stt=ScriptedStt(["hello there"], seconds=1.5))
    talk.says(1.2, at=0.2)
    talk.run(until=8.0)
    assert talk.when(PauseStarted) == [1.48]
    assert talk.session._user_audio.chunks.peak == 1


def test_an_unsure_turn_model_waits_longer() -> None:
    talk = Talk(turn=ScriptedTurnModel(0.0))
    talk.says(1.2, at=0.2)
    talk.run(until=8.0)
    assert talk.when(PauseStarted) == [1.48]
    assert talk.when(EndOfTurn) == [2.3]  # 880 ms after the last loud window


@pytest.mark.parametrize("seconds", [0.02, 0.15, 0.5])
def test_a_pause_is_judged_by_one_request_at_a_time(seconds: float) -> None:
    """64 calls with a busy turn model had 64 requests that waited, and each further one ended its call."""

    class Counting(ScriptedTurnModel):
        running = most = asked = 0

        async def probability(self, audio: Samples, text: str) -> float:
            self.running, self.asked = self.running + 1, self.asked + 1
            self.most = max(self.most, self.running)
            try:
                return await super().probability(audio, text)
            finally:
                self.running -= 1

    model = Counting(0.0, seconds=seconds)
    talk = Talk("one two", turn=model)
    talk.says(1.2, at=0.2)
    talk.says(0.4, at=1.8)
    talk.run(until=8.0)
    assert model.most == 1 and model.asked >= 2
    assert talk.done()[-1][1] == "completed"


def test_without_room_in_the_turn_model_the_words_and_the_silence_decide() -> None:
    class Full(ScriptedTurnModel):
        async def probability(self, audio: Samples, text: str) -> float:
            raise Overloaded("1024 jobs are waiting already", "smart-turn")

    talk = Talk("one", turn=Full())
    talk.says(1.2, at=0.2)
    talk.run(until=8.0)
    assert talk.done() == [(1, "completed", "Sunny.")]


def test_a_turn_that_is_too_long_is_answered() -> None:
    talk = Talk("on and on", endpointing=Endpointing(pause_ms=64, max_turn_ms=960))
    talk.stt.words_per_second = 9  # the first 0.3 s of the second turn have words
    talk.says(1.5, at=0.2)
    talk.run(until=8.0)
    ends = talk.of(EndOfTurn)
    assert len(ends) == 2
    assert talk.of(TurnResumed) == []
    assert talk.done()[0] == (1, "cancelled", "")  # he still speaks
    assert talk.done()[1] == (2, "completed", "Sunny.")


def test_partial_transcripts_grow() -> None:
    talk = Talk("one two three four five six seven eight")
    talk.says(3.0, at=0.0)
    talk.run(until=5.0)
    partials = talk.of(PartialTranscript)
    assert [partial.text for partial in partials[:3]] == ["one", "one two three", "one two three four"]
    assert [partial.agreed for partial in partials[:3]] == ["", "one", "one two three"]


def test_the_turn_model_hears_the_turn_and_no_more_than_it_needs() -> None:
    heard: list[tuple[int, str]] = []

    class Noting(ScriptedTurnModel):
        async def probability(self, audio: Samples, text: str) -> float:
            heard.append((len(audio), text))
            return 1.0

    for seconds in (1.2, 12.0):
        talk = Talk("one two", turn=Noting())
        talk.says(seconds, at=0.4)
        talk.run(until=seconds + 1.5)
        start, end = talk.of(SpeechStarted)[0].at - 4800, talk.of(EndOfTurn)[0].at
        length, text = heard[0]
        assert text == "one two"
        if seconds < 8.0:
            assert end + ASK_SAMPLES <= start + length <= end + ASK_SAMPLES + 640
            assert (start + length) % 320 == 0  # it ends with a chunk, and begins with the turn
        else:
            assert length == MEMORY_SAMPLES
        heard.clear()


def test_each_turn_is_transcribed_anew() -> None:
    talk = Talk("one two", "three four")
    talk.says(1.2, at=0.2)
    talk.says(1.2, at=3.0)
    talk.run(until=5.0)
    partials = [(partial.text, partial.agreed) for partial in talk.of(PartialTranscript)]
    assert partials == [
        ("one", ""),
        ("one two", "one"),
        ("three", ""),
        ("three four", "three"),
        ("three four", "three four"),
    ]


def test_the_words_are_final_when_the_level_fell_before_the_voice_activity() -> None:
    """One transcript serves: begun where the speaker fell quiet, it is there when the pause is noticed."""
    talk = Talk("what is the weather")
    talk.says(1.2, at=0.2, sound=LOUDEST)
    talk.says(0.12, at=1.4, sound=SOFT)
    talk.run(until=2.0)
    (pause,) = talk.when(PauseStarted)
    assert talk.when(PartialTranscript)[-1] <= pause == talk.when(EagerEndOfTurn)[0]


def test_quiet_speech_at_the_end_is_not_left_out() -> None:
    """Voice activity goes on long after the level has fallen: what was written down there is not final."""
    talk = Talk("what is the weather")
    talk.says(1.2, at=0.2, sound=LOUDEST)
    talk.says(0.5, at=1.4, sound=SOFT)
    talk.run(until=3.0)
    (pause,), (final,) = talk.when(PauseStarted), talk.when(EagerEndOfTurn)
    assert (pause, final) == (1.96, 2.02)


def test_the_padding_reaches_the_recogniser() -> None:
    """The turn is fed from before its first loud sample, without a gap, whatever was heard before."""
    fed: list[tuple[int, int]] = []

    class Stream(type(ScriptedStt([""]).stream())):  # type: ignore[misc]
        def feed(self, chunk: object) -> None:
            fed.append((chunk.start, chunk.end))  # type: ignore[attr-defined]
            super().feed(chunk)

    stt = ScriptedStt(["hello"])
    stt.stream = lambda: Stream(stt)  # type: ignore[method-assign]
    talk = Talk(stt=stt)
    talk.says(1.2, at=1.0)
    talk.run(until=2.0)
    speech = talk.of(SpeechStarted)[0].at
    assert fed[0][0] == speech - 4800
    assert all(one[1] == other[0] for one, other in pairwise(fed))


def test_dips_do_not_keep_a_slow_recogniser_from_its_words() -> None:
    """A speaker with many short pauses gets partial transcripts, and waits for one final transcript."""
    talk = Talk(stt=ScriptedStt(["one two three four five six"], seconds=0.4))
    for word in range(12):
        talk.says(0.22, at=0.2 + 0.25 * word)
    talk.run(until=6.0)
    assert len(talk.of(PartialTranscript)) >= 4
    assert talk.when(EagerEndOfTurn)[0] <= talk.when(PauseStarted)[-1] + 2 * 0.4
