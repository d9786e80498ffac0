"""Finds out whether a chat server keeps the prompts that it has read, and which request fills its cache."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

log = logging.getLogger(__name__)

PROBE_SECONDS = 3.0
"""Longest wait for the list of models, which names the server."""
NO_LIST = (404, 405, 501)
"""Statuses of a server that has no list of models. After another one, such as that of a server which still
loads its model, it is asked again."""
FEWEST_TOKENS = 1
"""Token limit of a request that fills the cache of an unknown server. Few servers accept 0: vLLM and TGI
refuse it, and SGLang takes it for no limit at all."""


class ChatServer(NamedTuple):
    """A kind of chat server.

    name: its name. warm_tokens: token limit of a request that only fills the prefix cache; None if nothing is
        known of a cache, and then no such request is sent.
    """

    name: str
    warm_tokens: int | None


UNKNOWN = ChatServer("an unknown server", None)
"""A server of which nothing is known."""
OWNERS = {
    "vllm": ChatServer("vLLM", 1),
    "sglang": ChatServer("SGLang", 1),
    "llamacpp": ChatServer("llama-server", 0),
    "tensorrt_llm": ChatServer("TensorRT-LLM", 1),
    "nvidia": ChatServer("Dynamo", 1),
    "library": ChatServer("Ollama", 1),
    "Triton Inference Server": ChatServer("Triton", None),
}
"""Servers by ``owned_by`` in ``GET /v1/models``, as each one's source sets it (docs/guides/servers/index.md).

llama-server's README says of 0 tokens: the prompt is evaluated into the cache. Triton does not tell which
backend serves a model, and so whether there is a cache.
"""
TGI = ChatServer("TGI", 1)
"""Its models are owned by a model of the same name (router/src/server.rs, ``openai_get_model_info``)."""


def recognised(listed: Sequence[Any], model: str) -> ChatServer:
    """Return the kind of server that lists these models, each with an ``id`` and an ``owned_by``."""
    named = [entry for entry in listed if getattr(entry, "id", None) == model] or listed
    owner = getattr(named[0], "owned_by", None) if named else None
    if owner and owner == getattr(named[0], "id", None):
        return TGI
    return OWNERS.get(owner, UNKNOWN) if isinstance(owner, str) else UNKNOWN


class PrefixCache:
    """What is known of one server's prefix cache; it asks the server once.

    client: the client of the openai package. name: name of the model in the log.
    can_warm: whether requests that only fill the cache are wanted. None: if the server is known to have a
        cache, and is reached by plain HTTP. Behind HTTPS is often a server that bills them.
    """

    def __init__(self, client: Any, model: str, name: str, can_warm: bool | None) -> None:
        self._client = client
        self._model = model
        self._name = name
        self._can_warm = can_warm
        self._server: ChatServer | None = None

    async def warm_tokens(self) -> int | None:
        """Return the token limit of a request that fills the cache, None for no such request.

        A server that does not answer is asked again the next time. Cancelling closes the request.
        """
        if self._can_warm is False or (self._can_warm is None and self._client.base_url.scheme == "https"):
            return None
        server = self._server or await self._ask()
        if self._can_warm and server.warm_tokens is None:
            return FEWEST_TOKENS
        return server.warm_tokens

    async def _ask(self) -> ChatServer:
        import openai

        try:
            listed = await self._client.models.list(timeout=PROBE_SECONDS)
            server = recognised(listed.data or (), self._model)
        except Exception as error:  # only speed is lost: the reply itself reports the error
            log.debug("%s does not list its models: %s", self._name, error)
            if not isinstance(error, openai.APIStatusError) or error.status_code not in NO_LIST:
                return UNKNOWN
            server = UNKNOWN
        if self._server is None:
            log.info("%s is served by %s", self._name, server.name)
        self._server = server
        return server
