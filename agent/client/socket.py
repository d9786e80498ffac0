"""The socket of a client: its address, how to open it, and what its loss means."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from rejoinder.pipeline.errors import PipelineError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts that the client never reaches through a proxy, whatever the environment sets."""
SCHEMES = {"http": "ws", "https": "wss"}
"""The WebSocket scheme for each scheme of HTTP."""
PING_SECONDS = 5.0
"""Interval between two pings."""
PONG_SECONDS = 10.0
"""Longest wait for the answer to a ping: a dead network is noticed after at most 15 s."""
CLOSE_SECONDS = 2.0
"""Longest wait for the server's close frame."""
MOST_UNREAD = 1000
"""Most unread messages, at least a minute of the server's audio. Beyond it, pings are not answered."""
NORMAL = 1000
"""Close code of a call that ended in order."""
TRY_AGAIN_LATER = 1013
"""Close code of a server that is busy or still loading."""
OVER = frozenset((NORMAL, 1002, 1003, 1007, 1009))
"""Close codes after which the client does not reconnect: the call has ended, or the client is at fault."""
RETRY_STATUSES = frozenset((408, 429))
"""HTTP statuses below 500 that are worth another try."""


REDIRECTS = frozenset((301, 302, 303, 307, 308))
"""HTTP statuses that send a call to another address."""
MOST_REDIRECTS = 5
"""Most addresses at which a call is tried, one after the other."""


class CallLost(PipelineError):
    """A call could not begin, or it was lost. The message gives the reason and, if known, what to do.

    code: of the WebSocket's close frame, or the HTTP status; 0 if there was neither.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


def realtime_url(url: str) -> str:
    """Return the address of a WebSocket. Raises ValueError.

    url: of a server or of its Realtime endpoint, with the scheme ws, wss, http or https.
    """
    parts = urlsplit(url)
    scheme = SCHEMES.get(parts.scheme, parts.scheme)
    if scheme not in SCHEMES.values() or not parts.netloc:
        raise ValueError(f"{url!r} is no address of a server; write one such as ws://127.0.0.1:8080")
    path = "/v1/realtime" if parts.path in ("", "/") else parts.path
    return urlunsplit(parts._replace(scheme=scheme, path=path))


def moved(url: str, there: str) -> str:
    """Return an address at the server of another one, such as that to which a call was redirected."""
    server = urlsplit(there)
    return urlunsplit(urlsplit(url)._replace(scheme=server.scheme, netloc=server.netloc))


def returning(url: str, conversation: str, last_event: str, played: tuple[str, int] | None = None) -> str:
    """Return the address at which a conversation continues; ``url`` if there is no conversation yet.

    played: the item that was played last and how much of it in milliseconds, None where unknown.
    """
    if not conversation:
        return url
    parts = urlsplit(url)
    asked = [*parse_qsl(parts.query), ("conversation_id", conversation)]
    if last_event:
        asked.append(("last_event_id", last_event))
    if played:
        asked += [("item_id", played[0]), ("audio_end_ms", str(played[1]))]
    return urlunsplit(parts._replace(query=urlencode(asked)))


class _OneServer(connect):
    """Reports a redirect in place of following it: the library would leave out the key."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def redirected(url: str, location: str) -> str:
    """Return the address to which a server sends a call, "" if the call must not go there.

    A call that is encrypted stays so, because its key goes along.
    """
    parts, there = urlsplit(url), urlsplit(urljoin(url, location))
    allowed = ("wss",) if parts.scheme == "wss" else ("ws", "wss")
    scheme = SCHEMES.get(there.scheme, there.scheme)
    return urlunsplit(there._replace(scheme=scheme)) if scheme in allowed and there.netloc else ""


async def open_socket(url: str, key: str | None) -> tuple[ClientConnection, str]:
    """Open a socket; return it, and the address at which it is after redirects, to which the key goes along.

    Cancelling leaves no open socket. Raises CallLost.
    """
    for _ in range(MOST_REDIRECTS):
        try:
            return await _opened(url, key), url
        except InvalidStatus as error:
            location = error.response.headers.get("Location", "")
            place = redirected(url, location) if error.response.status_code in REDIRECTS else ""
            if not place:
                raise _refused(url, error, key) from error
            url = place
    raise CallLost(f"cannot call {url}: it is the {MOST_REDIRECTS}th server to which the call was sent")


async def _opened(url: str, key: str | None) -> ClientConnection:
    try:
        return await _OneServer(
            url,
            additional_headers={"Authorization": f"Bearer {key}"} if key else None,
            # Audio in base64 compresses badly, and compressing it would add to the agent's latency.
            compression=None,
            max_size=None,
            max_queue=MOST_UNREAD,
            proxy=None if urlsplit(url).hostname in LOOPBACK else True,
            ping_interval=PING_SECONDS,
            ping_timeout=PONG_SECONDS,
            close_timeout=CLOSE_SECONDS,
        )
    except InvalidStatus:
        raise
    except (OSError, TimeoutError) as error:
        raise CallLost(f"cannot call {url}: {error}; is the server running there?") from error
    except WebSocketException as error:
        raise CallLost(f"cannot call {url}: {error}") from error


def _refused(url: str, error: InvalidStatus, key: str | None) -> CallLost:
    status = error.response.status_code
    reason = (error.response.body or b"").decode("utf-8", "replace").strip()[:200]
    message = f"cannot call {url}: HTTP {status}" + (f", {reason}" if reason else "")
    match status:
        case 401 if key:
            message += "; the server does not know this key"
        case 401:
            message += "; pass a key as connect(url, key=...), or set REJOINDER_KEY for a command"
        case 403 | 404 if not reason:
            message += "; Rejoinder serves the protocol at /v1/realtime"
    return CallLost(message, status)


async def greeting(socket: ClientConnection) -> dict[str, Any]:
    """Return the first event of a socket, which describes the session. Raises CallLost.

    Cancelling leaves the socket open.
    """
    try:
        event: dict[str, Any] = json.loads(await socket.recv())
    except ConnectionClosed as error:
        raise closed(error) from error
    except ValueError as error:
        raise CallLost(f"this is no Realtime server: {error}", 1002) from error
    match event:
        case {"type": "session.created", "session": {}}:
            return event
        case {"type": "error", "error": {"message": reason}}:
            raise CallLost(f"the server refused the call: {reason}")
    raise CallLost(f"this is no Realtime server: it began with {str(event)[:100]}", 1002)


def closed(error: ConnectionClosed) -> CallLost:
    """Return the error that a closed socket means for the call."""
    if error.rcvd is None:
        return CallLost("the connection to the server was lost")
    reason = f": {error.rcvd.reason}" if error.rcvd.reason else ""
    return CallLost(f"the server closed the call ({error.rcvd.code}){reason}", error.rcvd.code)


def may_come_back(lost: BaseException, begun: bool) -> bool:
    """Return whether another try may help. begun: whether there was a call before.

    A first call is tried again only while the server's models load: the caller should see any other error.
    """
    if not isinstance(lost, CallLost):
        return False
    if lost.code == TRY_AGAIN_LATER and "loading" in str(lost):
        return True
    refused = 400 <= lost.code < 500 and lost.code not in RETRY_STATUSES
    return begun and not refused and lost.code not in OVER
