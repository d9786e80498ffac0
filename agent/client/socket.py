"""The socket of a client: where it leads, how it is opened, and what it means when it is lost."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from rejoinder.pipeline.errors import PipelineError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts that are never reached through a proxy, whatever the environment says."""
SCHEMES = {"http": "ws", "https": "wss"}
PING_SECONDS, PONG_SECONDS = 5.0, 10.0
"""A network that is gone without a word is noticed after 15 s at most."""
CLOSE_SECONDS = 2.0
WAITING = 1000
"""Messages that may wait to be read, a minute of our server's audio at least; then no ping is answered."""
NORMAL, TRY_AGAIN_LATER = 1000, 1013
OVER = frozenset((NORMAL, 1002, 1003, 1007, 1009))
"""Close codes after which nobody calls again: the call has ended, or this client does something wrong."""
BUSY = frozenset((408, 429))
"""Statuses of HTTP below 500 that another try may change."""


class CallLost(PipelineError):
    """There is no call, or there is none any more; the message says why, and what to do where that is known.

    code: of the WebSocket's close frame, or HTTP's status; 0 where there was neither.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


def realtime_url(url: str) -> str:
    """Return the WebSocket's address; a server's alone is enough, and http will do. Raises ValueError."""
    parts = urlsplit(url)
    scheme = SCHEMES.get(parts.scheme, parts.scheme)
    if scheme not in SCHEMES.values() or not parts.netloc:
        raise ValueError(f"{url!r} is no address of a server; give one like ws://127.0.0.1:8080")
    path = "/v1/realtime" if parts.path in ("", "/") else parts.path
    return urlunsplit(parts._replace(scheme=scheme, path=path))


def returning(url: str, conversation: str, last_event: str) -> str:
    """Return the address at which a conversation goes on; the same one where there is none yet."""
    if not conversation:
        return url
    parts = urlsplit(url)
    asked = [*parse_qsl(parts.query), ("conversation_id", conversation)]
    if last_event:
        asked.append(("last_event_id", last_event))
    return urlunsplit(parts._replace(query=urlencode(asked)))


async def open_socket(url: str, key: str | None) -> ClientConnection:
    """Open a socket. Cancelling leaves none behind. Raises CallLost."""
    try:
        return await connect(
            url,
            additional_headers={"Authorization": f"Bearer {key}"} if key else None,
            # Audio in base64 hardly deflates, and the work would count as the agent's latency.
            compression=None,
            max_size=None,
            max_queue=WAITING,
            proxy=None if urlsplit(url).hostname in LOOPBACK else True,
            ping_interval=PING_SECONDS,
            ping_timeout=PONG_SECONDS,
            close_timeout=CLOSE_SECONDS,
        )
    except InvalidStatus as error:
        raise _refused(url, error, key) from error
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
            message += "; it does not know the key that was given"
        case 401:
            message += "; give it as connect(url, key=...), or to a command in REJOINDER_KEY"
        case 403 | 404 if not reason:
            message += "; our server has the protocol at /v1/realtime"
    return CallLost(message, status)


async def greeting(socket: ClientConnection) -> dict[str, Any]:
    """Return the first event of a socket, which describes the session. Raises CallLost."""
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
    """Return what a closed socket means."""
    if error.rcvd is None:
        return CallLost("the connection to the server was lost")
    reason = f": {error.rcvd.reason}" if error.rcvd.reason else ""
    return CallLost(f"the server closed the call ({error.rcvd.code}){reason}", error.rcvd.code)


def may_come_back(lost: BaseException, begun: bool) -> bool:
    """Tell whether trying again may help; begun: whether there was a call before.

    A first call is tried again only while the server's models load: what else is wrong, somebody should know.
    """
    if not isinstance(lost, CallLost):
        return False
    if lost.code == TRY_AGAIN_LATER and "loading" in str(lost):
        return True
    refused = 400 <= lost.code < 500 and lost.code not in BUSY
    return begun and not refused and lost.code not in OVER
