"""MkDocs hooks: write the tables that come from the code, and check links to files outside of ``docs/``.

A page holds a line ``<!-- generated: NAME -->``; the build puts the table there. The pages are also read
without the site, so they link to files of the repository. The site has no such files: it shows their paths.
"""

from __future__ import annotations

import ast
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic_core import PydanticUndefined

from rejoinder.agent.cli.app import app
from rejoinder.agent.cli.commands import loaded
from rejoinder.agent.config import FIELDS
from rejoinder.agent.metrics.catalogue import metrics_table
from rejoinder.agent.mistakes import accepted, variable
from rejoinder.agent.tables import SETTING_TABLES, TABLE_FIELDS
from rejoinder.models.llm.routing.settings import RouteSettings

log = logging.getLogger("mkdocs.hooks.rejoinder")

ROOT = Path(__file__).resolve().parent.parent
MERMAID = ROOT / ".venv" / "mermaid" / "package" / "dist" / "mermaid.min.js"
"""Comes from npm, by ``make``. The theme would make the reader's browser fetch it from elsewhere."""
MERMAID_URI = "assets/mermaid.min.js"
LAYERS = ("agent", "models", "pipeline")
OUTSIDE = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")
GENERATED = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Load mermaid from the site itself, where it is there."""
    if MERMAID.is_file():
        config.extra_javascript.append(MERMAID_URI)
    else:
        log.info("mermaid is not here (make docs fetches it): diagrams are shown as their source")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add mermaid to the files of the site."""
    if MERMAID.is_file():
        files.append(File.generated(config, MERMAID_URI, abs_src_path=str(MERMAID)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page with its tables, without links that leave the site, and with plain info strings."""
    markdown = GENERATED.sub(lambda match: "\n".join(TABLES[match[1]]()), markdown)
    markdown = re.sub(r"^```(\w+) of=\S+$", r"```\1", markdown, flags=re.MULTILINE)
    if not MERMAID.is_file():
        markdown = markdown.replace("```mermaid", "```text")
    return OUTSIDE.sub(lambda match: _link(match, page), markdown)


def _link(match: re.Match[str], page: Page) -> str:
    text, target = match[1], match[2]
    path = Path(os.path.normpath(ROOT / "docs" / Path(page.file.src_uri).parent / target))
    if path.is_relative_to(ROOT / "docs"):
        return match[0]
    if not path.exists():
        log.warning("%s links to %s, which does not exist", page.file.src_uri, target)
    name = str(path.relative_to(ROOT))
    return f"`{name}`" if text.strip("`") and name.endswith(text.strip("`")) else f"{text} (`{name}`)"


# --- settings -----------------------------------------------------------------------------------------------


def settings() -> Iterator[str]:
    """Yield the table of all settings, from the model that reads them."""
    yield "| setting | default | accepted | what it does |"
    yield "|---|---|---|---|"
    for name, field in FIELDS.items():
        if name in SETTING_TABLES:
            continue
        default = field.get_default(call_default_factory=True)
        shown = "unset" if default is None or default is PydanticUndefined else _value(default)
        yield f"| `{name}` | {shown} | {_cell(accepted(name, field))} | {_cell(field.description or '')} |"


def _value(default: Any) -> str:
    text = default.get_secret_value() if hasattr(default, "get_secret_value") else default
    text = str(text).lower() if isinstance(text, bool) else str(text)
    return f"`{text}`" if text else "empty"


def routes() -> Iterator[str]:
    """Yield the table of the settings of a rule in a table [[routes]]."""
    yield "| setting | accepted | holds for |"
    yield "|---|---|---|"
    for name, field in RouteSettings.model_fields.items():
        yield f"| `{name}` | {_cell(accepted(f'routes.{name}', field))} | {_cell(field.description or '')} |"


def variables() -> Iterator[str]:
    """Yield the environment variable of each setting in a table, whose names are made in another way."""
    for name in TABLE_FIELDS:
        yield f"- `{name}`: `{variable(name)}`"


def _cell(text: str) -> str:
    text = text.replace("|", "\\|").replace("\n", " ").replace("{", "&#123;")  # attr_list would take {…}
    return re.sub(r"(?<!`)<([a-z]+)>", r"`\1`", text)


# --- command line -------------------------------------------------------------------------------------------


def commands() -> Iterator[str]:
    """Yield a section for each command, from the command line itself."""
    yield from _command(loaded(app), "rejoinder", 2)


def _command(command: Any, path: str, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{path}`"
    yield ""
    yield re.sub(r"\s*\n\s*", " ", (command.help or "").replace("\f", "")).strip()
    yield ""
    rows = [row for parameter in command.params if (row := _parameter(parameter))]
    if rows:
        yield "| option | what it does |"
        yield "|---|---|"
        yield from rows
        yield ""
    inners = getattr(command, "commands", {})
    for name in command.list_commands(None) if inners else ():
        inner = inners[name]
        if not inner.hidden:
            yield from _command(inner, f"{path} {name}", min(level + 1, 3))


def _parameter(parameter: Any) -> str:
    if getattr(parameter, "hidden", False):
        return ""
    names = [*parameter.opts, *parameter.secondary_opts]
    if parameter.param_type_name == "argument":
        names = [parameter.name.upper()]
    text = _cell(getattr(parameter, "help", None) or "")
    default = parameter.default
    if (
        default not in (None, False, "", ())
        and not callable(default)
        and not getattr(parameter, "required", 0)
    ):
        text += f" (default: `{_shown(default)}`)"
    return f"| {', '.join(f'`{name}`' for name in names)} | {text} |"


def _shown(default: Any) -> str:
    return ",".join(map(str, default)) if isinstance(default, list | tuple) else str(default)


# --- folders ------------------------------------------------------------------------------------------------


def folders() -> Iterator[str]:
    """Yield the table of folders, with the number of modules and the first line of each package."""
    yield "| folder | modules | what is there |"
    yield "|---|---|---|"
    for layer in LAYERS:
        for package in sorted((ROOT / layer).rglob("__init__.py")):
            modules = [path for path in package.parent.glob("*.py") if path.name != "__init__.py"]
            said = (ast.get_docstring(ast.parse(package.read_text())) or "").partition("\n")[0]
            yield f"| `{package.parent.relative_to(ROOT)}/` | {len(modules)} | {_cell(said)} |"


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "settings": settings,
    "routes": routes,
    "variables": variables,
    "commands": commands,
    "folders": folders,
    "metrics": metrics_table,
}
