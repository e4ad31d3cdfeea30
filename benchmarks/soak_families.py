"""The logs of a soak: one for each of logrotate's ways, with the definition that reads it and the configuration that rotates it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FEW = 3
_HELD_OPEN = 64
"""`max_open_files` of each connector: the bound that the descriptors' curve has to show."""


@dataclass(frozen=True)
class Family:
    """One log and all of its generations, below `root / name`.

    `ways` are logrotate's directives. `before` and `after` are what the writer is asked while it rotates (see `soak_writer`), ""
    for nothing; `notices`: the writer finds out by itself that its file has another name now. `gapless`: no line can be
    destroyed between copy and cut. `few`: logrotate deletes old generations.
    """

    name: str
    ways: tuple[str, ...]
    before: str = ""
    after: str = ""
    notices: bool = False
    gapless: bool = True
    few: bool = False
    olddir: bool = False

    def path(self, root: Path) -> Path:
        """The name that is written to."""
        return root / self.name / "app.log"

    def old(self, root: Path) -> Path:
        """Where old generations go when not beside the live file."""
        return root / f"{self.name}-old"

    def generations(self, root: Path) -> list[Path]:
        """All files there are, the live one included."""
        directories = [root / self.name, self.old(root)]
        return sorted(path for directory in directories if directory.is_dir() for path in directory.iterdir())


FAMILIES = (
    Family("create", ("create",), after="reopen"),
    Family("create-noticed", ("create",), notices=True),
    Family("create-compress", ("create", "compress"), after="reopen"),
    Family("create-compress-delay", ("create", "compress", "delaycompress"), after="reopen"),
    Family("copytruncate", ("copytruncate",), before="pause", after="resume"),
    Family("copytruncate-compress", ("copytruncate", "compress"), before="pause", after="resume"),
    Family("copytruncate-free", ("copytruncate",), gapless=False),
    Family("dateext", ("create", "dateext", "dateformat -%Y%m%d-%H%M%S"), after="reopen"),
    Family("nocreate", ("nocreate",), after="reopen"),
    Family("olddir", ("create",), after="reopen", olddir=True),
    Family("few", ("create",), after="reopen", few=True),
)


def definition(family: Family, root: Path, topic: str) -> dict[str, Any]:
    """A connector that reads every generation of a family; those in another directory it knows from before they went there only."""
    return {
        "source": {"type": "log_file", "include": [f"{root}/{family.name}/*"], "max_open_files": _HELD_OPEN, "rotate_wait": "30s"},
        "record": {"topic": topic, "partition": 0},
    }


def configuration(families: Sequence[Family], root: Path, control: Path, keep: int) -> str:
    """logrotate's. `keep` generations, but for families that keep few."""
    return "".join(_section(family, root, control, keep) for family in families)


def _section(family: Family, root: Path, control: Path, keep: int) -> str:
    lines = [f"rotate {_FEW if family.few else keep}", *family.ways]
    if family.olddir:
        lines.append(f"olddir {family.old(root)}")
    lines += _script("prerotate", family, family.before, control) + _script("postrotate", family, family.after, control)
    body = "\n".join(f"    {line}" for line in lines)
    return f"{family.path(root)} {{\n{body}\n}}\n"


def _script(when: str, family: Family, verb: str, control: Path) -> list[str]:
    """Ask the writer, and wait until it has done it, as `systemctl reload` does."""
    request = control / f"{family.name}.{verb}"
    return [when, f"touch {request}", f"while [ -e {request} ]; do sleep 0.005; done", "endscript"] if verb else []
