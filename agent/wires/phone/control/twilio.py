"""Twilio's Call resource: https://www.twilio.com/docs/voice/api/call-resource, and its TwiML.

A call follows new TwiML at once, which ends its Media Stream. So there is no command for digits, nor music,
beside a stream.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, tostring

from rejoinder.agent.app.control import cannot
from rejoinder.agent.wires.phone.control.api import (
    RING_S,
    CarrierApi,
    Dialled,
    HttpRequest,
    Values,
    basic,
    is_sip,
    progress,
    segment,
)

TWILIO_RINGING = ("queued", "initiated", "ringing")
"""Twilio's states of a call before somebody answers."""


class TwilioApi(CarrierApi):
    """One call of Twilio.

    url: of the interface. account, token: of the account. call: its identifier. number: the caller id of
    calls to third persons, "" if unknown.
    """

    name = "Twilio"

    def __init__(self, url: str, account: str, token: str, call: str, number: str) -> None:
        self._calls = f"{url}/2010-04-01/Accounts/{segment(account)}/Calls"
        self._authorization = basic(account, token)
        self._call = call
        self._number = number
        self.rooms = self

    def hang_up(self) -> HttpRequest:
        """Return the request that ends the call."""
        return self._update(self._call, Status="completed")

    def transfer(self, to: str, briefing: str = "") -> HttpRequest:
        """Return the request that lets the call dial a number."""
        response = Element("Response")
        dial = SubElement(response, "Dial")
        SubElement(dial, "Sip" if is_sip(to) else "Number").text = to
        return self._update(self._call, Twiml=xml(response))

    def dial(self, to: str, briefing: str, room: str) -> HttpRequest:
        """Return the request that calls a person, who hears the briefing and waits in the room."""
        if not self._number:
            raise cannot("announce a transfer", "Its own number is unknown: see the setting phone_number.")
        response = Element("Response")
        SubElement(response, "Say").text = briefing
        response.append(conference(room))
        form = {"To": to, "From": self._number, "Twiml": xml(response), "Timeout": str(RING_S)}
        return HttpRequest("POST", f"{self._calls}.json", self._authorization, form=form, again=False)

    def dialled(self, answer: Values) -> str:
        """Return the identifier of that call."""
        return str(answer["sid"])

    def look(self, id: str) -> HttpRequest:
        """Return the request for the state of that call."""
        return HttpRequest("GET", f"{self._calls}/{segment(id)}.json", self._authorization)

    def state(self, answer: Values) -> Dialled:
        """Return the state of that call."""
        return progress(answer, "in-progress", TWILIO_RINGING)

    def join(self, room: str) -> HttpRequest:
        """Return the request that brings the caller into the room."""
        response = Element("Response")
        response.append(conference(room))
        return self._update(self._call, Twiml=xml(response))

    def drop(self, id: str) -> HttpRequest:
        """Return the request that ends that call."""
        return self._update(id, Status="completed")

    def _update(self, call: str, **form: str) -> HttpRequest:
        return HttpRequest("POST", f"{self._calls}/{segment(call)}.json", self._authorization, form=form)


def conference(room: str) -> Element:
    """Return the TwiML that takes a call into a conference of two, which ends when one of them leaves."""
    dial = Element("Dial")
    SubElement(dial, "Conference", beep="false", endConferenceOnExit="true").text = room
    return dial


def xml(element: Element) -> str:
    """Return a document for a request."""
    return tostring(element, encoding="unicode")
