"""How the chat servers named by the field differ on the wire, as data: each from its published source.

The sources, at the versions of November 2026:

- vLLM: github.com/vllm-project/vllm, vllm/entrypoints/openai; docs.vllm.ai, features/reasoning_outputs. NIM 2
  serves the same endpoints by vLLM (docs.nvidia.com/nim/large-language-models, reference/api-reference).
- TGI: github.com/huggingface/text-generation-inference, docs/openapi.json, router/src/server.rs and chat.rs.
- TensorRT-LLM: github.com/NVIDIA/TensorRT-LLM, tensorrt_llm/serve/openai_protocol.py, openai_server.py and
  postprocess_handlers.py.
- SGLang: github.com/sgl-project/sglang, python/sglang/srt/entrypoints/openai/serving_chat.py.
- Dynamo: github.com/ai-dynamo/dynamo, lib/llm/src/http/service/openai.rs and disconnect.rs.
- Triton: github.com/triton-inference-server/server, python/openai/openai_frontend.
- llama-server: github.com/ggml-org/llama.cpp, tools/server/README.md.
- Ollama: github.com/ollama/ollama, openai/openai.go and middleware/openai.go.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Refusal = Callable[[int, str], dict[str, Any]]
"""Takes a status and a message, and returns the body of an error."""
Fragments = Callable[[str, str], list[dict[str, Any]]]
"""Takes the name and the arguments of a tool call, and returns the ``tool_calls`` deltas."""


def nested(status: int, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": status}}


def flat(status: int, message: str) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": status}


def named_code(status: int, message: str) -> dict[str, Any]:
    return {"message": message, "type": "Bad Request", "code": status}


def typed(status: int, message: str) -> dict[str, Any]:
    return {"error": message, "error_type": {422: "validation", 429: "overloaded"}.get(status, "generation")}


def detail(status: int, message: str) -> dict[str, Any]:
    return {"detail": message}


def in_pieces(name: str, arguments: str) -> list[dict[str, Any]]:
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
    half = len(arguments) // 2
    later = [{"index": 0, "function": {"arguments": part}} for part in (arguments[:half], arguments[half:])]
    return [first, *later]


def in_pieces_with_identifier(name: str, arguments: str) -> list[dict[str, Any]]:
    """TGI: each delta has the identifier; the name is null after the first one."""
    half = len(arguments) // 2
    return [
        {"index": 0, "id": "0", "type": "function", "function": {"name": called, "arguments": part}}
        for called, part in ((name, arguments[:half]), (None, arguments[half:]))
    ]


def in_pieces_with_name(name: str, arguments: str) -> list[dict[str, Any]]:
    """Triton, a tool by its name: each delta has the name, and none an identifier."""
    half = len(arguments) // 2
    return [
        {"index": 0, "function": {"name": name, "arguments": part}}
        for part in (arguments[:half], arguments[half:])
    ]


def whole(name: str, arguments: str) -> list[dict[str, Any]]:
    function = {"name": name, "arguments": arguments}
    return [{"index": 0, "id": "call_1", "type": "function", "function": function}]


def as_object(name: str, arguments: str) -> list[dict[str, Any]]:
    """TGI's schema of a call that is not streamed, which gateways stream as it is: no index, an object."""
    return [{"id": 0, "type": "function", "function": {"name": name, "arguments": json.loads(arguments)}}]


@dataclass(frozen=True)
class Kind:
    """One kind of chat server.

    owned_by: of its models in ``GET /v1/models``; "" for the model's own name.
    warm_tokens: what the adapter is expected to send to fill the cache; None for no request.
    refuses: fields of a request that it does not allow. zero: its refusal of ``max_tokens`` 0, "" if it
        accepts that.
    missing: status and message for an unknown model; None if it serves any name.
    role: whether the role is in a chunk of its own ("first") or in each delta ("each").
    thoughts: the field of a delta with thoughts, "" for none.
    breaks: the events of an error in mid-stream; "" if only the connection ends. says: what of it is told.
    overload: status and message when it is overloaded.
    start, end: around the JSON of an event. finish: of an answer.
    """

    name: str
    owned_by: str
    warm_tokens: int | None
    error: Refusal = nested
    refuses: frozenset[str] = frozenset()
    zero: tuple[int, str] | None = None
    missing: tuple[int, str] | None = None
    role: str = "first"
    thoughts: str = "reasoning_content"
    calls: Fragments = in_pieces
    breaks: str = ""
    says: str = "the answer broke off"
    overload: tuple[int, str] = (429, "Too many requests")
    start: str = "data: "
    end: str = "\n\n"
    first_end: str = "\n\n"
    ping: str = ""
    finish: str = "stop"
    done: bool = True

    def event(self, data: dict[str, Any]) -> str:
        return f"{self.start}{json.dumps(data)}{self.end}"


def broken(body: dict[str, Any], done: bool = True) -> str:
    return f"data: {json.dumps(body)}\n\n" + "data: [DONE]\n\n" * done


DIED = "CUDA error: an illegal memory access was encountered"
KINDS = [
    Kind(
        "vllm",
        "vllm",
        1,
        zero=(400, "max_tokens must be at least 1, got 0."),
        missing=(404, "The model `{}` does not exist"),
        thoughts="reasoning",
        breaks=broken(nested(500, DIED)),
        says=DIED,
    ),
    Kind(
        "tgi",
        "",
        1,
        error=typed,
        zero=(422, "Input validation error: `max_new_tokens` must be strictly positive"),
        role="each",
        thoughts="",
        calls=in_pieces_with_identifier,
        breaks=broken(typed(424, f"Request failed during generation: {DIED}"), done=False),
        says=f"Request failed during generation: {DIED}",
        overload=(429, "Model is overloaded"),
        start="data:",
        ping=":\n\n",
        finish="eos_token",
    ),
    Kind("tgi-2", "", 1, error=typed, role="each", thoughts="", breaks="data:[DONE]\n\n", start="data:"),
    Kind(
        "tensorrt-llm",
        "tensorrt_llm",
        1,
        error=flat,
        refuses=frozenset({"parallel_tool_calls"}),
        first_end=" \n\n",
    ),
    Kind("sglang", "sglang", 1, error=flat, breaks=broken(nested(400, DIED)), says=DIED),
    Kind(
        "dynamo",
        "nvidia",
        1,
        error=named_code,
        missing=(404, "Model not found"),
        calls=whole,
        breaks=f"event: error\n: {DIED}\n\n",
        overload=(529, "Overloaded"),
        ping=":\n\n",
    ),
    Kind(
        "triton",
        "Triton Inference Server",
        None,
        error=detail,
        missing=(400, "Unknown model: {}"),
        thoughts="",
        calls=in_pieces_with_name,
    ),
    Kind(
        "llama-server",
        "llamacpp",
        0,
        breaks=broken(nested(500, DIED), done=False),
        says=DIED,
        ping=":\n\n",
        overload=(503, "Loading model"),
    ),
    Kind(
        "ollama",
        "library",
        1,
        missing=(404, 'model "{}" not found'),
        role="each",
        thoughts="reasoning",
        calls=whole,
        breaks="data: [DONE]\n\n",
    ),
    Kind(
        "a strict gateway",
        "somebody",
        None,
        error=detail,
        refuses=frozenset({"parallel_tool_calls", "stream_options", "max_tokens"}),
        missing=(404, "no such model"),
        calls=as_object,
        done=False,
    ),
]
"""All kinds. The last one is no product: it has what a gateway in front of these may do."""
