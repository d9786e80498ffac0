"""Specs of models: unknown and missing ones, adapters of other distributions, and loading a whole set."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from support import speech

from rejoinder.models import hints, loading, registry
from rejoinder.models.adapter import Adapter
from rejoinder.models.loading import Specs, open_models
from rejoinder.models.placement import HERE, Placement
from rejoinder.models.registry import (
    MODULES,
    check,
    create,
    language_model,
    own_path,
    voice,
    voices,
    weights,
)
from rejoinder.models.specs import LANGUAGE_MODELS
from rejoinder.models.threads import Threads
from rejoinder.models.weights.catalog import catalog
from rejoinder.models.weights.fetch import WeightsMissing, cache_dir, locate
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Message

THREADS = Threads(stt=3, llm=4, tts=5)
NEED_WEIGHTS = [
    "silero",
    "smart-turn",
    "whisper:tiny.en",
    "llama:smollm2-135m-instruct",
    "ort:smollm2-135m-instruct",
    "piper:en_US-joe-medium",
]
SCRIPTED = Specs("scripted:vad", "scripted:turn", "scripted:stt|hi", "scripted:llm|yes", "scripted:tts")


def close(model: Any) -> None:
    if hasattr(model, "aclose"):
        asyncio.run(model.aclose())
    elif hasattr(model, "close"):
        model.close()


def adapter(name: str) -> Adapter:
    found: Adapter = import_module(f"rejoinder.models.{MODULES[name]}").ADAPTER
    return found


def engines() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("engine-")}


@pytest.mark.weights
@pytest.mark.parametrize("spec", [*NEED_WEIGHTS, "hibari:heart"])
def test_every_adapter_opens_by_name(spec: str) -> None:
    model = speech.model(spec)
    adapter = spec.partition(":")[0].replace("-", "_")
    assert {adapter, f"{adapter}_cpp", "voice"} & set(type(model).__module__.split("."))
    close(model)


@pytest.fixture
def opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``create`` return what it would open, such as a path: opening by name loads each model already."""

    def opened(found: Any, threads: int, placement: Placement) -> Any:
        return found

    monkeypatch.setattr(registry, "adapter", lambda name: replace(adapter(name), open=opened))


@pytest.mark.weights
@pytest.mark.parametrize("spec", NEED_WEIGHTS)
@pytest.mark.parametrize("suffix", ["", "file"])
@pytest.mark.usefixtures("opens_nothing")
def test_a_path_opens_what_the_name_opens(spec: str, suffix: str) -> None:
    speech.need(spec)
    prefix = spec.partition(":")[0]
    path = cache_dir() / str(weights(spec))
    if suffix and prefix != "whisper":  # its model is the folder
        (path,) = [file for file in path.iterdir() if file.suffix in (".onnx", ".gguf")]
    assert create(f"{prefix}:{path}", THREADS) == create(spec, THREADS)


@pytest.mark.weights
@pytest.mark.parametrize(
    "short, spec",
    [
        ("whisper", "whisper:tiny.en"),
        ("whisper:", "whisper:tiny.en"),
        ("llama", "llama:smollm2-135m-instruct"),
        ("ort", "ort:smollm2-135m-instruct"),
        ("piper", "piper:en_US-joe-medium"),
        ("hibari", "hibari:heart"),
    ],
)
@pytest.mark.usefixtures("opens_nothing")
def test_an_adapter_without_a_name_opens_its_default(short: str, spec: str) -> None:
    speech.need(spec)
    assert create(short, THREADS) == create(spec, THREADS)


@pytest.mark.parametrize("kind", ["vad", "turn", "tts", "stt", "stt|one|two", "llm", "llm|one"])
def test_every_scripted_model_opens(kind: str) -> None:
    assert type(create(f"scripted:{kind}", THREADS)).__name__.lower() in (
        f"scripted{kind.partition('|')[0]}",
        "scriptedturnmodel",
    )


