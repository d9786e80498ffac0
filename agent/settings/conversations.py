"""The settings of the store of conversations."""

from __future__ import annotations

from pydantic import BaseModel, Field, SecretStr


class ConversationSettings(BaseModel):
    """The settings of the store of conversations, from which clients resume them after a restart."""

    conversations: SecretStr = Field(
        SecretStr(""),
        description="where conversations are kept, for clients to resume after a restart or at another "
        "server: sqlite:PATH or redis://HOST; empty: in memory only",
    )
    conversations_keep_s: float = Field(
        300.0,
        gt=0.0,
        le=86_400.0,
        description="seconds that conversations keeps one after its server was last seen",
    )
    conversations_most: int = Field(1_000, ge=1, le=1_000_000, description="most conversations that are kept")
    conversations_mb: int = Field(
        256, ge=1, le=1_000_000, description="most megabytes of conversations, about 20 kB for ten minutes"
    )
