"""Totals of the kill loop over many calls, for one state of the product's code: each run's last word is kept in a file, and added up.

Loops may run side by side: the file is changed under a lock, and each run changes only what it has said itself.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PRODUCT = Path(__file__).parents[1] / "copycat_agent"
DIRECTORY = Path(__file__).parent / ".kill_loop"
"""Where totals are kept when nothing else is said; git ignores it."""
COUNTS = ("lines", "lost", "repeated", "out of order")


def code_hash(root: Path = PRODUCT) -> str:
    """Hash of what all the product's Python files do, their names included: comments and docstrings do not count."""
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        data = ast.dump(_Code().visit(ast.parse(path.read_bytes()))).encode()
        found.update(f"{path.relative_to(root)} {len(data)}\n".encode() + data)
    return found.hexdigest()[:16]


class _Code(ast.NodeTransformer):
    """Leaves out statements that are nothing but a string."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node


class Totals:
    """The file `totals.json` in a directory. What it holds of other code is thrown away by the first run that adds to it."""

    def __init__(self, directory: Path, code: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / "totals.json"
        self._lock = directory / "lock"
        self._code = code

    def put(self, run: str, told: Mapping[str, Any]) -> dict[str, Any]:
        """Save what `run` says now in place of what it said before. Returns all runs of this code."""
        with self._lock.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            runs = {**self._read(), run: dict(told)}
            beside = self._path.with_suffix(".tmp")
            beside.write_text(json.dumps({"code": self._code, "runs": runs}, indent=1) + "\n")
            beside.rename(self._path)
        return runs

    def _read(self) -> dict[str, Any]:
        if not self._path.exists():
            return {}
        found = json.loads(self._path.read_text())
        runs: dict[str, Any] = found["runs"] if found["code"] == self._code else {}
        return runs


def snapshot(
    guarantee: str, kills: Counter[str], sources: Mapping[str, Mapping[str, int]], broken: list[str], *, ended: bool
) -> dict[str, Any]:
    """What a run says of itself. `sources`: source -> `COUNTS`. Before a run has `ended` its lines are those that have arrived."""
    return {"guarantee": guarantee, "kills": dict(kills), "sources": dict(sources), "broken": list(broken), "ended": ended}


def added(runs: Mapping[str, Any]) -> dict[str, Any]:
    """Guarantee -> `kills` by victim, `sources` with their counts, `broken`, `runs`, and how many of them were `interrupted`."""
    totals: dict[str, Any] = {}
    for one in runs.values():
        total = totals.setdefault(
            one["guarantee"], {"kills": Counter(), "sources": defaultdict(Counter), "broken": 0, "runs": 0, "interrupted": 0}
        )
        total["runs"] += 1
        total["interrupted"] += not one["ended"]
        total["broken"] += len(one["broken"])
        total["kills"].update(one["kills"])
        for source, counts in one["sources"].items():
            total["sources"][source].update(counts)
    return totals


def line(runs: Mapping[str, Any]) -> str:
    """The totals in one line, for after each kill."""
    told = []
    for guarantee, total in sorted(added(runs).items()):
        counts: Counter[str] = sum(total["sources"].values(), Counter())
        words = ", ".join(f"{counts[name]:,} {name}" for name in COUNTS)
        told.append(f"{guarantee}: {total['kills'].total():,} kills, {words}, broken {total['broken']}")
    return "; ".join(told)


def text(runs: Mapping[str, Any], code: str) -> str:
    """Markdown: a row for each guarantee and source."""
    rows = [
        f"Over all runs of code {code}:",
        "",
        "| guarantee | source | kills | lines | lost | repeated | out of order |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for guarantee, total in sorted(added(runs).items()):
        for source, counts in sorted(total["sources"].items()):
            rows.append(f"| {guarantee} | {source} | {total['kills'].total():,} | {' | '.join(f'{counts[name]:,}' for name in COUNTS)} |")
    for guarantee, total in sorted(added(runs).items()):
        kills = ", ".join(f"{victim} {count}" for victim, count in sorted(total["kills"].items()))
        rows += ["", f"{guarantee}: {kills}; {total['runs']} runs, {total['interrupted']} without an end; broken {total['broken']}."]
    return "\n".join(rows)