def test_the_chat_adapter_takes_a_url_a_model_and_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REJOINDER_LLM_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "second")
    keys = []
    for first in (None, "first"):
        if first:
            monkeypatch.setenv("REJOINDER_LLM_KEY", first)
        model = create("openai:https://example.com:8000/v1#org/model:tag#2", THREADS)
        assert model.name == "openai:https://example.com:8000/v1#org/model:tag#2"
        assert model._model == "org/model:tag#2"
        keys.append(model._client.api_key)
        close(model)
    assert keys == ["second", "first"]


@pytest.mark.parametrize(
    "spec, name",
    [
        ("silero", "silero-vad"),
        ("smart-turn", "smart-turn-v3.2"),
        ("whisper", "whisper-tiny.en"),
        ("whisper:base", "whisper-base"),
        ("whisper:base@de", "whisper-base"),
        ("whisper:@de", "whisper-tiny.en"),
        ("whisper:/some/folder@de", None),
        ("llama:some-model", "some-model"),
        ("ort:some-model", "some-model"),
        ("piper", "piper-en_US-joe-medium"),
        ("whisper:/some/folder", None),
        ("llama:~/model.gguf", None),
        ("piper:./voice.onnx", None),
        ("hibari", None),
        ("openai:http://host/v1#model", None),
        ("scripted:vad", None),
    ],
)
def test_weights_names_what_a_spec_needs(spec: str, name: str | None) -> None:
    assert weights(spec) == name


@pytest.mark.parametrize(
    "name, spec",
    [
        ("heart", "hibari:heart"),
        ("en_US-joe-medium", "piper:en_US-joe-medium"),
        ("./my.onnx", "piper:./my.onnx"),
        ("hibari", "hibari"),
        ("piper:en_US-joe-medium", "piper:en_US-joe-medium"),
        ("scripted:tts", "scripted:tts"),
        ("nobody", "nobody"),
        ("", ""),
    ],
)
def test_a_voice_is_found_by_its_name_alone(name: str, spec: str) -> None:
    assert voice(name) == spec
    assert "heart" not in spec or spec in voices()


@pytest.mark.parametrize(
    "name, spec",
    [
        ("tiny", "ort:smollm2-135m-instruct"),
        ("small", "ort:qwen2.5-coder-0.5b-instruct"),
        ("qwen2.5-coder-1.5b-instruct", "ort:qwen2.5-coder-1.5b-instruct"),
        ("./my.gguf", "llama:./my.gguf"),
        ("ort", "ort"),
        ("openai:http://host/v1#model", "openai:http://host/v1#model"),
        ("large", "large"),
        ("", ""),
    ],
)
def test_a_language_model_is_found_by_its_size_its_name_or_its_path(name: str, spec: str) -> None:
    assert language_model(name) == spec


def test_every_short_name_of_a_language_model_is_in_the_catalog() -> None:
    assert all(weights(spec) in catalog() for spec in LANGUAGE_MODELS.values())
    with pytest.raises(
        ModelError, match=r"^llm: there is no 'large'; there are: tiny, small, medium, llama:PATH"
    ):
        check("llm", "large")


@pytest.mark.parametrize(
    "spec, reason",
    [
        ("", "^: there is no adapter of this name for ''; there are: .*whisper"),
        (
            "wisper:tiny.en",
            "^wisper: there is no adapter.*hibari, llama, openai, ort, piper, ray, scripted, silero",
        ),
        ("openai", "^openai: write openai:http://HOST/v1#MODEL, not ''"),
        ("openai:http://host/v1", "^openai: write openai:http"),
        ("openai:host/v1#model", "^openai: write openai:http"),
        ("openai:http:///v1#model", "^openai: the address cannot be read"),
        ("openai:https://user:pa[ss@host/v1#model", "^openai: the address cannot be read(?!.*pa.ss)"),
        ("openai:https://user:pa/ss@host/v1#model", "^openai: the address cannot be read(?!.*pa.ss)"),
        ("scripted:", "^scripted: there is no ''; there are vad"),
        ("scripted:cat|x", "^scripted: there is no 'cat'"),
        ("whisper:enormous", "whisper-enormous: neither in the catalog .*whisper-tiny.en.* nor an existing"),
        ("llama:nothing", "nothing: neither in the catalog"),
        ("piper:xx", "^piper: there is no voice 'xx'; there are: piper:en_US-joe-medium, hibari:heart"),
        ("silero:v9", "^silero: there is one model only: leave 'v9' out"),
        ("smart-turn:v9", "^smart-turn: there is one model only"),
        ("whisper:/no/such/folder", "^whisper: there is no file or folder /no/such/folder"),
        ("llama:./no.gguf", r"^llama: there is no file or folder no\.gguf"),
        ("piper:~/no.onnx", r"^piper: there is no file or folder /.*/no\.onnx"),
        ("hibari:nobody", "^hibari: there is no voice 'nobody'; there are: piper:en_US-joe-medium, hib"),
    ],
)
def test_unusable_specs_raise_with_the_reason(spec: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        create(spec, THREADS)


@pytest.mark.parametrize("spec", NEED_WEIGHTS)
def test_missing_weights_name_the_command_that_fetches_them(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))
    with pytest.raises(
        WeightsMissing, match=f"is missing; run: rejoinder models fetch {weights(spec)}$"
    ) as caught:
        create(spec, THREADS)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.weights
