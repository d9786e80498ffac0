"""Two call servers behind HAProxy and NGINX, with the configurations that ship."""

from __future__ import annotations

import asyncio
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from support.callers.asterisk import calling
from support.ports import listens, unused_port
from support.resuming import conversation, session
from support.scale.pair import HAPROXY, NAMES, Pair, pair, program
from support.serving import PATIENCE, Server, Talk, begin_to_end
from websockets.exceptions import InvalidStatus

from rejoinder.agent.server.limiting.allowance import BUSY_SECONDS

pytestmark = [pytest.mark.scale, pytest.mark.server]
BUSY = "all 1 lines are busy"
FORGED = "203.0.113.9"
CALLERS = 8
TURNS = 3


def hold_a_turn(talks: list[Talk]) -> None:
    for talk in talks:
        talk.speak()
    for talk in talks:
        assert talk.until("response.done")["response"]["status"] == "completed"


def refusals(server: Server) -> int:
    return server.log.read_text().count(f" was refused: {BUSY}")


def test_haproxy_accepts_its_configuration() -> None:
    command = [program("haproxy"), "-c", "-f", str(HAPROXY)]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert (checked.returncode, "WARNING" in checked.stderr) == (0, False), checked.stderr


def test_only_calls_with_keys_are_taken_from_other_machines() -> None:
    defaults = dict(re.findall(r'bind "\$\{(\w+)-(.*)\}"', HAPROXY.read_text()))
    assert len(defaults) == HAPROXY.read_text().count("\n    bind ")
    open_to_all = [name for name, address in defaults.items() if not address.startswith("127.0.0.1:")]
    assert open_to_all == ["BALANCER_BIND"]


def test_calls_are_shared_and_their_clients_addresses_logged(tmp_path: Path) -> None:
    with pair(tmp_path) as servers, ExitStack() as calls:
        forged = {"X-Forwarded-For": FORGED}
        talks = [
            calls.enter_context(
                Talk(servers.balancer, additional_headers=forged, source_address=(f"127.0.0.{number}", 0))
            )
            for number in range(2, 6)
        ]
        assert [server.sessions() for server in servers.servers.values()] == [2, 2]
        hold_a_turn(talks)
        log = "".join(server.log.read_text() for server in servers.servers.values())
        said = servers.balancer.log.read_text()
    assert "127.0.0.2" in log and "127.0.0.5" in log and FORGED not in log
    assert "conv_" not in said and "conversation_id" not in said


def test_lost_socket_goes_back_to_its_server(tmp_path: Path) -> None:
    """All clients have the same address, as behind one router."""
    with pair(tmp_path) as servers, ExitStack() as calls:
        talks = [calls.enter_context(Talk(servers.balancer)) for _ in range(4)]  # two at each server
        for _ in range(2):
            hold_a_turn(talks)
            ids = [conversation(talk) for talk in talks]
            last = [talk.seen[-1]["event_id"] for talk in talks]
            for talk in talks:
                talk.cut()
            queries = [
                f"&conversation_id={id_}&last_event_id={event}" for id_, event in zip(ids, last, strict=True)
            ]
            talks = [calls.enter_context(Talk(servers.balancer, query=query)) for query in queries]
            assert [talk.until("rejoinder.resumed")["after"] for talk in talks] == last


def test_client_comes_back_to_a_server_that_drains(tmp_path: Path) -> None:
    with pair(tmp_path, drain_s="60") as servers, Talk(servers.balancer) as talk:
        talk.turn()
        draining = servers.busiest()
        begin_to_end(servers.servers[draining])
        servers.until_ready(set(NAMES) - {draining})
        talk.cut()
        with Talk(servers.balancer, query=f"&conversation_id={conversation(talk)}") as again:
            again.until("rejoinder.resumed")
            assert again.turn()["status"] == "completed"
        assert servers.ended(draining) == 0


def test_asterisk_is_balanced_too(tmp_path: Path) -> None:
    with pair(tmp_path) as servers:

        async def call() -> None:
            port = servers.audiosocket
            async with calling(port) as one, calling(port) as other:
                one.loud(0.6)
                other.loud(0.6)
                await one.until(lambda: one.seconds_heard > 1.0 and other.seconds_heard > 1.0)
                for server in servers.servers.values():
                    assert await asyncio.to_thread(server.sessions) == 1

        asyncio.run(call())


