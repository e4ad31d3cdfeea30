"""HTML out of tags and texts. Only what `tag` has made is markup: every other text, wherever it comes from, is shown as it stands.

What no browser shows (controls, bidi marks, odd bytes of file names) is escaped as on a terminal, so a text never hides or turns another.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from copycat_agent.display import visible

_ROW_BYTES = 300
"""Of the tags of a row, at most."""
_EMPTY = frozenset({"meta", "link", "input", "polyline"})
"""Tags that have no end."""


class Html(str):
    """Markup. What is cut or joined out of one is a plain text again, and would be escaped."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | bool | None) -> Html:
    """`<name ...>children</name>`. A child that is no `Html` is escaped, and so is every value of an attribute.

    `class_` is the attribute `class`, `data_label` is `data-label`. True is an attribute without a value; None and False are none. Names
    come from our code only.
    """
    written = "".join(_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    if name in _EMPTY:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: str) -> Html:
    """Several side by side."""
    return Html("".join(one if isinstance(one, Html) else _escaped(one) for one in children))


def _attribute(name: str, value: str | bool | None) -> str:  # noqa: FBT001 - as in HTML
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{_escaped(value)}"'


def _escaped(text: str) -> str:
    return html.escape(visible(text), quote=True)


def lines(text: str) -> Html:
    """A text of several lines, each as it stands. For an element that keeps them."""
    return Html("\n".join(map(_escaped, text.split("\n"))))


def text_area(name: str, text: str, rows: int) -> Html:
    """A field of several lines that holds the text exactly: what is sent back is what was there. Its id is its name."""
    content = Html("\n" + html.escape(text, quote=True))  # a browser leaves out the first line break
    return tag("textarea", content, name=name, id=name, rows=str(rows), spellcheck="false", autocomplete="off")


class Heading(NamedTuple):
    """Of a column. `is_number`: to the right."""

    title: str
    is_number: bool = False


def table(headings: Sequence[Heading], rows: Sequence[Sequence[str]], caption: str) -> Html:
    """A table whose first cell of each row is its heading; "" is an empty cell. On a phone each cell has its column's title beside it."""
    head = tag("tr", *(tag("th", one.title, scope="col", class_=_kind(one)) for one in headings))
    lines = [tag("tr", *map(_cell, headings, row, [True] + [False] * (len(row) - 1))) for row in rows]
    return tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *lines))


def within(rows: Iterable[Sequence[str]], most_bytes: int) -> list[Sequence[str]]:
    """The first rows, as many as fit into so many bytes of a page."""
    fitting, used = [], 0
    for row in rows:
        used += _ROW_BYTES + sum(len(joined(cell).encode()) for cell in row)
        if used > most_bytes:
            break
        fitting.append(row)
    return fitting


def _cell(heading: Heading, content: str, is_first: bool) -> Html:  # noqa: FBT001 - called by `map`
    if is_first:
        return tag("th", content, scope="row")
    return tag("td", content, class_=_kind(heading), data_label=heading.title if content else None)


def _kind(heading: Heading) -> str | None:
    return "number" if heading.is_number else None


def facts(pairs: Sequence[tuple[str, str]]) -> Html:
    """Names with their values; those whose value is "" are left out."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs if value))
