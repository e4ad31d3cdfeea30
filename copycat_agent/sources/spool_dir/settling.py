"""From what a task brought back to what is saved of a spooled file: how far, whether that is all, and what is lost."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.errors import FatalError
from copycat_agent.formats.records import build_format
from copycat_agent.model import Loss, SourceOffset, SplitResult

if TYPE_CHECKING:
    from copycat_agent.sources.base import Saved
    from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions

CHANGED = "it was changed after a part of it was sent"
_CHANGED_HINT = "drop it again under another name, or set on_changed_file: continue"


def settled(result: SplitResult, *, stop: bool = False) -> SourceOffset:
    """The offset to save. `done` when nothing is left of the file, or nothing that can be read: then `trouble` says why.

    `stop`: a bad file is not given up, its offset stays before the damage.
    """
    if result.origin >= 0:  # its very content was sent before
        former, now = result.split.origins[result.origin], result.split.offset
        return replace(former, path=now.path, size=now.size, mtime_ns=now.mtime_ns, done=True, gone_ms=0, trouble="")
    if result.damage and not stop:
        return replace(result.offset, done=True, trouble=result.damage)
    is_over = result.at_end and not (result.error or result.changed or result.damage)
    return replace(result.offset, done=is_over)


def saved(result: SplitResult, options: SpoolDirOptions) -> Saved:
    """See `SourceKind.saved`."""
    stop = options.on_bad_file == "stop"
    offset, losses = settled(result, stop=stop), result.losses
    if result.changed and offset.position and options.on_changed_file == "stop":
        offset = set_aside(offset)
    if result.damage and not stop:
        loss = damage_loss(result, counts_records=getattr(build_format(options.format), "counts_records", False))
        losses = losses if loss is None else (*losses, loss)
    return offset, losses


def set_aside(offset: SourceOffset) -> SourceOffset:
    """A file that was changed while it was read, and is not read on."""
    return replace(offset, done=False, trouble=f"{CHANGED}; {_CHANGED_HINT}")


def damage_loss(result: SplitResult, *, counts_records: bool) -> Loss | None:
    """What of a damaged file is not sent, as far as anyone can know; None when nothing is left behind the damage."""
    offset = result.offset
    unknown = counts_records or bool(offset.compression)
    read = result.packed_position if unknown else offset.position
    unread = max(0, offset.size - read)
    if not unread:
        return None
    behind = f" behind record {offset.records}" if counts_records else ""
    words = f"; {unread} bytes on the disk{behind} were not read, what they hold is not known" if unknown else ""
    return lost(result, offset.position, unread, f"{result.damage}{words}")


def lost(result: SplitResult, start: int, size_bytes: int, why: str) -> Loss:
    """An entry for the loss ledger."""
    split = result.split
    return Loss(split.partition, split.path, start, start + size_bytes, size_bytes, 0, "damaged", why, int(time.time() * 1000))


def bad_file(result: SplitResult, *, counts_records: bool) -> FatalError:
    """Why the connector stops at a bad file."""
    offset = result.offset
    where = f"record {offset.records + 1}" if counts_records else f"byte {offset.position}, after {offset.records} records"
    hint = "repair it or move it away, then: copycat ctl restart NAME; with on_bad_file: quarantine it would be set aside"
    return FatalError(f"{result.split.path!r} cannot be read beyond {where}: {result.damage}", hint)
