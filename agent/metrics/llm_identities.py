"""Which language model a trace names: its provider and its public name, by the name of a candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rejoinder.agent.config import Settings
from rejoinder.agent.model_names import known_as
from rejoinder.models.llm.failover.opening import public_names, several
from rejoinder.models.llm.spec_list import all_listed

REMOTE_PROVIDERS = ("openai",)
"""Prefixes of language models behind HTTP."""


@dataclass(frozen=True, slots=True)
class LlmIdentity:
    """A language model. provider: as in ``gen_ai.provider.name``. model: its public name."""

    provider: str
    model: str

    @property
    def remote(self) -> bool:
        """Whether it is behind HTTP."""
        return self.provider in REMOTE_PROVIDERS


@dataclass(frozen=True, slots=True)
class LlmIdentities:
    """The language models of a server.

    first: the one that is asked first. named: those of a list, by the names of the candidates. label: the
    name of the first one in metrics, where a trace has none.
    """

    first: LlmIdentity
    named: Mapping[str, LlmIdentity] = field(default_factory=dict)
    label: str = ""

    def of(self, names: Sequence[str]) -> LlmIdentity:
        """Return the last of the models that wrote a reply. names: those of the candidates; none: the first.

        An agent's own list may have models that are not in the settings. Their names begin with a prefix.
        """
        if not names:
            return self.first
        prefix, _, model = names[-1].partition(":")
        return self.named.get(names[-1]) or LlmIdentity(prefix, model or prefix)


def llm_identities(settings: Settings) -> LlmIdentities:
    """Return the language models of the settings."""
    tables = settings.models
    found = all_listed(settings.llm, settings.busy_llm, tables)
    candidates = {**{name: name for name in tables}, **dict(zip(public_names(found), found, strict=True))}
    named = {
        name: identity(tables[one].full_spec if one in tables else one) for name, one in candidates.items()
    }
    first = public_names(found)[0]
    alone = not several(settings.llm, settings.placement())
    return LlmIdentities(named[first], named, named[first].model if alone else first)


def identity(spec: str) -> LlmIdentity:
    """Return the language model that a spec names."""
    return LlmIdentity(spec.partition(":")[0], known_as(spec))
