"""The page at `/`: all connectors, those in trouble first."""

from __future__ import annotations

import re
import urllib.parse
from collections import Counter
from collections.abc import Sequence
from typing import Any

from copycat_agent.api.handlers import connector_document, loss_totals
from copycat_agent.api.page.markup import Heading, Html, joined, table, tag
from copycat_agent.api.page.page_frame import Fields, View, ViewContext, line
from copycat_agent.api.status_text import GOOD_STATES, Document, lag_words, lost_bytes, oldest_words, reason_words, state_words
from copycat_agent.display import count, rate, size
from copycat_agent.worker import Status

ROWS = 50
"""Connectors of one page, which stays below 100 KB with their charts and reasons."""
_WHY_CHARACTERS = 300
_NUMBER = re.compile("[0-9]{1,6}", re.ASCII)
_HEADINGS = (
    Heading("connector"),
    Heading("state"),
    Heading("records/s", is_number=True),
    Heading("15 minutes"),
    Heading("lag", is_number=True),
    Heading("oldest unread", is_number=True),
    Heading("retries", is_number=True),
    Heading("dead letters", is_number=True),
    Heading("lost", is_number=True),
)


def overview(moment: ViewContext, _name: str, fields: Fields) -> View:
    """Returns page `page` (from 1) of the connectors whose names contain `q`; the last page for a larger number."""
    wanted, written = fields.get("q", ""), fields.get("page", "")
    number = int(written) if _NUMBER.fullmatch(written) else 1
    everyone = moment.control.statuses()
    found = sorted((one for one in everyone if wanted in one.name), key=lambda one: (not _is_troubled(one), one.name))
    pages = max(1, -(-len(found) // ROWS))
    number = min(max(1, number), pages)
    totals = loss_totals(moment.control)
    rows = [_row(moment, connector_document(one, totals)) for one in found[(number - 1) * ROWS : number * ROWS]]
    shown = f"{count(len(found))} of {count(len(everyone))} connectors" if wanted else f"{count(len(everyone))} connectors"
    content = table(_HEADINGS, rows, shown) if rows else tag("p", _nothing(wanted))
    live = joined(tag("p", _summary(moment, everyone), class_="summary"), content, _pages(wanted, number, pages))
    return View("Connectors", joined(tag("h1", "Connectors"), _search(wanted)), live)


def state_tag(one: Document) -> Html:
    """Returns the state, with a class for its colour."""
    return tag("span", state_words(one), class_=f"state {one['state']}")


def _shortened(words: str) -> str:
    """Returns the beginning of a reason; the connector's own page shows all of it."""
    return words if len(words) <= _WHY_CHARACTERS else f"{words[:_WHY_CHARACTERS]} ..."


def lost_tag(one: Document) -> Html:
    """Returns how much was lost, with a link to the losses."""
    lost = lost_bytes(one)
    return tag("a", size(lost), href=f"/losses?connector={one['name']}", class_="bad") if lost else Html(size(0))


def _is_troubled(one: Status) -> bool:
    return one.state.value not in GOOD_STATES or one.unsaved or bool(one.troubled_files)


def _row(moment: ViewContext, one: dict[str, Any]) -> Sequence[str]:
    why = _shortened(reason_words(one))
    return (
        tag("a", one["name"], href=f"/connectors/{one['name']}"),
        joined(state_tag(one), tag("span", why, class_="why") if why else ""),
        moment.rate_words(one["name"]),
        line(moment.history.rates(one["name"]), one["name"]),
        lag_words(one),
        oldest_words(one, moment.now),
        count(one["retries"]),
        count(one["counts"]["dead_lettered"]),
        lost_tag(one),
    )


def _summary(moment: ViewContext, everyone: Sequence[Status]) -> str:
    """Returns a summary such as `12 RUNNING, 1 FAILED; 1,234 records/s; 1.5 MiB unread`."""
    states = Counter(state_words({"state": one.state.value, "enabled": one.enabled}) for one in everyone)
    rates = [known for one in everyone if (known := moment.history.rate(one.name)) is not None]
    parts = [", ".join(f"{count(number)} {state}" for state, number in states.most_common())] if states else []
    if rates:
        parts.append(f"{rate(sum(rates))} records/s")
    return "; ".join([*parts, f"{size(sum(one.lag.bytes for one in everyone))} unread"])


def _nothing(wanted: str) -> str:
    return f"No connector has {wanted!r:.80} in its name." if wanted else "No connector is defined."


def _search(wanted: str) -> Html:
    field = tag("input", type="search", name="q", value=wanted, id="q", autocomplete="off", spellcheck="false")
    return tag("form", tag("label", "Name contains", for_="q"), field, tag("button", "Filter"), role="search")


def _pages(wanted: str, number: int, pages: int) -> Html:
    """Returns links to the previous and next page; nothing if there is only one."""
    if pages == 1:
        return Html()
    links = [("Previous", number - 1, "prev"), ("Next", number + 1, "next")]
    made = [tag("a", text, href=_address(wanted, to), rel=rel) for text, to, rel in links if 1 <= to <= pages]
    return tag("nav", *made, tag("span", f"page {number} of {pages}"), aria_label="More connectors")


def _address(wanted: str, number: int) -> str:
    return "/?" + urllib.parse.urlencode([*([("q", wanted)] if wanted else []), ("page", str(number))])
