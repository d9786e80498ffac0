"""A conversation as lines of text for a terminal: finished lines, and lines that still change."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from rejoinder.agent.cli.views.answered_by import answered_by
from rejoinder.agent.client.events import (
    AgentDelta,
    CallEvent,
    Failed,
    Other,
    Raw,
    Reconnected,
    SpeechStarted,
    UserDelta,
    UserSaid,
)


class TranscriptView:
    """The lines of a call.

    item: the item of the reply whose line is unfinished, "" if there is none. The line of a reply stays
    unfinished until its item is retrieved or another reply begins: until then an interruption may cut it.
    """

    def __init__(self) -> None:
        self.item = ""
        self._said = self._latency = ""
        self._user: str | None = None

    def take(self, event: CallEvent) -> list[Text]:
        """Add an event and return the lines that it finishes."""
        match event:
            case SpeechStarted():
                self._user = ""
            case UserDelta(text=text):
                self._user = (self._user or "") + text
            case UserSaid(text=text):
                self._user = None
                return [Text.assemble(("you    ", "cyan"), text)] if text.strip() else []
            case AgentDelta(item=item, text=text):
                lines = self.finish() if item != self.item else []
                self.item = item
                self._said += text
                return lines
            case Other("rejoinder.trace", raw):
                self._latency = f"  {float(raw.get('total_ms', 0)):.0f} ms"
                if names := answered_by(raw.get("models", ()), raw.get("counts", {})):
                    self._latency += f" by {names}"
            case Other("conversation.item.retrieved", {"item": {"id": id_} as item}) if id_ == self.item:
                return self._settled(item)
            case Failed(message):
                return [Text(f"       {message}", "red")]
            case Reconnected(resumed):
                words = "goes on" if resumed else "starts again: the agent remembers nothing"
                line = Text(f"       The connection was lost; the call {words}.", "yellow")
                return [line] if resumed else [*self.finish(), line]
        return []

    def changing(self) -> Group:
        """Return the unfinished lines."""
        lines = []
        if self._said:
            lines.append(self._line(len(self._said)))
        if self._user is not None:
            lines.append(Text.assemble(("you    ", "cyan"), self._user, (" …" if self._user else "…", "dim")))
        return Group(*lines)

    def finish(self) -> list[Text]:
        """Finish the open line of a reply as fully heard. Returns no line if none is open."""
        return self._finished(len(self._said))

    def _settled(self, item: Raw) -> list[Text]:
        """Finish the line of a reply with the part that was heard, as the server reports it."""
        if item.get("status") == "in_progress":
            return []
        heard = (item.get("content") or [{}])[0].get("transcript")
        if heard is None or not self._said.startswith(heard):  # some servers drop the transcript
            return self.finish()
        return self._finished(len(heard))

    def _finished(self, heard: int) -> list[Text]:
        lines = [self._line(heard)] if self._said else []
        self.item = self._said = self._latency = ""
        return lines

    def _line(self, heard: int) -> Text:
        said, cut = self._said[:heard], (self._said[heard:], "dim strike")
        return Text.assemble(("agent  ", "green"), said, cut, (self._latency, "dim"))
