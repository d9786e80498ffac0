"""From the events of a call to measurements, without a server."""

from __future__ import annotations

import pytest

from rejoinder.agent.metrics.labels import OTHER_LABEL
from rejoinder.agent.metrics.measures import CallMeasures, Measurement, error_measure
from rejoinder.agent.metrics.meters import MODEL_LABELS, Meters
from rejoinder.agent.metrics.server_metrics import ServerMetrics
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedVad
from rejoinder.pipeline import (
    RATE,
    EndOfTurn,
    Event,
    ModelError,
    Models,
    OverlapEnded,
    OverlapStarted,
    Overloaded,
    ProtocolError,
    ReplyAudio,
    ReplyDone,
    Session,
    SpeechStarted,
    Trace,
    TurnTraced,
    Usage,
)

TURNS = 200
GAP_SECONDS = 4.0
VAD_WINDOW_SECONDS = 0.032
MOST_DIFFERENCE = 0.001
SILENT = Models(ScriptedVad(), ScriptedStt([""]), ScriptedLlm(), ScriptedTts())


def value(meters: Meters, name: str, **labels: str) -> float:
    return meters.registry.get_sample_value(f"rejoinder_{name}", labels) or 0.0


def parts(meters: Meters) -> dict[str, float]:
    """Return the sum of each part of the waterfall, in seconds."""
    samples = [sample for metric in meters.registry.collect() for sample in metric.samples]
    return {
        sample.labels["part"]: sample.value
        for sample in samples
        if sample.name == "rejoinder_turn_part_seconds_sum"
    }


def test_the_parts_of_200_turns_sum_to_the_total_and_to_the_callers_wait() -> None:
    """In virtual time, with a language model that takes another time for each turn."""
    talk = Talk(*(f"question {number}" for number in range(TURNS)), llm=ScriptedLlm(["Sunny."]))

    def slower(number: int) -> None:
        talk.llm.first = 0.03 + 0.037 * (number % 17)
        talk.stt.seconds = 0.02 + 0.013 * (number % 11)

    for number in range(TURNS):
        talk.does(lambda session, number=number: slower(number), at=GAP_SECONDS * number)
        talk.says(0.6 + 0.1 * (number % 5), at=GAP_SECONDS * number + 0.1)
    talk.run(until=GAP_SECONDS * TURNS)

    meters, measures = Meters(), CallMeasures("scripted")
    said_until, before, checked = 0.0, (0.0, 0.0), set[int]()
    for at, event in talk.log:
        meters.record(measures.take(event))
        if isinstance(event, EndOfTurn):
            said_until = event.at / RATE
        if not isinstance(event, TurnTraced):
            continue
        total, summed = value(meters, "turn_latency_seconds_sum"), sum(parts(meters).values())
        waited, added = total - before[0], summed - before[1]
        before = total, summed
        assert abs(added - waited) < MOST_DIFFERENCE, event.trace
        assert abs(waited - (at - said_until)) < VAD_WINDOW_SECONDS, event.trace
        checked.add(event.trace.turn)
    assert len(checked) == value(meters, "turn_latency_seconds_count") == TURNS
    by_part = parts(meters)
    assert {part for part, seconds in by_part.items() if seconds > 0.0} >= {
        "pause_seen",
        "transcribed",
        "first_token",
    }
    assert value(meters, "llm_first_token_seconds_count", model="scripted") == TURNS
    mean = value(meters, "llm_first_token_seconds_sum", model="scripted") / TURNS
    assert 0.03 < mean < 0.03 + 0.037 * 17


def test_a_trace_that_is_sent_again_counts_once() -> None:
    trace = Trace(1, marks={"speech_ended": 1.0, "committed": 1.4, "audio_sent": 1.5})
    measures = CallMeasures("")
    assert len(measures.take(TurnTraced(trace))) == 3
    assert measures.take(TurnTraced(trace)) == []
    measures.take(ReplyDone(1, "completed", "Sunny."))
    assert measures.take(TurnTraced(trace)) == []


@pytest.mark.parametrize(("last", "real"), [(SpeechStarted(7), "true"), (OverlapEnded("mm-hm"), "false")])
def test_a_sound_over_the_agent_is_an_interruption_or_is_not(last: Event, real: str) -> None:
    measures = CallMeasures("")
    assert measures.take(OverlapStarted(5)) == []
    assert measures.take(last) == [Measurement("interruptions", labels=(real,))]
    assert measures.take(last) == []


