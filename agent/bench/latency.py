"""Measures the time from the last sample of speech to the first audible sample of the answer.

Each recording is a separate call. So each turn meets an empty history and no unfinished reply, and no
recording affects the next one. On a shared connection, unrelated speakers would share a growing history. The
latency excludes the time to connect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from rejoinder.agent.bench.callers.caller import LiveCaller, open_call
from rejoinder.agent.bench.callers.guesses import Guesses, of_replies
from rejoinder.agent.bench.callers.guesses import report as report_guesses
from rejoinder.agent.bench.callers.turns import HeardReply
from rejoinder.agent.bench.cases.recordings import Recording, background, speech_end
from rejoinder.agent.bench.reports.waterfall import (
    Parts,
    Summary,
    complete,
    mean_parts,
    summarise,
    summary_table,
    waterfall,
)
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.client.socket import CallLost

NOISE_LEAD_SECONDS = 0.5
"""Length of the noise before the recording: callers do not speak at the moment when the line opens."""
LISTEN_SECONDS = 1.0
"""How long the caller listens to an answer."""
ANSWER_WAIT_SECONDS = 10.0
"""Longest wait for an answer."""
BACKGROUND_SECONDS = 10.0
"""Length of the background noise, which repeats."""

ANSWERED = "answered"
"""A reply began after the end of speech and was audible."""
ANSWERED_EARLY = "answered only early"
"""All replies began before the end of speech."""
NO_ANSWER = "no answer"
"""No reply was audible."""
CALL_FAILED = "call failed"
"""The call could not begin or was lost."""


@dataclass(frozen=True, slots=True)
class ClipResult:
    """The result of one recording.

    outcome: ANSWERED, EARLY, NO_ANSWER or CALL_FAILED.
    cut_off: whether a reply began before the last sample of speech, even if another reply followed.
    early_ms: time from the start of the first such reply to the end of speech.
    latency_ms: last sample of speech to first audible sample; only if ANSWERED.
    parts: the parts of the latency in ms, if the server sends its trace.
    guesses: counts of the server's speculative replies, if it sends them.
    level: load level of the server at which the answer was committed, if it sends it.
    heard: the server's transcript. reply: the answer's text. error: why the call failed.
    """

    set: str
    file: str
    speaker: str
    text: str | None
    speech_end_s: float
    outcome: str
    cut_off: bool = False
    early_ms: float | None = None
    latency_ms: float | None = None
    parts: tuple[tuple[str, float], ...] = ()
    guesses: Guesses = field(default_factory=Guesses)
    level: int | None = None
    heard: str = ""
    reply: str = ""
    error: str = ""

    def __str__(self) -> str:
        """Return one line for the terminal."""
        said = self.outcome if self.latency_ms is None else f"{self.latency_ms:5.0f} ms"
        early = ", cut off before" if self.cut_off and self.latency_ms is not None else ""
        why = f": {self.error}" if self.error and self.latency_ms is None else ""
        return f"{said}{early}  {self.set}/{self.file}{why}"


async def run_clip(url: str, key: str | None, recording: Recording) -> ClipResult:
    """Play one recording into its own call and wait for the answer. A lost call gives the result CALL_FAILED.

    Cancelling hangs up.
    """
    audio = recording.load(CLIENT_RATE)
    ends = speech_end(audio, CLIENT_RATE)
    noise = background(audio, CLIENT_RATE, BACKGROUND_SECONDS)
    about = (recording.set, recording.path.name, recording.speaker, recording.text, ends / CLIENT_RATE)
    try:
        async with open_call(url, key, noise) as caller:
            await caller.until(lambda: caller.now >= NOISE_LEAD_SECONDS * CLIENT_RATE, NOISE_LEAD_SECONDS + 1)
            return await answer_to(caller, caller.say(audio) + ends, about)
    except CallLost as error:
        return ClipResult(*about, outcome=CALL_FAILED, error=str(error))


async def answer_to(
    caller: LiveCaller,
    end: int,
    about: tuple[str, str, str, str | None, float],
    begin: int = 0,
    patience: float = ANSWER_WAIT_SECONDS,
) -> ClipResult:
    """Wait for the answer to words from sample ``begin`` to ``end``, and return its result. Raises CallLost.

    patience: longest wait in seconds. Cancelling leaves the call open.
    """

    def answered() -> bool:
        reply = caller.answer(end)
        first = caller.player.first_audible(reply.item) if reply else None
        return first is not None and caller.now >= first + LISTEN_SECONDS * CLIENT_RATE

    await caller.until(answered, (end - caller.now) / CLIENT_RATE + patience)
    return judge(caller, end, about, begin)


def judge(
    caller: LiveCaller, end: int, about: tuple[str, str, str, str | None, float], begin: int = 0
) -> ClipResult:
    """Return the result of the words in a call from sample ``begin`` to ``end``."""
    replies = [reply for reply in caller.replies if reply.created >= begin]
    early = [reply for reply in replies if reply.created < end]
    reply = caller.answer(end)
    heard = " ".join(turn.text.strip() for turn in caller.turns if turn.begin >= begin).strip()
    first = caller.player.first_audible(reply.item) if reply else None
    if reply is None or first is None:
        outcome, latency = ANSWERED_EARLY if early else NO_ANSWER, None
    else:
        outcome, latency = ANSWERED, (first - end) * 1000 / CLIENT_RATE
    return ClipResult(
        *about,
        outcome=outcome,
        cut_off=bool(early),
        early_ms=(end - early[0].created) * 1000 / CLIENT_RATE if early else None,
        latency_ms=latency,
        parts=tuple(client_parts(reply, end, latency)) if reply and latency is not None else (),
        guesses=of_replies(reply.counts for reply in replies),
        level=int(reply.counts["load_level"]) if reply and "load_level" in reply.counts else None,
        heard=heard,
        reply=" / ".join(reply.text.strip() for reply in replies),
        error="; ".join(caller.errors),
    )


def client_parts(reply: HeardReply, end: int, latency: float) -> Parts:
    """Return the parts of a reply's latency in milliseconds; empty if the server does not send its own."""
    if not reply.parts:
        return []
    later = None if reply.heard_end is None else (reply.heard_end - end) * 1000 / CLIENT_RATE
    return complete(reply.parts, latency, later)


