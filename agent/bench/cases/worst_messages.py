"""The messages with the highest cost for their length, for each protocol of the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from websockets.frames import Frame, Opcode

REALTIME = "realtime"
"""Protocol of the Realtime WebSocket."""
PCM = "pcm"
"""Protocol of the WebSocket for raw audio."""
PHONE = "phone"
"""Protocol of a carrier's media stream."""
CHAT = "completions"
"""Protocol of text requests over HTTP."""
WYOMING = "wyoming"
"""Protocol of the Wyoming port."""
MESSAGE_BYTES = 15 * 2**20 - 1024
"""Characters of the longest message here: the server takes 15 MiB."""
PLAIN = 2**17 - 64
"""Characters just below the longest Realtime message without audio."""
TYPED = 2**16 - 64
"""Characters just below the longest text message for raw audio."""
CARRIED = 2**18 - 64
"""Characters just below the longest message of a carrier."""
CHAT_BYTES = 2**20 - 1024
"""Characters just below the longest body of a text request."""
LINE = 2**16 - 64
"""Characters just below the longest Wyoming header."""
VALUES = 2**13 - 64
"""Just below the values that a Realtime message may have; a request may have twice as many."""
UPDATE = '{"type":"session.update","session":{"prompt":%s}}'
"""Realtime: changes the session, with any value."""
CREATE_EVENT = '{"type":"response.create","response":{"tools":%s}}'
"""Realtime: requests a response, with a list of tools."""
APPEND_EVENT = '{"type":"input_audio_buffer.append","audio":"%s"}'
"""Realtime: appends audio."""
CHAT_REQUEST = '{"model":"default","messages":[{"role":"user","content":%s}]}'
"""Chat completions: one message with any content."""
TOOL_JSON = '{"type":"function","name":"a"}'
"""Realtime: one tool."""
SAID = '{"model":"default","messages":%s}'
"""Chat completions: a list of messages."""
EVENT = '{"event":"later","start":%s}'
"""A carrier: an unknown event, with any value."""
TEXT_MESSAGE = '{"type":"text","text":"%s","more":%s}'
"""pcm: a text, and any value beside it."""


@dataclass(frozen=True, slots=True)
class Worst:
    """A message for one protocol.

    made: builds the message just before it is sent. raw: the message is whole WebSocket frames, not a
    payload.
    """

    wire: str
    name: str
    made: Callable[[], str | bytes]
    raw: bool = False


def _list(size: int, entry: str = "0") -> str:
    return f"[{','.join([entry] * (size // (len(entry) + 1)))}]"


