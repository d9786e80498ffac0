"""While all its lines are busy, a server behind a balancer refuses handshakes by an HTTP status."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from support.serving import PATIENCE, Server, Talk, serving
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from rejoinder.agent.server.access import SOCKETS
from rejoinder.agent.server.limiting.allowance import BUSY_SECONDS

pytestmark = pytest.mark.server

BUSY = "all 1 lines are busy\n"


def refused(server: Server, path: str, origin: str | None = None) -> tuple[int, str, str]:
    """Return the status, ``Retry-After`` and the body with which a handshake is refused."""
    url, page = f"ws://127.0.0.1:{server.port}{path}", Origin(origin) if origin else None
    with pytest.raises(InvalidStatus) as error:
        connect(url, proxy=None, origin=page)
    answer = error.value.response
    return answer.status_code, answer.headers["Retry-After"], (answer.body or b"").decode()


def plain(server: Server, path: str) -> tuple[int, str]:
    """Return the status and the body of a plain GET, which is never 200 at the path of a WebSocket."""
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(server.http + path, timeout=PATIENCE)
    with error.value as answer:
        return answer.code, answer.read().decode()


def test_all_lines_busy_is_a_status_behind_a_balancer(tmp_path: Path) -> None:
    with serving(tmp_path, max_sessions="1", behind_balancer="true") as server:
        assert plain(server, "/v1/realtime")[0] == 426
        with Talk(server) as talk:
            for path in SOCKETS:
                assert refused(server, path) == (503, str(BUSY_SECONDS), BUSY)
                assert refused(server, path, server.http) == (503, str(BUSY_SECONDS), BUSY), "a page, too"
                assert plain(server, path) == (503, BUSY), "a page reads the reason so"
            assert talk.turn()["status"] == "completed", "the call in progress goes on"
            talk.cut()
        deadline = time.monotonic() + PATIENCE
        while plain(server, "/v1/realtime")[0] == 503:  # until the server knows that the client is gone
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with Talk(server) as other:
            assert other.turn()["status"] == "completed", "on the line of the client that is gone"
        server.wait_idle()
        assert plain(server, "/v1/realtime")[0] == 426
        assert server.log.read_text().count(f" was refused: {BUSY.strip()}") == 2 * len(SOCKETS)