@dataclass(frozen=True, slots=True)
class Count:
    """Counts of results. Each clip is in exactly one of answered, answered_only_early, silent and failed."""

    clips: int
    answered: int
    cut_off: int
    answered_only_early: int
    silent: int
    failed: int
    latency: Summary


def count(results: Sequence[ClipResult]) -> Count:
    """Count the results by outcome, and return the latency statistics of the answered ones."""

    def outcomes(outcome: str) -> int:
        return sum(result.outcome == outcome for result in results)

    return Count(
        len(results),
        outcomes(ANSWERED),
        sum(result.cut_off for result in results),
        outcomes(ANSWERED_EARLY),
        outcomes(NO_ANSWER),
        outcomes(CALL_FAILED),
        summarise([result.latency_ms for result in results if result.latency_ms is not None]),
    )


def reasons(results: Sequence[ClipResult]) -> list[tuple[str, int]]:
    """Return the errors of unanswered clips with their counts, the most common first."""
    return Counter(
        result.error for result in results if result.error and result.latency_ms is None
    ).most_common()


def nothing_answered(results: Sequence[ClipResult]) -> str:
    """Return a sentence that says why no clip was answered, or "" if one was."""
    if any(result.outcome == ANSWERED for result in results):
        return ""
    whole = f"none of the {len(results)} clips was answered"
    if errors := reasons(results):
        reason, often = errors[0]
        return f"{whole}; most common reason ({often} of {len(results)}): {reason}"
    outcome, often = Counter(result.outcome for result in results).most_common(1)[0]
    return f"{whole}, and the server gave no reason; most common outcome ({often}): {outcome}"


def mean_waterfall(results: Sequence[ClipResult]) -> list[tuple[str, float]]:
    """Return the mean parts of all answers with a server trace; empty if there is none."""
    return mean_parts([result.parts for result in results if result.parts])


def all_guesses(results: Sequence[ClipResult]) -> Guesses:
    """Return the counts of the server's guesses in all calls."""
    return sum((result.guesses for result in results), Guesses())


def by_set(results: Sequence[ClipResult]) -> dict[str, list[ClipResult]]:
    """Return the results of each set, in the order in which the sets first appear."""
    names = dict.fromkeys(result.set for result in results)
    return {name: [result for result in results if result.set == name] for name in names}


def tables(results: Sequence[ClipResult]) -> list[RenderableType]:
    """Return the tables for the terminal: statistics per set, and the mean waterfall if there is one."""
    counts = {name: count(chosen) for name, chosen in by_set(results).items()} | {"all": count(results)}
    rows = []
    for name, row in counts.items():
        rows.append((name, [str(row.clips), str(row.answered), str(row.cut_off)], row.latency))
    whole = counts["all"]
    note = (
        "cut off: a reply was started before the speech was over. Not answered: "
        f"{whole.answered_only_early} cut off and only answered early, {whole.silent} without a reply, "
        f"{whole.failed} failed calls."
    )
    shown: list[RenderableType] = [
        summary_table(
            "Last sample of speech to first audible sample, in ms", ("clips", "answered", "cut off"), rows
        ),
        Text(note, style="dim"),
        *(Text(f"  {often} x {reason}", style="dim") for reason, often in reasons(results)),
    ]
    if (guesses := all_guesses(results)).replies:
        shown.append(Text(str(guesses), style="dim"))
    if parts := mean_waterfall(results):
        traced = sum(bool(result.parts) for result in results)
        shown.append(waterfall(parts, f"Where it goes, mean of {traced} answers"))
    return shown


def report(results: Sequence[ClipResult]) -> dict[str, Any]:
    """Return the figures as JSON data, with one row per clip."""
    return {
        "summary": asdict(count(results)),
        "sets": {name: asdict(count(chosen)) for name, chosen in by_set(results).items()},
        "errors": dict(reasons(results)),
        "guesses": report_guesses(all_guesses(results)),
        "waterfall": [{"name": name, "ms": value} for name, value in mean_waterfall(results)],
        "clips": [asdict(result) for result in results],
    }
