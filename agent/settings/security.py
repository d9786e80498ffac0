"""The settings of the file of API keys and of TLS, whose files are read again when they change."""

from __future__ import annotations

from pydantic import BaseModel, Field


class SecuritySettings(BaseModel):
    """The settings of the file of API keys, and of TLS."""

    api_keys_file: str = Field(
        "",
        description="file of further API keys' hashes, one per line; read again when it changes; empty: none",
    )
    tls_cert: str = Field(
        "",
        description="PEM file of the server's certificate and its chain: serve https and wss; empty: no TLS",
    )
    tls_key: str = Field("", description="PEM file of the certificate's private key; empty: in tls_cert")
