"""A voice in replicas, whose audio is streamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rejoinder.models.ray.cluster import (
    RETRY_SECONDS,
    ReplicaLost,
    answer,
    machines,
    too_late,
)
from rejoinder.models.ray.messages import work
from rejoinder.models.ray.names import RAY
from rejoinder.models.ray.remote_model import RemoteModel
from rejoinder.pipeline.audio.chunk import AudioChunk
from rejoinder.pipeline.errors import ModelError

VOICE_SECONDS = 10.0
"""Longest wait for the next audio of a clause."""
VOICE_ATTEMPTS = 3
"""Most replicas that are asked for one clause, each after the one before has died."""


class RemoteWork:
    """Whether a voice in this machine's replicas is at work, for a language model that gives way to it.

    A replica on another machine takes no core of this one, so it does not count.
    """

    def __init__(self) -> None:
        self._here = machines() == 1
        self._waiting = 0

    @property
    def running(self) -> bool:
        """Whether a call waits for audio that is made on this machine."""
        return self._here and self._waiting > 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count as work what is waited for in the block."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1


class RayVoice(RemoteModel):
    """A voice in the cluster. spec: the model. Raises ModelError if it is not deployed.

    engine: whether it is at work on this machine.
    """

    def __init__(self, spec: str) -> None:
        super().__init__(spec, method_name="speak", stream=True)
        try:
            self.engine = RemoteWork()
        except BaseException:
            self.close()
            raise

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """Yield the audio of one clause. Raises ModelError. Closing the generator cancels the synthesis.

        If the replica dies, another one speaks the clause, and what was heard of it is left out. A voice
        whose length differs each time loses or repeats a part of a word there.
        """
        said, lost = 0, ""
        for _ in range(VOICE_ATTEMPTS):
            response = self._handle.remote(text, work())
            try:
                while True:
                    with self.engine.at_work():
                        chunk: AudioChunk = await answer(anext(response), VOICE_SECONDS)
                    if fresh := after(chunk, said):
                        said = fresh.end
                        yield fresh
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise too_late(self._spec, VOICE_SECONDS) from None
            except ReplicaLost as error:
                lost = str(error)
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                response.cancel()
        raise ModelError(RAY, f"{VOICE_ATTEMPTS} replicas were lost while they spoke: {lost}")


def after(chunk: AudioChunk, said: int) -> AudioChunk | None:
    """Return the part of a chunk from sample ``said`` on, None if there is none."""
    if chunk.end <= said and said:
        return None
    behind = max(0, said - chunk.start)
    return replace(chunk, pcm=chunk.pcm[2 * behind :], start=chunk.start + behind)
