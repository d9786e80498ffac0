"""Models in vLLM that call tools. vLLM's own parsers read the calls, as in its server."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from rejoinder.models.adapter import Adapter
from rejoinder.models.llm.ort.ahead import ahead
from rejoinder.models.llm.ort.sampling import Sampling
from rejoinder.models.llm.sample_call import CALLED, LIKE_HERMES, NO_PARAMETERS, TOOL
from rejoinder.models.llm.tool_calls import ToolCalls, has_calls, without_calls
from rejoinder.models.llm.vllm.adapter import Vllm, name_of, reason, vllm_environment
from rejoinder.models.llm.vllm.prompt import TEMPLATE, Prompts
from rejoinder.models.llm.vllm.settings import VllmSettings
from rejoinder.models.weights.hub import is_repository, snapshot
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import NO_TOOLS, Message, ToolCall, Tools
from rejoinder.pipeline.replying.text.answer_filter import MAX_TOKENS

HERMES = "hermes"
"""The parser for models that write calls as JSON between two tags, such as Qwen 2.5 and 3."""


def open_vllm(
    model: str, threads: int, settings: VllmSettings | None = None, sampling: Sampling | None = None
) -> Vllm:
    """Load a model: a ``ToolVllm`` if it can call tools, otherwise a ``Vllm``.

    A model can call tools if ``tool_call_parser`` is set, or if its chat template renders calls as ``hermes``
    reads them. Raises ModelError if vLLM has no such parser, or if the template has no tools, and like
    ``Vllm``.
    """
    settings = settings or VllmSettings()
    with vllm_environment(threads):
        parser = _parser(model, settings.tool_call_parser or "")
    if parser is None:
        return Vllm(model, threads, settings, sampling)
    return ToolVllm(model, threads, settings, sampling, parser)


class ToolVllm(Vllm):
    """A model that calls tools. parser: vLLM's parser class for the model's output."""

    def __init__(
        self, model: str, threads: int, settings: VllmSettings, sampling: Sampling | None, parser: Any
    ) -> None:
        super().__init__(model, threads, settings, sampling)
        self._parser = parser

    def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        """Stream the answer, then the tool calls. Otherwise like ``reply``.

        A required call is valid by its schema, because vLLM constrains the decoding. Raises ModelError also
        if a call cannot be parsed or is longer than an answer may be.
        """
        return ahead(self._answer(messages, tools), MAX_TOKENS)

    def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer as ``Vllm`` does, without calls.

        After earlier calls in the conversation a model may write another call, which is dropped.
        """
        if has_calls(messages):
            return ahead(without_calls(self._answer(messages, NO_TOOLS)), MAX_TOKENS)
        return super().reply(messages)

    async def _answer(
        self, messages: Sequence[Message], tools: Tools
    ) -> AsyncGenerator[str | ToolCall, None]:
        prompt, calls = self._prompt(messages, tools), ToolCalls(self.name)
        parser, request = self._answer_parser(tools)
        more = {"skip_special_tokens": request.skip_special_tokens}
        if request.structured_outputs is not None:
            more["structured_outputs"] = request.structured_outputs
        wrote = said = ""
        try:
            async with aclosing(self._generate(prompt, MAX_TOKENS, more)) as outputs:
                async for output in outputs:
                    wrote, finish = wrote + output.text, output.finish_reason
                    ids = list(output.token_ids)
                    read = parser.parse_delta(output.text, ids, request, prompt, finished=bool(finish))
                    calls.add(read.tool_calls if read else [], finish)
                    if read and read.content:
                        said = read.content.strip() or said
                        yield read.content
        except ModelError:
            raise
        except Exception as error:  # each parser raises errors of its own
            raise ModelError(self.name, f"cannot read what it wrote: {reason(error)}") from error
        made = calls.whole()
        if not made and wrote.strip() and not (said and wrote.rstrip().endswith(said)):
            raise ModelError(self.name, "it began a call of a tool that cannot be read")
        for call in made if tools.parallel else made[:1]:
            yield call

    def _answer_parser(self, tools: Tools) -> tuple[Any, Any]:
        """Return the parser for one answer, and the request that the parser needs."""
        try:
            request, config = _request(tools), self._engine.model_config
            parser = self._parser(
                self._tokenizer, request.tools, chat_template_kwargs=TEMPLATE, model_config=config
            )
            return parser, parser.adjust_request(request)
        except Exception as error:
            raise ModelError(self.name, f"cannot take these tools: {reason(error)}") from error


def _request(tools: Tools) -> Any:
    """Return the request that vLLM's server would create for ``tools``.

    Without tools the request has a placeholder: vLLM's parsers read calls only if there is a tool. The
    arguments of a required call must follow their schema if xgrammar has a grammar for it. Otherwise the
    decoding is not constrained.
    """
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    functions = [tool["function"] for tool in tools.functions or (TOOL,)]
    if tools.choice != "auto":
        functions = [{"parameters": NO_PARAMETERS, **function} for function in functions]
        functions = [{**function, "strict": _has_grammar(function["parameters"])} for function in functions]
    return ChatCompletionRequest(
        messages=[],
        tools=[{"type": "function", "function": function} for function in functions],
        tool_choice=tools.choice,
        parallel_tool_calls=tools.parallel,
    )


def _has_grammar(schema: dict[str, Any]) -> bool:
    from xgrammar import Grammar

    try:
        Grammar.from_json_schema(json.dumps(schema))
    except Exception:  # xgrammar supports part of JSON schema only, and a client may send an invalid schema
        return False
    return True


def _parser(model: str, name: str) -> Any:
    """Return vLLM's parser class for the model's output, or None if the model cannot call tools."""
    from vllm.parser import ParserManager
    from vllm.tokenizers import get_tokenizer
    from vllm.tool_parsers import ToolParserManager

    known = ToolParserManager.list_registered()
    if name and name not in known:
        there = ", ".join(known)
        raise ModelError(name_of(model), f"vLLM has no tool_call_parser {name!r}; there are: {there}")
    try:
        tokenizer = get_tokenizer(model)
    except Exception:  # the engine loads the same tokenizer next, and reports the error
        return None
    if name and "look_up" not in _rendered(tokenizer, CALLED[:1]):
        raise ModelError(name_of(model), f"tool_call_parser = {name!r}: its chat template knows no tools")
    if not name and LIKE_HERMES.search(_rendered(tokenizer, CALLED)):
        name = HERMES
    try:
        return ParserManager.get_parser(name or None, enable_auto_tools=True, tokenizer=tokenizer)
    except Exception as error:
        why = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise ModelError(name_of(model), f"tool_call_parser = {name!r}: {reason(why)}") from error


def _rendered(tokenizer: Any, messages: Sequence[Message]) -> str:
    """Return a prompt with a tool as text, or "" if the template fails."""
    try:
        return str(tokenizer.decode(Prompts(tokenizer).tokens(messages, Tools([TOOL]))))
    except Exception:  # templates raise any kind of error
        return ""


def _found(argument: str) -> Path:
    path = Path(argument).expanduser()
    if path.is_dir() and argument:
        return path
    if is_repository(argument):
        return snapshot(argument)
    raise ModelError("vllm", f"write vllm:FOLDER or vllm:ORGANISATION/NAME of the hub, not {argument!r}")


ADAPTER = Adapter(
    "vllm",
    lambda path, threads, placement: open_vllm(str(path), threads, placement.vllm),
    packages=("vllm", "torch"),
    share="llm",
    finder=_found,
    hub=lambda name: name if is_repository(name) else None,
)
"""What the registry finds."""
