"""The account of a run to the end, for people: a line for each file, and what they add up to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from copycat_agent.cli.shown import size, visible

FILES_SHOWN = 200
"""Of a run over more files: those with something to say first. `--format json` has them all."""
_ORDER = ("failed", "unfinished", "done", "skipped")
_NAMES = {"acknowledged": "acknowledged", "dead_lettered": "dead-lettered", "dropped": "dropped", "rejected": "rejected"}


def table_of(summary: Mapping[str, Any]) -> str:
    """Plain text, as many lines as it takes."""
    return "\n".join(_lines(summary))


def _lines(summary: Mapping[str, Any]) -> Iterator[str]:
    files = sorted(summary["files"], key=lambda file: (_ORDER.index(file["state"]), file["path"]))
    for file in files[:FILES_SHOWN]:
        yield _file(file)
        for place in file["delivered"]:
            yield f"    {place['topic']}-{place['partition']}: offsets {place['first']:,} to {place['last']:,}"
    if len(files) > FILES_SHOWN:
        yield f"... and {len(files) - FILES_SHOWN:,} more files; --format json has them all"
    yield from _losses(summary)
    yield _total(summary)


def _file(file: Mapping[str, Any]) -> str:
    why = f": {visible(file['why'])}" if file["why"] else ""
    if file["state"] == "skipped":
        return f"{visible(file['path'])}: skipped{why}"
    packed = f", {file['compression']}" if file["compression"] else ""
    return f"{visible(file['path'])}: {file['state']}{why}; {_records(file)} ({size(file['bytes'])}{packed})"


def _records(counts: Mapping[str, Any]) -> str:
    parts = [f"{counts['read']:,} records read"]
    parts += [f"{counts[name]:,} {words}" for name, words in _NAMES.items() if counts[name] or name == "acknowledged"]
    if counts["too_long"]:
        parts.append(f"{counts['too_long']:,} of them too long")
    if counts["kept"]:
        parts.append(f"{counts['kept']:,} kept as they were, for a step failed")
    if counts["undated"]:
        parts.append(f"{counts['undated']:,} without a time")
    return ", ".join(parts)


def _losses(summary: Mapping[str, Any]) -> Iterator[str]:
    for loss in summary["losses"]:
        records = f" in {loss['records']:,} records" if loss["records"] else ""
        yield f"given up: {loss['size_bytes']:,} bytes{records}, {loss['reason'].replace('_', ' ')} (copycat losses shows where)"


def _total(summary: Mapping[str, Any]) -> str:
    totals = summary["totals"]
    states = ", ".join(f"{totals['files'][state]:,} {state}" for state in reversed(_ORDER) if totals["files"][state])
    head = f"{summary['connector']}: {summary['state']}: {totals['files']['all']:,} files ({states or 'none'})"
    pace = f"{summary['seconds']:,.1f} s, {summary['records_per_second']:,.0f} records/s, {size(summary['bytes_per_second'])}/s"
    return f"{head}; {_records(totals['records'])} ({size(totals['bytes'])}); {pace}"
