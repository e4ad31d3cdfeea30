"""Makes the account of a run to the end: what became of every file and record. A plain value that can be written as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol

from copycat_agent.display import visible
from copycat_agent.model import Account, Counts, LossReason, LossTotal, SavedRow, SourceOffset, SourcePartition, offsets_in
from copycat_agent.options import Definition
from copycat_agent.templates import time_text
from copycat_agent.worker import State, Status

Summary = dict[str, Any]

VERSION = 1
"""Version of the account's format. A removed field or a changed meaning raises it, an added field does not."""
COUNTED = ("read", "acknowledged", "dead_lettered", "dropped", "rejected", "too_long", "kept")
_ON_PURPOSE = ("drop", "truncate")


class RunPart(NamedTuple):
    """One process's part of a run. `began` and `ended` in epoch seconds; `problem` is why it did not finish, in words."""

    status: Status
    began: float
    ended: float
    interrupted: bool = False
    problem: str = ""


class AccountAccess(Protocol):
    """Access to accounts and offsets: a store, or an agent that has one."""

    def accounts(self, connector: str, /) -> Mapping[SourcePartition, Account]:
        """Returns what became of each file."""

    def offsets(self, connector: str, /) -> Mapping[SourcePartition, SavedRow]:
        """Returns the saved positions."""

    def account_losses(self, connector: str, /) -> Mapping[LossReason, LossTotal]:
        """Returns how much was given up in all parts of the run."""


def summarise(
    definition: Definition,
    books: AccountAccess,
    part: RunPart,
    *,
    untouched: bool = False,
    given: bool = False,
) -> Summary:
    """Returns the account of the connector's run, with its last part.

    `untouched`: includes files without anything new. `given`: the run was to read given files, each to its end.
    """
    name = definition.name
    files = _files(books.accounts(name), offsets_in(books.offsets(name)), untouched=untouched)
    losses = [{"reason": reason, **total._asdict()} for reason, total in sorted(books.account_losses(name).items())]
    status = part.status
    problem = part.problem or ("" if part.interrupted else status.reason)  # one that was left out says why
    is_over = status.state is State.STOPPED and not (part.interrupted or problem or status.unsaved)
    if given or not is_over:
        for file in files:
            file["state"] = "unfinished" if file["state"] == "done" and not file.pop("is_done") else file["state"]
    for file in files:
        file.pop("is_done", None)
    seconds = max(part.ended - part.began, 1e-3)
    totals = _totals(files)
    return {
        "version": VERSION,
        "connector": name,
        "topic": definition.record.topic,
        "state": "interrupted" if part.interrupted else "finished" if is_over else "failed",
        "complete": is_over and _is_complete(definition, totals, losses, status),
        "problem": problem,
        "began": time_text(1000 * part.began, "seconds"),
        "ended": time_text(1000 * part.ended, "seconds"),
        "seconds": round(seconds, 3),
        "records_per_second": round(status.counts.read / seconds, 1),
        "bytes_per_second": round(status.counts.read_bytes / seconds, 1),
        "files_that_could_not_be_read": max(status.troubled_files, totals["files"]["failed"]),
        "offsets_unsaved": status.unsaved,
        "totals": totals,
        "losses": losses,
        "files": files,
    }


def _is_complete(definition: Definition, totals: Summary, losses: Iterable[Mapping[str, Any]], status: Status) -> bool:
    """Returns whether every record is in Kafka, in the dead-letter topic, or left out on purpose."""
    records = totals["records"]
    source = definition.source
    limits = getattr(source, "multiline", None) or getattr(source, "line", None) or getattr(getattr(source, "format", None), "line", None)
    allowed = {"hole"} | ({"too_long"} if getattr(limits, "on_too_long", "dlq") in _ON_PURPOSE else set())
    return (
        records["read"] == records["acknowledged"] + records["dead_lettered"] + records["dropped"]
        and not totals["files"]["failed"]
        and not totals["files"]["unfinished"]
        and not status.troubled_files
        and not any(loss["reason"] not in allowed for loss in losses)
    )


def _files(
    accounts: Mapping[SourcePartition, Account], offsets: Mapping[SourcePartition, SourceOffset], *, untouched: bool
) -> list[Summary]:
    """Returns the files by path. Several partitions of one name (ranges, restarted files) are one file."""
    found: dict[str, Summary] = {}
    for partition in {**accounts, **offsets}:
        account, offset = accounts.get(partition), offsets.get(partition)
        path = account.path if account and account.path else offset.path if offset else ""
        if not path or (account is None and not untouched) or (account is None and offset is not None and offset.gone_ms):
            continue
        if offset is None and partition.key.startswith("path:") and any(one.path == path for one in offsets.values()):
            continue  # it could not be opened in an earlier part of the run, and could later
        entry = _file(path, account or Account(), offset)
        if account is None and offset is not None and offset.position and entry["is_done"] and entry["state"] == "done":
            entry["state"], entry["why"] = "skipped", entry["why"] or "nothing new: all of it was delivered before"
        found[path] = _merged(found[path], entry) if path in found else entry
    return [found[path] for path in sorted(found)]


def _file(path: str, account: Account, offset: SourceOffset | None) -> Summary:
    trouble = offset.trouble if offset else ""
    is_failed = account.state == "failed" or bool(trouble)
    return {
        "path": visible(path),
        "state": "failed" if is_failed else "skipped" if account.state == "skipped" else "done",
        "why": visible(trouble or account.why),
        "size": offset.size if offset else 0,
        "compression": offset.compression if offset else "",
        "bytes": account.counts.read_bytes,
        **{name: getattr(account.counts, name) for name in COUNTED},
        "undated": account.undated,
        "delivered": [one._asdict() for one in account.delivered],
        "is_done": bool(offset and (offset.done or (not offset.compression and offset.position >= offset.size))),
    }


def _merged(one: Summary, other: Summary) -> Summary:
    both = Account(_counts(one), (), "") + Account(_counts(other), (), "")
    worst = max((one, other), key=lambda entry: ("skipped", "done", "failed").index(entry["state"]))
    places: dict[tuple[str, int], dict[str, Any]] = {}
    for place in (*one["delivered"], *other["delivered"]):
        known = places.setdefault((place["topic"], place["partition"]), dict(place))
        known["first"], known["last"] = min(known["first"], place["first"]), max(known["last"], place["last"])
    counts = asdict(both.counts)
    return {
        **worst,
        "size": max(one["size"], other["size"]),
        "bytes": counts["read_bytes"],
        **{name: counts[name] for name in COUNTED},
        "undated": one["undated"] + other["undated"],
        "delivered": [places[key] for key in sorted(places)],
        "is_done": one["is_done"] and other["is_done"],
    }


def _counts(entry: Summary) -> Counts:
    return Counts(read_bytes=entry["bytes"], **{name: entry[name] for name in COUNTED})


def _totals(files: list[Summary]) -> Summary:
    states = {state: sum(file["state"] == state for file in files) for state in ("done", "skipped", "failed", "unfinished")}
    records = {name: sum(file[name] for file in files) for name in (*COUNTED, "undated")}
    return {"files": {"all": len(files), **states}, "bytes": sum(file["bytes"] for file in files), "records": records}
