"""Dead letters as text and as JSON values."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

from copycat_agent.display import visible
from copycat_agent.dlq import DeadLetter, LetterCount, ReplayReport, Survey

_SHOWN_CHARACTERS = 500
_PLACE = ("partition", "offset", "path", "start", "end")


def survey_text(found: Survey) -> str:
    """Returns a line for the topic, and one for each kind of letter."""
    if not found.exists:
        return f"{visible(found.topic)}: the topic does not exist"
    total = sum(tally.letters for tally in found.tallies.values())
    lines = [f"{visible(found.topic)}: {_several(total, 'dead letter')}"]
    for kind, tally in sorted(found.tallies.items()):
        what = f"{visible(kind.connector)}  stage {visible(kind.stage)}  {visible(kind.error)}"
        lines.append(f"  {what}  {tally.letters:,}{_waiting(tally)}  {_moment(tally.first_ms) or '-'} to {_moment(tally.last_ms) or '-'}")
    if found.foreign:
        lines.append(f"  {_several(found.foreign, 'record')} in it {'is' if found.foreign == 1 else 'are'} no dead letter of this agent")
    return "\n".join(lines)


def _waiting(tally: LetterCount) -> str:
    if tally.waiting is None:
        return ""
    return f" ({tally.waiting:,} to replay)" if tally.waiting else " (all replayed)"


def survey_entry(found: Survey) -> dict[str, Any]:
    """Returns the survey for programs; `waiting` is null for connectors that the definitions do not know."""
    return {
        "topic": found.topic,
        "exists": found.exists,
        "foreign": found.foreign,
        "letters": [
            {
                "connector": kind.connector, "stage": kind.stage, "error": kind.error, "letters": tally.letters,
                "waiting": tally.waiting, "first": _moment(tally.first_ms), "last": _moment(tally.last_ms),
            }
            for kind, tally in sorted(found.tallies.items())
        ],
    }  # fmt: skip


def letter_text(letter: DeadLetter, topic: str) -> str:
    """Returns a letter's place, reason, origin and bytes, with control characters escaped."""
    host = f" on {visible(letter.host)}" if letter.host else ""
    lines = [
        f"{visible(topic)}[{letter.partition}] {letter.offset}  {_moment(letter.at_ms) or '-'}",
        f"  stage {visible(letter.stage)}, {visible(letter.error)}: {visible(letter.message)}",
        f"  {visible(letter.path)}, {letter.place}{host}",
    ]
    if letter.said:
        lines.append(f"  raw bytes {visible(letter.said)}")
    if letter.raw is not None:
        lines.append(f"  {_shown(letter.raw)}")
    return "\n".join(lines)


def _shown(raw: bytes) -> str:
    text = raw[: 4 * _SHOWN_CHARACTERS].decode("utf-8", "surrogateescape")[:_SHOWN_CHARACTERS]
    left = len(raw) - len(text.encode("utf-8", "surrogateescape"))
    return visible(text, backslash=True) + (f" ... {left:,} bytes more" if left else "")


def letter_entry(letter: DeadLetter) -> dict[str, Any]:
    """Returns the letter for programs, with all bytes: as `raw` if they are UTF-8, else as `raw_base64`."""
    entry = letter._asdict() | {"at": _moment(letter.at_ms), "file_time": _moment(letter.file_time_ms or None)}
    del entry["at_ms"], entry["file_time_ms"]
    if letter.raw is not None:
        try:
            entry["raw"] = letter.raw.decode()
        except UnicodeDecodeError:
            del entry["raw"]
            entry["raw_base64"] = base64.b64encode(letter.raw).decode()
    return entry


def report_text(report: ReplayReport, *, dry_run: bool) -> str:
    """Returns the letters that stay, each with its reason, then the totals."""
    topic = visible(report.topic)
    lines = [f"left: {topic}[{one.partition}] {one.offset}, {visible(one.path)}, {one.place}: {visible(why)}" for one, why in report.named]
    if report.left > len(report.named):
        lines.append(f"left: {report.left - len(report.named):,} more")
    verb = "would be sent" if dry_run else "sent"
    parts = [f"{report.sent:,} {verb}"]
    parts += [f"{report.dropped:,} dropped by a transform"] if report.dropped else []
    parts += [f"{report.left:,} left"]
    lines.append(f"{report.connector}: {_several(report.tried, 'dead letter')}: {', '.join(parts)}")
    if report.missed:
        lines.append(f"{report.missed:,} asked for, and no letter of {report.connector}, or replayed before: see --all")
    if report.foreign:
        lines.append(f"{_several(report.foreign, 'record')} of the topic passed over: no dead letter of this agent")
    return "\n".join(lines)


def report_entry(report: ReplayReport) -> dict[str, Any]:
    """Returns the report for programs."""
    return {
        "connector": report.connector, "topic": report.topic, "tried": report.tried, "sent": report.sent, "dropped": report.dropped,
        "left": report.left, "foreign": report.foreign, "missed": report.missed, "interrupted": report.stopped,
        "named": [{name: getattr(letter, name) for name in _PLACE} | {"why": why} for letter, why in report.named],
    }  # fmt: skip


def _moment(at_ms: int | None) -> str | None:
    """Returns RFC 3339 in UTC, None if there is no time (or one outside the calendar)."""
    if at_ms is None:
        return None
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _several(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
