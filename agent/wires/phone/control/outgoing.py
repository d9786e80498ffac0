"""Outgoing calls: the request that lets a carrier call a number and connect it with the agent.

Sources: https://www.twilio.com/docs/voice/api/call-resource#create-a-call-resource,
https://developers.telnyx.com/api-reference/call-commands/dial, https://www.plivo.com/docs/voice/api/call/make-a-call,
https://developer.vonage.com/en/api/voice#createCall, and Asterisk's rest-api/api-docs/channels.json.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from rejoinder.agent.app.call import DETECT, DETECTION
from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.mistakes import variable
from rejoinder.agent.wires.phone.control.api import HttpRequest, bare, basic, segment
from rejoinder.agent.wires.phone.control.asterisk import originate
from rejoinder.agent.wires.phone.control.documents import PLIVO_ANSWER
from rejoinder.agent.wires.phone.control.twilio import xml

VIA = ("twilio", "telnyx", "plivo", "vonage", "asterisk")
"""Carriers and telephone systems that call a number on request."""


def outgoing(
    settings: Settings, via: str, number: str, parameters: Mapping[str, str], detect: bool = False
) -> HttpRequest:
    """Return the request of an outgoing call.

    via: one of ``VIA``. number: in E.164 form, with +. parameters: of the call, as the agent gets them.
    detect: whether the agent is to find out if a machine answers.
    Raises ConfigError where a setting is missing, or the carrier passes no parameters.
    """
    given = {**parameters, DETECTION: DETECT} if detect else parameters
    if via == "asterisk":
        authorization = basic(needed(settings, "ari_user"), needed(settings, "ari_password"))
        ari, endpoint = f"{needed(settings, 'ari_url').rstrip('/')}/ari", needed(settings, "ari_endpoint")
        endpoint, given = endpoint.replace("{number}", number), {"called": number, **given}
        return originate(ari, authorization, endpoint, settings.ari_agent, settings.phone_number, given)
    caller, base = needed(settings, "phone_number"), needed(settings, "public_url").rstrip("/")
    stream = base.replace("http", "ws", 1) + "/v1/phone"
    query = f"?{DETECTION}={DETECT}" if detect else ""
    match via:
        case "twilio":
            account, token = needed(settings, "twilio_account_sid"), needed(settings, "twilio_auth_token")
            form = {"To": number, "From": caller, "Twiml": connected(stream, given)}
            url = f"{settings.twilio_url}/2010-04-01/Accounts/{segment(account)}/Calls.json"
            return HttpRequest("POST", url, basic(account, token), form=form, again=False)
        case "vonage":
            from rejoinder.agent.wires.phone.control.vonage import bearer, key_of  # it needs a package

            needed(settings, "vonage_private_key")
            body = vonage_call(number, caller, stream, given)
            authorization = bearer(needed(settings, "vonage_application_id"), key_of(settings))
            return HttpRequest("POST", f"{settings.vonage_url}/v1/calls", authorization, body, again=False)
    if parameters:
        raise ConfigError(f"{via} passes no parameters to the agent with a call")
    if via == "telnyx":
        key, body = needed(settings, "telnyx_api_key"), telnyx_call(number, caller, stream + query)
        body["connection_id"] = needed(settings, "telnyx_connection_id")
        return HttpRequest("POST", f"{settings.telnyx_url}/v2/calls", f"Bearer {key}", body)
    account, token = needed(settings, "plivo_auth_id"), needed(settings, "plivo_auth_token")
    url = f"{settings.plivo_url}/v1/Account/{segment(account)}/Call/"
    body = {
        "from": bare(caller),
        "to": bare(number),
        "answer_url": base + PLIVO_ANSWER + query,
        "answer_method": "GET",
    }
    return HttpRequest("POST", url, basic(account, token), body, again=False)


def connected(stream: str, parameters: Mapping[str, str]) -> str:
    """Return the TwiML that connects a call with the agent."""
    response = Element("Response")
    inner = SubElement(SubElement(response, "Connect"), "Stream", url=stream)
    for name, value in parameters.items():
        SubElement(inner, "Parameter", name=name, value=value)
    return xml(response)


def vonage_call(number: str, caller: str, stream: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the body of a call by Vonage."""
    socket = {"type": "websocket", "uri": stream, "content-type": "audio/l16;rate=16000"}
    return {
        "to": [{"type": "phone", "number": bare(number)}],
        "from": {"type": "phone", "number": bare(caller)},
        "ncco": [{"action": "connect", "endpoint": [{**socket, "headers": dict(parameters)}]}],
    }


def telnyx_call(number: str, caller: str, stream: str) -> dict[str, Any]:
    """Return the body of a call by Telnyx, without its connection."""
    how = {"stream_track": "inbound_track", "stream_bidirectional_mode": "rtp"}
    return {"to": number, "from": caller, "stream_url": stream, **how, "command_id": secrets.token_hex(16)}


def call_id(answer: Any) -> str:
    """Return the carrier's identifier of a call, from the answer to its request, "" if it has none."""
    inner = answer.get("data", answer) if isinstance(answer, dict) else {}
    names = ("sid", "call_control_id", "request_uuid", "uuid", "id")
    return next((str(inner[name]) for name in names if name in inner), "")


def needed(settings: Settings, name: str) -> str:
    """Return the text of a setting. Raises ConfigError where it is not set."""
    value = getattr(settings, name)
    text = value if isinstance(value, str) else value.get_secret_value()
    if not text:
        raise ConfigError(f"set {name} (environment {variable(name)}): an outgoing call needs it")
    return str(text)
