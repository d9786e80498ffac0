"""The command line: ``rejoinder serve | demo | talk | ask | bench | models | doctor | key``."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from rejoinder.agent.cli.calls import calls
from rejoinder.agent.cli.commands import Commands
from rejoinder.agent.cli.deploy import deploy
from rejoinder.agent.cli.options import (
    AgentArgument,
    ConfigOption,
    GreetingOption,
    HostOption,
    InstructionsOption,
    KeyOption,
    LlmOption,
    PortOption,
    ProfileOption,
    SttOption,
    TlsCertOption,
    TlsKeyOption,
    TtsOption,
    TurnOption,
    TurnTakingOption,
)
from rejoinder.agent.cli.plan import plan
from rejoinder.agent.cli.profile import profile as sample
from rejoinder.agent.cli.views.consoles import complain, wide_console
from rejoinder.models.threads import quiet
from rejoinder.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from rejoinder.agent.app.agent import Agent
    from rejoinder.agent.config import Settings

app = typer.Typer(
    cls=Commands,
    help="Talk to open models: a real-time voice agent.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(typer.Typer(), name="bench", help="Measure latency; its commands measure the rest.")
app.add_typer(typer.Typer(), name="models", help="List, fetch, find and verify the weights of models.")
app.add_typer(typer.Typer(), name="recordings", help="List, export and delete recordings of calls.")
app.add_typer(typer.Typer(), name="cache", help="Fill, count or delete cached answers.")
app.command()(plan)
app.command()(deploy)
app.command()(calls)
app.command("profile")(sample)
console = Console(stderr=True)
WITH_PASSWORDS = ("answer_cache", "guard.moderation")
"""Settings that are addresses, which may have a password."""


def show_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        typer.echo(f"rejoinder {version('rejoinder')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="show the version and exit"),
    ] = False,
) -> None:
    """Accept the options that precede a command."""


def settings_or_exit(flags: Mapping[str, object], config: Path | None) -> tuple[Settings, dict[str, str]]:
    """Return the effective settings and the source of each. Exits with 2 if they are invalid."""
    from rejoinder.agent import logs
    from rejoinder.agent.config import ConfigError, load

    try:
        settings, sources = load(flags, config)
    except ConfigError as error:
        complain(error)
        raise typer.Exit(2) from None
    logs.set_up(settings)
    return settings, sources


def agent_or_exit(named: str) -> Agent:
    """Return the integrator's agent; see ``load_agent``. Exits with 2 if there is none."""
    from rejoinder.agent.app.loading import load_agent
    from rejoinder.agent.config import ConfigError

    try:
        return load_agent(named)
    except ConfigError as error:
        complain(error)
        raise typer.Exit(2) from None


def report_ready(name: str, seconds: float) -> None:
    """Print that a model is ready; for the embedded language model, also print its limits."""
    from rejoinder.agent.config import TOY_NOTE
    from rejoinder.agent.language_models import TOYS

    console.print(f"  {name} ready in {seconds:.1f} s", highlight=False, markup=False)
    if name in TOYS:
        console.print(TOY_NOTE, highlight=False)


