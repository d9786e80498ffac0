"""Events for a client that reconnects: those it missed, or the whole conversation as far as it was heard."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rejoinder.agent.wires.realtime.events import ServerEvent, resumed
from rejoinder.agent.wires.realtime.messages import LONGEST_MS
from rejoinder.agent.wires.realtime.outbox import Outbox
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.response import Response

DELTA = "response.output_audio.delta"
"""Type of the events with a reply's audio."""
CLOSING = {
    *("response.output_audio.done", "response.output_audio_transcript.done", "response.output_text.done"),
    *("response.content_part.done", "response.output_item.done", "conversation.item.done", "response.done"),
}
"""Event types that end a message and its response."""


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """The request of a client that reconnects.

    conversation: the id of the conversation to resume. last_event: the id of the last event that the client
    received, "" where it kept nothing. item, played_ms: the item it played last and how much of it, None
    where unknown.
    """

    conversation: str
    last_event: str = ""
    item: str = ""
    played_ms: int | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ResumeRequest:
        """Return the request in a URL's query."""
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
    """The messages to send, and the last seconds of each reply that were not heard.

    messages: consume all of them before sending anything else. They are serialised lazily: the items of a
    conversation may have 50 MB.
    unheard: seconds, by turn.
    """

    messages: Iterable[str]
    unheard: dict[int, float]


def catch_up(
    wire: Realtime, outbox: Outbox, request: ResumeRequest, clock: tuple[int, float] | None
) -> Missed:
    """Return what a client missed.

    clock: the turn of the last audible reply, and the seconds of it played when the client last sent
    anything.
    """
    later = outbox.after(request.last_event)
    if later is None:
        return _anew(wire, outbox, request, clock)
    greeting = [*wire.greet(), resumed(wire.conversation, request.last_event, None, 0)]
    outbox.greet(request.last_event, greeting)
    unheard: Counter[int] = Counter()
    for sent in map(json.loads, later):
        if sent["type"] == "input_audio_buffer.speech_started":  # the client drops its audio here
            unheard.clear()
        elif sent["type"] == DELTA:
            response = wire.responses.speaking(sent["item_id"])
            if response is not None and not response.cut:
                unheard[response.turn] += response.length_ms(sent["delta"])
    messages = [json.dumps(sent) for sent in greeting] + later
    return Missed(messages, {turn: ms / 1000.0 for turn, ms in unheard.items()})


def _anew(wire: Realtime, outbox: Outbox, request: ResumeRequest, clock: tuple[int, float] | None) -> Missed:
    """Return the whole conversation for a client that kept nothing, with the unheard end of a reply."""
    sounds: dict[int, float] = {}
    unheard = _unheard(wire, request, clock)
    if unheard is None:
        events = [*wire.greet(), resumed(wire.conversation, None, None, 0), *wire.items.as_events(None)]
    else:
        response, heard_ms = unheard
        rest, start = _unheard_events(response, outbox, heard_ms)
        response.skipped_ms = start
        sounds = {response.turn: (response.sent_ms - start) / 1000.0}
        events = [*wire.greet(), resumed(wire.conversation, None, response.message, start)]
        events += [*wire.items.as_events(response.message), *response.again(), *rest]
    outbox.clear()
    return Missed(map(outbox.note, events), sounds)


def _unheard(
    wire: Realtime, request: ResumeRequest, clock: tuple[int, float] | None
) -> tuple[Response, int] | None:
    """Return the response that was not heard to its end, and the milliseconds of it that were."""
    response = wire.responses.newest
    if response is None:
        return None
    heard_ms = response.sent_ms
    if request.last_event:  # older than all kept events: none of those has arrived
        heard_ms = 0
    elif clock is not None and clock[0] == response.turn:
        heard_ms = int(clock[1] * 1000)
    if request.played_ms is not None and request.item == response.message:
        heard_ms = request.played_ms
    over = response.cut or heard_ms >= response.sent_ms
    return None if over and not wire.responses.is_live(response) else (response, heard_ms)


def _unheard_events(response: Response, outbox: Outbox, heard_ms: int) -> tuple[list[ServerEvent], int]:
    """Return the events with a message's unheard audio and its end, and where that audio begins, in ms."""
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


def _of(sent: ServerEvent, response: Response) -> bool:
    """Return whether an event belongs to a response or its message."""
    if sent["type"] == "response.done":
        return bool(sent["response"]["id"] == response.id)
    item = sent.get("item_id") or sent.get("item", {}).get("id")
    return bool(response.message and item == response.message)
