"""Convert a language model in a GGUF file into a folder for onnxruntime: graph, tokenizer, settings."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from rejoinder.models.llm.ort.decoder_graph import Graph
from rejoinder.pipeline.errors import ModelError

log = logging.getLogger(__name__)

Opened = TypeVar("Opened")

GRAPH_FORMAT = 3
"""Version of the converted folder. A folder of another version is converted again."""


def converted(path: Path) -> Path:
    """Return the converted folder of a GGUF file. The first call takes seconds and writes it beside the file.

    Raises ModelError for a model of another architecture, and OSError if the folder cannot be written.
    """
    stat = path.stat()
    folder = path.with_suffix(f".{stat.st_size:x}-{stat.st_mtime_ns:x}.onnx{GRAPH_FORMAT}")
    if not folder.exists():
        with TemporaryDirectory(dir=path.parent, suffix=".part") as part:
            _convert(path, Path(part) / "model")
            try:
                (Path(part) / "model").rename(folder)
            except OSError:
                if not folder.exists():  # if it exists, another process has converted the same file
                    raise
        for older in outdated(path, folder):
            rmtree(older, ignore_errors=True)
    return folder


def repaired(path: Path, opened: Callable[[Path], Opened]) -> Opened:
    """Return what ``opened`` makes of the converted folder of a GGUF file.

    A folder that cannot be opened is damaged, as by a disk that was full: it is made again once. Raises what
    ``converted`` and ``opened`` raise.
    """
    folder = converted(path)
    try:
        return opened(folder)
    except Exception as error:
        log.warning("%s is damaged, and is converted again: %s", folder, error)
        rmtree(folder)
        return opened(converted(path))


def outdated(path: Path, folder: Path) -> list[Path]:
    """Return the converted folders of a GGUF file except ``folder``.

    Those of a model beside it, whose name may begin like this one's, are not among them.
    """
    ours = re.compile(re.escape(path.stem) + r"\.[0-9a-f]+-[0-9a-f]+\.onnx\d+")
    return [one for one in path.parent.iterdir() if one != folder and ours.fullmatch(one.name)]


def _convert(path: Path, folder: Path) -> None:
    import gguf
    import onnx

    file = gguf.GGUFReader(path)
    settings = {name: field.contents() for name, field in file.fields.items()}
    if unknown := foreign(settings, [tensor.name for tensor in file.tensors]):
        raise ModelError("ort", f"{path} has an unsupported setting, {unknown}: try llama:{path}")
    folder.mkdir()
    onnx.save(
        Graph(settings, {tensor.name: tensor for tensor in file.tensors}).model(), folder / "model.onnx"
    )
    tokenizer(settings).save(str(folder / "tokenizer.json"))
    kept = {
        "template": settings["tokenizer.chat_template"],
        "end": settings["tokenizer.ggml.eos_token_id"],
    }
    (folder / "settings.json").write_text(json.dumps(kept), encoding="utf-8")


def foreign(settings: dict[str, Any], tensors: Sequence[str]) -> str:
    """Return the setting or tensor of a model that is not supported, or "" if all are, as in SmolLM2."""
    known = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.add_bos_token": False,
    }
    for name, value in known.items():
        if settings.get(name, value) != value or (value and name not in settings):
            return f"{name} = {settings.get(name)!r}"
    if "tokenizer.chat_template" not in settings:
        return "no tokenizer.chat_template"
    strange = [
        name for name in settings if name.startswith(("llama.rope.scaling", "llama.attention.key_length"))
    ]
    strange += [name for name in tensors if name.endswith(".bias") or "rope_freqs" in name]
    return strange[0] if strange else ""


def tokenizer(settings: dict[str, Any]) -> Any:
    """Return the byte-level tokenizer in a GGUF file; words are cut as SmolLM was trained, digit by digit."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    words: list[str] = settings["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in settings["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    kinds = settings["tokenizer.ggml.token_type"]
    control = [word for word, kind in zip(words, kinds, strict=True) if kind == 3]  # gguf's CONTROL
    made.add_special_tokens([AddedToken(word, special=True) for word in control])
    return made
