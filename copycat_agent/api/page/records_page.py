"""The page of live records, which are streamed as they are sent. `page.js` adds them to the table; without scripts a note is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from copycat_agent.api.page.markup import Heading, joined, table, tag
from copycat_agent.api.page.page_frame import Fields, View, ViewContext, back_to
from copycat_agent.display import visible
from copycat_agent.model import Sample
from copycat_agent.templates import time_text

RECORDS, SECONDS = 200, 10.0
"""Limits of one request, so that the agent notices soon that the page was closed."""
_HEADINGS = tuple(map(Heading, ("timestamp", "key", "value", "headers", "topic", "from")))


def records_page(moment: ViewContext, name: str, _fields: Fields) -> View:
    """Returns the page without records. Raises UnknownConnectorError."""
    moment.control.status(name)
    title = f"Live records of {name}"
    field = tag("input", type="search", id="filter", autocomplete="off", spellcheck="false")
    form = tag("form", tag("label", "Show those that contain", for_="filter"), field, role="search", id="filters")
    without = tag("noscript", tag("p", f"They come with JavaScript only; copycat tap {name} shows them in a terminal."))
    shown = tag("div", table(_HEADINGS, (), "The newest come first; of many that are sent within a second some are left out"), id="records")
    return View(title, joined(tag("h1", title), back_to(name), form, without, shown))


def records(moment: ViewContext, name: str) -> Iterator[Mapping[str, str]]:
    """Yields records from now on, each as the texts of its cells by title. Raises UnknownConnectorError at once."""
    moment.control.status(name)
    return map(_cells, moment.control.tap(name, RECORDS, SECONDS))


def _cells(record: Sample) -> dict[str, str]:
    texts = (
        "" if record.timestamp_ms is None else time_text(record.timestamp_ms), _text(record.key), _text(record.value),
        ", ".join(f"{visible(name)}: {_text(value)}" for name, value in record.headers), visible(record.topic),
        f"{visible(record.path)}:{record.start}",
    )  # fmt: skip
    return dict(zip((heading.title for heading in _HEADINGS), texts, strict=True))


def _text(content: bytes | None) -> str:
    """Returns UTF-8 text with other bytes escaped, `-` for None."""
    return "-" if content is None else visible(content.decode(errors="surrogateescape"), backslash=True)
