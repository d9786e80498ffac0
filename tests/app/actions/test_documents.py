"""Documents for carriers: who can fetch them, and for how long."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from rejoinder.agent.server.http.documents import document_routes
from rejoinder.agent.wires.phone.control.documents import (
    DOCUMENTS_PATH,
    KEPT_S,
    MOST,
    PLIVO_ANSWER,
    Documents,
)


def test_document_is_there_for_two_minutes() -> None:
    documents = Documents("https://agent.example.com/voice/")
    url = documents.publish("<Response/>", 10.0)
    base, _, name = url.rpartition("/")
    assert base == f"https://agent.example.com/voice{DOCUMENTS_PATH}"
    assert documents.get(name, 10.0 + KEPT_S - 1) == "<Response/>"
    assert documents.get(name, 10.0 + KEPT_S + 1) is None
    assert documents.get("another", 10.0) is None


def test_documents_are_bounded_and_their_names_differ() -> None:
    documents = Documents("https://agent.example.com")
    names = [documents.publish(b"", 0.0).rpartition("/")[2] for _ in range(MOST + 1)]
    assert len(set(names)) == MOST + 1
    assert documents.get(names[0], 0.0) is None and documents.get(names[1], 0.0) == b""


@pytest.mark.parametrize(("query", "headers"), [("", None), ("?amd=true", "amd=true"), ("?amd=maybe", None)])
def test_answer_for_plivo_connects_the_call_and_passes_on_that_a_machine_may_answer(
    query: str, headers: str | None
) -> None:
    routes = document_routes(Documents(""), "https://agent.example.com/")
    answer = TestClient(Starlette(routes=routes)).get(PLIVO_ANSWER + query)
    (stream,) = ElementTree.fromstring(answer.text)
    assert stream.text == "wss://agent.example.com/v1/phone" and stream.attrib["bidirectional"] == "true"
    assert stream.attrib.get("extraHeaders") == headers


def test_nothing_is_published_where_no_carrier_could_fetch_it() -> None:
    assert Documents("").publish("<Response/>", 0.0) == ""
