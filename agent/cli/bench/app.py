"""``rejoinder bench``: register one command per benchmark; without a command, measure latency."""

from __future__ import annotations

import typer

from rejoinder.agent.bench.reports.output import Benches
from rejoinder.agent.cli.bench.answers import answers
from rejoinder.agent.cli.bench.attacks import attacks
from rejoinder.agent.cli.bench.cache import cache
from rejoinder.agent.cli.bench.context import context
from rejoinder.agent.cli.bench.failover import failover
from rejoinder.agent.cli.bench.faults import faults
from rejoinder.agent.cli.bench.floor.bargein import bargein
from rejoinder.agent.cli.bench.floor.echo import echo
from rejoinder.agent.cli.bench.floor.interaction import interaction
from rejoinder.agent.cli.bench.floor.speakers import speakers
from rejoinder.agent.cli.bench.floor.turns import turns
from rejoinder.agent.cli.bench.guard import guard
from rejoinder.agent.cli.bench.heard import heard
from rejoinder.agent.cli.bench.latency import latency
from rejoinder.agent.cli.bench.load import load
from rejoinder.agent.cli.bench.memory.longcall import longcall
from rejoinder.agent.cli.bench.memory.soak import soak
from rejoinder.agent.cli.bench.models import models
from rejoinder.agent.cli.bench.openings import openings
from rejoinder.agent.cli.bench.overhead import overhead
from rejoinder.agent.cli.bench.routing import routing
from rejoinder.agent.cli.bench.simulate import simulate
from rejoinder.agent.cli.bench.stt import stt

app = typer.Typer(cls=Benches, invoke_without_command=True)
app.callback()(latency)
for command in (
    answers, attacks, bargein, cache, context, echo, failover, faults, guard, heard, interaction, load,
    longcall, models, openings, overhead, routing, simulate, soak, speakers, stt, turns
):  # fmt: skip
    app.command()(command)
