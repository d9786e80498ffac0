"""The settings of the file of API keys and of TLS, whose files are read again when they change."""

from __future__ import annotations

from pydantic import BaseModel, Field


class SecuritySettings(BaseModel):
    """The settings of the file of API keys."""

    api_keys_file: str = Field(
        "",
        description="file of further API keys' hashes, one per line; read again when it changes; empty: none",
    )
