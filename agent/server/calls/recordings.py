"""The recordings of a call for its page: what there is of them, and their sound."""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import AsyncIterator
from secrets import token_bytes
from typing import Any

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from rejoinder.agent.config import Settings
from rejoinder.agent.recording.folder import CallRecording
from rejoinder.agent.recording.recordings import Recordings
from rejoinder.agent.recording.waveform import peaks
from rejoinder.agent.server.access import error_response
from rejoinder.agent.server.calls.endpoints import UNCACHED
from rejoinder.agent.server.calls.reading import Readers
from rejoinder.pipeline import PipelineError

TICKET_SECONDS = 3600.0
"""How long an address of a recording can be played, in seconds: a player sends no key."""
MOST_DECRYPTED = 2**16
"""Most bytes of a decrypted recording in one piece."""
MEDIA_TYPES = {"flac": "audio/flac", "opus": "audio/ogg"}
"""Media types of recordings, by their format."""
NOT_FOUND = "recording_not_found"
"""Error code of a recording that there is not."""
SEALED = "recording_sealed"
"""Error code of a recording that cannot be decrypted or decoded."""


class RecordingEndpoints:
    """The endpoints of recordings below ``/calls/api``. recordings: of the server, None for none."""

    def __init__(self, settings: Settings, recordings: Recordings | None) -> None:
        self._recordings = recordings
        self._readers = Readers(settings)
        self._on = settings.calls_page
        self._secret = token_bytes(32)

    def routes(self) -> list[BaseRoute]:
        """Return the routes; none where there is no page."""
        if not self._on:
            return []
        return [
            Route("/calls/api/recordings", self._list),
            Route("/calls/api/recordings/{id}", self._sound),
            Route("/calls/api/recordings/{id}/waveform", self._waveform),
        ]

    def _ticket(self, id: str, until: int) -> str:
        return hmac.digest(self._secret, f"{id} {until}".encode(), "sha256").hex()

    def _has_ticket(self, request: Request) -> bool:
        until, ticket = request.query_params.get("until", ""), request.query_params.get("ticket", "")
        if not re.fullmatch(r"\d{1,12}", until) or not ticket.isascii() or int(until) < time.time():
            return False
        return hmac.compare_digest(self._ticket(request.path_params["id"], int(until)), ticket)

    async def _list(self, request: Request) -> Response:
        if denied := self._readers.deny(request):
            return denied
        call = request.query_params.get("call", "")
        found: list[CallRecording] = []
        if self._recordings and call:
            folder = self._recordings.folder
            found = await run_sync(lambda: folder.all(call=call))
        return JSONResponse({"recordings": [self._described(one) for one in found]}, headers=UNCACHED)

    def _described(self, recording: CallRecording) -> dict[str, Any]:
        until = int(time.time() + TICKET_SECONDS)
        query = f"until={until}&ticket={self._ticket(recording.id, until)}"
        known = recording.model_dump(exclude={"caller", "called"})
        return {**known, "url": f"calls/api/recordings/{recording.id}?{query}"}

    async def _sound(self, request: Request) -> Response:
        if not self._has_ticket(request) and (denied := self._readers.deny(request)):
            return denied
        found = await self._find(request)
        if isinstance(found, Response):
            return found
        recordings, recording = found
        media_type = MEDIA_TYPES[recording.form]
        if not recording.key:
            path = recordings.folder.path / recording.file
            return FileResponse(path, headers=UNCACHED, media_type=media_type)
        try:
            sound = await run_sync(recordings.folder.open, recording, recordings.keys)
        except (OSError, PipelineError) as error:
            return error_response(409, f"the recording cannot be decrypted: {error}", SEALED)
        return await _part(sound, request.headers.get("range", ""), media_type)

    async def _waveform(self, request: Request) -> Response:
        if denied := self._readers.deny(request):
            return denied
        found = await self._find(request)
        if isinstance(found, Response):
            return found
        try:
            caller, agent = await run_sync(_peaks, *found)
        except (OSError, RuntimeError, PipelineError) as error:
            return error_response(409, f"the recording cannot be read: {error}", SEALED)
        return JSONResponse({"caller": caller, "agent": agent}, headers=UNCACHED)

    async def _find(self, request: Request) -> tuple[Recordings, CallRecording] | Response:
        """Return the recording that a request names, or the answer where there is none."""
        recordings, id = self._recordings, request.path_params["id"]
        found = await run_sync(recordings.folder.get, id) if recordings else None
        if recordings is None or found is None:
            return error_response(404, "there is no such recording, or it is no longer kept", NOT_FOUND)
        if not await run_sync((recordings.folder.path / found.file).exists):
            return error_response(404, "the file of the recording is gone", NOT_FOUND)
        return recordings, found


def _peaks(recordings: Recordings, recording: CallRecording) -> tuple[list[int], list[int]]:
    with recordings.folder.open(recording, recordings.keys) as sound:
        return peaks(sound, recording.seconds)


async def _part(sound: Any, wanted: str, media_type: str) -> Response:
    """Return the range of a file that a client wants (RFC 9110, 14.2), or all of it."""
    size = await run_sync(sound.seek, 0, 2)
    headers = {**UNCACHED, "Accept-Ranges": "bytes"}
    first, last, status = 0, size - 1, 200
    if found := _range(wanted, size):
        first, last = found
        status = 206
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        if first > last:
            sound.close()
            return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{size}"})
    headers["Content-Length"] = str(last - first + 1)

    async def pieces() -> AsyncIterator[bytes]:
        try:
            left = last - first + 1
            await run_sync(sound.seek, first)
            while left and (piece := await run_sync(sound.read, min(left, MOST_DECRYPTED))):
                left -= len(piece)
                yield piece
        finally:
            sound.close()

    return StreamingResponse(pieces(), status, headers, media_type)


def _range(wanted: str, size: int) -> tuple[int, int] | None:
    """Return the first and the last byte of a range, None where the header is to be ignored."""
    match = re.fullmatch(r"bytes=(\d{0,15})-(\d{0,15})", wanted)
    begin, end = match.groups() if match else ("", "")
    if begin and end:
        return (int(begin), min(int(end), size - 1)) if int(begin) <= int(end) else None
    if begin:
        return int(begin), size - 1
    return (max(0, size - int(end)), size - 1) if end else None
