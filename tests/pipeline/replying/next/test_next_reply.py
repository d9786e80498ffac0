"""Which reply is wanted next, without a session."""

from __future__ import annotations

from rejoinder.pipeline import ReplyRequest
from rejoinder.pipeline.replying.next.next_reply import NextReply


def test_a_request_waits_until_it_is_taken() -> None:
    wanted = NextReply()
    assert (wanted.requested, wanted.owed, wanted.is_wanted) == (False, False, False)
    wanted.request(ReplyRequest(tag=1))
    wanted.request(ReplyRequest(tag=2))
    assert (wanted.requested, wanted.is_wanted) == (True, True)
    assert wanted.take_request() == ReplyRequest(tag=2), "the last one replaces the first"
    assert wanted.take_request() == ReplyRequest(), "it is taken once"
    assert not wanted.is_wanted


def test_an_owed_reply_is_wanted_until_it_is_answered_or_forgotten() -> None:
    wanted = NextReply()
    wanted.owe(True)
    assert (wanted.owed, wanted.requested, wanted.is_wanted) == (True, False, True)
    assert wanted.take_request() == ReplyRequest() and wanted.owed
    wanted.owe(False)
    assert not wanted.is_wanted
    wanted.owe(True)
    wanted.request(ReplyRequest())
    wanted.forget()
    assert not wanted.is_wanted
