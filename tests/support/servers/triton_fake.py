"""Triton Inference Server on loopback, as a fake of its generate and model configuration extensions.

It follows docs/protocol/extension_generate.md and extension_model_configuration.md of
github.com/triton-inference-server/server. The models' inputs and parameters are those of
triton_backend/all_models/inflight_batcher_llm in github.com/NVIDIA/TensorRT-LLM, and of src/model.py in
github.com/triton-inference-server/vllm_backend.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

TOKENS = ["Good", " morning", ". Gr", "üße ", "🎉"]
DIED = "in ensemble 'ensemble', Executor failed process requestId 3: out of memory"
OVERLOADED = "Exceeds maximum queue size"


def _inputs(*required: str, optional: str = "") -> list[dict[str, Any]]:
    given = [{"name": name, "data_type": "TYPE_STRING", "dims": [1], "optional": False} for name in required]
    return given + [{"name": name, "dims": [1], "optional": True} for name in optional.split()]


def _values(**parameters: str) -> dict[str, Any]:
    return {name: {"string_value": value} for name, value in parameters.items()}


DECOUPLED = {"decoupled": True}
SAMPLING = "bad_words stop_words exclude_input_in_output top_k top_p temperature stream"
TENSORRT_LLM = {
    "name": "tensorrt_llm",
    "backend": "tensorrtllm",
    "model_transaction_policy": DECOUPLED,
    "input": _inputs("input_ids", "input_lengths", "request_output_len"),
    "parameters": _values(enable_kv_cache_reuse="true", exclude_input_in_output="${exclude_input_in_output}"),
}
PREPROCESSING = {"name": "preprocessing", "backend": "python", "parameters": _values(tokenizer_dir="/engine")}
ENSEMBLE = {
    "name": "ensemble",
    "platform": "ensemble",
    "input": _inputs("text_input", "max_tokens", optional=SAMPLING),
    "ensemble_scheduling": {"step": [{"model_name": "preprocessing"}, {"model_name": "tensorrt_llm"}]},
}
BLS = {
    "name": "tensorrt_llm_bls",
    "backend": "python",
    "model_transaction_policy": DECOUPLED,
    "input": _inputs("text_input", "max_tokens", optional=SAMPLING),
    "parameters": _values(accumulate_tokens="true", tensorrt_llm_model_name="${tensorrt_llm_model_name}"),
}
BLS_BY_TOKEN = {**BLS, "parameters": _values(accumulate_tokens="${accumulate_tokens}")}
VLLM = {
    "name": "vllm_model",
    "backend": "vllm",
    "model_transaction_policy": DECOUPLED,
    "input": _inputs("text_input", optional="stream sampling_parameters exclude_input_in_output"),
    "parameters": {},
}
OLD = {**ENSEMBLE, "input": _inputs("text_input", "max_tokens", "bad_words", "stop_words", optional="stream")}
"""An ensemble of 2024, which requires all four."""
KINDS = {"ensemble": ENSEMBLE, "bls": BLS, "bls by token": BLS_BY_TOKEN, "vllm": VLLM, "old ensemble": OLD}


class TritonFake:
    """A server with one language model, and the models that it is made of.

    scenario: "answer", "endless", "breaks" after the first words, "hangs up" there, or "overloaded".
    requests: bodies of the generate requests. configured: names in the order in which they were asked for.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.models = {one["name"]: one for one in (config, TENSORRT_LLM, PREPROCESSING)}
        self.config = config
        self.scenario = "answer"
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.configured: list[str] = []
        self.left = asyncio.Event()
        self.url = ""
        self._handlers: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def aclose(self) -> None:
        for writer in self._handlers.values():
            writer.transport.abort()
        await asyncio.gather(*filter(None, self._handlers))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._handlers[task] = writer
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1]) if length else 0)
                key = re.search(rb"authorization: (.*)\r\n", head, re.IGNORECASE)
                self.keys.append(key[1].decode() if key else "")
                await self._respond(head.split(b" ")[1].decode(), body, reader, writer)
        except asyncio.IncompleteReadError:
            pass
        except ConnectionError:
            self.left.set()
        finally:
            del self._handlers[task]
            writer.close()

    async def _respond(
        self, path: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        found = re.fullmatch(r"/v2/models/([^/]+)/(config|generate_stream)", path)
        assert found, path
        name, verb = found.groups()
        if verb == "config":
            self.configured.append(name)
        if name not in self.models:
            return _plain(writer, 400, {"error": f"Request for unknown model: '{name}' is not found"})
        if verb == "config":
            return _plain(writer, 200, self.models[name])
        request = json.loads(body)
        self.requests.append(request)
        self._check(request)
        if self.scenario == "overloaded":
            return _plain(writer, 503, {"error": OVERLOADED})
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for text in self._texts(request["max_tokens"]):
            response = {"model_name": name, "model_version": "1", "sequence_id": 0, "text_output": text}
            await _send(writer, f"data: {json.dumps(response)}\n\n")
        if self.scenario == "endless":
            if not await reader.read(1):
                raise ConnectionResetError
        if self.scenario == "hangs up":
            writer.transport.abort()
            return
        if self.scenario == "breaks":
            await _send(writer, f"data: {json.dumps({'error': DIED})}\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _check(self, request: dict[str, Any]) -> None:
        """Check a request as the server maps it: to an input of that name, else to a parameter."""
        names = {one["name"] for one in self.config["input"]}
        needed = {one["name"] for one in self.config["input"] if not one["optional"]}
        assert needed <= request.keys() and request["stream"] is True
        assert all(isinstance(value, str | int | float | bool) for value in request.values())
        if self.config is VLLM:
            assert request["exclude_input_in_output"] is True, "streaming needs it"
        else:
            assert request.keys() <= names, "TensorRT-LLM has no parameters of requests"

    def _texts(self, max_tokens: int) -> list[str]:
        tokens = TOKENS[:max_tokens]
        if self.config is not BLS:
            return [*tokens, ""]
        so_far = ["".join(tokens[:count]) for count in range(1, len(tokens) + 1)]
        return [*so_far[:-1], so_far[-1][:-1] + "\N{REPLACEMENT CHARACTER}", so_far[-1]]


async def _send(writer: asyncio.StreamWriter, event: str) -> None:
    data = event.encode()
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
    await writer.drain()


def _plain(writer: asyncio.StreamWriter, status: int, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)


@asynccontextmanager
async def running(config: dict[str, Any], port: int = 0) -> AsyncIterator[TritonFake]:
    """Run a server on loopback. It ends with the block, and its connections with it."""
    fake = TritonFake(config)
    listener = await asyncio.start_server(fake.serve, "127.0.0.1", port)
    fake.url = "http://{}:{}".format(*listener.sockets[0].getsockname())
    try:
        yield fake
    finally:
        listener.close()
        await fake.aclose()
        await listener.wait_closed()


@contextmanager
def in_a_thread(config: dict[str, Any], port: int) -> Iterator[TritonFake]:
    """Run a server on loopback, for a test that waits for another process."""
    loop, block = asyncio.new_event_loop(), AsyncExitStack()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        server = block.enter_async_context(running(config, port))
        yield asyncio.run_coroutine_threadsafe(server, loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(block.aclose(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
