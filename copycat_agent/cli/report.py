"""What connectors did, as text."""

from __future__ import annotations

from collections.abc import Iterable

from copycat_agent.worker import Status


def account(statuses: Iterable[Status]) -> str:
    """One line per connector: every record that was read, and what became of it."""
    return "\n".join(_line(status) for status in statuses)


def _line(status: Status) -> str:
    counts = status.counts
    parts = [f"{counts.read:,} records read ({counts.read_bytes:,} bytes)", f"{counts.acknowledged:,} acknowledged"]
    parts += [
        f"{getattr(counts, name):,} {name.replace('_', '-')}"
        for name in ("dead_lettered", "dropped", "rejected", "too_long")
        if getattr(counts, name)
    ]
    if counts.kept:
        parts.append(f"{counts.kept:,} of the acknowledged kept as they were, for a step failed")
    if status.lag.lost_bytes:
        parts.append(f"{status.lag.lost_bytes:,} bytes lost before they were read")
    if status.troubled_files:
        parts.append(f"{status.troubled_files:,} {'file' if status.troubled_files == 1 else 'files'} could not be read")
    if status.unsaved:
        parts.append("offsets could not be saved, what they cover will be sent again")
    if status.reason:
        parts.append(status.reason)
    return f"{status.name}: {status.state}: {', '.join(parts)}"
