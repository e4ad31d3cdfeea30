"""The page of a file: the output of `copycat explain`, with its identity, rotation, and the reason for its position."""

from __future__ import annotations

from copycat_agent.api.page.markup import joined, tag
from copycat_agent.api.page.page_frame import Fields, View, ViewContext, back_to, ran
from copycat_agent.errors import UnknownConnectorError


def file_page(moment: ViewContext, name: str, fields: Fields) -> View:
    """Returns the page of the file with `key`. Raises UnknownConnectorError unless the connector follows it: no other file is shown."""
    key = fields.get("key", "")
    found = next((one for one in moment.control.files(name) if key and one.key == key), None)
    if found is None:
        raise UnknownConnectorError(f"connector {name} follows no such file now", f"see its files: copycat describe {name}")
    result = moment.commands.of_agent("explain", found.path, "-n", "0")
    return View(found.path, joined(tag("h1", found.path), back_to(name), ran(result)))
