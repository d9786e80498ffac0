"""Prompts as text, rendered with the chat template of a tokenizer's folder."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rejoinder.models.llm.chat_jinja import chat_environment
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Message

TEMPLATE_FILE = "chat_template.jinja"
"""The file of a tokenizer's folder that holds its chat template, if ``CONFIG_FILE`` does not."""
CONFIG_FILE = "tokenizer_config.json"
"""The file of a tokenizer's folder that holds its special tokens."""
NO_THINKING = {"enable_thinking": False}
"""Parameters of the template: no reasoning text, which adds latency. Most templates ignore them."""
WANTED = f"a folder with {CONFIG_FILE}, and with {TEMPLATE_FILE} if that has no chat_template"
"""What a path has to be, for errors."""


class PromptText:
    """Renders prompts. Control tokens in messages are removed, so only the template delimits messages.

    path: a tokenizer's folder, as Hugging Face's tools save it, or its ``chat_template.jinja``. name: name of
        the model in errors.

    Raises ModelError if a file is missing, or is no template.
    """

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        config, template = tokenizer_files(name, path)
        added = config.get("added_tokens_decoder") or {}
        special = {key: _content(config.get(key)) for key in config if key.endswith("_token")}
        control = {_content(token) for token in added.values()} | set(special.values())
        longest_first = sorted(filter(None, control), key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._special = {key: token for key, token in special.items() if token}
        first = self._special.get("bos_token", "")
        # A tokenizer that adds the first token itself must not find it in the text as well.
        self._added = first if first and adds_first(path, config, first) else ""
        try:
            self._template = chat_environment().from_string(template)
        except Exception as error:
            raise ModelError(name, f"the chat template of {path} is broken: {error}") from error

    def text(self, messages: Sequence[Message], adds_special: bool = True) -> str:
        """Return the text of a prompt.

        adds_special: whether the server lets the tokenizer add its special tokens. Raises ModelError if the
            template refuses the messages.
        """
        try:
            said = [Message(role=one["role"], content=self._plain(one["content"])) for one in messages]
            text: str = self._template.render(
                messages=said, add_generation_prompt=True, **self._special, **NO_THINKING
            )
        except Exception as error:
            raise ModelError(self._name, f"cannot read the conversation: {error}") from error
        return text.removeprefix(self._added) if adds_special else text

    def _plain(self, text: str) -> str:
        text.encode()  # raises for a lone surrogate
        return self._control.sub(" ", text)


def tokenizer_files(name: str, path: Path) -> tuple[dict[str, Any], str]:
    """Return the configuration and the chat template of a tokenizer. Raises ModelError."""
    folder = path if path.is_dir() else path.parent
    try:
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        file = folder / TEMPLATE_FILE if path.is_dir() else path
        template = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(name, f"cannot read {folder / CONFIG_FILE}: {error}; needed: {WANTED}") from error
    if isinstance(template, list):  # several, by name
        named = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
        template = named.get("default")
    if not isinstance(config, dict) or not isinstance(template, str):
        raise ModelError(name, f"there is no chat template in {folder}; needed: {WANTED}")
    return config, template


def adds_first(path: Path, config: dict[str, Any], first: str) -> bool:
    """Return whether a tokenizer puts the token ``first`` in front of each text.

    Its configuration says so, or the template of its post-processor in ``tokenizer.json``. Many tokenizers
    have such a token and do not add it.
    """
    given = config.get("add_bos_token")
    if isinstance(given, bool):
        return given
    file = (path if path.is_dir() else path.parent) / "tokenizer.json"
    try:
        processor = json.loads(file.read_text(encoding="utf-8"))["post_processor"] or {}
        for step in processor.get("processors", [processor]):
            if "single" in step:
                return bool(step["single"][0].get("SpecialToken", {}).get("id") == first)
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return False  # there is no such file, or none that says so
    return False


def _content(token: Any) -> str:
    """Return the text of a special token, which is a string or an object with ``content``."""
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else ""
