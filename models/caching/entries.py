"""The form of a stored answer: a line of JSON with the clauses, then their audio."""

from __future__ import annotations

import json

from rejoinder.models.caching.meaning import Meaning, plain_words
from rejoinder.pipeline.audio.chunk import AudioChunk
from rejoinder.pipeline.caching.answers import CachedAnswer, CacheQuestion

ENTRY_FORMAT = 2
"""Part of every key. Raise it with the stored form or the rules of meaning: old entries are lost then."""


def packed(question: CacheQuestion, answer: CachedAnswer) -> bytes:
    """Return an answer as bytes."""
    clauses = [
        {"text": text, "rate": audio.rate, "bytes": len(audio.pcm), "words": audio.words}
        for text, audio in answer.clauses
    ]
    head = json.dumps({"question": plain_words(question.words), "clauses": clauses})
    return b"\n".join([head.encode(), b"".join(audio.pcm for _, audio in answer.clauses)])


def unpacked(question: CacheQuestion, body: bytes) -> CachedAnswer:
    """Return the answer in ``packed`` bytes. Raises ValueError for bytes in another form."""
    head, _, pcm = body.partition(b"\n")
    clauses, position = [], 0
    try:
        data = json.loads(head)
        for each in data["clauses"]:
            piece = pcm[position : position + each["bytes"]]
            position += each["bytes"]
            words = tuple((float(seconds), int(end)) for seconds, end in each["words"])
            clauses.append((str(each["text"]), AudioChunk(piece, each["rate"], words=words)))
        exact = data["question"] == plain_words(question.words)
    except (KeyError, TypeError) as error:
        raise ValueError(f"the entry has another form: {error!r}") from error
    if position != len(pcm):
        raise ValueError(f"the entry has {len(pcm)} bytes of audio instead of {position}")
    return CachedAnswer(clauses, exact)


def form(words: str, meaning: Meaning | None) -> str:
    """Return the words as they are compared: by their meaning, or by themselves without one."""
    if meaning is None:
        return f"= {plain_words(words)}"
    return " ".join([meaning.kind, ":", *meaning.words, ":", *meaning.order, ":", *meaning.names])
