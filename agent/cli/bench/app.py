"""``rejoinder bench``: latency of a whole conversation turn, and accuracy and speed of the recogniser."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rejoinder.agent.bench import bargein as bench_bargein
from rejoinder.agent.bench import heard as bench_heard
from rejoinder.agent.bench import latency as bench_latency
from rejoinder.agent.bench import simulate as bench_simulate
from rejoinder.agent.bench import soak as bench_soak
from rejoinder.agent.bench import stt as bench_stt
from rejoinder.agent.bench.cases import overlap as overlap_cases
from rejoinder.agent.bench.cases.recordings import (
    DEFAULT_SETS,
    MAX_SECONDS,
    Recording,
    choose,
    read_set,
    sample,
    speech_folder,
)
from rejoinder.agent.bench.latency import Result
from rejoinder.agent.bench.reports import timeline
from rejoinder.agent.bench.reports.output import Benches, console_beside, leave, progress_bar, write
from rejoinder.agent.bench.turns import fit as turn_fit
from rejoinder.agent.bench.turns import report as turn_report
from rejoinder.agent.bench.turns import store as turn_store
from rejoinder.agent.cli.bench.echo import echo
from rejoinder.agent.cli.bench.load import load
from rejoinder.agent.cli.bench.overhead import overhead
from rejoinder.agent.cli.options import (
    JsonOption,
    LlmOption,
    SpeechOption,
    SttOption,
    TtsOption,
    TurnOption,
    check_url,
    names_of,
)
from rejoinder.agent.machine import occasion
from rejoinder.agent.server.own_server import own_process, own_server
from rejoinder.models.threads import cores
from rejoinder.pipeline.errors import PipelineError
from rejoinder.pipeline.options import Endpointing

app = typer.Typer(
    cls=Benches, help="Measure latency; its commands measure the rest.", invoke_without_command=True
)
for command in (echo, load, overhead):
    app.command()(command)


@app.callback()
def latency(
    context: typer.Context,
    url: Annotated[str | None, typer.Option(help="ws://… of a running server; without it: our own")] = None,
    key: Annotated[str | None, typer.Option(help="bearer token for --url", envvar="REJOINDER_KEY")] = None,
    clips: Annotated[int, typer.Option(min=1, help="recordings to play")] = 44,
    sets: Annotated[str, typer.Option(help="sets to take them from")] = ",".join(DEFAULT_SETS),
    seed: Annotated[int, typer.Option(help="which recordings are taken")] = 0,
    llm: LlmOption = None,
    stt: SttOption = None,
    tts: TtsOption = None,
    turn: TurnOption = None,
    profile: Annotated[str | None, typer.Option(help="cpu-small, cpu, gpu or gpu-large")] = None,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure the time from the last sample of speech to the first audible one of the answer.

    Recordings of people are played in real time, each in a call of its own. The first audible sample is the
    first above -50 dBFS, at the moment in which a client without a buffer plays it.
    """
    if context.invoked_subcommand is not None:
        return
    flags = {"llm": llm, "stt": stt, "tts": tts, "turn": turn, "profile": profile}
    if url is not None:
        check_url(url)
        if any(value is not None for value in flags.values()):
            raise typer.BadParameter("models cannot be chosen for a server that runs already (--url)")
    report: dict[str, Any] = {**occasion(), "url": url, "models": flags, "seed": seed}
    console = console_beside(json_file)
    try:
        names = names_of(sets)
        recordings = choose(speech_folder(speech), names, clips, seed)
        if len(recordings) < clips:
            words = f"there are only {len(recordings)} recordings of up to {MAX_SECONDS:.0f} s in "
            console.print(f"{words}{', '.join(names)}: all of them are played", highlight=False)
        results = asyncio.run(_measure(url, key, flags, recordings, console))
    except PipelineError as error:
        leave(error)
    for part in bench_latency.tables(results):
        console.print(part)
    write(json_file, {**report, **bench_latency.report(results)})
    if reason := bench_latency.nothing_answered(results):
        leave(PipelineError(reason))


