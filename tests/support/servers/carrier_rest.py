"""The carriers' REST interfaces, built from their published schemas and not from our code.

Twilio: twilio/twilio-oai, spec/yaml/twilio_api_v2010.yaml. Telnyx: developers.telnyx.com/api-reference, call
commands. Plivo: plivo.com/docs/voice/api/call. Vonage: developer.vonage.com/en/api/voice. Asterisk: in its
sources, rest-api/api-docs/channels.json and bridges.json.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

import uvicorn
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rejoinder.agent.server.serving import listen

Sid = re.compile(r"^CA[0-9a-f]{32}$")
Number = Annotated[str, StringConstraints(pattern=r"^\+?[1-9]\d{2,14}$")]
Phone = Annotated[str, StringConstraints(pattern=r"^(\+[1-9]\d{2,14}|sips?:\S+)$")]


class Strict(BaseModel):
    """A body with the documented fields only."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class TwilioUpdate(Strict):
    Status: Literal["canceled", "completed"] | None = None
    Twiml: Annotated[str, Field(max_length=4000, pattern="^<Response>.*</Response>$")] | None = None


class TwilioCreate(Strict):
    To: Phone
    From: Phone
    Twiml: Annotated[str, Field(max_length=4000, pattern="^<Response>.*</Response>$")]
    Timeout: Annotated[int, Field(ge=1, le=600)] | None = None


@dataclass
class Seen:
    """One request. known: the part of the path that names a call or a channel."""

    method: str
    path: str
    query: dict[str, str]
    authorization: str
    body: dict[str, Any]


Answer = tuple[int, Any]
Handler = Callable[[Seen, re.Match[str]], Answer]


@dataclass
class CarrierRest:
    """The REST interface of one carrier.

    authorization: the header that it accepts, or a function that checks it. seen: the requests, in order.
    failing: statuses that the next requests get instead of an answer. before: called with each request.
    """

    authorization: str | Callable[[str], bool]
    routes: list[tuple[str, str, type[Strict] | None, Answer | Handler]]
    seen: list[Seen] = field(default_factory=list)
    failing: list[int] = field(default_factory=list)
    before: Callable[[Seen], None] = lambda seen: None
    url: str = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await (await self.answer(Request(scope, receive)))(scope, receive, send)

    async def answer(self, request: Request) -> Response:
        raw = (await request.body()).decode()
        kind = request.headers.get("content-type", "")
        if kind.startswith("application/json"):
            body = json.loads(raw)
        else:
            assert not raw or kind == "application/x-www-form-urlencoded", kind
            body = dict(parse_qsl(raw, strict_parsing=bool(raw)))
        query = dict(request.query_params)
        seen = Seen(request.method, request.url.path, query, request.headers.get("authorization", ""), body)
        self.seen.append(seen)
        self.before(seen)
        if self.failing:
            return JSONResponse({"message": "try later"}, self.failing.pop(0))
        accepts = self.authorization
        if not (accepts(seen.authorization) if callable(accepts) else accepts == seen.authorization):
            return JSONResponse({"message": "Authenticate"}, 401)
        for method, path, model, answer in self.routes:
            if method == seen.method and (found := re.fullmatch(path, seen.path)):
                if model is not None:
                    model.model_validate(body)
                else:
                    assert not body, f"{path} takes no body, not {body}"
                status, said = answer(seen, found) if callable(answer) else answer
                return JSONResponse(said, status) if said is not None else Response(status_code=status)
        return JSONResponse({"message": f"no such resource: {seen.method} {seen.path}"}, 404)

    def asked(self) -> list[tuple[str, str]]:
        return [(one.method, one.path) for one in self.seen]


