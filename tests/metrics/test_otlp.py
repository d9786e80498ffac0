"""Traces and metrics over OTLP/HTTP, at a real HTTP server, decoded by OpenTelemetry's types."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.servers.in_process import served_here, until
from support.serving import PATIENCE
from websockets.asyncio.client import connect

from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.app.tool_result import ToolReturned
from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.metrics import last_export, otlp
from rejoinder.agent.metrics.llm_identities import LlmIdentities, LlmIdentity, llm_identities
from rejoinder.agent.metrics.measures import CallMeasures
from rejoinder.agent.metrics.otlp import export_interval, exports, require_opentelemetry
from rejoinder.agent.metrics.otlp_metrics import otlp as converted
from rejoinder.agent.metrics.server_metrics import ServerMetrics
from rejoinder.agent.metrics.telemetry import Telemetry
from rejoinder.agent.metrics.tracing import Tracing, resource
from rejoinder.agent.simulate.scenario import SPEECH_CHUNK
from rejoinder.models.llm.model_settings import ModelSettings
from rejoinder.pipeline import ReplyCalled, ReplyDone, ReplyStarted, ToolCall, Trace, TurnTraced

SILENT_CHUNK = bytes(640)
TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{CALLER}-01"


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long for a collector that answers."""
    monkeypatch.setattr(last_export, "LAST_EXPORT_SECONDS", PATIENCE)


class Collector:
    """What a collector on loopback has received. chats: the headers of chat requests to the same port."""

    def __init__(self) -> None:
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.chats: list[dict[str, str]] = []
        self.url = ""

    def spans(self) -> list[Span]:
        scopes = [
            scope for one in self.traces for resource in one.resource_spans for scope in resource.scope_spans
        ]
        return [span for scope in scopes for span in scope.spans]

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans() if span.name == name]


def attributes(span: Span) -> dict[str, Any]:
    kinds = {one.key: one.value.WhichOneof("value") for one in span.attributes}
    return {one.key: getattr(one.value, str(kinds[one.key])) for one in span.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Receive OTLP, and answer chat requests with "Sunny.", for the length of the block."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            answer, kind = b"", self.headers["Content-Type"]
            if self.path == "/v1/traces":
                collector.traces.append(ExportTraceServiceRequest.FromString(body))
            elif self.path == "/v1/metrics":
                collector.metrics.append(ExportMetricsServiceRequest.FromString(body))
            else:
                collector.chats.append(dict(self.headers.items()))
                answer, kind = chat(), "text/event-stream"
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: Any) -> None:
            pass

    def chat() -> bytes:
        about = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "weather"}
        first = {"index": 0, "delta": {"role": "assistant", "content": "Sunny."}, "finish_reason": None}
        last = {"index": 0, "delta": {}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 14}
        chunks = [{"choices": [first]}, {"choices": [last]}, {"choices": [], "usage": usage}]
        lines = [f"data: {json.dumps({**about, **chunk})}\n\n" for chunk in chunks]
        return "".join([*lines, "data: [DONE]\n\n"]).encode()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.server
