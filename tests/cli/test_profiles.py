"""Settings that fit together: which profile a machine gets, what overrides it, and the settings of vLLM."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.patience import PATIENCE
from typer.testing import CliRunner

from rejoinder.agent import config, machine, profiles
from rejoinder.agent.cli.app import app
from rejoinder.agent.cli.doctor import machine as checks
from rejoinder.agent.config import ConfigError, Settings, load, unknown_variables
from rejoinder.agent.machine import gpu_memory, memory
from rejoinder.agent.profiles import PROFILES, chosen, fitting, lacking
from rejoinder.models.registry import adapters, check, of_hub
from rejoinder.models.specs import ROLES
from rejoinder.models.threads import plan
from rejoinder.models.weights.hub import is_repository, snapshot
from rejoinder.pipeline.errors import ModelError

NAMES = list(PROFILES)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read no configuration of this folder or environment."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("REJOINDER_") and name not in config.OTHER_VARIABLES:
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    "cores, gib, gpu_gib, names",
    [
        (1, 16.0, 0.0, ["cpu-tiny"]),
        (2, 2.0, 0.0, ["cpu-tiny"]),
        (2, 0.0, 0.0, ["cpu-small", "cpu-tiny"]),
        (7, 4.0, 8.0, ["cpu-small", "cpu-tiny"]),
        (8, 16.0, 0.0, ["cpu", "cpu-small", "cpu-tiny"]),
        (4, 16.0, 23.7, ["gpu", "cpu-small", "cpu-tiny"]),
        (16, 64.0, 79.6, ["gpu-large", "gpu", "cpu", "cpu-small", "cpu-tiny"]),
    ],
)
def test_profiles_that_fit_a_machine(cores: int, gib: float, gpu_gib: float, names: list[str]) -> None:
    assert fitting(cores, gib, gpu_gib) == names


def test_the_memory_is_that_of_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = memory()
    assert whole > 1 << 30
    limits = [tmp_path / "memory.max", tmp_path / "none"]
    monkeypatch.setattr(machine, "CONTAINER_LIMITS", limits)
    for limit, expected in (
        ("max\n", os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")),
        ("1024\n", 1024),
    ):
        limits[0].write_text(limit)
        assert memory() == expected


@pytest.mark.parametrize("name", NAMES)
def test_every_profile_is_a_configuration(name: str) -> None:
    settings, sources = load({"profile": name})
    assert (settings.profile, sources["profile"]) == (name, "flag")
    same = vars(Settings())["llm"] == settings.llm
    assert sources["llm"] == ("default" if same else f"profile {name}")
    for kind in ROLES:
        assert getattr(settings, kind).partition(":")[0] in adapters(kind)
    cuda = name.startswith("gpu")
    assert settings.placement().cuda is cuda
    assert settings.threads() == plan(cuda=cuda)
    if cuda:
        assert is_repository(str(of_hub(settings.llm))) and of_hub(settings.stt)
        vllm = settings.vllm
        assert vllm.max_num_seqs == settings.max_sessions, "every call has a place in the batch"
        assert vllm.gpu_memory_utilization and vllm.gpu_memory_utilization < 0.9, "other models need some"


@pytest.mark.parametrize(
    "missing, name",
    [
        ((), "gpu"),
        (("gpu",), "cpu"),
        (("gpu", "cpu"), "cpu-small"),
        (("gpu", "cpu", "cpu-small"), "cpu-tiny"),
        (NAMES, "cpu-small"),
    ],
)
def test_the_largest_that_fits_and_is_here_is_chosen(
    missing: tuple[str, ...], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(settings: Mapping[str, Any]) -> list[str]:
        return ["weights"] if any(settings is PROFILES[one] for one in missing) else []

    monkeypatch.setattr(profiles, "cores", lambda: 8)
    monkeypatch.setattr(profiles, "memory", lambda: 16 << 30)
    monkeypatch.setattr(profiles, "gpu_memory", lambda: 24 << 30)
    monkeypatch.setattr(profiles, "lacking", lacks)
    assert chosen() == name
    settings, sources = load({})
    assert (settings.profile, sources["profile"]) == (name, "default")
    assert settings.llm == PROFILES[name]["llm"]


def test_every_other_source_overrides_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        'profile = "gpu"\nstt = "whisper:tiny.en"\n[vllm]\nmax_model_len = 2048\nquantization = "fp8"\n'
        'speculative_config = { method = "ngram", num_speculative_tokens = 3 }\n'
    )
    monkeypatch.setenv("REJOINDER_VLLM_MAX_MODEL_LEN", "4096")
    monkeypatch.setenv("REJOINDER_TTS", "hibari")
    settings, sources = load({"max_sessions": 5}, file)
    assert (settings.profile, settings.device) == ("gpu", "cuda")
    assert (settings.stt, settings.tts, settings.max_sessions) == ("whisper:tiny.en", "hibari", 5)
    assert settings.vllm.given() == {
        **PROFILES["gpu"]["vllm"],
        "max_model_len": 4096,
        "quantization": "fp8",
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
    }
    assert sources["vllm.max_model_len"] == "environment REJOINDER_VLLM_MAX_MODEL_LEN"
    assert sources["vllm.quantization"] == str(file)
    assert sources["vllm.max_num_seqs"] == "profile gpu"
    assert sources["vllm.dtype"] == "default"
    assert load({"profile": "cpu-small"}, file)[0].placement().cuda is False


def test_the_example_for_a_gpu_is_a_configuration() -> None:
    settings, sources = load({}, ROOT / "examples" / "gpu.toml")
    assert (settings.profile, settings.vllm.quantization, settings.device) == ("gpu", "fp8", "cuda")
    assert settings.vllm.speculative_config and sources["llm"] == "profile gpu"


def test_the_environment_may_hold_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_VLLM_SPECULATIVE_CONFIG", '{"model": "x", "num_speculative_tokens": 2}')
    monkeypatch.setenv("REJOINDER_VLLM", '{"enforce_eager": true}')
    vllm = load({})[0].vllm
    assert vllm.enforce_eager and vllm.speculative_config == {"model": "x", "num_speculative_tokens": 2}


@pytest.mark.parametrize(
    "table, reason",
    [
        (
            "[vllm]\nspeculative_config = { num_speculative_tokens = 3 }",
            r"own\.toml: vllm\.speculative_config: write a method",
        ),
        ('[vllm]\nspeculative_config = { method = "ngram" }', "num_speculative_tokens = 3"),
    ],
)
def test_an_incomplete_speculative_config_is_reported(table: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(table + "\n")
    with pytest.raises(ConfigError, match=reason):
        load({}, file)


def test_variables_of_vllm_are_known() -> None:
    assert not unknown_variables({"REJOINDER_VLLM_DTYPE": "auto", "REJOINDER_PROFILE": "cpu"})
    warning = unknown_variables({"REJOINDER_VLLM_MAX_NUM_SEQ": "3"})
    assert "did you mean REJOINDER_VLLM_MAX_NUM_SEQS?" in warning


def test_print_config_shows_each_setting_of_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    shown = CliRunner().invoke(app, ["serve", "--profile", "gpu", "--print-config"])
    assert shown.exit_code == 0
    lines = {line.split("│")[1].strip(): line for line in shown.stdout.splitlines() if line.count("│") > 2}
    assert "8192" in lines["vllm.max_model_len"] and "profile gpu" in lines["vllm.max_model_len"]
    assert "flag" in lines["profile"]


@pytest.mark.parametrize("command", ["serve", "talk", "demo", "ask", "doctor", "bench"])
def test_every_command_that_opens_models_takes_a_profile(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "120")
    assert "--profile" in CliRunner().invoke(app, [command, "--help"]).stdout


def test_doctor_names_what_a_larger_profile_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(profile="cpu-small")
    monkeypatch.setattr(profiles, "cores", lambda: 2)
    monkeypatch.setattr(profiles, "gpu_memory", lambda: 0)
    assert checks.check_profile(settings).detail == f"cpu-small ({settings.llm})"
    monkeypatch.setattr(profiles, "gpu_memory", lambda: 24 << 30)
    monkeypatch.setattr("rejoinder.models.hints.find_spec", lambda name: None if name == "vllm" else name)
    check = checks.check_profile(settings)
    assert check.state == "ok" and "); gpu would fit this machine: " in check.detail
    assert "[vllm]" in check.detail and "rejoinder models fetch whisper-large-v3-turbo" in check.detail


@pytest.mark.skipif(os.name != "posix", reason="fakes a program with a shell script")
@pytest.mark.parametrize(
    "script, size",
    [
        ("echo 81559; echo 81559", 81559 << 20),
        ("echo 'No devices were found'; exit 6", 0),
        ("echo '[N/A]'", 0),
        ("true", 0),
        ("sleep 5", 0),
    ],
)
def test_the_memory_of_a_gpu(script: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(machine, "GPU_SECONDS", 0.5)
    assert gpu_memory() == size


def test_without_a_driver_there_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_memory() == 0


# --- weights of the hub ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec, name",
    [
        ("vllm:Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("vllm:./folder", None),
        ("whisper:large-v3-turbo", "whisper-large-v3-turbo"),
        ("whisper:large-v3@de", "whisper-large-v3"),
        ("whisper:tiny.en", None),
        ("whisper:nonsense", None),
        ("ort:a/b", None),
    ],
)
def test_models_of_the_hub_are_recognised(spec: str, name: str | None) -> None:
    assert of_hub(spec) == name


def test_missing_weights_are_reported_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="run: rejoinder models fetch nobody/Nothing-1B, or name the path"):
        snapshot("nobody/Nothing-1B")
    with pytest.raises(ModelError, match=r"^whisper:distil-large-v3\.5: .*fetch whisper-distil-large-v3\.5"):
        check("stt", "whisper:distil-large-v3.5")
    monkeypatch.setattr("rejoinder.models.hints.find_spec", lambda name: name)
    with pytest.raises(ModelError, match="run: rejoinder models fetch nobody/Nothing-1B"):
        check("llm", "vllm:nobody/Nothing-1B")
    for wrong in ("vllm:", "vllm:nothing", f"vllm:{tmp_path}/none", "vllm:a/b/c"):
        with pytest.raises(ModelError, match="write vllm:FOLDER or vllm:ORGANISATION/NAME"):
            check("llm", wrong)
    check("llm", f"vllm:{tmp_path}")


@pytest.mark.parametrize("name", ["nobody/Nothing-1B", "whisper-large-v3-turbo"])
def test_a_hub_that_is_out_of_reach_says_how_to_get_on(name: str, tmp_path: Path) -> None:
    fetched = subprocess.run(
        [sys.executable, "-m", "rejoinder", "models", "fetch", name],
        env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=6 * PATIENCE,
    )
    assert fetched.returncode == 1
    assert f"error: {name}: the hub does not give it: " in fetched.stderr
    assert "copy the folder here and name its path" in fetched.stderr
    assert "Traceback" not in fetched.stderr


def test_a_profile_that_is_none_cannot_be_fetched() -> None:
    result = CliRunner().invoke(app, ["models", "fetch", "--profile", "huge"])
    assert result.exit_code == 2 and "gpu-large" in result.stderr


def test_missing_parts_of_a_profile_are_reported_per_model() -> None:
    scripted = {"vad": "scripted:vad", "turn": "", "stt": "whisper:nonsense", "llm": "none:x"}
    stt, llm = lacking(scripted)
    assert "nonsense" in stt and "no adapter" in llm