def twilio(authorization: str, account: str, states: list[str] | None = None) -> CarrierRest:
    """Return Twilio's Calls. states: of a new call, one per look."""
    calls = f"/2010-04-01/Accounts/{account}/Calls"
    looks = list(states or [])
    created = {"sid": "CA" + "f" * 32, "status": "queued"}

    def look(seen: Seen, found: re.Match[str]) -> Answer:
        return 200, {"sid": found[1], "status": looks.pop(0)}

    return CarrierRest(
        authorization,
        [
            ("POST", rf"{calls}\.json", TwilioCreate, (201, created)),
            ("POST", rf"{calls}/(CA[0-9a-f]{{32}})\.json", TwilioUpdate, (200, {"status": "in-progress"})),
            ("GET", rf"{calls}/(CA[0-9a-f]{{32}})\.json", None, look),
        ],
    )


class TelnyxCommand(Strict):
    command_id: str
    client_state: str | None = None


class TelnyxTransfer(TelnyxCommand):
    to: Phone
    audio_url: str | None = None
    timeout_secs: Annotated[int, Field(ge=5, le=600)] = 30


class TelnyxDigits(TelnyxCommand):
    digits: Annotated[str, Field(pattern=r"^[0-9A-D*#wW]+$")]
    duration_millis: Annotated[int, Field(ge=100, le=500)] | None = None


class TelnyxPlayback(TelnyxCommand):
    audio_url: str
    loop: Annotated[int, Field(ge=1, le=100)] | Literal["infinity"]


class TelnyxDial(Strict):
    to: Phone
    from_: Annotated[Phone, Field(alias="from")]
    connection_id: str
    command_id: str
    stream_url: str
    stream_track: Literal["inbound_track", "outbound_track", "both_tracks"]
    stream_bidirectional_mode: Literal["mp3", "rtp"]


def telnyx(authorization: str, call: str) -> CarrierRest:
    """Return Telnyx's call control, for one call."""
    actions, done = f"/v2/calls/{re.escape(call)}/actions", (200, {"data": {"result": "ok"}})
    made = {"data": {"call_control_id": "v2:new", "is_alive": False}}
    return CarrierRest(
        authorization,
        [
            ("POST", f"{actions}/hangup", TelnyxCommand, done),
            ("POST", f"{actions}/transfer", TelnyxTransfer, done),
            ("POST", f"{actions}/send_dtmf", TelnyxDigits, done),
            ("POST", f"{actions}/playback_start", TelnyxPlayback, done),
            ("POST", f"{actions}/playback_stop", TelnyxCommand, done),
            ("POST", "/v2/calls", TelnyxDial, (200, made)),
        ],
    )


class PlivoTransfer(Strict):
    legs: Literal["aleg", "bleg", "both"]
    aleg_url: str
    aleg_method: Literal["GET", "POST"]


class PlivoDigits(Strict):
    digits: Annotated[str, Field(pattern=r"^[0-9A-D*#wW]+$")]
    leg: Literal["aleg", "bleg"]


class PlivoPlay(Strict):
    urls: str
    legs: Literal["aleg", "bleg", "both"]
    loop: bool


class PlivoCreate(Strict):
    from_: Annotated[Number, Field(alias="from")]
    to: Number
    answer_url: str
    answer_method: Literal["GET", "POST"]


def plivo(authorization: str, account: str, call: str) -> CarrierRest:
    """Return Plivo's calls, for one call."""
    calls = f"/v1/Account/{account}/Call"
    made = {"message": "call fired", "request_uuid": "9834029e-58b6-11e1-b8b7-a5bd0e4e126f"}
    return CarrierRest(
        authorization,
        [
            ("DELETE", f"{calls}/{call}/", None, (204, None)),
            ("POST", f"{calls}/{call}/", PlivoTransfer, (202, {"message": "call transferred"})),
            ("POST", f"{calls}/{call}/DTMF/", PlivoDigits, (202, {"message": "digits sent"})),
            ("POST", f"{calls}/{call}/Play/", PlivoPlay, (202, {"message": "play started"})),
            ("DELETE", f"{calls}/{call}/Play/", None, (204, None)),
            ("POST", f"{calls}/", PlivoCreate, (201, made)),
        ],
    )