def test_a_call_is_one_trace_from_the_caller_to_the_server_of_the_language_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check(collector: Collector) -> None:
        llm = f"openai:{collector.url}/v1#weather"
        async with served_here(llm=llm, speculate="never") as (program, port):
            url = f"ws://127.0.0.1:{port}/v1/pcm"
            headers = {"traceparent": PARENT}
            async with connect(url, proxy=None, compression=None, additional_headers=headers) as socket:
                for tick in range(150):
                    await socket.send(SPEECH_CHUNK if tick < 40 else SILENT_CHUNK)
                async with asyncio.timeout(PATIENCE):
                    async for message in socket:
                        if isinstance(message, str) and json.loads(message)["type"] == "reply_ended":
                            break
            await until(lambda: not program.calls)

    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        asyncio.run(check(collector))

    (call,), (turn,), (chat,) = map(collector.named, ("call", "invoke_agent", "chat weather"))
    assert {span.trace_id.hex() for span in collector.spans()} == {TRACE}
    assert call.parent_span_id.hex() == CALLER
    assert turn.parent_span_id == call.span_id
    assert chat.parent_span_id == turn.span_id
    assert (call.kind, chat.kind) == (Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT)
    about = attributes(chat)
    assert about["gen_ai.operation.name"] == "chat"
    assert about["gen_ai.provider.name"] == "openai"
    assert about["gen_ai.request.model"] == "weather"
    assert (about["gen_ai.usage.input_tokens"], about["gen_ai.usage.output_tokens"]) == (12, 2)
    assert about["gen_ai.response.time_to_first_chunk"] > 0.0
    assert attributes(turn)["gen_ai.conversation.id"] == attributes(call)["gen_ai.conversation.id"] != ""
    # The language model's server received the span that asked it.
    parents = [headers["traceparent"] for headers in collector.chats if "traceparent" in headers]
    assert f"00-{TRACE}-{chat.span_id.hex()}-01" in parents
    # The stages follow one another without a gap, and fill the caller's wait.
    stages = [span for span in collector.spans() if "rejoinder.part" in attributes(span)]
    assert {span.parent_span_id for span in stages} == {turn.span_id}
    assert len(stages) >= 4
    for before, after in pairwise(stages):
        assert abs(after.start_time_unix_nano - before.end_time_unix_nano) < 2000
    assert turn.start_time_unix_nano <= stages[0].start_time_unix_nano
    assert stages[-1].end_time_unix_nano <= turn.end_time_unix_nano
    # No words of the conversation leave the server.
    assert not any(
        "weather is" in str(attributes(span)) or "Sunny" in str(attributes(span)) for span in stages
    )
    described = {
        one.key: one.value.string_value for one in collector.traces[0].resource_spans[0].resource.attributes
    }
    assert described["service.name"] == "rejoinder"
    assert described["deployment.environment.name"] == "test"
    # The metrics came, too, when the server ended.
    scope = collector.metrics[-1].resource_metrics[0].scope_metrics[0]
    metrics = {metric.name: metric for metric in scope.metrics}
    latency = metrics["rejoinder_turn_latency_seconds"]
    (point,) = latency.histogram.data_points
    assert (latency.unit, point.count, sum(point.bucket_counts)) == ("s", 1, 1)
    parts = metrics["rejoinder_turn_part_seconds"].histogram.data_points
    assert sum(part.sum for part in parts) == pytest.approx(point.sum, abs=0.001)
    assert point.sum * 1e9 == pytest.approx(
        stages[-1].end_time_unix_nano - stages[0].start_time_unix_nano, abs=1e6
    )
    turns = {
        one.attributes[0].value.string_value: one.as_double
        for one in metrics["rejoinder_user_turns"].sum.data_points
    }
    assert turns["words"] == 1.0


@pytest.mark.server
def test_a_text_request_passes_its_trace_context_on() -> None:
    def ask(port: int, context: str) -> None:
        body = json.dumps({"model": "default", "messages": [{"role": "user", "content": "hi"}]}).encode()
        headers = {"Content-Type": "application/json", "traceparent": context}
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=PATIENCE).close()

    async def check(collector: Collector) -> None:
        async with served_here(llm=f"openai:{collector.url}/v1#weather") as (_, port):
            collector.chats.clear()
            for context in (PARENT, "00-broken-or-hostile-01"):
                await asyncio.to_thread(ask, port, context)

    with collecting() as collector:
        asyncio.run(check(collector))
    assert [headers.get("traceparent") for headers in collector.chats] == [PARENT, None]


