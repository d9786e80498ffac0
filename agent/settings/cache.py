"""The settings of the cache of answers."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from rejoinder.models.caching.store import CacheLimits


class CacheSettings(BaseModel):
    """The settings of the cache of answers. REJOINDER_CACHE is another thing: the folder of the models."""

    answer_cache: str = Field(
        "",
        description="where answers are kept to be used again, sqlite:PATH or redis://HOST; empty: nowhere",
    )
    answer_cache_match: Literal["meaning", "exact"] = Field(
        "exact",
        description="what a question must share with a cached one: its words, or in English its meaning",
    )
    answer_cache_ttl_s: float = Field(
        86_400.0, gt=0.0, le=31_536_000.0, description="seconds that an answer is kept"
    )
    answer_cache_entries: int = Field(1_000, ge=1, le=1_000_000, description="most answers that are kept")
    answer_cache_mb: int = Field(
        256, ge=1, le=1_000_000, description="most megabytes of answers, about 50 kB for a second of speech"
    )

    @property
    def cache_limits(self) -> CacheLimits:
        """The limits of the cache."""
        return CacheLimits(self.answer_cache_ttl_s, self.answer_cache_entries, self.answer_cache_mb * 2**20)
