"""The checks of ``rejoinder doctor`` that concern the configured models and the port."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rejoinder.agent.cli.doctor.machine import Check, absent, catalogued, specs
from rejoinder.agent.config import Settings, authority
from rejoinder.models.hints import PackageMissing
from rejoinder.models.llm.openai import NO_KEY, key_from_environment, key_variable
from rejoinder.models.loading import wrong_rule
from rejoinder.models.registry import adapter, adapters, check, of_hub, own_path, voices, weights
from rejoinder.models.specs import LANGUAGE_MODELS, ROLES
from rejoinder.pipeline.errors import ModelError

ANSWER_SECONDS = 2.0
"""Longest wait for a server's answer."""
ANSWER_BYTES = 2**20
"""Most bytes of an answer that are read."""
UNANSWERED = (OSError, ValueError, http.client.HTTPException)
"""Errors of a request: no server, a slow server, or a server that does not answer with JSON over HTTP."""
SILENT = "does not answer"
"""Begins the detail of a server that does not answer."""
MOST_NAMES = 5
"""Most model names of a server in the report if the configured model is not among them."""


def check_models(settings: Settings) -> Iterator[Check]:
    """Check each configured model."""
    for kind, spec in specs(settings).items():
        if kind == "llm":
            yield from check_llms(settings)
            continue
        state, detail, fix = check_model(kind, spec)
        yield Check(kind, state, f"{spec}: {detail}", fix)
    if not settings.turn:
        yield Check("turn", "ok", "off: only words and silence end a turn")


def check_guard(settings: Settings) -> Iterator[Check]:
    """Check what the rules of the guard need, if there are any."""
    try:
        if settings.guard.guard():
            yield Check("guard", "ok", "its rules can run")
    except PackageMissing as error:
        yield Check("guard", "missing", str(error), error.fix)
    except ModelError as error:
        yield Check("guard", "broken", str(error), "change [guard]")


def check_llms(settings: Settings) -> Iterator[Check]:
    """Check each language model of the list, the one for a busy machine, and the rules between them.

    A server that does not answer is needed only if no other model can answer in its place.
    """
    found = list(_each_llm(settings))
    another = any(one.state == "ok" for one, _ in found)
    for one, is_away in found:
        yield replace(one, needed=False) if is_away and another else one
    if wrong := wrong_rule(settings.llm, settings.placement()):
        yield Check("routes", "broken", wrong, "change the rules [[routes]], or llm")


def _each_llm(settings: Settings) -> Iterator[tuple[Check, bool]]:
    """Yield the check of each language model, and whether it is a server that does not answer."""
    for name, spec in zip(settings.language_model_names(), settings.language_models(), strict=True):
        table = settings.models.get(name)
        shown = f"{name} ({spec})" if table else spec
        try:
            key = table.key(name) if table else ""
        except ModelError as error:
            yield (
                Check("llm", "broken", f"{shown}: {error}", f"put the key where [models.{name}] says"),
                False,
            )
            continue
        if table and table.remote:
            state, detail, fix = check_server(spec.partition(":")[2], key or NO_KEY, f"[models.{name}]")
        else:
            state, detail, fix = check_model("llm", spec)
        yield Check("llm", state, f"{shown}: {detail}", fix), detail.startswith(SILENT)


def check_model(kind: str, spec: str) -> tuple[str, str, str]:
    """Return the state of one model, the details, and the fix."""
    found = _look(kind, spec)
    if found[0] == "ok" and spec.startswith(("whisper", "hibari:")):
        try:
            check(kind, spec)
        except PackageMissing as error:
            return "missing", str(error), error.fix
        except ModelError as error:  # the weights exist, but not this language or voice
            known = "a model and one of its languages, such as whisper:base@de"
            fix = known if kind == "stt" else f"one of: {', '.join(voices())}"
            return "broken", str(error), f"set {kind} to {fix}"
    return found