def test_files_of_an_older_version_in_the_cache_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = catalog()["silero-vad"].files
    (tmp_path / "weights" / "silero-vad").mkdir(parents=True)
    shutil.copy(locate("silero-vad") / file.name, tmp_path / "weights" / "silero-vad")
    (tmp_path / "weights" / "silero-vad" / "another.onnx").write_bytes(b"old")
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))
    assert create("silero", THREADS).stream().feed(AudioChunk(bytes(1024), RATE))


@pytest.mark.parametrize("prefix", ["silero", "smart-turn", "whisper", "llama", "piper"])
def test_folder_without_model_and_broken_file_are_refused(prefix: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"there is no .* in {tmp_path}|cannot load {tmp_path}"):
        create(f"{prefix}:{tmp_path}", THREADS)
    file = tmp_path / ("x.gguf" if prefix == "llama" else "x.onnx")
    file.write_bytes(b"this is no model" * 100)
    file.with_name(file.name + ".json").write_text("{}")
    with pytest.raises(ModelError, match=str(tmp_path)):
        create(f"{prefix}:{file}", THREADS)
    assert not engines()


@pytest.mark.weights
def test_graph_other_than_sileros_is_refused() -> None:
    with pytest.raises(ModelError, match=r"smart-turn.* is another graph than silero_vad_16k_sequence"):
        create(f"silero:{locate('smart-turn-v3.2')}", THREADS)


@pytest.mark.parametrize("package, spec", [("piper", "piper:/"), ("hibari", "hibari"), ("vllm", "vllm:/")])
def test_an_extra_that_is_not_installed_is_named(
    package: str, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints, "find_spec", lambda name: None)
    monkeypatch.setattr(hints, "is_checkout", lambda: False)
    for attempt in (
        lambda: create(spec, THREADS),
        lambda: check("llm" if package == "vllm" else "tts", spec),
    ):
        with pytest.raises(ModelError, match=rf"^{package}: .*pip install 'rejoinder\[{package}\]'"):
            attempt()


def test_each_adapter_gets_its_share_of_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(found: str, threads: int, placement: Placement) -> int:
        return threads

    def without_weights(name: str) -> Adapter:
        return replace(adapter(name), open=opened, finder=str, packages=())

    monkeypatch.setattr(registry, "adapter", without_weights)
    assert {name: create(name, THREADS) for name in MODULES} == {
        "silero": 1,
        "smart-turn": 1,
        "whisper": 3,
        "llama": 4,
        "ort": 4,
        "openai": 1,
        "vllm": 4,
        "piper": 5,
        "hibari": 1,
        "ray": 1,
        "scripted": 1,
    }


