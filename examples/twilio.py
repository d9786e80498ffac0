"""Answer Twilio's calls: a webhook that connects each call to the agent, over a Media Stream.

    TWILIO_AUTH_TOKEN=... python examples/twilio.py https://agent.example.com 8081

The address is what Twilio can reach: a proxy with a certificate, which sends /v1/phone to ``rejoinder serve``
and /voice to this program. In Twilio's console /voice is the number's webhook: "A call comes in", POST.
"""

import base64
import hmac
import os
import sys
from collections.abc import Mapping
from urllib.parse import parse_qsl
from xml.etree.ElementTree import Element, SubElement, tostring

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


def answer(public_url: str, caller: str) -> bytes:
    """Return the TwiML: connect the call to the agent, which speaks first and knows the caller's number."""
    response = Element("Response")
    url = public_url.replace("http", "ws", 1) + "/v1/phone"
    stream = SubElement(SubElement(response, "Connect"), "Stream", url=url)
    SubElement(stream, "Parameter", name="greet", value="true")
    SubElement(stream, "Parameter", name="caller", value=caller)
    return tostring(response, xml_declaration=True, encoding="UTF-8")


def signature(token: str, url: str, form: Mapping[str, str]) -> str:
    """Return Twilio's signature of a request (https://www.twilio.com/docs/usage/security)."""
    signed = url + "".join(name + value for name, value in sorted(form.items()))
    return base64.b64encode(hmac.digest(token.encode(), signed.encode(), "sha1")).decode()


def webhook(public_url: str, token: str) -> Starlette:
    async def voice(request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode(), keep_blank_values=True))
        given = request.headers.get("x-twilio-signature", "")
        if not hmac.compare_digest(signature(token, f"{public_url}/voice", form).encode(), given.encode()):
            return Response("this is not from Twilio\n", 403)
        return Response(answer(public_url, form.get("From", "an unknown number")), media_type="text/xml")

    return Starlette(routes=[Route("/voice", voice, methods=["POST"])])


if __name__ == "__main__":
    if len(sys.argv) != 3 or "TWILIO_AUTH_TOKEN" not in os.environ:
        sys.exit(__doc__)
    app = webhook(sys.argv[1].rstrip("/"), os.environ["TWILIO_AUTH_TOKEN"])
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]))