def _keys(size: int, value: str = "0") -> str:
    members = ",".join(f'"{key:06x}":{value}' for key in range(size // (10 + len(value))))
    return f"{{{members}}}"


def _text(written: str, size: int) -> str:
    return f'"{written * ((size - 128) // len(written.encode()))}"'


def _deep(size: int) -> str:
    return "[" * (size // 2) + "]" * (size // 2)


def _audio(size: int) -> str:
    return "AAAA" * (size // 4)


def _item(size: int) -> str:
    part = {"type": "input_audio", "audio": _audio(size)}
    item = {"type": "message", "role": "user", "content": [part]}
    return json.dumps({"type": "conversation.item.create", "item": item})


def _header(data: str) -> bytes:
    return f'{{"type":"later","data":{{"a":{data}}}}}\n'.encode()


def _frame(data: bytes, opcode: Opcode = Opcode.TEXT, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


def _fragments(text: bytes) -> bytes:
    pieces = [text[at : at + 4096] for at in range(0, len(text), 4096)]
    opcodes = [Opcode.TEXT, *[Opcode.CONT] * (len(pieces) - 1)]
    last = len(pieces) - 1
    return b"".join(_frame(piece, opcodes[at], at == last) for at, piece in enumerate(pieces))


WORST = (
    Worst(REALTIME, "nothing", lambda: '{"type":"input_audio_buffer.clear"}'),
    Worst(REALTIME, "list, 15 MiB", lambda: UPDATE % _list(MESSAGE_BYTES)),
    Worst(REALTIME, "keys, 15 MiB", lambda: UPDATE % _keys(MESSAGE_BYTES)),
    Worst(REALTIME, "broken, 15 MiB", lambda: UPDATE % _list(MESSAGE_BYTES)[:-1]),
    Worst(REALTIME, "deep, 15 MiB", lambda: UPDATE % _deep(MESSAGE_BYTES)),
    Worst(REALTIME, "audio, 15 MiB", lambda: APPEND_EVENT % _audio(MESSAGE_BYTES)),
    Worst(REALTIME, "escaped audio, 15 MiB", lambda: APPEND_EVENT % ("AAA\\/" * (MESSAGE_BYTES // 5))),
    Worst(REALTIME, "no audio, 15 MiB", lambda: APPEND_EVENT % ("\\u00e9" * (MESSAGE_BYTES // 6))),
    Worst(REALTIME, "item with audio, 30 s", lambda: _item(30 * 64_000)),
    Worst(REALTIME, "instructions, 15 MiB", lambda: UPDATE % _text("é", MESSAGE_BYTES)),
    Worst(REALTIME, "binary, 15 MiB", lambda: bytes(MESSAGE_BYTES)),
    Worst(REALTIME, "10,000 empty messages", lambda: _frame(b"") * 10_000, raw=True),
    Worst(
        REALTIME,
        "audio, 4 KiB fragments",
        lambda: _fragments((APPEND_EVENT % _audio(MESSAGE_BYTES)).encode()),
        raw=True,
    ),
    Worst(REALTIME, "lists, all it takes", lambda: UPDATE % _list(3 * VALUES // 2, "[]")),
    Worst(REALTIME, "keys, all it takes", lambda: UPDATE % _keys(10 * VALUES)),
    Worst(REALTIME, "tools, all it takes", lambda: CREATE_EVENT % _list(8 * VALUES, TOOL_JSON)),
    Worst(REALTIME, "lists, 128 KiB", lambda: UPDATE % _list(PLAIN, "[]")),
    Worst(REALTIME, "keys, 128 KiB", lambda: UPDATE % _keys(PLAIN, "{}")),
    Worst(REALTIME, "deep lists, 128 KiB", lambda: UPDATE % _list(PLAIN, _deep(180))),
    Worst(REALTIME, "wrong tools, 128 KiB", lambda: CREATE_EVENT % _list(PLAIN)),
    Worst(REALTIME, "escapes, 128 KiB", lambda: UPDATE % _text("\\n", PLAIN)),
    Worst(PCM, "text, 15 MiB", lambda: TEXT_MESSAGE % ("é" * (MESSAGE_BYTES // 2), 0)),
    Worst(PCM, "binary, 15 MiB", lambda: bytes(MESSAGE_BYTES)),
    Worst(PCM, "audio, 1 MiB", lambda: bytes(2**20)),
    Worst(PCM, "keys, 64 KiB", lambda: '{"type":"text",' + _keys(TYPED)[1:]),
    Worst(PCM, "lists, 64 KiB", lambda: TEXT_MESSAGE % ("", _list(TYPED, "[]"))),
    Worst(PHONE, "list, 15 MiB", lambda: EVENT % _list(MESSAGE_BYTES)),
    Worst(PHONE, "lists, 256 KiB", lambda: EVENT % _list(CARRIED, "[]")),
    Worst(PHONE, "deep lists, 256 KiB", lambda: EVENT % _list(CARRIED, _deep(180))),
    Worst(PHONE, "keys, 256 KiB", lambda: EVENT % _keys(CARRIED)),
    Worst(CHAT, "keys, 1 MiB", lambda: CHAT_REQUEST % f'"x"}}],{_keys(CHAT_BYTES, "[]")[1:-1]},"a":[{{"b":1'),
    Worst(CHAT, "wrong parts, 1 MiB", lambda: CHAT_REQUEST % _list(CHAT_BYTES)),
    Worst(CHAT, "right parts, 1 MiB", lambda: CHAT_REQUEST % _list(CHAT_BYTES, '{"type":"text","text":""}')),
    Worst(CHAT, "wrong messages, 1 MiB", lambda: SAID % _list(CHAT_BYTES, "{}")),
    Worst(
        CHAT, "parts, all it takes", lambda: CHAT_REQUEST % _list(2 * 9 * VALUES, '{"type":"text","text":""}')
    ),
    Worst(
        CHAT,
        "keys, all it takes",
        lambda: CHAT_REQUEST % f'"x"}}],{_keys(2 * 10 * VALUES)[1:-1]},"a":[{{"b":1',
    ),
    Worst(CHAT, "text, 1 MiB", lambda: CHAT_REQUEST % _text("\\n", CHAT_BYTES)),
    Worst(WYOMING, "lists, 64 KiB", lambda: _header(_list(LINE, "[]"))),
    Worst(WYOMING, "keys, 64 KiB", lambda: _header(_keys(LINE))),
)
"""The messages by protocol, each named after what makes it expensive."""
