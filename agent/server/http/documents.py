"""What carriers fetch: XML that answers or transfers a call of Plivo, and spoken briefings for Telnyx."""

from __future__ import annotations

import time
from xml.etree.ElementTree import Element, SubElement, tostring

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from rejoinder.agent.app.call import DETECT, DETECTION
from rejoinder.agent.wires.phone.control.documents import DOCUMENTS_PATH, PLIVO_ANSWER, Documents

FRESH = {"Cache-Control": "no-store"}
"""Headers of documents, which are made for one request."""


def document_routes(documents: Documents, public_url: str) -> list[Route]:
    """Return the routes of the documents.

    They need no key: the names of documents cannot be guessed, and the answer for Plivo says nothing secret.
    public_url: the server's address as carriers reach it, "" for that of each request.
    """

    async def document(request: Request) -> Response:
        found = documents.get(request.path_params["name"], time.monotonic())
        if isinstance(found, bytes):
            return Response(found, media_type="audio/wav", headers=FRESH)
        return PlainTextResponse("no such document\n", 404) if found is None else xml(found)

    async def answer(request: Request) -> Response:
        base = (public_url or str(request.base_url)).rstrip("/")
        detect = request.query_params.get(DETECTION) == DETECT
        return xml(plivo_answer(base.replace("http", "ws", 1) + "/v1/phone", detect))

    by_path = {f"{DOCUMENTS_PATH}/{{name}}": document, PLIVO_ANSWER: answer}
    return [Route(path, handler, methods=["GET", "POST"]) for path, handler in by_path.items()]


def plivo_answer(url: str, detect: bool = False) -> str:
    """Return the XML that connects a call of Plivo with the WebSocket at ``url``.

    detect: whether the agent is to find out if a machine answers.
    """
    response = Element("Response")
    how = {"bidirectional": "true", "keepCallAlive": "true", "contentType": "audio/x-mulaw;rate=8000"}
    if detect:
        how["extraHeaders"] = f"{DETECTION}={DETECT}"
    SubElement(response, "Stream", how).text = url
    return tostring(response, encoding="unicode")


def xml(text: str) -> Response:
    """Return a response with an XML document."""
    return Response(text, media_type="application/xml", headers=FRESH)
