"""A server whose calls have a budget."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.serving import Talk, run_command, serving
from websockets.exceptions import ConnectionClosed

BYE = "Our time is up."


def test_a_call_is_told_of_its_budget_and_ends_politely(tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_text(f'[budget]\ncall_tokens = 5\nwords = "{BYE}"\n')
    with serving(tmp_path, llm="scripted:llm|Yes.") as server:
        with Talk(server) as talk:
            assert talk.turn()["status"] == "completed"
            told = talk.until("rejoinder.budget")
            assert (told["scope"], told["over"]) == ("call", True) and told["share"] >= 1.0
            last = talk.until("response.done")["response"]
            assert last["output"][0]["content"][0]["transcript"] == BYE
            with pytest.raises(ConnectionClosed, match="the budget of the call is spent"):
                talk.until("never")
        server.wait_idle()
        assert "of the budget of the call are used" in server.log.read_text()


def test_the_budget_of_an_address_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_text(f'[budget]\naddress_tokens = 5\nwords = "{BYE}"\n')
    with serving(tmp_path, llm="scripted:llm|Yes.", trusted_proxies="127.0.0.1") as server:

        def calling(address: str) -> Talk:
            return Talk(server, additional_headers={"X-Forwarded-For": address})

        with calling("192.0.2.1") as talk:
            assert talk.turn()["status"] == "completed"
            told = talk.until("rejoinder.budget")
            assert (told["scope"], told["over"]) == ("address", True)
            with pytest.raises(ConnectionClosed, match="the budget of the address is spent"):
                talk.until("never")
        with calling("192.0.2.1") as again:
            last = again.until("response.done")["response"]
            assert last["output"][0]["content"][0]["transcript"] == BYE
            with pytest.raises(ConnectionClosed, match="the budget of the address is spent"):
                again.until("never")
        with calling("192.0.2.2") as other:
            assert other.turn()["output"][0]["content"][0]["transcript"] == "Yes."


def test_a_rule_for_a_budget_that_is_not_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_text(
        'llm = ["small", "tiny"]\n[[routes]]\nmodel = "tiny"\nbudget_above = 0.8\n'
    )
    done = run_command("serve", "--print-config", folder=tmp_path)
    assert "routes: budget_above needs a limit in [budget]" in " ".join(done.stderr.split())
