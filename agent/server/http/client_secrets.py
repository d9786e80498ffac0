"""``POST /v1/realtime/client_secrets``: a backend requests a secret, so that a browser needs no API key."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rejoinder.agent.server.access import RequestError, body, shown
from rejoinder.agent.server.keys import Keys
from rejoinder.agent.wires.json_limits import excess
from rejoinder.agent.wires.long_messages import MAX_TEXT
from rejoinder.agent.wires.realtime.events import failure
from rejoinder.agent.wires.realtime.messages import explain
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.reading import MAX_REALTIME_VALUES
from rejoinder.pipeline import ProtocolError


class ExpiresAfter(BaseModel):
    """The lifetime of a secret. Calls that have begun go on after it."""

    anchor: Literal["created_at"] = "created_at"
    seconds: int = Field(default=600, ge=10, le=7200)


class Wanted(BaseModel):
    """The request: the lifetime of the secret and the session object of its calls."""

    expires_after: ExpiresAfter = ExpiresAfter()
    session: dict[str, Any] = Field(default_factory=dict)


async def mint(
    request: Request, keys: Keys, wire: Realtime, publish: Callable[[str], Awaitable[None]]
) -> Response:
    """Answer an authorised request for a secret.

    wire: belongs to no call; it checks the session. publish: lets other servers accept the secret. The answer
    contains the session without the server's own instructions. Cancelling may leave a secret that no client
    has.
    """
    try:
        given = await body(request, MAX_TEXT)
        if reason := excess(given.decode(errors="replace"), MAX_REALTIME_VALUES):
            raise ProtocolError(reason, "invalid_json")
        wanted = Wanted.model_validate_json(given or b"{}")
        session = wire.prepare(wanted.session)
        key = shown(request.scope)
        if not keys.is_key(key):  # it was removed while the body was read
            return _error(ProtocolError(keys.wrong(key), "invalid_api_key"), 401)
        value, _ = keys.mint(wanted.expires_after.seconds, wanted.session, key)
    except RequestError as error:
        return _error(ProtocolError(str(error), error.code), error.status)
    except ValidationError as error:
        return _error(explain(error, ""), 400)
    except ProtocolError as error:
        return _error(error, 400)
    await publish(value)
    if "instructions" not in wanted.session:
        del session["instructions"]
    expires = int(time.time() + wanted.expires_after.seconds)
    return JSONResponse({"value": value, "expires_at": expires, "session": session})


def _error(error: ProtocolError, status: int) -> Response:
    return JSONResponse({"error": failure(error, None)["error"]}, status_code=status)