class VonageUpdate(Strict):
    action: Literal["hangup", "mute", "unmute", "earmuff", "unearmuff", "transfer"]
    destination: dict[str, Any] | None = None


class VonageDigits(Strict):
    digits: Annotated[str, Field(pattern=r"^[0-9A-Dp*#]+$")]


class VonageStream(Strict):
    stream_url: list[str]
    loop: Annotated[int, Field(ge=0)]


class VonageCreate(Strict):
    to: list[dict[str, Any]]
    from_: Annotated[dict[str, Any], Field(alias="from")]
    ncco: list[dict[str, Any]]
    ringing_timer: Annotated[int, Field(ge=1, le=120)] | None = None


def vonage(accepts: Callable[[str], bool], call: str, states: list[str] | None = None) -> CarrierRest:
    """Return Vonage's calls. accepts: takes the header of a request. states: of a new call, one per look."""
    looks = list(states or [])
    new = "aaaaaaaa-bbbb-cccc-dddd-0123456789ab"
    made = {"uuid": new, "status": "started", "direction": "outbound", "conversation_uuid": "CON-1"}
    calls, done = rf"/v1/calls/({call}|{new})", {"message": "done", "uuid": call}

    def look(seen: Seen, found: re.Match[str]) -> Answer:
        return 200, {"uuid": found[1], "status": looks.pop(0)}

    return CarrierRest(
        accepts,
        [
            ("PUT", calls, VonageUpdate, (204, None)),
            ("GET", calls, None, look),
            ("PUT", f"{calls}/dtmf", VonageDigits, (200, done)),
            ("PUT", f"{calls}/stream", VonageStream, (200, done)),
            ("DELETE", f"{calls}/stream", None, (200, done)),
            ("POST", "/v1/calls", VonageCreate, (201, made)),
        ],
    )


class AriOriginate(Strict):
    """Fields of ``POST /channels``; keys of the body besides variables are read as query parameters."""

    endpoint: Annotated[str, StringConstraints(pattern=r"^\w+/\S+$")]
    extension: str
    context: str
    priority: Annotated[int, Field(ge=1)]
    callerId: str | None = None
    variables: dict[str, str]


def asterisk(authorization: str, own: str, caller: str) -> CarrierRest:
    """Return Asterisk's ARI, where our channel and the caller's are in one bridge of several."""
    channel, gone = f"/ari/channels/{re.escape(caller)}", (204, None)
    bridges = [
        {"id": "b0", "technology": "simple_bridge", "channels": ["1.1", "1.2"]},
        {"id": "b1", "technology": "simple_bridge", "channels": [own, caller]},
    ]

    def moved(seen: Seen, found: re.Match[str]) -> Answer:
        assert set(seen.query) <= {"context", "extension", "priority", "label"}
        assert int(seen.query["priority"]) >= 1
        return gone

    def pressed(seen: Seen, found: re.Match[str]) -> Answer:
        assert set(seen.query) <= {"dtmf", "before", "between", "duration", "after"}
        return gone

    return CarrierRest(
        authorization,
        [
            ("GET", "/ari/bridges", None, (200, bridges)),
            ("POST", "/ari/channels", AriOriginate, (200, {"id": "1699.12", "state": "Down"})),
            ("DELETE", channel, None, gone),
            ("POST", f"{channel}/continue", None, moved),
            ("POST", f"{channel}/dtmf", None, pressed),
            ("POST", f"{channel}/moh", None, gone),
            ("DELETE", f"{channel}/moh", None, gone),
        ],
    )


@asynccontextmanager
async def carrier_rest(rest: CarrierRest) -> AsyncIterator[CarrierRest]:
    """Serve a carrier's REST interface in this loop, for the length of the block."""
    sock = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(rest, log_level="error", lifespan="off"))
    task = asyncio.create_task(server.serve(sockets=[sock]))
    rest.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    try:
        while not server.started:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
        yield rest
    finally:
        server.should_exit = True
        await task
