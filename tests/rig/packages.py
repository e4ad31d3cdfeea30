"""Installed packages, made up: modules and the metadata that names their entry points, in a directory that goes onto a path."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent


def install(site: Path, package: str, entry_points: dict[str, dict[str, str]], modules: dict[str, str], version: str = "1.0") -> Path:
    """Put a package into `site` as pip leaves it; returns `site`.

    `entry_points`: {"transforms": {"shout": "shouting:SHOUT"}}; `modules`: {"shouting": source text}.
    """
    info = site / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n", "utf-8")
    sections = (
        f"[copycat_agent.{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in entry_points.items()
    )
    (info / "entry_points.txt").write_text("\n".join(sections), "utf-8")
    for name, text in modules.items():
        (site / f"{name}.py").write_text(dedent(text), "utf-8")
    return site


SHOUT = """
    from copycat_agent.extending import DataError, Field, Steady, StepOptions, TransformKind

    class ShoutOptions(StepOptions):
        \"\"\"Upper case.\"\"\"

        shout: str = Field(description="The field.")

    def build(options):
        def step(draft):
            fields = draft.fields()
            fields[options.shout] = fields[options.shout].upper()
            return True
        return Steady(step)

    SHOUT = TransformKind(ShoutOptions, build)
"""
"""A transform that works, until the field is missing or no text."""
