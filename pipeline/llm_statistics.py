"""What a language model's engine counts: reuse of its KV cache, and guesses of speculative decoding."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class LlmStatistics:
    """Counts since the engine started. The difference of two readings has the counts in between.

    prompts: prompts that were read, for replies and by ``Llm.warm``.
    prompt_tokens: tokens of these prompts.
    cached_tokens: of these, tokens that were in the KV cache, so that they were not read again.
    drafted_tokens: tokens guessed by speculative decoding.
    accepted_tokens: guesses that the model itself would have chosen, which became part of an answer.
    """

    prompts: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def cached_share(self) -> float:
        """Share of the prompt tokens that were in the cache, from 0 to 1; 0 without prompts."""
        return self.cached_tokens / max(1, self.prompt_tokens)

    @property
    def accepted_share(self) -> float:
        """Share of the guessed tokens that were accepted, from 0 to 1; 0 without guesses."""
        return self.accepted_tokens / max(1, self.drafted_tokens)

    def __add__(self, other: LlmStatistics) -> LlmStatistics:
        """Return the sum of each count."""
        return LlmStatistics(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, earlier: LlmStatistics) -> LlmStatistics:
        """Return the counts since an earlier reading of the same engine."""
        return LlmStatistics(*(now - then for now, then in zip(astuple(self), astuple(earlier), strict=True)))
