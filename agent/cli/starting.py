"""What ``rejoinder serve`` prints until it is ready."""

from __future__ import annotations

import logging
import sys

from rich.console import Console
from rich.text import Text

from rejoinder.agent.cli.views.consoles import complain, mistakes_of
from rejoinder.agent.config import TOY_NOTE, ConfigError, Settings
from rejoinder.agent.language_models import TOYS
from rejoinder.agent.log_format import is_json
from rejoinder.pipeline import PipelineError

log = logging.getLogger(__name__)


class StartLines:
    """Prints the lines of a server's start: to the log where that is JSON and begins, otherwise as they are.

    So a program that collects the log finds a JSON object in each line of the standard error stream.

    serves: whether a log begins. url: the server's address, which goes to the standard output once each model
    is loaded or does not answer.
    """

    def __init__(self, settings: Settings, console: Console, serves: bool) -> None:
        self.url = ""
        self._console = console
        self._in_log = serves and is_json(settings.log_format, sys.stderr.isatty())
        self._is_toy = settings.language_models()[0] in TOYS
        models = (settings.vad, settings.turn, settings.stt, settings.llm, settings.tts)
        self._missing = sum(1 for spec in models if spec)

    def warn(self, warning: str) -> None:
        """Print what is odd about the start."""
        if self._in_log:
            log.warning("%s", warning)
        else:
            self._print(Text.assemble(("warning: ", "yellow"), warning))

    def say(self, line: str) -> None:
        """Print a line."""
        if self._in_log:
            log.info("%s", line)
        else:
            self._print(Text(f"  {line}"))

    def ready(self, name: str, seconds: float) -> None:
        """Print that a model is ready."""
        self.say(f"{name} ready in {seconds:.1f} s")
        self._begin()

    def away(self, name: str, error: PipelineError) -> None:
        """Print that a model does not answer yet; the server begins without it."""
        self.say(f"no answer yet from {error}")
        self._begin()

    def fail(self, failure: Exception) -> None:
        """Print why the server has ended; for a configuration, one line per mistake."""
        if self._in_log:
            for line in mistakes_of(failure):
                log.error("%s", line)
        else:
            complain(failure)
        if not isinstance(failure, ConfigError):
            self.say("run rejoinder doctor to see what is missing")

    def _begin(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            if self._is_toy:
                self.say(TOY_NOTE.strip())
            print(f"Talk to it at {self.url}", flush=True)

    def _print(self, line: Text) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)
