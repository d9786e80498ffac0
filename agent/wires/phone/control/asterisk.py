"""Asterisk's REST interface, ARI: rest-api/api-docs/channels.json and bridges.json of its sources.

chan_websocket says which channel is its own, not which one is the caller's: that is the other one in its
bridge. ARI moves, holds and presses keys on channels in a Stasis application only; others get 409.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlencode

from rejoinder.agent.app.control import cannot
from rejoinder.agent.wires.phone.control.api import ANNOUNCE, CarrierApi, HttpRequest, basic, segment

PARAMETERS = "REJOINDER"
"""Channel variable with the parameters of an outgoing call, in the form of chan_websocket's option ``v``."""


def originate(
    ari: str, authorization: str, endpoint: str, agent: str, caller: str, parameters: Mapping[str, str]
) -> HttpRequest:
    """Return the request that calls a person, and connects them with the agent once they have answered.

    ari: the address of ARI. endpoint: what Asterisk dials. agent: an extension and its context, such as
    ``602@rejoinder``, which dials the WebSocket channel. caller: the caller id, "" for Asterisk's own.
    parameters: of the WebSocket's URL.
    """
    extension, _, context = agent.partition("@")
    given = ",".join(f"{segment(name)}={segment(value)}" for name, value in parameters.items())
    body: dict[str, Any] = {"endpoint": endpoint, "extension": extension, "context": context, "priority": 1}
    body |= {"callerId": caller} if caller else {}
    body["variables"] = {PARAMETERS: given}
    return HttpRequest("POST", f"{ari}/channels", authorization, body, again=False)


class AsteriskApi(CarrierApi):
    """One call of Asterisk.

    url: of its HTTP server. user, password: of ARI. channel: the identifier of our own channel. context: in
    the dialplan, of transfers: their destinations are its extensions.
    """

    name = "Asterisk"
    tones = False

    def __init__(self, url: str, user: str, password: str, channel: str, context: str) -> None:
        self._ari = f"{url.rstrip('/')}/ari"
        self._authorization = basic(user, password)
        self._own = channel
        self._caller = ""
        self._context = context

    def locate(self) -> HttpRequest:
        """Return the request for the bridges: ours has the caller's channel."""
        return HttpRequest("GET", f"{self._ari}/bridges", self._authorization)

    def located(self, answer: Any) -> None:
        """Take the bridges. Raises ToolError where ours has no other channel."""
        for bridge in answer or []:
            channels = bridge.get("channels", [])
            others = [channel for channel in channels if channel != self._own]
            if len(others) < len(channels) and len(others) == 1:
                self._caller = others[0]
                return
        raise cannot("be controlled", "Its bridge has no single other channel.")

    def hang_up(self) -> HttpRequest:
        """Return the request that ends the caller's call."""
        return self._request("DELETE", "")

    def transfer(self, to: str, briefing: str = "") -> HttpRequest:
        """Return the request that sends the caller to an extension of the dialplan."""
        if briefing:
            raise cannot("announce a transfer", ANNOUNCE)
        return self._request("POST", "/continue", context=self._context, extension=to, priority="1")

    def send_digits(self, digits: str) -> HttpRequest:
        """Return the request that presses keys."""
        return self._request("POST", "/dtmf", dtmf=digits)

    def hold(self) -> HttpRequest:
        """Return the request that plays music on hold to the caller."""
        return self._request("POST", "/moh")

    def resume(self) -> HttpRequest:
        """Return the request that stops the music."""
        return self._request("DELETE", "/moh")

    def _request(self, method: Literal["POST", "DELETE"], path: str, **query: str) -> HttpRequest:
        url = f"{self._ari}/channels/{segment(self._caller)}{path}"
        again = path != "/dtmf"
        return HttpRequest(
            method, f"{url}?{urlencode(query)}" if query else url, self._authorization, again=again
        )
