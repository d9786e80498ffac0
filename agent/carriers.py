"""The settings of telephone carriers: what their REST interfaces need to hang up, transfer and call."""

from __future__ import annotations

from pydantic import BaseModel, Field, SecretStr

URL = r"^https?://[\w.:-]+(/\S*)?$"
"""The form of a REST interface's address."""


class CarrierSettings(BaseModel):
    """The settings of telephone carriers. Twilio's auth token is among those of the server."""

    phone_number: str = Field(
        "",
        pattern=r"^(\+?\d{3,15})?$",
        description="caller id of outgoing calls, and of calls to whom the agent announces a caller",
    )
    hold_music_url: str = Field(
        "",
        pattern=f"{URL}|^$",
        description="WAV or MP3 for callers on hold: Telnyx, Plivo and Vonage play it",
    )
    twilio_account_sid: str = Field(
        "", pattern="^(AC[0-9a-f]{32})?$", description="your Twilio account; inbound calls say it themselves"
    )
    twilio_url: str = Field("https://api.twilio.com", pattern=URL, description="Twilio's REST interface")
    telnyx_api_key: SecretStr = Field(SecretStr(""), description="your Telnyx API key")
    telnyx_connection_id: str = Field("", description="your Telnyx Call Control application, to call from")
    telnyx_url: str = Field("https://api.telnyx.com", pattern=URL, description="Telnyx's REST interface")
    plivo_auth_id: str = Field("", pattern="^[A-Z0-9]*$", description="your Plivo account")
    plivo_auth_token: SecretStr = Field(SecretStr(""), description="your Plivo account's auth token")
    plivo_url: str = Field("https://api.plivo.com", pattern=URL, description="Plivo's REST interface")
    vonage_application_id: str = Field("", description="your Vonage application")
    vonage_private_key: SecretStr = Field(
        SecretStr(""), description="your Vonage application's private key: PEM, or the path of a file"
    )
    vonage_url: str = Field("https://api.nexmo.com", pattern=URL, description="Vonage's REST interface")
    ari_url: str = Field(
        "", pattern=f"{URL}|^$", description="Asterisk's HTTP server with ARI, for Stasis calls"
    )
    ari_user: str = Field("", description="user of ARI")
    ari_password: SecretStr = Field(SecretStr(""), description="password of ARI")
    ari_context: str = Field("default", description="context in Asterisk's dialplan of transfers")
    ari_endpoint: str = Field(
        "",
        pattern=r"^([^{}\s]*\{number\}[^{}\s]*)?$",
        description="what Asterisk dials for an outgoing call: PJSIP/{number}@trunk",
    )
    ari_agent: str = Field(
        "602@rejoinder",
        pattern=r"^[^@\s]+@[^@\s]+$",
        description="extension and context in Asterisk's dialplan that connect an outgoing call with us",
    )
