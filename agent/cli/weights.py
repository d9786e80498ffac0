"""``rejoinder models``: list, fetch, find and verify the weights."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from rejoinder.agent.cli.views.consoles import wide_console
from rejoinder.agent.profiles import PROFILES, fitting_here, usual
from rejoinder.models.hints import PackageMissing
from rejoinder.models.registry import of_hub, packaged, require_packages
from rejoinder.models.registry import weights as weights_of
from rejoinder.models.specs import LANGUAGE_MODELS, ROLES
from rejoinder.models.weights import fetch as weights
from rejoinder.models.weights import hub
from rejoinder.models.weights.catalog import catalog
from rejoinder.models.weights.sources import Report
from rejoinder.pipeline.errors import ModelError

app = typer.Typer(no_args_is_help=True)

CONVERTERS = ("gguf", "onnx", "onnxruntime")
"""The modules that convert a language model."""
ReportFor = Callable[[str], Report]
"""Returns the progress callback for the model with this name."""


@app.command("list")
def list_models() -> None:
    """List the catalog: purpose, licence, size and state of each model."""
    usually = default_set()
    rows = [
        (
            known.name,
            _state(known.name),
            "default" if known.name in usually else "",
            decimal(known.size),
            known.licence,
            known.purpose,
        )
        for known in catalog().values()
    ]
    for name, inside in packaged().items():
        where = f"in the package {inside.package}"
        rows.append((name, _state(name), "", "", inside.licence, f"{inside.purpose}; {where}"))
    if not _on_terminal():
        for name, state, default, size, licence, purpose in rows:
            typer.echo(f"{name:<24} {state:<7} {default:<8} {size:>9}  {licence:<24} {purpose}")
        return
    table = Table("model", "state", "set", "size", "licence", "purpose", box=None, header_style="bold")
    for row in rows:
        table.add_row(*row)
    wide_console().print(table)


@app.command()
def fetch(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Models, tiny, small, medium, or ORGANISATION/NAME of the hub; default: the default set."
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(help="Fetch the models of a profile: cpu-tiny, cpu-small, cpu, gpu, gpu-large."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Fetch every model in the catalog.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Replace files that already exist.")] = False,
) -> None:
    """Fetch missing models from the package registry or the Hugging Face hub."""
    if profile is not None and profile not in PROFILES:
        raise typer.BadParameter(
            f"there is no profile {profile!r}; there are: {', '.join(PROFILES)}", param_hint="--profile"
        )
    wanted = _needed(PROFILES[profile]) if profile else [_full(name) for name in names or ()]
    chosen = list(catalog()) if every else wanted or default_set()
    with _progress(chosen) as report_for:

        def fetch_one(name: str) -> None:
            if _is_packaged(name):
                return
            report = report_for(name)
            if name not in catalog() and hub.fetch(name):
                report("ready", 0, 0)
                return
            weights.fetch(name, report, again=again)
            size = catalog()[name].size if name in catalog() else 0
            if f"ort:{name}" in LANGUAGE_MODELS.values() and all(map(find_spec, CONVERTERS)):
                _convert(name, report)
            report("ready", size, size)

        failures = _each(chosen, fetch_one)
    _exit_on(failures)


@app.command()
def path(name: Annotated[str, typer.Argument(help="A model in the catalog.")]) -> None:
    """Print the folder that holds a model's files."""
    _exit_on(_each([_full(name)], lambda name: typer.echo(weights.locate(name))))


@app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Models; default: all that are present.")] = None,
) -> None:
    """Hash the files of models and compare them with the catalog."""
    chosen = [_full(name) for name in names or ()] or [name for name in catalog() if _state(name) != "absent"]
    if not chosen:
        typer.echo("nothing has been fetched yet; run: rejoinder models fetch")

    def verify_one(name: str) -> None:
        if _is_packaged(name):
            return
        typer.echo(f"{name}: good, in {weights.verify(name)}")

    _exit_on(_each(chosen, verify_one))


def _full(name: str) -> str:
    """Return the catalog name for the short name of a language model. Return any other name unchanged."""
    return (weights_of(LANGUAGE_MODELS[name]) if name in LANGUAGE_MODELS else None) or name


def _convert(name: str, report: Report) -> None:
    """Convert a language model where that was not done, so that no start has to. Raises ModelError."""
    from rejoinder.models.llm.ort.adapter import open_prompts
    from rejoinder.models.llm.ort.decoder_graph import converted

    known = catalog()[name]
    path = weights.locate(name) / known.files[0].name
    if not converted(path).exists():
        report("converting for onnxruntime", known.size, known.size)
        open_prompts(path)


def default_set() -> list[str]:
    """Return the default set: what the usual profile of this machine needs, and the smallest."""
    needed = {*_needed(PROFILES[usual(fitting_here())]), *_needed(PROFILES["cpu-tiny"])}
    return [name for name in catalog() if name in needed]


def _needed(profile: Mapping[str, Any]) -> list[str]:
    """Return the names of the weights that a profile needs, including those of the VAD."""
    specs = ["silero", *(profile[kind] for kind in ROLES if kind in profile)]
    return [name for spec in specs if (name := of_hub(spec) or weights_of(spec))]


def _each(names: Sequence[str], act: Callable[[str], None]) -> list[ModelError]:
    """Call ``act`` for every name, even after a failure, and return the failures."""
    failures = []
    for name in names:
        try:
            act(name)
        except ModelError as error:
            failures.append(error)
    return failures


def _exit_on(failures: list[ModelError]) -> None:
    for failure in failures:
        typer.echo(f"error: {failure}", err=True)
    if failures:
        raise typer.Exit(1)


@contextmanager
def _progress(names: Sequence[str]) -> Iterator[ReportFor]:
    """Show one progress bar per model on a terminal, otherwise print one line per download."""
    if not _on_terminal():
        yield _plain_report
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns) as bars:
        tasks = {name: bars.add_task(name, total=None, start=False) for name in names}

        def report_for(name: str) -> Report:
            bars.start_task(tasks[name])

            def report(what: str, done: int, total: int) -> None:
                bars.update(tasks[name], description=f"{name}  {what}", completed=done, total=total or None)

            return report

        yield report_for


def _plain_report(name: str) -> Report:
    announced = set()

    def report(what: str, done: int, total: int) -> None:
        if what not in announced:
            announced.add(what)
            typer.echo(f"{name}: {what}, {decimal(total)}")

    return report


def _is_packaged(name: str) -> bool:
    """Return whether a model comes with a package, and print that. Raises PackageMissing."""
    inside = packaged().get(name)
    if inside:
        require_packages(name)
        typer.echo(f"{name}: here, in the package {inside.package}")
    return inside is not None


def _state(name: str) -> str:
    try:
        if name in packaged():
            require_packages(name)
        else:
            weights.locate(name)
    except (PackageMissing, weights.WeightsMissing):
        return "absent"
    return "here"


def _on_terminal() -> bool:
    return sys.stdout.isatty()
