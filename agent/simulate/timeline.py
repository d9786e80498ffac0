"""The log of a conversation: as lines to compare, and a check that its replies are in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rejoinder.pipeline import (
    Event,
    PartialTranscript,
    ReplyAudio,
    ReplyCalled,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    TurnTraced,
)


def timeline(log: Sequence[tuple[float, Event]], tools: Sequence[tuple[float, str]] = ()) -> list[str]:
    """Return a log of (loop time in seconds, event), one line per event, without traces.

    Consecutive audio of a reply is one line. tools: further lines, with their times.
    """
    lines: list[str] = []
    stretch: tuple[int, float, float] | None = None
    for at, event in [*log, (0.0, None)]:
        if isinstance(event, ReplyAudio):
            turn, begin, seconds = stretch or (event.turn, at, 0.0)
            stretch, last = (turn, begin, seconds + event.chunk.seconds), at
            continue
        if stretch is not None and not isinstance(event, TurnTraced):
            turn, begin, seconds = stretch
            lines.append(f"{begin:.3f} audio {turn}: {seconds:.2f} s until {last:.3f}")
            stretch = None
        if event is not None and not isinstance(event, TurnTraced):
            lines.append(f"{at:.3f} {_line(event)}")
    if not tools:
        return lines
    lines += [f"{at:.3f} {line}" for at, line in tools]
    return sorted(lines, key=lambda line: float(line.split()[0]))


def _line(event: Event) -> str:
    match event:
        case PartialTranscript(text):
            return f"partial: {text}"
        case ReplyStarted(turn):
            return f"reply {turn} starts"
        case ReplyText(turn, text):
            return f"text {turn}: {text}"
        case ReplyCalled(turn, call):
            return f"reply {turn} calls {call.name} {call.arguments}"
        case ReplyDone(turn, status, heard, error):
            return f"reply {turn} {status}: {heard}" + (f" ({error})" if error else "")
        case _:
            return repr(event)


def check_replies(events: Sequence[Event]) -> None:
    """Raise AssertionError if a reply's events lie outside its start and end, or its audio has a gap."""
    started, ended = set(), set()
    samples: Counter[int] = Counter()
    for event in events:
        match event:
            case ReplyStarted(turn):
                assert turn not in started, f"reply {turn} starts twice"
                started.add(turn)
            case ReplyText(turn) | ReplyAudio(turn) | ReplyDone(turn):
                assert turn in started, f"reply {turn} was never committed: {event}"
                assert turn not in ended, f"reply {turn} is over: {event}"
                if isinstance(event, ReplyDone):
                    ended.add(turn)
                elif isinstance(event, ReplyAudio):
                    assert event.chunk.start == samples[turn]
                    samples[turn] += len(event.chunk)
    assert started == ended, f"without an end: {started - ended}"
