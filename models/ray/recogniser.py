"""Speech recognition in replicas."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

from rejoinder.models.ray.cluster import RETRY_SECONDS, ReplicaLost, ask, too_late
from rejoinder.models.ray.messages import Missing, TurnAudio, work
from rejoinder.models.ray.names import RAY
from rejoinder.models.ray.remote_model import RemoteModel
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Transcript

STT_SECONDS = 10.0
"""Longest wait for a transcript."""
STT_ATTEMPTS = 4
"""Most requests for one transcript: a replica may be new to the turn, and another one may die."""


class RayStt(RemoteModel):
    """A recogniser in the cluster. spec: the model. Raises ModelError if it is not deployed."""

    def __init__(self, spec: str) -> None:
        super().__init__(spec, method_name="transcribe")

    def stream(self) -> RaySttStream:
        """Return new state for one session. Its requests go to one replica as long as that lives."""
        session = uuid4().hex
        return RaySttStream(self._handle.options(session_id=session), session, self._spec)


class RaySttStream:
    """The audio of one session's turn, which is kept until the turn ends.

    handle: a handle to the method of the replicas. session: id of the session. spec: the model.
    """

    def __init__(self, handle: Any, session: str, spec: str) -> None:
        self._handle, self._session, self._spec = handle, session, spec
        self._turn = SentTurn(0)

    def feed(self, chunk: AudioChunk) -> None:
        """Add audio of the current turn. Raises ValueError if it is not at 16 kHz."""
        if chunk.rate != RATE:
            raise ValueError(f"recognisers listen at {RATE} Hz, not {chunk.rate}")
        self._turn.add(chunk)

    async def transcribe(self, is_final: bool) -> Transcript:
        """Return the words of the turn so far. Raises ModelError. Cancelling keeps the audio."""
        turn = self._turn
        lost = ""
        for _ in range(STT_ATTEMPTS):
            length = turn.length
            request = TurnAudio(
                self._session, turn.number, turn.sent, turn.start, turn.unsent(), is_final, work()
            )
            try:
                found = await ask(self._handle, STT_SECONDS, request)
            except TimeoutError:
                raise too_late(self._spec, STT_SECONDS) from None
            except ReplicaLost as error:
                turn.sent, lost = 0, str(error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if isinstance(found, Missing):
                turn.sent = found.have
                continue
            turn.sent = max(turn.sent, length)
            transcript: Transcript = found
            return transcript
        raise ModelError(RAY, f"no replica kept the turn's audio: {lost or 'all are new to it'}")

    def reset(self) -> None:
        """Drop the audio of the turn."""
        self._turn = SentTurn(self._turn.number + 1)


class SentTurn:
    """A turn's audio, and how much of it a replica has. number: in the session.

    start: index of its first sample. length, sent: samples of all, and of those that a replica has.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.start = 0
        self.length = 0
        self.sent = 0
        self._audio = bytearray()

    def add(self, chunk: AudioChunk) -> None:
        """Add audio at the end."""
        if not self.length:
            self.start = chunk.start
        self._audio += chunk.pcm
        self.length += len(chunk)

    def unsent(self) -> bytes:
        """Return the audio that the replica does not have."""
        return bytes(self._audio[2 * self.sent :])