@app.command()
def serve(
    agent: AgentArgument = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="load the agent anew when its files change")
    ] = False,
    host: HostOption = None,
    port: PortOption = None,
    llm: LlmOption = None,
    stt: SttOption = None,
    tts: TtsOption = None,
    turn: TurnOption = None,
    turn_taking: TurnTakingOption = None,
    instructions: InstructionsOption = None,
    greeting: GreetingOption = None,
    profile: ProfileOption = None,
    trace_file: Annotated[str | None, typer.Option(help="append one JSON line per turn to this file")] = None,
    max_sessions: Annotated[str | None, typer.Option(metavar="<int>", help="calls at a time")] = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error")] = None,
    config: ConfigOption = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="show the settings and exit")] = False,
) -> None:
    """Run the agent: a web page, and ports for clients and telephones."""
    from rejoinder.agent.cli.starting import StartLines
    from rejoinder.agent.config import ConfigError, authority, check_open, unknown_variables
    from rejoinder.agent.mistakes import DEFAULT, PROFILE

    flags = dict(
        host=host, port=port, llm=llm, stt=stt, tts=tts, turn=turn, profile=profile, trace_file=trace_file,
        max_sessions=max_sessions, log_level=log_level, instructions=instructions, greeting=greeting,
        turn_taking=turn_taking, tls_cert=tls_cert, tls_key=tls_key,
    )  # fmt: skip
    settings, sources = settings_or_exit(flags, config)
    if reload and not agent:
        complain("--reload follows an agent: name its file, such as rejoinder serve my_agent.py --reload")
        raise typer.Exit(2)
    start = StartLines(settings, console, serves=not print_config)
    if warning := unknown_variables(os.environ):
        start.warn(warning)
    if print_config:
        show_config(settings, sources)
        return
    try:
        check_open(settings)
    except ConfigError as error:
        complain(error)
        raise typer.Exit(2) from None
    own = agent_or_exit(agent) if agent else None
    from rejoinder.agent.server.serving import listen
    from rejoinder.agent.server.serving import serve as run

    try:
        sock = listen(settings.host, settings.port)
    except OSError as error:
        place = authority(settings.host, settings.port)
        complain(f"cannot listen on {place}: {error.strerror}; try --port 0, or set REJOINDER_PORT")
        raise typer.Exit(1) from None
    if sources["profile"] == DEFAULT and sources["llm"] in (DEFAULT, f"{PROFILE}{settings.profile}"):
        from rejoinder.agent.cli.doctor.machine import check_profile

        start.say(f"profile {check_profile(settings).detail}")
    scheme = "https" if settings.tls_cert else "http"
    start.url = f"{scheme}://{authority(settings.host, sock.getsockname()[1])}/"
    failure = run(settings, sock, start.ready, start.away, own, agent if agent and reload else "")
    if failure is not None:
        start.fail(failure)
        raise typer.Exit(1)


@app.command()
def demo(
    llm: LlmOption = None,
    stt: SttOption = None,
    tts: TtsOption = None,
    turn: TurnOption = None,
    profile: ProfileOption = None,
    out: Annotated[Path | None, typer.Option(help="folder for the WAV and the PNG")] = None,
    config: ConfigOption = None,
) -> None:
    """Let a simulated caller talk to the agent, without a microphone."""
    from rejoinder.agent.cli.demo import demo as hold

    try:
        asyncio.run(hold(llm=llm, stt=stt, tts=tts, turn=turn, profile=profile, config=config, out=out))
    except PipelineError as error:
        complain(error)
        raise typer.Exit(1) from None


@app.command()
def ask(
    question: Annotated[Path, typer.Argument(help="a recording: WAV, FLAC, OGG or MP3, at any rate")],
    out: Annotated[Path, typer.Option(help="file for the spoken answer")] = Path("reply.wav"),
    llm: LlmOption = None,
    stt: SttOption = None,
    tts: TtsOption = None,
    turn: TurnOption = None,
    profile: ProfileOption = None,
    config: ConfigOption = None,
) -> None:
    """Ask a recorded question, and write the spoken answer to a file.

    Exits with 1 if no words were recognised or a model failed, and with 2 if a file cannot be used.
    """
    settings, _ = settings_or_exit(dict(llm=llm, stt=stt, tts=tts, turn=turn, profile=profile), config)
    from rejoinder.agent.cli.ask import run

    raise typer.Exit(run(settings, question, out, typer.echo, complain, report_ready))


@app.command()
def chat(
    agent: AgentArgument = None,
    llm: LlmOption = None,
    instructions: InstructionsOption = None,
    greeting: GreetingOption = None,
    profile: ProfileOption = None,
    config: ConfigOption = None,
) -> None:
    """Chat with the agent in text, its tools included; Ctrl-D ends."""
    flags = dict(llm=llm, instructions=instructions, greeting=greeting, profile=profile)
    settings, _ = settings_or_exit(flags, config)
    from rejoinder.agent.cli.chat import run

    own = agent_or_exit(agent) if agent else None
    if failure := run(settings, own, Console()):
        complain(failure)
        raise typer.Exit(1)


