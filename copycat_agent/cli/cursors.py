"""Positions of sources that have no files: JSON that only the source can judge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from copycat_agent.errors import DataError
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.contract import as_text


def moved_cursor(
    connector: str, saved: Mapping[SourcePartition, SourceOffset], wanted: str, *, path: str, key: str
) -> dict[SourcePartition, SourceOffset]:
    """The partition with this name or key at another position; empty where it is no partition of such a source.

    The name that its source had for it is replaced by the key: a source that refuses positions of another one takes this.
    Raises DataError for a position that is no JSON.
    """
    chosen = next((one for one, offset in saved.items() if offset.cursor and (one.key == key or (path and offset.path == path))), None)
    if chosen is None:
        return {}
    try:
        cursor = as_text(json.loads(wanted))
    except ValueError:
        msg = f"{wanted!a:.80} is no JSON value, and {chosen.key} of {connector} is at {saved[chosen].cursor}"
        raise DataError(msg, "give a position of that form") from None
    return {chosen: replace(saved[chosen], cursor=cursor, path=chosen.key)}
