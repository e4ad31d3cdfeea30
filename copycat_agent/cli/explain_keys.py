"""`copycat explain KEY`: what an option means."""

from __future__ import annotations

import json

import typer

from copycat_agent.cli import exits
from copycat_agent.cli.options import Format
from copycat_agent.cli.shown import visible
from copycat_agent.workbench.explaining import OptionKey, all_keys, find_keys, near_keys


def key_names() -> list[str]:
    """Every key there is, for shells."""
    return sorted({one.key for one in all_keys()})


def explain_key(text: str, output: Format) -> int:
    """Print what the key means, or which ones may have been meant. Returns the exit code."""
    found = find_keys(text)
    if output is Format.JSON:
        typer.echo(json.dumps([one._asdict() for one in found], indent=2))
    else:
        for one in found:
            typer.echo("\n".join(_lines(one)))
    if found:
        return exits.GOOD
    near = near_keys(text)
    hint = f"did you mean {', '.join(near)}?" if near else "copycat explain source (record, delivery, errors, kafka, ...) lists keys"
    typer.echo(f"error: {visible(text)} is no option, and no file is called so\n  hint: {hint}", err=True)
    return exits.FAILED


def _lines(one: OptionKey) -> list[str]:
    facts = {
        "type": one.kind,
        "default": "required" if one.default is None else one.default,
        "allowed": one.allowed,
        "example": one.example,
        "keys below": ", ".join(key.removeprefix(f"{one.key}.") for key in one.children),
    }
    shown = [f"  {name:<10}  {value}" for name, value in facts.items() if value]
    return [f"{one.key}  (in {one.where})", f"  {one.meaning}", *shown]
