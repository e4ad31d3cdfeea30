"""The page of a connector: its state, its files with positions, and the origin of each value of its definition."""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from typing import Any, cast

from copycat_agent.api.handlers import Request, connector, definition, files
from copycat_agent.api.page.markup import Heading, Html, facts, joined, table, tag, within
from copycat_agent.api.page.order_page import order_links
from copycat_agent.api.page.overview import lost_tag, state_tag
from copycat_agent.api.page.page_frame import Fields, View, ViewContext, line
from copycat_agent.api.status_text import (
    TROUBLED_FILES,
    Document,
    connector_facts,
    option_words,
    origin_words,
    position_words,
    reason_words,
    unread_words,
)
from copycat_agent.display import age, count

FILES = 100
"""Most files shown, those in trouble first."""
_FILES_BYTES, _VALUES_BYTES = 55 * 1024, 15 * 1024
"""Most bytes of the tables of files and values: a page has 100 KB at most."""
_FILES = (
    Heading("file"),
    Heading("state"),
    Heading("position", is_number=True),
    Heading("size", is_number=True),
    Heading("unread", is_number=True),
    Heading("records", is_number=True),
    Heading("read"),
)
_VALUES = (Heading("option"), Heading("value"), Heading("from"))


def connector_page(moment: ViewContext, name: str, _fields: Fields) -> View:
    """Returns the page of a connector. Raises UnknownConnectorError."""
    one = cast("dict[str, Any]", connector(moment.control, Request("", None, name)))
    live = joined(_state(moment, one), _files(moment, name), _definition(moment, name))
    links = tag("nav", order_links(name, one["state"]), _looking(name), aria_label="What can be done") if moment.operates else Html()
    return View(name, joined(tag("h1", name), links), live)


def _looking(name: str) -> Html:
    """Returns links to views for users who may operate."""
    return joined(
        tag("a", "Live records", href=f"/connectors/{name}/records"),
        tag("a", "Dead letters", href=f"/connectors/{name}/letters"),
        tag("a", "Try its definition", href=f"/try?connector={name}"),
    )


def _state(moment: ViewContext, one: Document) -> Html:
    why = reason_words(one)
    state = joined(state_tag(one), f" for {age(moment.now - one['since'])}")
    shown = connector_facts(one, moment.now) | {"lost, ever": lost_tag(one)}
    told = facts([("state", state), ("records/s", moment.rate_words(one["name"])), *shown.items()])
    drawn = line(moment.history.rates(one["name"]), one["name"])
    figure = tag("figure", drawn, tag("figcaption", "Records per second, the last 15 minutes")) if drawn else Html()
    return joined(tag("p", why, class_="why") if why else "", told, figure)


def _files(moment: ViewContext, name: str) -> Html:
    followed = cast("dict[str, Any]", files(moment.control, Request(f"limit={FILES}", None, name)))
    rows, title = within((_file(moment, name, one) for one in followed["files"]), _FILES_BYTES), tag("h2", "Files and positions")
    if not rows:
        return joined(title, tag("p", "It follows no file now."))
    total = followed["total"]
    some = f"{count(len(rows))} of {count(total)} files, those in trouble first; copycat describe {name} has more"
    caption = f"{count(total)} {'file' if total == 1 else 'files'}" if total == len(rows) else some
    return joined(title, table(_FILES, rows, caption))


def _file(moment: ViewContext, name: str, one: Document) -> Sequence[str]:
    return (
        joined(_path(name, one), tag("span", one["why"], class_="why") if one["why"] else ""),
        tag("span", one["state"], class_="bad") if one["state"] in TROUBLED_FILES else one["state"],
        position_words(one),
        f"{one['size']:,}",
        unread_words(one),
        count(one["records"]),
        f"{age(moment.now - one['read_at'])} ago" if one["read_at"] else "never",
    )


def _path(name: str, one: Document) -> Html:
    """Returns the file's name, with a link to its history if the agent knows the file."""
    address = urllib.parse.urlencode({"key": one["key"]})
    return tag("a", one["path"], href=f"/connectors/{name}/file?{address}") if one["key"] else joined(one["path"])


def _definition(moment: ViewContext, name: str) -> Html:
    runs = cast("dict[str, Any]", definition(moment.control, Request("", None, name)))
    by_default = [one for one in runs["values"] if one["from"] == "default"]
    given = [one for one in runs["values"] if one["from"] != "default"]
    rest = tag("details", tag("summary", f"{len(by_default)} defaults"), _values(by_default, "Defaults"), id="defaults")
    return joined(tag("h2", "Definition"), _values(given, runs["path"]), rest if by_default else "")


def _values(values: Sequence[Document], caption: str) -> Html:
    rows = [(one["option"], tag("code", option_words(one["value"])), origin_words(one)) for one in values]
    shown = within(rows, _VALUES_BYTES)
    return table(_VALUES, shown, caption if len(shown) == len(rows) else f"{caption}; copycat describe has more")