def _look(kind: str, spec: str) -> tuple[str, str, str]:
    prefix, _, argument = spec.partition(":")
    short = voices() if kind == "tts" else [*(LANGUAGE_MODELS if kind == "llm" else ()), *adapters(kind)]
    fix = f"set {kind} to one of: {', '.join(short)}"
    if prefix not in adapters():
        return "broken", "there is no adapter of this name", fix
    if prefix not in adapters(kind):
        return "broken", f"is no {ROLES[kind]}", fix
    if prefix == "openai":
        return check_server(argument)
    if prefix == "vllm" or of_hub(spec):
        return _of_hub(kind, spec)
    ours = adapter(prefix)
    if ours is None or not ours.weights:
        return "ok", "needs no weights of ours", ""
    if (name := weights(spec)) is None:
        return _own(own_path(spec), f"set {kind} to a path that exists")
    if argument and "{}" not in ours.weights:
        return "broken", "there is one model only", f"set {kind} to {prefix}, or to a path with a /"
    if not (known := catalogued(spec)):
        return _own(
            Path(name),
            f"set {kind} to a path, or one of: {', '.join(f'{prefix}:{one}' for one in ours.known())}",
        )
    if lacking := absent(known):
        state = "missing" if all("missing" in problem for problem in lacking) else "broken"
        more = f", and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        return state, lacking[0] + more, f"rejoinder models fetch {known.name}"
    largest = max(known.files, key=lambda file: file.size)
    return "ok", f"{known.size / 1e6:.0f} MB of weights, sha256 {largest.sha256[:16]}… in the catalog", ""


def _of_hub(kind: str, spec: str) -> tuple[str, str, str]:
    """Check a model that is in the hub's cache or in a folder."""
    try:
        check(kind, spec)
    except ModelError as error:
        reason, _, fix = str(error).removeprefix(f"{error.adapter}: ").partition("; run: ")
        return "missing", reason, fix or f"set {kind} to the path of a folder"
    return "ok", "your own weights", ""


def check_server(address: str, key: str = "", table: str = "") -> tuple[str, str, str]:
    """Check the model at an OpenAI-compatible server, ``URL#MODEL``, by its list of models.

    key: "" for that of the environment. table: where the key comes from otherwise.
    """
    url, _, model = address.partition("#")
    if not url.startswith(("http://", "https://")) or not model:
        return "broken", "is not URL#MODEL", "set llm to openai:http://HOST/v1#MODEL"
    headers = {"Authorization": f"Bearer {key or key_from_environment()}"}
    request = urllib.request.Request(f"{url.rstrip('/')}/models", headers=headers)
    try:
        answer = _json(request)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (401, 403):
            if table:
                return "broken", f"refuses the key (HTTP {error.code})", f"put the right one into {table}"
            if not (given := key_variable()):
                return "broken", f"wants a key (HTTP {error.code})", "put one into REJOINDER_LLM_KEY"
            return "broken", f"refuses the key in {given} (HTTP {error.code})", "put the right one into it"
        if error.code >= 500:
            return "broken", f"answers HTTP {error.code}", f"look at the log of the server at {url}"
        return "ok", f"answers, without a list of its models (HTTP {error.code})", ""
    except UNANSWERED as error:
        reason = getattr(error, "reason", error)
        return "broken", f"{SILENT}: {reason}", f"start the server at {url}, or set llm to another"
    listed = answer.get("data") if isinstance(answer, dict) else None
    names = [str(entry.get("id")) for entry in listed or [] if isinstance(entry, dict)]
    if names and model not in names:
        shown = ", ".join(names[:MOST_NAMES])
        return "broken", f"answers, and has no {model}", f"set llm to openai:{url}#MODEL with one of: {shown}"
    return "ok", "answers", ""


def check_port(settings: Settings) -> Check:
    """Check whether the configured port is free, or in use by a running Rejoinder."""
    place = authority(settings.host, settings.port)
    if settings.port == 0:
        return Check("port", "ok", f"{settings.host}, any free one")
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((settings.host, settings.port))
    except OSError as error:
        if _is_ours(settings):
            return Check("port", "ok", f"{place}: a Rejoinder is running there")
        return Check("port", "broken", f"{place}: {error.strerror or error}", "rejoinder serve --port 0")
    return Check("port", "ok", f"{place} is free")


def _is_ours(settings: Settings) -> bool:
    try:
        answer = _json(urllib.request.Request(f"http://{authority(settings.host, settings.port)}/healthz"))
    except UNANSWERED:
        return False
    return isinstance(answer, dict) and "sessions" in answer


def _json(request: urllib.request.Request) -> Any:
    """Return a server's answer, parsed from JSON. Raises HTTPError, or one of UNANSWERED."""
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as response:
        return json.loads(response.read(ANSWER_BYTES))


def _own(path: Path, fix: str) -> tuple[str, str, str]:
    if path.expanduser().exists():
        return "ok", "your own weights", ""
    return "missing", f"{path} is neither in the catalog nor a file or folder", fix
