"""Chooses the control of each telephone call, by its carrier and the credentials in the settings."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pydantic import SecretStr
from starlette.websockets import WebSocketDisconnect

from rejoinder.agent.app.tool import ToolError
from rejoinder.agent.carriers import CarrierSettings
from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.wires.phone.carrier import Carrier
from rejoinder.agent.wires.phone.control.api import CarrierApi
from rejoinder.agent.wires.phone.control.asterisk import AsteriskApi
from rejoinder.agent.wires.phone.control.control import PhoneControl
from rejoinder.agent.wires.phone.control.documents import Document, Documents
from rejoinder.agent.wires.phone.control.plivo import PlivoApi
from rejoinder.agent.wires.phone.control.spoken import spoken
from rejoinder.agent.wires.phone.control.telnyx import TelnyxApi
from rejoinder.agent.wires.phone.control.twilio import TwilioApi
from rejoinder.agent.wires.phone.protocol import Phone, called_of
from rejoinder.agent.wires.socket import PlainSocket, Socket
from rejoinder.models.hints import NotInstalled, needing
from rejoinder.pipeline import ModelError, Overloaded, Tts

if TYPE_CHECKING:
    from rejoinder.agent.wires.phone.control.client import CarrierClient

log = logging.getLogger(__name__)


class Controls:
    """The controls of a server's telephone calls.

    documents: those that carriers fetch from the server. Raises ConfigError where a package is missing for
    the credentials that are set, or a private key cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        self.documents = Documents(settings.public_url)
        self._settings = settings
        self._client = open_client() if credentials(settings) else None
        self._vonage_key = vonage_key(settings)

    async def aclose(self) -> None:
        """Close the connections to the carriers. Cancelling leaves them to the operating system."""
        if self._client:
            await self._client.aclose()

    def of(self, phone: Phone, voice: Tts) -> PhoneControl:
        """Return the control of one call. voice: of the agent."""
        api = self._api(phone.carrier)
        return PhoneControl(api, self._client, lambda: phone.playing, lambda text: self._speak(voice, text))

    async def refuse(self, carrier: Carrier, socket: Socket) -> None:
        """End the line of a call that the agent refuses, where its carrier can be asked to.

        Closing the stream alone ends the line at some carriers only. Cancelling may leave the line open.
        """
        control = PhoneControl(self._api(carrier), self._client, lambda: False, silent)
        try:
            await control.hang_up()
        except ToolError as error:
            log.warning("call %s: it is refused, and its line was not ended: %s", carrier.id, error)
        with suppress(Overloaded, WebSocketDisconnect):
            await PlainSocket(socket).send([] if carrier.ending is None else [carrier.ending])

    async def _speak(self, voice: Tts, text: str) -> str:
        if not self._settings.public_url:
            return ""
        try:
            return self._publish(await spoken(voice, text))
        except ModelError as error:
            raise ToolError("The briefing could not be spoken.") from error

    def _api(self, carrier: Carrier) -> CarrierApi:
        given, music = self._settings, self._settings.hold_music_url
        number = given.phone_number or called_of(carrier)
        match carrier.name:
            case "Twilio" if token := given.twilio_auth_token.get_secret_value():
                account = given.twilio_account_sid or carrier.account
                return TwilioApi(given.twilio_url, account, token, carrier.id, number)
            case "Telnyx" if key := given.telnyx_api_key.get_secret_value():
                return TelnyxApi(given.telnyx_url, key, carrier.id, music)
            case "Plivo" if token := given.plivo_auth_token.get_secret_value():
                account = given.plivo_auth_id or carrier.account
                return PlivoApi(given.plivo_url, account, token, carrier.id, music, self._publish)
            case "Vonage" if self._vonage_key and carrier.id:
                from rejoinder.agent.wires.phone.control.vonage import VonageApi  # it needs a package

                application = given.vonage_application_id
                return VonageApi(given.vonage_url, application, self._vonage_key, carrier.id, number, music)
            case "Asterisk" if given.ari_url:
                password = given.ari_password.get_secret_value()
                return AsteriskApi(given.ari_url, given.ari_user, password, carrier.id, given.ari_context)
        return CarrierApi()

    def _publish(self, document: Document) -> str:
        return self.documents.publish(document, time.monotonic())


async def silent(text: str) -> str:
    """Return no audio: nothing is spoken to a caller who is refused. There is nothing to cancel."""
    return ""


def credentials(settings: CarrierSettings) -> bool:
    """Return whether any carrier's credentials are set."""
    secrets = [value for name, value in settings if name.endswith(("_token", "_key", "_password"))]
    return any(secret.get_secret_value() for secret in secrets if isinstance(secret, SecretStr))


def open_client() -> CarrierClient:
    """Return a client for carriers. Raises ConfigError where the packages are not installed."""
    try:
        with needing("phone", "A carrier's REST interface"):
            from rejoinder.agent.wires.phone.control.client import CarrierClient
    except NotInstalled as error:
        raise ConfigError(str(error)) from None
    return CarrierClient()


def vonage_key(settings: CarrierSettings) -> str:
    """Return Vonage's private key, "" for none. Raises ConfigError where it cannot be read."""
    if not settings.vonage_private_key.get_secret_value():
        return ""
    from rejoinder.agent.wires.phone.control.vonage import key_of  # it needs a package

    return key_of(settings)
