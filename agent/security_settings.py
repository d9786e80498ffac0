"""The settings of TLS and of the file of API keys, both of which are read again when their files change."""

from __future__ import annotations

from pydantic import BaseModel, Field


class SecuritySettings(BaseModel):
    """The settings of TLS and of the file of API keys."""

    api_keys_file: str = Field(
        "",
        description="file of further API keys' hashes, one per line; read again when it changes; empty: none",
    )
    tls_cert: str = Field(
        "",
        description="PEM file of the server's certificate and its chain: serve https and wss; empty: no TLS",
    )
    tls_key: str = Field("", description="PEM file of the certificate's private key; empty: in tls_cert")
