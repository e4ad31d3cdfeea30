"""Definitions for people to copy: the recipes of docs/records.md, with the schema files that they name, and those in `connectors.d/`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from copycat_agent.definitions import load_file
from copycat_agent.options import AgentOptions, Definition

PAGE = Path(__file__).parents[2] / "docs/records.md"
SCHEMAS = "/etc/copycat/schemas"
"""Where the page keeps schema files."""


SHIPPED = sorted((Path(__file__).parents[2] / "connectors.d").iterdir())
"""What is there, switched off or not."""


class Recipe(NamedTuple):
    """`definition` as it stands on the page; `schemas` by file name."""

    title: str
    definition: str
    schemas: dict[str, str]

    def load(self, directory: Path) -> Definition:
        """As `copycat test` loads it, without a problem; schema files are put into `directory`."""
        for name, text in self.schemas.items():
            (directory / name).write_text(text, "utf-8")
        path = directory / "recipe.yaml"
        path.write_text(self.definition.replace(SCHEMAS, str(directory)), "utf-8")
        return _loaded(path, offline=True)


def recipes() -> list[Recipe]:
    """All of the page, in order."""
    text = PAGE.read_text("utf-8").partition("\n## Recipes\n")[2].partition("\n## ")[0]
    titles = re.findall(r"^### \d+\. (.*)$", text, re.MULTILINE)
    bodies = re.split(r"^### .*$", text, flags=re.MULTILINE)[1:]
    return [_recipe(title, body) for title, body in zip(titles, bodies, strict=True)]


def load_shipped(path: Path, directory: Path) -> Definition:
    """One of `SHIPPED`, through the loader, without a problem; `directory` serves for a copy and the credentials."""
    copy = directory / path.name.removesuffix(".disabled")
    copy.write_bytes(path.read_bytes())
    (directory / "kafka_password").write_text("not shown")
    return _loaded(copy, {"CREDENTIALS_DIRECTORY": str(directory)})


def _loaded(path: Path, environ: dict[str, str] | None = None, *, offline: bool = False) -> Definition:
    loaded = load_file(path, AgentOptions(), environ=environ or {}, offline=offline)
    assert loaded.problems == ()
    assert loaded.definition is not None
    return loaded.definition


def _recipe(title: str, body: str) -> Recipe:
    (definition,) = re.findall(r"^```yaml\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)
    schemas = re.findall(rf"^`{SCHEMAS}/([\w.]+)`:\n\n```\w+\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)
    return Recipe(title, definition, dict(schemas))
