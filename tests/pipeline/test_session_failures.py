"""What goes wrong: models that fail, readers that do not read, sessions that end in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.scenario import QUIET, SCENARIO_ENDPOINTING, SPEECH_CHUNK, Act, Talk
from rejoinder.models.scripted import (
    ScriptedLlm,
    ScriptedStt,
    ScriptedSttStream,
    ScriptedTts,
    ScriptedTurnModel,
    ScriptedVad,
    ScriptedVadStream,
)
from rejoinder.pipeline import (
    AudioChunk,
    Channel,
    EndOfTurn,
    Endpointer,
    Message,
    ModelError,
    Models,
    NothingSaid,
    Options,
    OverlapStarted,
    Overloaded,
    ReplyAudio,
    ReplyDone,
    ReplyRequest,
    ReplyStarted,
    Session,
    SpeechStarted,
    Transcript,
    Usage,
    open_session,
)
from rejoinder.pipeline.listening.recent_audio import MEMORY_SAMPLES
from rejoinder.pipeline.listening.transcriber import MISSED_TURNS, TurnTranscriber

LONG = "It is sunny today and it will be so for the whole week. " * 10


class FailingLlm(ScriptedLlm):
    """Fails in the middle of its first reply only."""

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        self.fail_after = 6 if not self.prompts else None
        async for token in super().reply(messages):
            yield token


def test_a_language_model_that_fails_in_the_middle_of_a_sentence() -> None:
    talk = Talk("one", "two", llm=FailingLlm(["It is fine today. And so on for long.", "Good."], each=0.3))
    talk.says(1.2, at=0.2)
    talk.says(1.2, at=6.0)
    talk.run(until=10.0)
    first, second = talk.of(ReplyDone)
    assert first == ReplyDone(
        1, "failed", "It is fine today.", "scripted: failed after 6 tokens as the script says", Usage(1, 6)
    )
    assert second == ReplyDone(2, "completed", "Good.", usage=Usage(6, 1))
    assert talk.said() == [
        ("user", "one"),
        ("assistant", "It is fine today.—"),
        ("user", "two"),
        ("assistant", "Good."),
    ]


def test_audio_that_was_sent_before_a_failure_is_heard() -> None:
    """Nothing calls it back, so it belongs to what was heard, unless the user speaks into it."""
    for interrupted in (False, True):
        talk = Talk("one", llm=ScriptedLlm(["It is fine today. And so on."], each=0.3, fail_after=5))
        talk.says(1.2, at=0.2)
        failed = 1.48 + 0.14 + 5 * 0.3
        if interrupted:
            talk.does(lambda session: session.interrupt(), at=failed + 0.01)
        talk.run(until=6.0)
        assert talk.when(ReplyDone) == [round(failed, 3)]
        sent = sum(event.chunk.seconds for event in talk.of(ReplyAudio))
        assert sent > failed - talk.when(ReplyAudio)[0]  # some of it is still to be played
        assert talk.said()[-1] == ("assistant", talk.heard(1, at=failed + 0.01 if interrupted else 9.0) + "—")


def test_a_failed_guess_emits_its_failure_when_committed() -> None:
    talk = Talk("one", llm=ScriptedLlm(["It is a fine day today."], fail_after=0))
    talk.says(1.2, at=0.2)
    talk.run(until=5.0)
    assert talk.when(ReplyStarted) == talk.when(ReplyDone) == [1.74]
    assert talk.done() == [(1, "failed", "")]
    assert talk.session.reply is None


def test_a_guess_that_failed_is_forgotten_when_it_is_dropped() -> None:
    talk = Talk("one", llm=ScriptedLlm(["Yes."], fail_after=0))
    talk.says(1.2, at=0.2)
    talk.says(0.6, at=1.68)
    talk.does(lambda session: setattr(talk.llm, "fail_after", None), at=1.75)
    talk.run(until=6.0)
    assert len(talk.llm.prompts) == 2
    assert talk.done() == [(2, "completed", "Yes.")]
    assert len(talk.session._replies.cancelled) == 0


class FailingTts(ScriptedTts):
    """Has no voice for one word."""

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        async for chunk in super().speak(text):
            yield chunk
            if "week" in text:
                raise ModelError("hoarse", "no voice for that")


def test_a_voice_that_fails() -> None:
    talk = Talk("one", "two", tts=FailingTts(), replies=("This is the week. Not heard.", "Good."))
    talk.says(1.2, at=0.2)
    talk.says(1.2, at=5.0)
    talk.run(until=9.0)
    assert [(event.status, event.error) for event in talk.of(ReplyDone)] == [
        ("failed", "hoarse: no voice for that"),
        ("completed", ""),
    ]
    assert talk.said()[-2:] == [("user", "two"), ("assistant", "Good.")]


def test_a_voice_without_sound_completes_with_nothing_heard() -> None:
    class Silent(ScriptedTts):
        async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
            if text == "aloud":
                yield AudioChunk(b"", 16_000)

    talk = Talk("one", tts=Silent())
    talk.says(1.2, at=0.2)
    talk.run(until=5.0)
    assert talk.done() == [(1, "completed", "")]
    assert talk.when(ReplyDone) == [1.74]
    assert talk.said() == [("user", "one")]


class SoreLoserLlm(ScriptedLlm):
    """Fails when its reply is cancelled, as a network client may that closes its connection."""

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        try:
            async for token in super().reply(messages):
                yield token
        finally:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise ConnectionError("reset while closing")


@pytest.mark.parametrize("at", [1.6, 2.2], ids=["guess", "committed"])
def test_a_model_that_fails_while_it_is_cancelled(at: float) -> None:
    gone: list[bool] = []
    talk = Talk("one", llm=SoreLoserLlm([LONG]))
    talk.says(1.2, at=0.2)
    talk.does(lambda session: session.interrupt(), at=at)
    talk.does(lambda session: session.add_text("typed"), at=at)
    talk.does(lambda session: session.respond(), at=at)
    talk.does(
        lambda session: gone.append(len(session._replies.cancelled) == 0 and session.reply is not None),
        at=at + 0.2,
    )
    talk.run(until=at + 0.5)
    assert gone == [True]  # the failed one is gone, and the one that replaced it is not
    assert [status for _, status, _ in talk.done()][-1] == "cancelled"
    assert talk.when(ReplyDone)[-1] >= at + 0.5
    spoken = [entry.turn for entry in talk.session.history.entries if entry.role == "assistant"]
    assert len(spoken) == len(set(spoken))


def test_warming_that_fails_or_takes_long_only_costs_time() -> None:
    class Cold(ScriptedLlm):
        warmed = 0

        async def warm(self, messages: Sequence[Message]) -> None:
            self.warmed += 1
            if self.warmed <= 2:
                raise ModelError("cold", "no cache")
            await asyncio.sleep(0.6)

    talk = Talk("one", llm=Cold(["Yes."]))
    talk.says(1.2, at=0.2)
    talk.run(until=5.0)
    assert (
        talk.llm.warmed == 3
    )  # at pick-up, at 0.56 and at 1.06 s; the reply starts after the second, at 1.66 s
    assert talk.when(ReplyAudio)[0] == 1.66 + 0.08 + 0.05
    assert talk.done() == [(1, "completed", "Yes.")]


def test_the_prompt_is_read_at_pick_up_and_when_it_changes() -> None:
    read: list[str] = []

    class Reader(ScriptedLlm):
        async def warm(self, messages: Sequence[Message]) -> None:
            read.append(" / ".join(message["content"] for message in messages))

    talk = Talk("one", llm=Reader(["Yes."]), options=Options(instructions="Be kind."))
    talk.does(lambda session: session.configure(replace(session.options, instructions="Be brief.")), at=0.5)
    talk.does(lambda session: session.configure(replace(session.options, max_tokens=9)), at=1.0)
    talk.run(until=2.0)
    assert read == ["Be kind.", "Be brief."]


def test_warming_ends_with_the_session() -> None:
    class Frozen(ScriptedLlm):
        async def warm(self, messages: Sequence[Message]) -> None:
            await asyncio.sleep(3600.0)

    talk = Talk("one", llm=Frozen(["Yes."]))
    talk.says(1.2, at=0.2)
    talk.run(until=2.0)  # fails on a task left behind
    assert talk.done() == [(1, "cancelled", "")]


# --- listening models ---------------------------------------------------------------------------------------


class DeafStt(ScriptedStt):
    """Fails a number of times when it is asked for a final transcript, and always while it is deaf."""

    def __init__(self, lines: list[str], failures: int = 1000, code: str = "model_error") -> None:
        super().__init__(lines)
        self.failures, self.code, self.finals, self.deaf = failures, code, 0, False

    def stream(self) -> ScriptedSttStream:
        return DeafStream(self)


class DeafStream(ScriptedSttStream):
    _stt: DeafStt

    async def transcribe(self, is_final: bool) -> Transcript:
        heard = await super().transcribe(is_final)
        self._stt.finals += is_final
        if self._stt.deaf or (is_final and self._stt.finals <= self._stt.failures):
            raise ModelError("deaf", "no ears", self._stt.code)
        return heard


class LostTurnModel(ScriptedTurnModel):
    async def probability(self, audio: object, text: str) -> float:
        raise ModelError("lost", "no idea")


class BrokenVad(ScriptedVad):
    def stream(self) -> ScriptedVadStream:
        return BrokenStream()


class BrokenStream(ScriptedVadStream):
    def feed(self, chunk: AudioChunk) -> list[tuple[int, float]]:
        raise ModelError("broken", "no sound")


def test_a_final_transcript_that_fails_once_is_made_again() -> None:
    stt = DeafStt(["one"], failures=1)
    talk = Talk("one", stt=stt, llm=ScriptedLlm(["Yes."]))
    talk.says(1.2, at=0.2)
    talk.run(until=6.0)
    assert talk.said() == [("user", "one"), ("assistant", "Yes.")]
    assert stt.finals == 2
    assert talk.of(NothingSaid) == []


@pytest.mark.parametrize("apology", ["Pardon?", ""])
def test_a_turn_that_is_not_understood_fails_and_the_next_one_is_answered(apology: str) -> None:
    """A step that hangs is not tried again: it would hold up another thread."""
    stt = DeafStt(["one", "two"], failures=1, code="model_timeout")
    talk = Talk("one", "two", stt=stt, llm=ScriptedLlm(["Yes."]), options=Options(apology=apology))
    talk.says(1.2, at=0.2)
    talk.says(1.2, at=8.0)
    talk.run(until=14.0)
    (missed,) = talk.of(NothingSaid)
    assert isinstance(missed.error, ModelError) and missed.error.role == "speech recogniser"
    first, second = talk.of(ReplyDone)
    assert (first.status, first.heard, first.cause) == ("failed", apology, missed.error)
    assert (second.status, second.heard) == ("completed", "Yes.")
    spoken = [("assistant", apology)] if apology else []
    assert talk.said() == [*spoken, ("user", "two"), ("assistant", "Yes.")]
    assert stt.finals == 2


@pytest.mark.parametrize("known", [True, False])
def test_words_known_so_far_decide_whether_a_sound_stops_the_agent(known: bool) -> None:
    """The final transcript fails; partial ones had words, or failed, too."""
    stt = DeafStt(["one", "two"], code="model_timeout")
    stt.failures = 0
    talk = Talk("one", "two", stt=stt, llm=ScriptedLlm([LONG]))
    talk.says(1.2, at=0.2)
    talk.does(lambda session: setattr(stt, "failures", 1000), at=2.5)
    talk.does(lambda session: setattr(stt, "deaf", not known), at=2.5)
    talk.says(0.3, at=4.0)
    talk.run(until=9.0)
    assert talk.of(OverlapStarted)
    assert [str(event.error) for event in talk.of(NothingSaid)] == ["deaf: no ears"] * known
    assert [status for _, status, _ in talk.done()] == (["cancelled", "failed"] if known else ["cancelled"])
    assert (talk.when(ReplyDone)[0] < 5.0) == known, "else it ran until the end of the scenario"


@pytest.mark.parametrize("asks", [True, False])
def test_a_missed_turn_fails_the_reply_that_the_client_asks_for(asks: bool) -> None:
    stt = DeafStt(["one", "two"], code="model_timeout")
    talk = Talk("one", "two", stt=stt, llm=ScriptedLlm(["Yes."]), options=Options(create_response=False))
    talk.says(1.2, at=0.2)
    if asks:
        talk.does(lambda session: session.respond(), at=1.45)
    talk.run(until=6.0)
    assert [str(event.error) for event in talk.of(NothingSaid)] == ["deaf: no ears"]
    assert [done.error for done in talk.of(ReplyDone)] == ["deaf: no ears"] * asks
    assert talk.llm.prompts == []


def test_a_reply_with_a_prompt_of_its_own_does_not_need_the_turn() -> None:
    stt = DeafStt(["one"], code="model_timeout")
    talk = Talk("one", stt=stt, llm=ScriptedLlm(["Yes."]))
    talk.says(1.2, at=0.2)
    talk.does(lambda session: session.respond(ReplyRequest(cue="Say yes.")), at=1.45)
    talk.run(until=6.0)
    assert talk.done() == [(1, "completed", "Yes.")]


def test_a_turn_missed_during_a_reply_that_goes_on_fails_after_it() -> None:
    stt = DeafStt(["one", "two"], code="model_timeout")
    options = Options(apology="Pardon?", interrupt_response=False)
    talk = Talk(
        "one", "two", stt=stt, llm=ScriptedLlm(["It is fine today, and tomorrow too."]), options=options
    )
    stt.failures = 0
    talk.says(1.2, at=0.2)
    talk.does(lambda session: setattr(stt, "failures", 1000), at=1.9)
    talk.says(0.6, at=2.0)
    talk.run(until=12.0)
    assert [(done.status, done.heard) for done in talk.of(ReplyDone)] == [
        ("completed", "It is fine today, and tomorrow too."),
        ("failed", "Pardon?"),
    ]


def test_words_and_silence_end_turns_where_the_turn_model_fails(caplog: pytest.LogCaptureFixture) -> None:
    talk = Talk("one", "two", turn=LostTurnModel(), llm=ScriptedLlm(["Yes."]))
    talk.says(1.2, at=0.2)
    talk.says(1.2, at=8.0)
    talk.run(until=14.0)
    assert [done.status for done in talk.of(ReplyDone)] == ["completed", "completed"]
    (record,) = caplog.records
    assert record.getMessage() == "the words and the silence end the turns: lost: no idea"


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({"stt": DeafStt(["one"])}, "deaf: no ears"),
        ({"vad": BrokenVad()}, "broken: no sound"),
    ],
)
def test_a_listening_model_that_fails_ends_the_session(models: dict[str, Any], message: str) -> None:
    talk = Talk("one", **models)
    for turn in range(MISSED_TURNS):
        talk.says(1.2, at=0.2 + 6.0 * turn)

    async def main() -> None:
        told = Models(talk.vad, talk.stt, talk.llm, talk.tts, talk.turn_model)
        with pytest.raises(ModelError, match=message):
            async with open_session(told) as session, asyncio.timeout(60.0), asyncio.TaskGroup() as tasks:
                talk.session = session
                tasks.create_task(talk._note(session))
                await talk._speak()

    virtual_clock.run(main())
    assert talk.session.events.closed
    assert (talk.llm.open, talk.tts.open) == (0, 0)


def test_what_fails_inside_the_block_comes_out_as_it_is() -> None:
    async def main() -> None:
        talk = Talk()
        models = Models(talk.vad, talk.stt, talk.llm, talk.tts, None)
        with pytest.raises(KeyError, match="mine"):
            async with open_session(models) as session:
                session.respond()
                raise KeyError("mine")
        assert session.events.closed
        assert talk.llm.open == 0

    virtual_clock.run(main())


# --- readers and clocks -------------------------------------------------------------------------------------


def hold(acts: list[tuple[float, Act]], until: float, llm: ScriptedLlm, tts: ScriptedTts) -> list[Session]:
    """Hold a conversation whose events are not read."""
    sessions = []

    async def main() -> None:
        models = Models(ScriptedVad(), ScriptedStt(["on and on"]), llm, tts, ScriptedTurnModel())
        async with open_session(models) as session:
            sessions.append(session)
            for at, act in acts:
                await asyncio.sleep(at - asyncio.get_running_loop().time())
                if (doing := act(session)) is not None:
                    await doing
            await asyncio.sleep(until)

    virtual_clock.run(main())
    return sessions


def test_a_client_that_does_not_read_holds_the_voice_up() -> None:
    spoken: list[str] = []

    class CountingTts(ScriptedTts):
        async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
            spoken.append(text)
            async for chunk in super().speak(text):
                yield chunk

    (session,) = hold([(0.1, lambda session: session.respond())], 600.0, ScriptedLlm([LONG]), CountingTts())
    assert session.events.peak <= 64 + 1  # what the session tells finds room
    assert len(spoken) < 5


def test_a_client_that_never_reads_is_given_up_on() -> None:
    async def speak(session: Session) -> None:
        for _ in range(200):
            await session.hear(25 * SPEECH_CHUNK + 75 * QUIET)
            await asyncio.sleep(1.0)

    with pytest.raises(Overloaded, match="events are not read"):
        hold([(0.1, speak)], 1.0, ScriptedLlm(["Yes."]), ScriptedTts())


def test_an_hour_of_silence_leaves_nothing_behind() -> None:
    class DullStream(ScriptedVadStream):
        def feed(self, chunk: AudioChunk) -> list[tuple[int, float]]:
            return [(chunk.end, 0.0)]

    vad = ScriptedVad()
    vad.stream = DullStream  # type: ignore[method-assign]

    async def hour(session: Session) -> None:
        for _ in range(3600):
            await session.hear(50 * QUIET)
            await asyncio.sleep(1.0)
        assert len(asyncio.all_tasks()) <= 6

    talk = Talk(vad=vad)
    talk.does(hour, at=0.0)
    talk.run(until=3600.0, microphone=False)
    assert talk.session.received == 3600 * 16_000
    assert talk.log == []
    assert len(talk.session._user_audio._arrivals) <= 512
    assert MEMORY_SAMPLES == 8 * 16_000


def test_ends_of_turns_without_audio_leave_nothing_behind() -> None:
    async def main() -> None:
        floor = Endpointer()
        floor.configure(Options(detect_turns=False))
        models = Models(ScriptedVad(), ScriptedStt(["one"]), ScriptedLlm(), ScriptedTts())
        transcriber = TurnTranscriber(models, floor, lambda event: None)
        channel: Channel[AudioChunk] = Channel(4)
        transcribing = asyncio.create_task(transcriber.transcribe(channel))
        for _ in range(1000):
            await channel.send(AudioChunk(b"", 16_000, 0))
        await asyncio.sleep(1.0)
        assert len(transcriber._recent) == 0
        for start in range(0, 20 * 16_000, 320):
            await channel.send(AudioChunk(QUIET, 16_000, start))
        channel.close()
        await transcribing
        assert len(transcriber._recent) == MEMORY_SAMPLES

    virtual_clock.run(main())


class GatedStt(ScriptedStt):
    """Answers when the test says so."""

    def stream(self) -> ScriptedSttStream:
        self.gate = asyncio.Event()
        return GatedStream(self)


class GatedStream(ScriptedSttStream):
    async def transcribe(self, is_final: bool) -> Transcript:
        if is_final:
            await self._stt.gate.wait()  # type: ignore[attr-defined]
        return Transcript("one", is_final, self._end)


def test_the_end_of_the_session_ends_what_is_about_to_start() -> None:
    """The last transcript arrives while the session closes: no reply stays behind."""
    talk = Talk(stt=GatedStt([""]))
    talk.says(1.2, at=0.2)
    talk.does(lambda session: talk.stt.gate.set(), at=1.6)
    talk.run(until=1.6)  # fails on a task left behind
    assert talk.of(ReplyStarted) == []


def test_a_session_without_turn_model_waits_for_silence() -> None:
    async def main() -> None:
        talk = Talk("one")
        models = Models(talk.vad, talk.stt, talk.llm, talk.tts)
        async with (
            asyncio.TaskGroup() as tasks,
            open_session(models, Options(endpointing=SCENARIO_ENDPOINTING)) as talk.session,
        ):
            talk.says(1.2, at=0.2)
            tasks.create_task(talk._note(talk.session))
            speaking = tasks.create_task(talk._speak())
            await asyncio.sleep(5.0)
            speaking.cancel()
        assert talk.when(SpeechStarted) == [0.3]
        assert talk.when(EndOfTurn) == [2.3]

    virtual_clock.run(main())