@pytest.fixture
def toy_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another distribution, with adapters named toy, lost, mute and whisper."""
    (tmp_path / "toy_adapter.py").write_text(
        textwrap.dedent(
            """
            from rejoinder.models.scripted import ScriptedTts
            from rejoinder.pipeline.errors import ModelError

            closed = []

            def voice(argument, threads):
                if argument == "named":
                    raise ModelError("toy", "no such voice")
                return ScriptedTts(rate=int(argument) * threads)

            class Mute:
                def __init__(self, argument, threads):
                    pass

                def close(self):
                    closed.append(self)
            """
        )
    )
    info = tmp_path / "toy_adapter-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-adapter\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[rejoinder.models]\ntoy = toy_adapter:voice\nlost = toy_adapter:nothing\n"
        "mute = toy_adapter:Mute\nwhisper = toy_adapter:voice\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("toy_adapter", None)


@pytest.mark.usefixtures("toy_adapter")
def test_other_distributions_add_adapters() -> None:
    assert create("toy:16000", THREADS).rate == 16_000
    with pytest.raises(ModelError, match=r"^toy: no such voice$"):
        create("toy:named", THREADS)
    with pytest.raises(ModelError, match=r"^toy: its adapter toy_adapter:voice failed: ValueError\(.*'x'"):
        create("toy:x", THREADS)
    with pytest.raises(ModelError, match=r"^lost: its adapter toy_adapter:nothing failed: AttributeError"):
        create("lost:x", THREADS)
    with pytest.raises(ModelError, match=r"there are: .*hibari, .*lost, .*toy, vllm, whisper$"):
        create("unknown:x", THREADS)
    with pytest.raises(ModelError, match="whisper-16000"):
        create("whisper:16000", THREADS)  # an entry point cannot replace a built-in adapter
    assert weights("toy:16000") is None


@pytest.mark.usefixtures("toy_adapter")
def test_model_of_an_entry_point_that_does_not_fit_is_closed() -> None:
    with pytest.raises(ModelError, match=r"^mute: toy_adapter\.Mute does .* the voice \(tts\): .*speak"):
        opening(Specs(**{**vars_of(SCRIPTED), "tts": "mute"}))
    assert len(sys.modules["toy_adapter"].closed) == 1
    with pytest.raises(ModelError, match=r"^toy: .*ScriptedTts does not fit as the language model \(llm\)"):
        opening(Specs(**{**vars_of(SCRIPTED), "llm": "toy:16000"}))


@pytest.mark.weights
def test_the_default_set_loads_warm_and_leaves_no_thread() -> None:
    speech.need(*vars_of(Specs()).values())
    before, reported = set(threading.enumerate()), {}

    async def use() -> None:
        async with open_models(Specs(), Threads(1, 1, 1), reported.__setitem__) as models:
            assert engines() == {"engine-smart-turn", "engine-whisper", "engine-ort", "engine-piper"}
            assert models.vad and models.stt and models.llm and models.tts and models.turn
            tokens = models.llm.reply([Message(role="user", content="Say yes.")])
            assert await anext(tokens)
            await tokens.aclose()
        assert not engines()

    asyncio.run(use())
    gc.collect()
    assert set(threading.enumerate()) == before
    assert list(reported) == list(vars_of(Specs()).values())
    assert all(seconds > 0 for seconds in reported.values())


def vars_of(specs: Specs) -> dict[str, str]:
    return {kind: getattr(specs, kind) for kind in ("vad", "turn", "stt", "llm", "tts")}


@pytest.mark.weights
@pytest.mark.parametrize("kind", ["llm", "tts"])
def test_a_later_model_that_fails_closes_the_earlier_ones(kind: str, tmp_path: Path) -> None:
    speech.need("smart-turn", "whisper:tiny.en")
    broken = tmp_path / ("x.gguf" if kind == "llm" else "x.onnx")
    broken.write_bytes(b"this is no model" * 100)
    failing = {kind: f"{'llama' if kind == 'llm' else 'piper'}:{broken}"}
    specs = Specs(**{"vad": "scripted:vad", "llm": "scripted:llm|yes", **failing})
    before = set(threading.enumerate())
    reported: dict[str, float] = {}

    async def use() -> None:
        async with open_models(specs, Threads(1, 1, 1), reported.__setitem__):
            raise AssertionError("it opened")

    with pytest.raises(ModelError, match=str(broken)):
        asyncio.run(use())
    assert {"smart-turn", "whisper:tiny.en"} <= reported.keys()
    assert set(threading.enumerate()) == before


def test_an_error_in_the_block_and_in_a_warm_up_close_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    def closing(kind: str, *_: object) -> Any:
        model = create(f"scripted:{kind}", THREADS)
        model.close = lambda: closed.append(kind)
        return model

    async def nothing(model: object) -> None:
        pass

    async def broken(model: object) -> None:
        raise ModelError("toy", "does not warm up")

    monkeypatch.setattr(loading, "check", lambda kind, spec: None)
    monkeypatch.setattr(loading, "create", closing)
    monkeypatch.setattr(loading, "WARM_UPS", dict.fromkeys(("vad", "turn", "stt", "llm", "tts"), nothing))
    specs = Specs("vad", "", "stt", "llm", "tts")

    async def use() -> None:
        async with open_models(specs) as models:
            assert models.turn is None
            raise ValueError("in the block")

    with pytest.raises(ValueError, match="in the block"):
        asyncio.run(use())
    assert closed == ["tts", "llm", "stt", "vad"]
    closed.clear()
    monkeypatch.setitem(loading.WARM_UPS, "llm", broken)
    with pytest.raises(ModelError, match="does not warm up"):
        asyncio.run(use())
    assert closed == ["llm", "stt", "vad"]


def test_scripted_models_load_without_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))

    async def use() -> None:
        async with open_models(SCRIPTED) as models:
            assert models.turn

    asyncio.run(use())
    assert not list(tmp_path.iterdir())


def opening(specs: Specs) -> None:
    async def use() -> None:
        async with open_models(specs):
            raise AssertionError("it opened")

    asyncio.run(use())


@pytest.mark.parametrize(
    "wrong, reason",
    [
        ({"stt": "piper:en_US-joe-medium"}, r"^piper: '.*' is no speech recog.*: ray, scripted, whisper$"),
        (
            {"llm": "whisper:tiny.en"},
            "^whisper: .* is no language model; there are: llama, openai, ort, scripted, vllm$",
        ),
        (
            {"tts": "scripted:llm"},
            "^scripted: 'scripted:llm' is no voice; there are: hibari, piper, ray, scr",
        ),
        ({"turn": "silero"}, "^silero: 'silero' is no turn model; there are: ray, scripted, smart-turn$"),
        ({"tts": "ray:whisper:tiny.en"}, "^ray: 'ray:whisper:tiny.en' is no voice; there are: hibari, "),
        ({"tts": "pipr:x"}, "^pipr: there is no adapter of this name .* hibari, piper, ray, scripted$"),
        ({"tts": "piper:/no/voice.onnx"}, r"^piper: there is no file or folder /no/voice\.onnx"),
        ({"tts": "piper:nobody"}, "^piper: there is no voice 'nobody'; there are: piper:en_US-joe-medium, "),
        ({"tts": "nobody"}, "^tts: there is no voice 'nobody'; there are: piper:en_US-joe-medium, hibari:"),
        ({"llm": "openai:host#model"}, "^openai: write openai:http"),
        ({"vad": ""}, "^vad: a voice activity detector is needed; there are: scripted, silero$"),
    ],
)
def test_unknown_spec_is_refused_before_any_model_is_loaded(
    wrong: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(loading, "create", lambda spec, threads, placement: made.append(spec))
    with pytest.raises(ModelError, match=reason):
        opening(Specs(**{**vars_of(SCRIPTED), **wrong}))
    assert made == []


def test_missing_weights_are_refused_before_any_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))
    monkeypatch.setattr(hints, "find_spec", lambda name: True)
    made: list[str] = []
    monkeypatch.setattr(loading, "create", lambda spec, threads, placement: made.append(spec))
    with pytest.raises(WeightsMissing, match="rejoinder models fetch piper-en_US-joe-medium"):
        opening(Specs(**{**vars_of(SCRIPTED), "tts": "piper"}))
    assert made == []


@pytest.mark.parametrize("times", [1, 3])
def test_a_model_whose_loading_is_cancelled_is_closed(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    class Slow:
        def close(self) -> None:
            closed.set()

    def slow(spec: str, threads: Threads, placement: Placement) -> Slow:
        began.set()
        assert go_on.wait(10)
        return Slow()

    monkeypatch.setattr(loading, "create", slow)

    async def use() -> None:
        async def load() -> None:
            async with open_models(SCRIPTED):
                raise AssertionError("it opened")

        opening = asyncio.create_task(load())
        assert await asyncio.to_thread(began.wait, 10)
        for _ in range(times):
            opening.cancel()
            await asyncio.sleep(0.01)
        assert not opening.done() and not closed.is_set()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert closed.is_set()

    asyncio.run(use())


def test_failure_after_cancelled_loading_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def broken(spec: str, threads: Threads, placement: Placement) -> None:
        began.set()
        assert go_on.wait(10)
        raise ModelError("toy", "broken")

    monkeypatch.setattr(loading, "create", broken)

    async def use() -> None:
        loading_it = asyncio.create_task(loading._load("toy", THREADS, HERE))
        assert await asyncio.to_thread(began.wait, 10)
        loading_it.cancel()
        await asyncio.sleep(0.01)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await loading_it

    asyncio.run(use())


def toy_whisper(folder: Path, tokens: int, in_json: bool = False) -> Path:
    """Write the two files that define the languages of a Whisper model."""
    folder.mkdir()
    words = [f"w{number}" for number in range(tokens)]
    if in_json:
        (folder / "vocabulary.json").write_text(json.dumps(words))
    else:
        (folder / "vocabulary.txt").write_text("\n".join(words))
    added = ["<|startoftranscript|>", "<|en|>", "<|de|>", "<|yue|>", "<|nospeech|>", "<|0.00|>"]
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"content": one} for one in added]}))
    return folder


def test_whisper_languages_are_read_from_its_files(tmp_path: Path) -> None:
    small = toy_whisper(tmp_path / "many", 51_865)
    large = toy_whisper(tmp_path / "large@v3", 51_866, in_json=True)
    english = toy_whisper(tmp_path / "tiny.en", 51_864)
    for spec in (f"{small}@de", f"{small}@en", f"{large}@yue", f"{large}", f"{english}@en"):
        check("stt", f"whisper:{spec}")
    assert own_path(f"whisper:{large}@yue") == own_path(f"whisper:{large}") == large
    for spec, reason in (
        (f"{small}@xx", "^whisper: there is no language 'xx' in many; there are: de, en, yue$"),
        (f"{small}@", "^whisper: there is no language ''"),
        (f"{english}@de", r"^whisper: tiny\.en knows English only, not 'de'"),
        (f"{tmp_path}@de", "^whisper: cannot read which languages"),
        ("/no/where@de", "^whisper: there is no file or folder /no/where: mend the path$"),
    ):
        with pytest.raises(ModelError, match=reason):
            check("stt", f"whisper:{spec}")


@pytest.mark.weights
def test_whisper_opens_in_its_language() -> None:
    speech.need("whisper:tiny.en")
    with pytest.raises(ModelError, match=r"^whisper: whisper-tiny\.en knows English only, not 'de'"):
        create("whisper:tiny.en@de", THREADS)
    model = speech.model("whisper:base@de")
    try:
        assert model._tokenizer.language_code == "de"
    finally:
        model.close()
    with pytest.raises(ModelError, match=r"^whisper: there is no language 'klingon'.*, de, .*, fr, "):
        create("whisper:base@klingon", THREADS)
    assert not engines()


@pytest.mark.parametrize(
    "direct, wanted",
    [
        ('{"dir_info": {"editable": true}, "url": "file:///x"}', ".venv/bin/pip install -e '.[mic]'"),
        ('{"dir_info": {}, "url": "file:///x"}', "pip install 'rejoinder[mic]'"),
        (None, "pip install 'rejoinder[mic]'"),
    ],
)
def test_the_hint_to_install_an_extra_fits_the_installation(
    direct: str | None, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("rejoinder.egg-info", "rejoinder-1.0.dist-info"):  # a checkout has both
        (tmp_path / name).mkdir()
        for file in ("PKG-INFO", "METADATA"):
            (tmp_path / name / file).write_text("Metadata-Version: 2.1\nName: rejoinder\nVersion: 1.0\n")
    if direct:
        (tmp_path / "rejoinder-1.0.dist-info" / "direct_url.json").write_text(direct)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert hints.install("mic") == wanted
    assert hints.install() == wanted.replace("[mic]", "")