def test_interruptions_of_a_simulated_call() -> None:
    answer = "It is sunny today, and it will be sunny tomorrow as well, and the day after it too."
    talk = Talk("what is the weather", "mm-hm", "no stop that please", replies=(answer,))
    talk.says(1.0, at=0.5)
    talk.says(0.4, at=3.2)
    talk.says(1.5, at=5.2)
    talk.run(until=12.0)
    meters, measures = Meters(), CallMeasures("")
    for event in talk.of(*Event.__args__):
        meters.record(measures.take(event))
    done = [status for _, status, _ in talk.done()]
    assert value(meters, "interruptions_total", real="true") == done.count("cancelled") == 1
    assert value(meters, "interruptions_total", real="false") == len(talk.of(OverlapEnded)) == 1
    assert value(meters, "replies_total", status="cancelled") == 1
    assert value(meters, "user_turns_total", content="words") == 2
    speech = value(meters, "audio_seconds_total", kind="user_speech")
    assert speech == pytest.approx(1.0 + 1.5, abs=4 * VAD_WINDOW_SECONDS)


def test_counts_of_a_trace_are_measured_once_the_reply_ends() -> None:
    counts = {"hedges": 2.0, "failovers": 1.0}
    measured = CallMeasures("").take(ReplyDone(1, "completed", "", trace=Trace(1, counts=counts)))
    assert measured == [
        Measurement("replies", labels=("completed",)),
        Measurement("llm_rescues", 2.0, ("hedge",)),
        Measurement("llm_rescues", 1.0, ("failover",)),
    ]


@pytest.mark.parametrize(
    ("error", "kind", "role"),
    [
        (ModelError("openai:http://10.0.0.1", "refused"), "model_error", "llm"),
        (ModelError("openai:http://10.0.0.1", "late", "model_timeout"), "model_timeout", "llm"),
        (ModelError("x", "y", "a code of our own adapter"), "model_error", "llm"),
        (Overloaded("64 jobs are waiting already", "whisper"), "overloaded", ""),
        (ProtocolError("no such event", "invalid_value"), "protocol", ""),
        (ValueError("a bug"), "server_error", ""),
    ],
)
def test_errors_have_few_kinds(error: Exception, kind: str, role: str) -> None:
    if isinstance(error, ModelError):
        error.role = "language model"
    assert error_measure(error) == Measurement("errors", labels=(kind, role))


def test_unknown_models_and_wires_cannot_create_unbounded_series() -> None:
    server = ServerMetrics()
    for number in range(500):
        trace = Trace(number, marks={"reply_started": 1.0, "first_token": 1.2}, models=[f"model-{number}"])
        done = ReplyDone(number, "completed", "", usage=Usage(1, 1), trace=trace)
        server.meters.record(CallMeasures("").take(done))
        call = server.observe(f"wire-{number}")
        server.meters.record([Measurement("requests", labels=("other", str(number)))])
        call.begin(Session(SILENT))
        call.end(None, "")
    text, _ = server.exposed("")
    series = [line for line in text.decode().splitlines() if not line.startswith("#")]
    models = {line.split('model="')[1].split('"')[0] for line in series if 'model="' in line}
    assert len(models) == MODEL_LABELS + 1
    assert OTHER_LABEL in models
    assert len(series) < 1500
    assert server.meters.registry.get_sample_value("rejoinder_calls_total", {"wire": OTHER_LABEL}) > 400


def test_the_speed_of_the_language_model_leaves_out_a_full_channel() -> None:
    """Its 59 words take 20 ms each, and a voice that is slower holds it up."""
    words = " ".join(["word"] * 59) + "."
    talk = Talk(llm=ScriptedLlm([words]))
    talk.says(1.0, at=0.5)
    talk.run(until=12.0)
    (trace,) = {id(event.trace): event.trace for event in talk.of(TurnTraced)}.values()
    assert trace.tokens == 59
    assert trace.waited == pytest.approx(58 * 0.02, abs=0.002)
    assert len(talk.of(ReplyAudio)) > 0
