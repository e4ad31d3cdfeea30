"""Builds HTML from tags and texts. Only results of `tag` are markup; every other text is escaped, wherever it comes from.

Invisible characters (controls, bidi marks, odd bytes of file names) are escaped as on a terminal, so that no text can hide or reverse
another.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from copycat_agent.display import visible

_ROW_BYTES = 300
"""Most bytes of a row's tags."""
_EMPTY = frozenset({"meta", "link", "input", "polyline"})
"""Tags without an end tag."""


class Html(str):
    """Markup. The result of slicing or joining it is a plain `str`, which would be escaped."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | bool | None) -> Html:
    """Returns `<name ...>children</name>`. Children that are no `Html` are escaped, and so are values of attributes.

    `class_` is the attribute `class`, `data_label` is `data-label`. True is an attribute without a value; None and False leave it out.
    Names are not escaped.
    """
    written = "".join(_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    if name in _EMPTY:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: str) -> Html:
    """Returns the children one after the other. Those that are no `Html` are escaped."""
    return Html("".join(one if isinstance(one, Html) else _escaped(one) for one in children))


def _attribute(name: str, value: str | bool | None) -> str:  # noqa: FBT001 - as in HTML
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{_escaped(value)}"'


def _escaped(text: str) -> str:
    return html.escape(visible(text), quote=True)


def lines(text: str) -> Html:
    """Returns a text with its line breaks, for an element that keeps them."""
    return Html("\n".join(map(_escaped, text.split("\n"))))


def text_area(name: str, text: str, rows: int) -> Html:
    """Returns a text area that holds the text exactly, so that a form sends it back unchanged. Its id is its name."""
    content = Html("\n" + html.escape(text, quote=True))  # browsers drop the first line break
    return tag("textarea", content, name=name, id=name, rows=str(rows), spellcheck="false", autocomplete="off")


class Heading(NamedTuple):
    """The heading of a column. `is_number`: the column is right-aligned."""

    title: str
    is_number: bool = False


def table(headings: Sequence[Heading], rows: Sequence[Sequence[str]], caption: str) -> Html:
    """Returns a table. The first cell of each row is its heading. On a phone each cell shows its column's title."""
    head = tag("tr", *(tag("th", one.title, scope="col", class_=_kind(one)) for one in headings))
    lines = [tag("tr", *map(_cell, headings, row, [True] + [False] * (len(row) - 1))) for row in rows]
    return tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *lines))


def within(rows: Iterable[Sequence[str]], most_bytes: int) -> list[Sequence[str]]:
    """Returns the first rows, as many as fit into `most_bytes` of a page."""
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
    """Returns a list of names and values, without those whose value is ""."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs if value))