@app.command()
def stt(
    limit: Annotated[int | None, typer.Option(min=1, help="recordings per set; default: all")] = None,
    sets: Annotated[str, typer.Option(help="sets with transcripts")] = ",".join(bench_stt.SETS),
    stt: Annotated[str, typer.Option(help="whisper:tiny.en, whisper:base or a folder")] = "whisper:tiny.en",
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Compare the streaming recogniser with faster-whisper."""
    report: dict[str, Any] = {**occasion(), "model": stt}
    console = console_beside(json_file)
    try:
        rate = bench_stt.error_rate()
        folder = speech_folder(speech)
        names = names_of(sets)
        recordings = [recording for name in names for recording in _with_text(folder, name, limit)]
        utterances = asyncio.run(_recognise(stt, recordings, console))
    except PipelineError as error:
        leave(error)
    compared = {
        name: bench_stt.compare(chosen, rate)
        for name in names
        if (chosen := [utterance for utterance in utterances if utterance.set == name])
    }
    console.print(bench_stt.table(stt, compared))
    report["sets"] = {name: {**asdict(row), "relative": row.relative} for name, row in compared.items()}
    write(json_file, {**report, "utterances": [asdict(utterance) for utterance in utterances]})


@app.command()
def soak(
    turns: Annotated[int, typer.Option(min=bench_soak.WARM_TURNS + 1, help="turns in one call")] = 200,
    idle: Annotated[float, typer.Option(min=0.1, help="seconds of an idle call")] = 30.0,
    set_: Annotated[str, typer.Option("--set", help="set to take the recording from")] = DEFAULT_SETS[0],
    llm: LlmOption = None,
    stt: SttOption = None,
    tts: TtsOption = None,
    turn: TurnOption = None,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure memory over a long call, and what an idle one costs."""
    flags = {"llm": llm, "stt": stt, "tts": tts, "turn": turn}
    report: dict[str, Any] = {**occasion(), "models": flags}
    console = console_beside(json_file)
    try:
        bench_soak.check_proc()
        recording = bench_soak.usual(choose(speech_folder(speech), [set_], sys.maxsize))
        result = asyncio.run(_soak(flags, recording, turns, idle, console))
    except PipelineError as error:
        leave(error)
    console.print(bench_soak.table(result))
    write(json_file, {**report, **asdict(result), "ratio": result.ratio, "file": recording.path.name})


@app.command()
def turns(
    limit: Annotated[int | None, typer.Option(min=1, help="recordings in all; default: all")] = None,
    sets: Annotated[str, typer.Option(help="sets to take them from")] = ",".join(turn_report.SETS),
    stt: Annotated[str, typer.Option(help="whisper:tiny.en, whisper:base or a folder")] = "whisper:tiny.en",
    turn: Annotated[str, typer.Option(help="turn model under test")] = "smart-turn",
    cuda: Annotated[bool, typer.Option("--cuda", help="the recogniser runs on the GPU")] = False,
    plot: Annotated[Path | None, typer.Option(help="draw the curve into this PNG")] = None,
    keep: Annotated[Path | None, typer.Option(help="write what was heard into this .json.gz")] = None,
    again: Annotated[
        Path | None,
        typer.Option(exists=True, help="judge what was kept there; --sets, --stt and --cuda are not asked"),
    ] = None,
    fit: Annotated[Path | None, typer.Option(help="fit the rule to it all, in this checkout")] = None,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure how often a pause is taken for the end of a turn.

    Ends and pauses of known truth are made of the recordings, and heard by the real models in sample time;
    each rule is judged on what they said, against how long real ends wait.
    """
    models = {"again": str(again)} if again else {"stt": stt, "turn": turn, "cuda": cuda}
    report: dict[str, Any] = {**occasion(), "models": models}
    console = console_beside(json_file)
    try:
        if plot:
            timeline.check()
        if fit and not (fit / "pipeline/turns/turn_end.json").is_file():
            raise PipelineError(f"{fit} is no checkout of Rejoinder: it has no pipeline/turns/turn_end.json")
        if keep:
            turn_store.check(keep)
        if again:
            seen = turn_store.read(again)
        else:
            recordings = choose(speech_folder(speech), names_of(sets), limit or sys.maxsize)
            seen = asyncio.run(turn_report.observe_all(recordings, stt, turn, cuda, progress_bar(console)))
        if fit and not turn_fit.can_be_fitted(seen):
            raise PipelineError(f"a fit needs ends and pauses of {turn_fit.LEAST_SPEAKERS} speakers")
        if fit and not any(each.whisper for each in seen):
            raise PipelineError("a fit needs a Whisper that hears English: there is nothing else to fit")
    except PipelineError as error:
        leave(error)
    if keep:
        turn_store.write(keep, seen)
    fits = turn_report.fits_for(seen)
    curves = turn_report.curves(seen, fits)
    rule = turn_fit.fused(seen, fits, Endpointing().patience)
    console.print(turn_report.table(seen, rule), *turn_report.notes(curves), sep="\n")
    if plot:
        turn_report.draw(curves, plot)
    if fit:
        turn_fit.fit(seen).write(fit)
        console.print(f"wrote the weights of {len(seen)} pauses and ends into {fit}", soft_wrap=True)
    write(json_file, {**report, **turn_report.report(seen, curves)})
    if json_file:
        typer.echo(json.dumps(turn_report.summary(curves[turn_report.FUSED])))


@app.command()
def bargein(
    count: Annotated[int, typer.Option(min=1, help="interruptions")] = 40,
    false: Annotated[int, typer.Option(min=0, help="false ones of each kind")] = 30,
    sets: Annotated[str, typer.Option(help="sets to take interruptions from")] = ",".join(overlap_cases.SETS),
    voices: Annotated[str, typer.Option(help="who says mm-hm")] = "hibari:heart,piper:en_US-joe-medium",
    seed: Annotated[int, typer.Option(help="which sounds are taken")] = 0,
    stt: SttOption = None,
    tts: TtsOption = None,
    plot: Annotated[Path | None, typer.Option(help="draw the times into this PNG")] = None,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure how soon the agent falls silent, or goes on after a cough.

    In real time over a WebSocket. False ones are backchannels that voices say, made coughs, and noise.
    With --json the last line on stdout holds the three figures that count.
    """
    flags = {"llm": bench_bargein.STORYTELLER, "stt": stt, "tts": tts}
    report: dict[str, Any] = {**occasion(), "models": flags, "seed": seed, "voices": voices}
    console = console_beside(json_file)
    try:
        if plot:
            timeline.check()
        folder = speech_folder(speech)
        sounds = overlap_cases.interruptions(folder, names_of(sets), count, seed)
        sounds += overlap_cases.coughs(false, seed) + overlap_cases.noises(folder, false, seed)
        results = asyncio.run(_over_the_agent(flags, sounds, names_of(voices), false, seed, console))
    except PipelineError as error:
        leave(error)
    console.print(bench_bargein.table(results))
    if plot:
        bench_bargein.draw(results, plot)
    write(json_file, {**report, **bench_bargein.report(results)})
    if json_file:
        summary = asdict(bench_bargein.summarise(results))
        typer.echo(json.dumps({name: summary[name] for name in ("stop_p50_ms", "stop_p95_ms", "resumed")}))


@app.command()
def simulate(
    calls: Annotated[int, typer.Option(min=1, help="calls of random callers")] = 2_000,
    seed: Annotated[int, typer.Option(min=0, help="the first of them")] = 0,
    sweep: Annotated[
        int, typer.Option(min=0, help="instead: break all scripts off in every Nth step; 1 for every one")
    ] = 0,
    processes: Annotated[int, typer.Option(min=0, help="0 for one on each core")] = 0,
    json_file: JsonOption = None,
) -> None:
    """Check thousands of simulated calls, in virtual time.

    Needs no weights and no recordings. Ends with 1 where something was not true, and names the caller.
    """
    report: dict[str, Any] = {**occasion(), "seed": seed, "sweep": sweep}
    console = console_beside(json_file)
    with progress_bar(console) as progress:
        task = progress.add_task("calling", total=bench_simulate.pieces(calls, sweep))
        simulated = bench_simulate.run(
            calls, seed, sweep, processes or cores(), lambda done: progress.update(task, completed=done)
        )
    console.print(bench_simulate.table(simulated))
    write(json_file, {**report, **bench_simulate.report(simulated)})
    if failures := simulated.batch.failures:
        leave(PipelineError("\n".join(failures[:20])))


@app.command()
def heard(
    cuts: Annotated[int, typer.Option(min=1, help="cuts of each voice's replies")] = 500,
    voices: Annotated[str, typer.Option(help="who speaks")] = "piper:en_US-joe-medium,hibari:heart",
    sets: Annotated[str, typer.Option(help="sets to take transcripts from")] = ",".join(bench_heard.SETS),
    seed: Annotated[int, typer.Option(help="which transcripts and cuts")] = 0,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Check which words of a reply that is cut count as heard.

    A forced alignment of the audio says which were spoken; voices that know their word times stand beside
    words spread by length. With --json the last line on stdout holds the share off by a word at most.
    """
    report: dict[str, Any] = {**occasion(), "voices": voices, "seed": seed}
    console = console_beside(json_file)
    try:
        recordings = choose(speech_folder(speech), names_of(sets), sys.maxsize, seed)
        found = asyncio.run(bench_heard.measure(names_of(voices), recordings, cuts, seed, console))
    except PipelineError as error:
        leave(error)
    rows = bench_heard.rows(found)
    console.print(bench_heard.table(rows))
    report["rows"] = {name: asdict(row) for name, row in rows.items()}
    write(json_file, {**report, "cuts": [asdict(cut) for cut in found]})
    if json_file:
        typer.echo(json.dumps(bench_heard.summary(rows)))


async def _over_the_agent(
    flags: dict[str, str | None],
    sounds: list[overlap_cases.Sound],
    voices: list[str],
    false: int,
    seed: int,
    console: Console,
) -> list[bench_bargein.Result]:
    if false:
        sounds = sounds + await overlap_cases.backchannels(voices, false, seed)
    async with own_server(flags, console) as url:
        with progress_bar(console) as progress:
            task = progress.add_task("speaking over the agent", total=len(sounds))

            def tell(result: bench_bargein.Result) -> None:
                progress.advance(task)
                progress.console.print(Text(f"  {result}", style="dim"))

            return await bench_bargein.measure(url, sounds, seed, tell)


async def _soak(
    flags: dict[str, str | None], recording: Recording, turns: int, idle: float, console: Console
) -> bench_soak.Soak:
    async with own_process(flags, console) as (url, process):
        with progress_bar(console) as progress:
            task = progress.add_task("turns", total=turns)

            def tell(turn: int) -> None:
                progress.update(task, completed=turn)

            return await bench_soak.soak(url, process, recording, turns, idle, tell)


async def _measure(
    url: str | None,
    key: str | None,
    flags: dict[str, str | None],
    recordings: Sequence[Recording],
    console: Console,
) -> list[Result]:
    results: list[Result] = []
    async with nullcontext(url) if url else own_server(flags, console) as address:
        with progress_bar(console) as progress:
            task = progress.add_task("calling", total=len(recordings))
            for recording in recordings:
                result = await bench_latency.run_clip(address, key, recording)
                results.append(result)
                progress.advance(task)
                progress.console.print(Text(f"  {result}", style="dim"))
    return results


async def _recognise(
    spec: str, recordings: Sequence[Recording], console: Console
) -> list[bench_stt.Utterance]:
    recognisers = bench_stt.Recognisers(spec)
    try:
        await recognisers.recognise(recordings[0])  # the first run of each is slower
        with progress_bar(console) as progress:
            task = progress.add_task("recognising", total=len(recordings))
            utterances = []
            for recording in recordings:
                utterances.append(await recognisers.recognise(recording))
                progress.advance(task)
            return utterances
    finally:
        recognisers.close()


def _with_text(folder: Path, name: str, limit: int | None) -> list[Recording]:
    known = [recording for recording in read_set(folder, name) if recording.text]
    if not known:
        raise PipelineError(f"the set {name} has no transcripts")
    chosen = known if limit is None else sample([known], limit)
    if not chosen:
        raise PipelineError(f"the set {name} has no transcribed recording of up to {MAX_SECONDS:.0f} s")
    return chosen
