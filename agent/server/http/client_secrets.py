"""``POST /v1/realtime/client_secrets``: what a backend asks for, so that a browser needs no API key."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rejoinder.agent.server.access import Refused, body, shown
from rejoinder.agent.server.keys import Keys
from rejoinder.agent.wires.json_limits import excess
from rejoinder.agent.wires.long_messages import MAX_TEXT
from rejoinder.agent.wires.realtime.events import failure
from rejoinder.agent.wires.realtime.messages import explain
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.reading import MAX_VALUES
from rejoinder.pipeline import ProtocolError


class ExpiresAfter(BaseModel):
    """How long a secret opens calls; a call that began goes on."""

    anchor: Literal["created_at"] = "created_at"
    seconds: int = Field(default=600, ge=10, le=7200)


class Wanted(BaseModel):
    """The secret that is asked for, and the session that it is for."""

    expires_after: ExpiresAfter = ExpiresAfter()
    session: dict[str, Any] = Field(default_factory=dict)


async def mint(request: Request, keys: Keys, wire: Realtime) -> Response:
    """Answer a request for a secret that may be answered; ``wire`` is of no call, and checks the session.

    Of the session the answer has all but the server's own instructions. Cancelling mints nothing.
    """
    try:
        given = await body(request, MAX_TEXT)
        if reason := excess(given.decode(errors="replace"), MAX_VALUES):
            raise ProtocolError(reason, "invalid_json")
        wanted = Wanted.model_validate_json(given or b"{}")
        session = wire.prepare(wanted.session)
        key = shown(request.scope)
        value, expires = keys.mint(wanted.expires_after.seconds, wanted.session, key)
    except Refused as error:
        return _refusal(ProtocolError(str(error), error.code), error.status)
    except ValidationError as error:
        return _refusal(explain(error, ""), 400)
    except ProtocolError as error:
        return _refusal(error, 400)
    if "instructions" not in wanted.session:
        del session["instructions"]
    return JSONResponse({"value": value, "expires_at": int(expires), "session": session})


def _refusal(error: ProtocolError, status: int) -> Response:
    return JSONResponse({"error": failure(error, None)["error"]}, status_code=status)