def test_tools_are_spans_below_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One returns before the end of its reply is known, one after it, and one not before the call ends."""

    async def check(collector: Collector) -> None:
        tracing = Tracing(LlmIdentities(LlmIdentity("ort", "smollm2")))
        call = tracing.observe(CallInfo("sess_1", "realtime"))
        call.take(ReplyStarted(1))
        for id in ("fast", "slow", "never"):
            call.take(ReplyCalled(1, ToolCall(id, f"tool_{id}", '{"city": "Rome"}')))
        call.take(ToolReturned("fast", "completed"))
        call.take(ToolReturned("unknown", "completed"))
        now = asyncio.get_running_loop().time()
        trace = Trace(
            1, "what is the weather", {"reply_started": now, "first_token": now + 0.2}, until=now + 0.3
        )
        call.take(ReplyDone(1, "completed", "", trace=trace))
        call.take(ToolReturned("slow", "failed"))
        call.end(ValueError("a bug"), "")
        await tracing.aclose()

    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        asyncio.run(check(collector))
    (turn,), (call,) = collector.named("invoke_agent"), collector.named("call")
    tools = [span for span in collector.spans() if span.name.startswith("execute_tool ")]
    assert [span.name for span in tools] == [f"execute_tool tool_{id}" for id in ("fast", "slow", "never")]
    assert {span.parent_span_id for span in tools} == {turn.span_id}
    assert [attributes(span).get("error.type") for span in tools] == [None, "tool_error", "cancelled"]
    assert [span.status.code for span in tools] == [0, 2, 2]
    assert attributes(tools[0])["gen_ai.tool.call.id"] == "fast"
    assert "Rome" not in str(collector.traces)
    assert (attributes(call)["error.type"], call.status.code) == ("server_error", 2)
    (chat,) = collector.named("chat smollm2")
    assert chat.kind == Span.SPAN_KIND_INTERNAL
    assert chat.end_time_unix_nano - chat.start_time_unix_nano == pytest.approx(0.3e9, abs=1e3)


def test_words_are_in_a_trace_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(has_words: bool) -> None:
        tracing = Tracing(LlmIdentities(LlmIdentity("ort", "smollm2")), has_words)
        call = tracing.observe(CallInfo("sess_1", "realtime"))
        marks = {"pause_seen": 1.0, "transcribed": 1.2, "first_clause": 1.4, "first_audio": 1.5}
        call.take(ReplyDone(1, "cancelled", "It is", played=0.4, trace=Trace(1, "and Rome?", marks)))
        call.end(None, "")
        await tracing.aclose()

    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        for has_words in (False, True):
            asyncio.run(check(has_words))
    silent, told = map(attributes, collector.named("invoke_agent"))
    assert not {name for name in silent if "messages" in name}
    said = {name: json.loads(told[f"gen_ai.{name}.messages"])[0] for name in ("input", "output")}
    assert said["input"] == {"role": "user", "parts": [{"type": "text", "content": "and Rome?"}]}
    assert said["output"] == {"role": "assistant", "parts": [{"type": "text", "content": "It is"}]}
    assert told["gen_ai.agent.invocation.end_reason"] == "interrupted"
    assert told["gen_ai.output.type"] == "speech"
    for name, seconds in (("speech_to_text", 0.2), ("text_to_speech", 0.1)):
        spans = collector.named(name)
        lasted = [span.end_time_unix_nano - span.start_time_unix_nano for span in spans]
        assert lasted == [pytest.approx(seconds * 1e9, abs=1e3)] * 2


def test_a_trace_names_the_model_of_a_table_that_wrote_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {
        "big": ModelSettings(url="http://h/v1", model="qwen3"),
        "little": ModelSettings(spec="ort:smollm2-135m-instruct"),
    }
    llms = llm_identities(Settings(llm="little, big", models=tables))

    async def check() -> None:
        tracing = Tracing(llms)
        call = tracing.observe(CallInfo("sess_1", "realtime"))
        for turn, models in enumerate(([], ["little"], ["little", "big"])):
            trace = Trace(turn, marks={"reply_started": 1.0}, models=models, until=1.5)
            call.take(ReplyDone(turn, "completed", "", trace=trace))
        call.end(None, "")
        await tracing.aclose()

    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        asyncio.run(check())
    chats = [span for span in collector.spans() if span.name.startswith("chat ")]
    local, remote = ("ort", "smollm2-135m-instruct"), ("openai", "qwen3")
    names = ("gen_ai.provider.name", "gen_ai.request.model")
    assert [tuple(attributes(span)[name] for name in names) for span in chats] == [local, local, remote]
    assert [span.kind for span in chats] == [Span.SPAN_KIND_INTERNAL] * 2 + [Span.SPAN_KIND_CLIENT]
    turns = collector.named("invoke_agent")
    assert [attributes(span)["gen_ai.provider.name"] for span in turns] == ["ort", "ort", "openai"]


@pytest.mark.parametrize(
    ("llm", "asked", "expected", "label"),
    [
        ("ort:smollm2-135m-instruct", [], ("ort", "smollm2-135m-instruct"), "smollm2-135m-instruct"),
        ("openai:http://h/v1#qwen3", [], ("openai", "qwen3"), "qwen3"),
        ("big", [], ("openai", "gpt"), "big"),
        ("openai:http://h/v1#a ort:x", ["openai:a", "ort:x"], ("ort", "ort"), "openai:a"),
        ("ort:x", ["openai:of-an-agent"], ("openai", "of-an-agent"), "ort"),
    ],
)
def test_models_are_known_by_the_names_of_candidates(
    llm: str, asked: list[str], expected: tuple[str, str], label: str
) -> None:
    found = llm_identities(Settings(llm=llm, models={"big": ModelSettings(url="http://h/v1", model="gpt")}))
    assert (found.of(asked).provider, found.of(asked).model) == expected
    assert found.label == label


def test_a_caller_may_turn_the_trace_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> str:
        tracing = Tracing(LlmIdentities(LlmIdentity("ort", "smollm2")))
        headers = {"traceparent": f"00-{TRACE}-{CALLER}-00"}
        call = tracing.observe(CallInfo("sess_1", "realtime", headers=headers))
        call.take(ReplyDone(1, "completed", "", trace=Trace(1, marks={"reply_started": 1.0}, until=1.5)))
        call.end(None, "")
        await tracing.aclose()
        return call.traceparent

    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        context = asyncio.run(check())
    assert collector.traces == []
    assert context.startswith(f"00-{TRACE}-")
    assert context.endswith("-00")


@pytest.mark.parametrize(
    ("environment", "traces", "metrics"),
    [
        ({}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"}, False, False),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_METRICS_EXPORTER": "none"},
            True,
            False,
        ),
    ],
)
def test_opentelemetrys_variables_decide_what_is_exported(
    environment: dict[str, str], traces: bool, metrics: bool
) -> None:
    assert exports("traces", environment) is traces
    assert exports("metrics", environment) is metrics


def test_a_collector_that_does_not_answer_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporters alone would try for 10 s. An export that ends by itself is not stopped."""
    monkeypatch.setattr(last_export, "LAST_EXPORT_SECONDS", 0.05)
    stopped, ended = threading.Event(), list[bool]()
    asyncio.run(last_export.finish(lambda: ended.append(stopped.wait(PATIENCE)), stopped.set))
    assert ended == [True]
    stopped.clear()
    monkeypatch.setattr(last_export, "LAST_EXPORT_SECONDS", PATIENCE)
    asyncio.run(last_export.finish(lambda: None, stopped.set))
    assert not stopped.is_set()


