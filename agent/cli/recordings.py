"""``rejoinder recordings``: list, export and delete the recordings of calls, and make their key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Never

import typer
from rich.filesize import decimal
from rich.table import Table

from rejoinder.agent.cli.options import ConfigOption
from rejoinder.agent.cli.views.consoles import complain, wide_console
from rejoinder.agent.config import ConfigError, Settings, load
from rejoinder.agent.recording.disk import PRIVATE_FILE
from rejoinder.agent.recording.folder import CallRecording, Folder
from rejoinder.agent.recording.recordings import keys_of
from rejoinder.models.hints import NotInstalled
from rejoinder.pipeline import PipelineError

app = typer.Typer(no_args_is_help=True)
FolderOption = Annotated[
    Path | None, typer.Option("--folder", help="folder of the recordings; default: the setting recordings")
]
CallerOption = Annotated[str | None, typer.Option(help="only those of this caller, such as +49301234567")]
CallOption = Annotated[str | None, typer.Option(help="only those of the call with this id, as in the log")]


@app.command("list")
def list_recordings(
    caller: CallerOption = None,
    call: CallOption = None,
    folder: FolderOption = None,
    config: ConfigOption = None,
) -> None:
    """List the recordings, the oldest first."""
    with complaining():
        _, found = _opened(folder, config)
        table = Table("recording", "call", "caller", "began", "seconds", "size", "key", "ended", box=None)
        for one in _chosen(found, caller, call):
            began = datetime.fromtimestamp(one.began).isoformat(" ", "seconds")
            size = decimal(found.size(one))
            ended = one.ended or "(runs, or was cut off)"
            table.add_row(one.id, one.call, one.caller, began, f"{one.seconds:.1f}", size, one.key, ended)
        wide_console().print(table)


@app.command()
def export(
    recording: Annotated[str, typer.Argument(help="id of the recording")],
    out: Annotated[Path, typer.Argument(help="file to write; it must not exist")],
    folder: FolderOption = None,
    config: ConfigOption = None,
) -> None:
    """Write the sound of a recording to a file, decrypted.

    A recording that a dead process or a full disk has cut off is written as far as it goes. Exits with 1 if
    the key is missing, or the file was changed.
    """
    with complaining():
        settings, found = _opened(folder, config)
        if (one := found.get(recording)) is None:
            raise ConfigError(f"there is no recording {recording} in {found.path}")
        keys, _ = keys_of(settings) if one.key else ((), "")
        try:
            with os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE), "wb") as file:
                for piece in found.decrypted(one, keys):
                    file.write(piece)
        except PipelineError:
            out.unlink()  # what came before the changed byte is no recording
            raise


@app.command()
def delete(
    recording: Annotated[list[str] | None, typer.Argument(help="ids of recordings")] = None,
    caller: CallerOption = None,
    call: CallOption = None,
    folder: FolderOption = None,
    config: ConfigOption = None,
) -> None:
    """Delete recordings: those with these ids, all of a caller, or all of a call.

    A call that is recorded at the moment goes on, and its recording is gone when it ends.
    """
    with complaining():
        if not (recording or caller or call):
            raise ConfigError("name what to delete: ids of recordings, --caller or --call")
        settings, found = _opened(folder, config)
        chosen = [one for one in _chosen(found, caller, call) if not recording or one.id in recording]
        _check_known(recording or [], chosen)
        found.delete(one.id for one in chosen)
        kept = "; what was said in these calls stays in calls_db" if chosen and settings.calls_db else ""
        typer.echo(f"deleted {len(chosen)} recordings{kept}")


@app.command("new-key")
def new_key(
    file: Annotated[Path, typer.Argument(help="file to write, for recording_key_file; it must not exist")],
) -> None:
    """Make a key that encrypts recordings. Without the file, nothing decrypts them: keep a copy elsewhere."""
    with (
        complaining(),
        os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE), "w") as out,
    ):
        out.write(f"{token_hex(32)}\n")


def _chosen(found: Folder, caller: str | None, call: str | None) -> list[CallRecording]:
    """Return the recordings of a caller and a call. Raises ConfigError if a call has none."""
    chosen = found.all(caller or "", call or "")
    if call and not chosen:
        where = "take the id in the log, which the page of the call shows as Call"
        raise ConfigError(f"there is no recording of the call {call}: {where}")
    return chosen


def _check_known(wanted: list[str], chosen: list[CallRecording]) -> None:
    if unknown := set(wanted) - {one.id for one in chosen}:
        raise ConfigError(f"there is no such recording: {', '.join(sorted(unknown))}")


def _opened(folder: Path | None, config: Path | None) -> tuple[Settings, Folder]:
    settings = load({"recordings": str(folder) if folder else None}, config)[0]
    if not settings.recordings:
        raise ConfigError("recordings is not set: set it, or name the folder with --folder")
    return settings, Folder(settings.recordings_folder)


@contextmanager
def complaining() -> Iterator[None]:
    """Print an error of the block in one line, and exit with 1."""
    try:
        yield
    except FileExistsError as error:
        _fail(f"{error.filename} exists already: name a new file, or delete it first")
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else error)
    except (PipelineError, NotInstalled) as error:
        _fail(error)


def _fail(reason: object) -> Never:
    complain(reason)
    raise typer.Exit(1) from None
