"""What was said and done in a simulated call, for people to read."""

from __future__ import annotations

from dataclasses import dataclass

from rejoinder.agent.simulate.call import Call
from rejoinder.pipeline import ReplyDone


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One line. at: virtual seconds since the start of the call. who: caller, agent, tool or error."""

    at: float
    who: str
    text: str


def story(call: Call) -> list[StoryLine]:
    """Return what both sides said, as it was heard, and what the tools did, in order."""
    lines = [StoryLine(at, "caller", _spoken(what)) for at, what in call.actions]
    for use in call.tools_called:
        lines += [StoryLine(at, "tool", text.removeprefix("tool ")) for at, text in use.lines()]
    shown = [use.error for use in call.tools_called]
    lines += [StoryLine(one.at, "error", str(one)) for one in call.failures if one.error not in shown]
    lines += [StoryLine(at, "agent", f"(filler) {words}") for at, words in call.talk.fillers]
    begun = {turn: call.talk.ear.first(turn) for turn in call.talk.ear.turns()}
    for at, event in call.talk.log:
        if isinstance(event, ReplyDone) and (event.heard or event.status == "failed"):
            first = begun.get(event.turn)
            failed = f"(failed: {event.error}) " if event.status == "failed" else ""
            cut = " —" if event.status == "cancelled" else ""
            lines.append(StoryLine(at if first is None else first, "agent", f"{failed}{event.heard}{cut}"))
    return sorted(lines, key=lambda line: line.at)


def told(call: Call) -> str:
    """Return the story of a call as text, one line each."""
    return "\n".join(f"{line.at:7.2f}  {line.who:7}{line.text}" for line in story(call))


def _spoken(action: str) -> str:
    verb, said, words = action.partition(": ")
    return words if verb == "says" else f"({verb}) {words}" if said else f"({verb})"
