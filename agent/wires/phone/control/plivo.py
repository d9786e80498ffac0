"""Plivo's Call resource: https://www.plivo.com/docs/voice/api/call.

A transfer names a URL at which Plivo fetches XML, so the server has to be reachable at ``public_url``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal
from xml.etree.ElementTree import Element, SubElement, tostring

from rejoinder.agent.app.control import cannot
from rejoinder.agent.wires.phone.control.api import RING_S, CarrierApi, HttpRequest, basic, is_sip, segment


class PlivoApi(CarrierApi):
    """One call of Plivo.

    url: of the interface. account, token: of the account. call: its identifier. music: a URL for callers on
    hold, "" for none. publish: takes an XML document and returns its URL, "" where Plivo could not fetch it.
    """

    name = "Plivo"
    tones = False

    def __init__(
        self, url: str, account: str, token: str, call: str, music: str, publish: Callable[[str], str]
    ) -> None:
        self._call = f"{url}/v1/Account/{segment(account)}/Call/{segment(call)}/"
        self._authorization = basic(account, token)
        self._music = music
        self._publish = publish

    def hang_up(self) -> HttpRequest:
        """Return the request that ends the call."""
        return self._request("DELETE")

    def transfer(self, to: str, briefing: str = "") -> HttpRequest:
        """Return the request that lets the call fetch new XML, which dials a number."""
        dial = Element("Dial", timeout=str(RING_S))
        if briefing:
            said = Element("Response")
            SubElement(said, "Speak").text = briefing
            dial.set("confirmSound", self._published(said))
        SubElement(dial, "User" if is_sip(to) else "Number").text = to
        response = Element("Response")
        response.append(dial)
        return self._request("POST", legs="aleg", aleg_url=self._published(response), aleg_method="GET")

    def send_digits(self, digits: str) -> HttpRequest:
        """Return the request that presses keys."""
        return self._request("POST", "DTMF/", digits=digits, leg="aleg")

    def hold(self) -> HttpRequest | None:
        """Return the request that plays music to the caller."""
        return (
            self._request("POST", "Play/", urls=self._music, legs="aleg", loop=True) if self._music else None
        )

    def resume(self) -> HttpRequest | None:
        """Return the request that stops the music."""
        return self._request("DELETE", "Play/") if self._music else None

    def _published(self, document: Element) -> str:
        if not (url := self._publish(tostring(document, encoding="unicode"))):
            raise cannot("transfer calls", "The server's public address is unknown: see public_url.")
        return url

    def _request(self, method: Literal["POST", "DELETE"], path: str = "", **body: Any) -> HttpRequest:
        digits = path == "DTMF/"  # pressed twice, they are other digits
        return HttpRequest(
            method, self._call + path, self._authorization, json=body or None, again=not digits
        )
