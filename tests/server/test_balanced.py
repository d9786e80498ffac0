"""A server behind a balancer: what it answers where it takes no call, and whose address counts."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address, ip_network
from pathlib import Path
from threading import Barrier
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from support.resuming import conversation
from support.serving import PATIENCE, Talk, run_command, serving
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rejoinder.agent.server.limiting.allowance import BUSY_SECONDS
from rejoinder.agent.server.operating.admission import CONVERSATION
from rejoinder.agent.server.operating.lines import Lines
from rejoinder.agent.server.operating.proxies import on_both_stacks

BUSY = "all 1 lines are busy"
FORWARDED = {"X-Forwarded-For": "203.0.113.9, 198.51.100.7"}


@pytest.mark.server
@pytest.mark.parametrize("page", [False, True])
def test_full_server_refuses_by_status(page: bool, tmp_path: Path) -> None:
    with serving(tmp_path, max_sessions="1", behind_balancer="true") as server:
        origin = {"origin": server.http} if page else {}
        with Talk(server):
            with pytest.raises(InvalidStatus) as error, Talk(server, **origin):
                pass
            answer = error.value.response
            assert (answer.status_code, answer.body) == (503, f"{BUSY}\n".encode())
            assert answer.headers["Retry-After"] == str(BUSY_SECONDS)
            with pytest.raises(HTTPError) as plain:  # as the page asks for the reason
                urlopen(f"{server.http}/v1/realtime", timeout=PATIENCE)
            with plain.value:
                assert plain.value.read() == answer.body
        server.wait_idle()
        with pytest.raises(HTTPError) as free:
            urlopen(f"{server.http}/v1/realtime", timeout=PATIENCE)
        with free.value:
            assert free.value.status == 426
        with Talk(server, **origin) as talk:
            assert talk.turn()["status"] == "completed"


@pytest.mark.server
@pytest.mark.parametrize("balanced", ["true", "false"])
def test_one_of_two_clients_that_connect_at_once_gets_the_last_line(balanced: str, tmp_path: Path) -> None:
    with serving(tmp_path, max_sessions="1", behind_balancer=balanced) as server:

        def call(begin: Barrier, end: Barrier) -> str:
            """Connect when the other client does; return the refusal, "" for a call that has begun."""
            with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as sock:
                begin.wait(PATIENCE)
                try:
                    with Talk(server, greeted=False, sock=sock) as talk:
                        talk.until("conversation.created")
                        end.wait(PATIENCE)  # it holds its line until the other client has its answer
                        return ""
                except InvalidStatus as error:
                    assert error.response.status_code == 503
                    refusal = error.response.body.decode().strip()
                except ConnectionClosed as closed:
                    assert closed.rcvd and closed.rcvd.code == 1013
                    refusal = closed.rcvd.reason
                end.wait(PATIENCE)
                return refusal

        with ThreadPoolExecutor(2) as clients:
            for _ in range(8):
                begin, end = Barrier(2), Barrier(2)
                answers = [clients.submit(call, begin, end) for _ in range(2)]
                assert sorted(one.result() for one in answers) == ["", BUSY]
                server.wait_idle()


@pytest.mark.server
def test_the_answer_to_a_handshake_names_the_conversation(tmp_path: Path) -> None:
    with serving(tmp_path) as server, Talk(server) as talk:
        id_ = conversation(talk)
        assert talk.socket.response and talk.socket.response.headers[CONVERSATION] == id_
        talk.turn()
        talk.cut()
        with Talk(server, query=f"&conversation_id={id_}") as again:
            assert again.socket.response and again.socket.response.headers[CONVERSATION] == id_


@pytest.mark.server
@pytest.mark.parametrize(
    ("trusted", "client"),
    [("127.0.0.1", "198.51.100.7"), ("127.0.0.1 198.51.100.0/24", "203.0.113.9"), ("10.0.0.1", "127.0.0.1")],
)
def test_only_trusted_proxies_name_the_client(trusted: str, client: str, tmp_path: Path) -> None:
    with serving(tmp_path, trusted_proxies=trusted) as server:
        with Talk(server, additional_headers=FORWARDED):
            pass
        server.wait_idle()
    assert f", {client}, " in server.log.read_text()


def test_wrong_addresses_of_proxies_are_named(tmp_path: Path) -> None:
    refused = run_command("serve", folder=tmp_path, REJOINDER_TRUSTED_PROXIES="10.0.0.1 proxy")
    assert refused.returncode == 2 and "REJOINDER_TRUSTED_PROXIES" in refused.stderr
    assert "proxy" in refused.stderr and "Traceback" not in refused.stderr


def test_ipv4_addresses_are_known_on_ipv6_sockets() -> None:
    found = [ip_network(one) for one in on_both_stacks("10.0.0.0/8 ::1")]
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "::1"):
        assert any(ip_address(address) in network for network in found)
    assert not any(ip_address("::ffff:11.1.2.3") in network for network in found)


def test_two_calls_cannot_take_the_last_line() -> None:
    lines = Lines(1, (), lambda: False)
    assert lines.take("first") == "" and lines.take("first") == ""
    assert lines.take("second") == lines.full() == BUSY
    lines.release("first")
    assert lines.full() == "" and lines.take("second") == ""


def test_a_call_whose_client_is_gone_makes_way() -> None:
    gone = [True]
    lines = Lines(1, (), lambda: bool(gone) and gone.pop())
    assert lines.take("first") == "" and lines.take("second") == ""
    assert lines.take("third") == BUSY