def test_call_that_finds_all_lines_busy_goes_to_the_other_server(tmp_path: Path) -> None:
    """Calls that did not come through the balancer fill a server, so the balancer asks it first."""
    with pair(tmp_path, max_sessions="1", behind_balancer="true") as servers:
        with Talk(servers.balancer) as first:
            full = servers.servers[servers.busiest()]
            back = f"&conversation_id={conversation(first)}"
        full.wait_idle()
        with (
            Talk(full),
            Talk(servers.balancer, query=back) as talk,
        ):  # a client that resumes is sent to that server
            assert talk.turn()["status"] == "completed"
            assert [server.sessions() for server in servers.servers.values()] == [1, 1]
            assert refusals(full) == 1, "the balancer asked the full server first"
            with pytest.raises(InvalidStatus) as error, Talk(servers.balancer):
                pass
            answer = error.value.response
            assert (answer.status_code, answer.body) == (503, f"{BUSY}\n".encode())
            assert answer.headers["Retry-After"] == str(BUSY_SECONDS)
            with pytest.raises(HTTPError) as plain:  # as the page asks
                urlopen(f"{servers.balancer.http}/v1/realtime", timeout=PATIENCE)
            with plain.value:
                assert plain.value.read() == answer.body
            assert min(refusals(server) for server in servers.servers.values()) >= 1, "it asked both"


def test_rolling_restart_drops_and_refuses_no_call(tmp_path: Path) -> None:
    """Calls in progress end at the server that drains. New ones are taken all the time."""
    with pair(tmp_path, drain_s="60", behind_balancer="true") as servers, ExitStack() as calls:
        talks = [calls.enter_context(Talk(servers.balancer)) for _ in range(CALLERS)]
        over, accepted, wrong = threading.Event(), [0], list[Exception]()

        def call_repeatedly() -> None:
            while not over.is_set():
                try:
                    origin = {"origin": servers.balancer.http} if accepted[0] % 2 else {}
                    with Talk(servers.balancer, **origin):
                        accepted[0] += 1
                except Exception as error:
                    wrong.append(error)

        calling_again = threading.Thread(target=call_repeatedly)
        calling_again.start()
        try:
            for name in NAMES:
                server = servers.servers[name]
                begin_to_end(server)
                for _ in range(TURNS):
                    hold_a_turn(talks)
                own = [talk for talk in talks if session(talk) in server.log.read_text()]
                assert server.process.poll() is None and server.sessions() == len(own) > 0
                for talk in own:
                    talk.__exit__()
                assert servers.ended(name) == 0
                servers.start(name)
                servers.until_ready(set(NAMES))
                talks = [talk for talk in talks if talk not in own]
                talks += [calls.enter_context(Talk(servers.balancer)) for _ in own]
        finally:
            over.set()
            calling_again.join()
        hold_a_turn(talks)
    assert wrong == [] and accepted[0] > 10


def test_nginx_shares_calls_and_asks_the_other_server(tmp_path: Path) -> None:
    with pair(tmp_path, drain_s="60") as servers, nginx(tmp_path, servers) as balancer:
        with ExitStack() as calls:
            talks = [calls.enter_context(Talk(balancer)) for _ in range(4)]
            assert [server.sessions() for server in servers.servers.values()] == [2, 2]
            hold_a_turn(talks)
            draining, other = (servers.servers[name] for name in NAMES)
            begin_to_end(draining)
            talks += [calls.enter_context(Talk(balancer)) for _ in range(3)]
            assert [draining.sessions(), other.sessions()] == [2, 5]
            hold_a_turn(talks)
        assert draining.process.wait(PATIENCE) == 0
        with Talk(balancer) as talk:
            assert talk.turn()["status"] == "completed"


@contextmanager
def nginx(folder: Path, servers: Pair) -> Iterator[Server]:
    """Run NGINX in front of the servers, with the addresses of this machine in its configuration."""
    port, file, log = unused_port(), folder / "nginx.conf", folder / "nginx.log"
    text = HAPROXY.with_name("nginx.conf").read_text().replace("listen 8080", f"listen 127.0.0.1:{port}")
    text = text.replace("/var/log/nginx/", f"{folder}/")
    for address, own in zip(("10.0.0.11:8080", "10.0.0.12:8080"), servers.ports.values(), strict=True):
        assert address in text
        text = text.replace(address, f"127.0.0.1:{own}")
    file.write_text(text)
    command = [program("nginx"), "-c", str(file), "-g", f"daemon off; pid {folder / 'nginx.pid'};"]
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        assert listens(port, process, PATIENCE), log.read_text()
        yield Server(port, process, log)
    finally:
        process.terminate()
        process.wait()