@app.command()
def simulate(
    agent: Annotated[str, typer.Argument(help="your agent: FILE.py or MODULE, with :NAME if it has several")],
    script: Annotated[Path, typer.Argument(help="a call: a YAML file, as examples/restaurant.yaml")],
) -> None:
    """Hold a scripted call with your agent in virtual time.

    Exits with 1 if something expected has not happened, and with 2 if a file cannot be used.
    """
    from rejoinder.agent.cli.simulate import run

    code, failure = run(agent_or_exit(agent), script, Console())
    if failure:
        complain(failure)
    raise typer.Exit(code)


@app.command()
def talk(
    agent: AgentArgument = None,
    source: Annotated[
        str | None, typer.Option("--input", help="microphone: its number or part of its name")
    ] = None,
    sink: Annotated[
        str | None, typer.Option("--output", help="speaker: its number or part of its name")
    ] = None,
    list_devices: Annotated[bool, typer.Option("--list-devices", help="show the devices and exit")] = False,
    url: Annotated[str | None, typer.Option(help="address of a running server; default: start one")] = None,
    key: KeyOption = None,
    llm: LlmOption = None,
    stt: SttOption = None,
    tts: TtsOption = None,
    turn: TurnOption = None,
    instructions: InstructionsOption = None,
    greeting: GreetingOption = None,
    profile: ProfileOption = None,
    config: ConfigOption = None,
) -> None:
    """Talk to the agent over this machine's microphone; Ctrl-C ends."""
    flags = dict(
        llm=llm, stt=stt, tts=tts, turn=turn, instructions=instructions, greeting=greeting, profile=profile
    )
    settings, _ = settings_or_exit(flags, config)
    from rejoinder.agent.cli.talk import holding, list_or_complaint, run
    from rejoinder.agent.server.own_server import AGENT

    if agent:
        agent_or_exit(agent)  # the server does it again; its mistakes are shown before a model is loaded
    given = {AGENT: agent, **flags, "config": str(config) if config else None}
    if url is not None:
        names = [name for name, value in given.items() if value is not None]
        if own := [name if name == AGENT else f"--{name}" for name in names]:
            reason = f"{own[0]} applies only to a server that talk starts: omit it, or omit --url"
            raise typer.BadParameter(reason, param_hint="--url")
        try:
            holding(url)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--url") from None
    if list_devices:
        failure = list_or_complaint(Console())
    else:
        failure = run(given, settings, source, sink, Console(), (url, key) if url else None)
    if failure:
        complain(failure)
        raise typer.Exit(1)


@app.command()
def doctor(
    host: HostOption = None,
    port: PortOption = None,
    llm: LlmOption = None,
    stt: SttOption = None,
    tts: TtsOption = None,
    turn: TurnOption = None,
    profile: ProfileOption = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
) -> None:
    """Check the machine and the configuration, and list fixes.

    Exits with 1 if the configuration cannot run.
    """
    flags = dict(host=host, port=port, llm=llm, stt=stt, tts=tts, turn=turn, profile=profile)
    settings, _ = settings_or_exit(flags, config)
    from rejoinder.agent.cli.doctor.report import run

    raise typer.Exit(run(settings, Console(), as_json))


@app.command()
def key() -> None:
    """Make an API key, and its hash for the configuration.

    The configuration holds only the hash, so store the key itself.
    """
    from rejoinder.agent.server.keys import hashed, new_key

    made = new_key()
    typer.echo(f'key:        {made}\napi_keys = "{hashed(made)}"')


def show_config(settings: Settings, sources: dict[str, str]) -> None:
    """Print each setting, its value and its source; of vLLM's settings, only those that are set."""
    from rejoinder.agent.tables import flat
    from rejoinder.models.redis_server import without_passwords

    table = Table("setting", "value", "from")
    for name, value in flat({**settings.model_dump(), "vllm": settings.vllm.given()}).items():
        shown = without_passwords(str(value)) if name in WITH_PASSWORDS else str(value)
        table.add_row(name, shown, sources[name])
    wide_console().print(table)


def main() -> None:
    """Run the command line."""
    quiet()
    sys.exit(app())
