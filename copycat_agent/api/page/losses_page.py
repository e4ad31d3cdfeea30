"""The page of the loss ledger: what was given up, where, when and why."""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from typing import Any, cast

from copycat_agent.api import is_name
from copycat_agent.api.handlers import Request, losses
from copycat_agent.api.page.markup import Heading, Html, joined, table, tag, within
from copycat_agent.api.page.page_frame import Fields, View, ViewContext
from copycat_agent.api.status_text import Document
from copycat_agent.display import count
from copycat_agent.errors import UnknownConnectorError
from copycat_agent.templates import time_text

ENTRIES = 200
"""Most entries shown, the newest ones."""
_TOTALS_BYTES, _ENTRIES_BYTES = 25 * 1024, 55 * 1024
"""Most bytes of the tables of totals and entries: a page has 100 KB at most."""
_TOTALS = (
    Heading("connector"),
    Heading("reason"),
    Heading("bytes", is_number=True),
    Heading("records", is_number=True),
    Heading("entries", is_number=True),
)
_LOSSES = (
    Heading("when (UTC)"),
    Heading("connector"),
    Heading("reason"),
    Heading("bytes", is_number=True),
    Heading("records", is_number=True),
    Heading("range"),
    Heading("file"),
    Heading("detail"),
)


def losses_page(moment: ViewContext, _name: str, fields: Fields) -> View:
    """Returns the losses of the connector in the query, or of all. Raises UnknownConnectorError for an invalid name."""
    name = fields.get("connector", "")
    if name and not is_name(name):
        raise UnknownConnectorError("no connector can have this name")
    query = urllib.parse.urlencode([("limit", str(ENTRIES)), *([("connector", name)] if name else [])])
    found = cast("dict[str, Any]", losses(moment.control, Request(query, None)))
    title = f"Losses of {name}" if name else "Losses"
    others = tag("p", tag("a", "Losses of all connectors", href="/losses")) if name else Html()
    return View(title, joined(tag("h1", title), others), _content(found))


def _content(found: Document) -> Html:
    largest = sorted(found["totals"], key=lambda one: -one["size_bytes"])
    if not largest:
        return tag("p", "Nothing was given up.")
    totals = within(map(_total, largest), _TOTALS_BYTES)
    known = sum(one["entries"] for one in largest)
    entries = within(map(_entry, found["losses"]), _ENTRIES_BYTES)
    sums = f"The largest {count(len(totals))} of {count(len(largest))} sums" if len(largest) > len(totals) else "Everything ever given up"
    caption = f"The newest {count(len(entries))} of {count(known)} entries" if known > len(entries) else f"{count(known)} entries"
    return joined(table(_TOTALS, totals, sums), table(_LOSSES, entries, caption))


def _total(one: Document) -> Sequence[str]:
    return _link(one["connector"]), one["reason"], f"{one['size_bytes']:,}", _records(one), count(one["entries"])


def _entry(one: Document) -> Sequence[str]:
    when = time_text(one["at_ms"], "seconds").replace("T", " ").removesuffix("Z")
    where = f"{one['start']:,} to {one['end']:,}"
    return when, _link(one["connector"]), one["reason"], f"{one['size_bytes']:,}", _records(one), where, one["path"], one["detail"]


def _records(one: Document) -> str:
    return count(one["records"]) if one["records"] else "unknown"


def _link(name: str) -> Html:
    return tag("a", name, href=f"/connectors/{name}")
