"""What a line is in a connector's files, for who puts its offsets somewhere else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from copycat_agent.definitions import load_file, render
from copycat_agent.errors import CopycatError
from copycat_agent.options import HIDDEN, AgentOptions
from copycat_agent.sources.log_file.beginning.placing import LineRules


def line_rules(name: str, path: Path) -> LineRules | None:
    """As the definition in this file says. Raises CopycatError when it does not load, or is another connector's."""
    loaded = load_file(path, AgentOptions(), resolve_env=False)
    if loaded.definition is None:
        raise CopycatError(render(loaded.problems[0]).splitlines()[0], f"copycat check {path.parent} says more")
    if loaded.definition.name != name and name not in loaded.definition.renamed_from:
        msg = f"{path} defines {loaded.definition.name}, not {name}"
        raise CopycatError(msg)
    return rules_of(loaded.definition.source.model_dump())


def rules_of(source: Mapping[str, Any]) -> LineRules | None:
    """As a definition's source says; None when an option that matters is hidden."""
    line = source.get("line") or {}
    said = {"delimiter": line.get("delimiter"), "encoding": source.get("encoding")}
    if HIDDEN in said.values():
        return None
    return LineRules(**{name: value for name, value in said.items() if value}, unpacks=source.get("compression") != "none")
