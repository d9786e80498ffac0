"""What a client is told that comes back: what it missed, or the conversation as far as it was heard."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rejoinder.agent.wires.realtime.events import ServerEvent, event
from rejoinder.agent.wires.realtime.messages import LONGEST_MS
from rejoinder.agent.wires.realtime.outbox import Outbox
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.response import Response

DELTA = "response.output_audio.delta"
CLOSING = {
    *("response.output_audio.done", "response.output_audio_transcript.done", "response.output_text.done"),
    *("response.content_part.done", "response.output_item.done", "conversation.item.done", "response.done"),
}
"""What ends a message and its response, in their order."""


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """What a client says that comes back.

    conversation: the one that it wants to go on with. last_event: the last event that it has got, "" where it
    has kept nothing. item, played_ms: how much it has played of an item, None where it does not say.
    """

    conversation: str
    last_event: str = ""
    item: str = ""
    played_ms: int | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ResumeRequest:
        """Read it from the query of an address."""
        played = query.get("audio_end_ms", "")
        played_ms = int(played) if played.isascii() and played.isdigit() and len(played) < 10 else None
        return cls(
            query.get("conversation_id", ""),
            query.get("last_event_id", ""),
            query.get("item_id", ""),
            None if played_ms is None else min(played_ms, LONGEST_MS),
        )


@dataclass(frozen=True, slots=True)
class Missed:
    """What is to be sent, and how many of the last seconds of which replies were not heard before.

    messages: to be taken to their end, before anything else is sent. They are written one by one as they are
    taken: all items of a conversation may have 50 MB.
    """

    messages: Iterable[str]
    unheard: dict[int, float]


def catch_up(
    wire: Realtime, outbox: Outbox, request: ResumeRequest, clock: tuple[int, float] | None
) -> Missed:
    """Return what a client missed.

    clock: the reply that sounded last, and how much of it had been heard when the client was last heard of.
    """
    later = outbox.after(request.last_event)
    if later is None:
        return _anew(wire, outbox, request, clock)
    greeting = [*wire.greet(), _resumed(wire, request.last_event, None, 0)]
    outbox.greet(request.last_event, greeting)
    unheard: Counter[int] = Counter()
    for sent in map(json.loads, later):
        if sent["type"] == "input_audio_buffer.speech_started":  # the client throws away what it has
            unheard.clear()
        elif sent["type"] == DELTA:
            response = wire.responses.speaking(sent["item_id"])
            if response is not None and not response.cut:
                unheard[response.turn] += response.length_ms(sent["delta"])
    messages = [json.dumps(sent) for sent in greeting] + later
    return Missed(messages, {turn: ms / 1000.0 for turn, ms in unheard.items()})


def _anew(wire: Realtime, outbox: Outbox, request: ResumeRequest, clock: tuple[int, float] | None) -> Missed:
    """Tell all of it to a client that has kept nothing: its items, and what was not heard of the last one."""
    sounds: dict[int, float] = {}
    unheard = _unheard(wire, request, clock)
    if unheard is None:
        events = [*wire.greet(), _resumed(wire, None, None, 0), *wire.items.as_events(None)]
    else:
        response, heard_ms = unheard
        rest, start = _rest(response, outbox, heard_ms)
        response.skipped_ms = start
        sounds = {response.turn: (response.sent_ms - start) / 1000.0}
        events = [*wire.greet(), _resumed(wire, None, response.message, start)]
        events += [*wire.items.as_events(response.message), *response.again(), *rest]
    outbox.clear()
    return Missed(map(outbox.note, events), sounds)


def _unheard(
    wire: Realtime, request: ResumeRequest, clock: tuple[int, float] | None
) -> tuple[Response, int] | None:
    """Return the response that was not heard to its end, and how many milliseconds of it were."""
    response = wire.responses.newest
    if response is None:
        return None
    heard_ms = response.sent_ms
    if request.last_event:  # so old that nothing of what is kept has arrived
        heard_ms = 0
    elif clock is not None and clock[0] == response.turn:
        heard_ms = int(clock[1] * 1000)
    if request.played_ms is not None and request.item == response.message:
        heard_ms = request.played_ms
    over = response.cut or heard_ms >= response.sent_ms
    return None if over and not wire.responses.is_live(response) else (response, heard_ms)


def _rest(response: Response, outbox: Outbox, heard_ms: int) -> tuple[list[ServerEvent], int]:
    """Return a message's audio that was not heard, with what ends it, and where that audio begins."""
    rest, start = [], response.sent_ms
    for sent in reversed(list(outbox)):
        if not _of(sent, response):
            continue
        if sent["type"] == DELTA and start > heard_ms:
            start -= response.length_ms(sent["delta"])
            rest.append(sent)
        elif sent["type"] in CLOSING:
            rest.append(sent)
    return rest[::-1], max(0, start)


def _resumed(wire: Realtime, after: str | None, item: str | None, start: int) -> ServerEvent:
    about = {"conversation_id": wire.conversation, "after": after}
    return event("rejoinder.resumed", **about, item_id=item, audio_start_ms=start)


def _of(sent: ServerEvent, response: Response) -> bool:
    """Tell whether an event is about a response itself or its message."""
    if sent["type"] == "response.done":
        return bool(sent["response"]["id"] == response.id)
    item = sent.get("item_id") or sent.get("item", {}).get("id")
    return bool(response.message and item == response.message)