def test_another_protocol_is_an_error() -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    with pytest.raises(ConfigError, match="PROTOCOL is 'grpc': only http/protobuf is supported"):
        exports("traces", environment)


def test_an_empty_variable_counts_as_unset() -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4317",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "",
        "OTEL_TRACES_EXPORTER": "",
        "OTEL_METRIC_EXPORT_INTERVAL": "",
    }
    assert exports("traces", environment)
    assert export_interval(environment) == 60.0
    assert export_interval({"OTEL_METRIC_EXPORT_INTERVAL": "500"}) == 0.5


@pytest.mark.parametrize("given", ["0", "-1", "often", "inf", "nan"])
def test_an_interval_that_is_none_is_an_error(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", given)
    with pytest.raises(ConfigError, match=f"INTERVAL is '{given}': set it to milliseconds above 0"):
        Telemetry(Settings(), list, os.environ)


def test_without_the_sdk_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(otlp, "import_module", missing)
    with pytest.raises(ConfigError, match=r"opentelemetry.sdk.trace is not installed; run: .*\[otel\]"):
        require_opentelemetry()


def test_otlp_has_the_numbers_of_prometheus() -> None:
    metrics = ServerMetrics()
    for turn, wait in enumerate((0.01, 0.31, 0.45, 9.0)):
        trace = Trace(turn, marks={"speech_ended": 1.0, "audio_sent": 1.0 + wait})
        metrics.meters.record(CallMeasures("").take(TurnTraced(trace)))
    data = converted(metrics.collect(), resource(), 1, 2)
    found = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    (point,) = found["rejoinder_turn_latency_seconds"].data.data_points
    assert point.count == sum(point.bucket_counts) == 4
    assert point.sum == pytest.approx(9.77)
    within = dict(zip([*point.explicit_bounds, float("inf")], point.bucket_counts, strict=True))
    assert {bound: count for bound, count in within.items() if count} == {
        0.02: 1,
        0.4: 1,
        0.5: 1,
        float("inf"): 1,
    }
    assert found["rejoinder_replies"].data.is_monotonic
