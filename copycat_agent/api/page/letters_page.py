"""Dead letters of a connector, and sending them again: `copycat dlq show` and `replay`."""

from __future__ import annotations

import threading

from copycat_agent.api.page.markup import joined, tag
from copycat_agent.api.page.order_page import confirmation
from copycat_agent.api.page.page_frame import Fields, Moment, View, back_to, ran
from copycat_agent.errors import BusyError

SHOWN = 50
"""The newest letters, which are shown."""
REPLAYED = 1_000
"""Letters of one replay."""
_replaying = threading.Lock()
"""Two replays of one connector would send its letters twice."""


def letters_page(moment: Moment, name: str, _fields: Fields) -> View:
    """The newest letters of the connector. Raises UnknownConnectorError."""
    title, dlq = f"Dead letters of {name}", moment.control.definition(name).errors.dlq
    head = joined(tag("h1", title), back_to(name))
    if dlq is None:
        return View(title, joined(head, tag("p", "It has no dead-letter topic: set errors.dlq.topic.")))
    told = moment.commands.of_agent("dlq", "show", name, "-n", str(SHOWN))
    again = tag("nav", tag("a", "Replay", href=f"/connectors/{name}/replay", class_="button"), aria_label="What can be done")
    words = tag("p", f"The newest {SHOWN} in topic {dlq.topic}, the newest last.")
    return View(title, joined(head, again, words, ran(told)))


def replay_page(moment: Moment, name: str, _fields: Fields) -> View:
    """Asks whether it is meant. Raises UnknownConnectorError."""
    moment.control.status(name)
    title = f"Replay the dead letters of {name}?"
    meaning = (
        f"Up to {REPLAYED:,} letters that were not replayed yet are sent again, through the definition as it is now. "
        "One that fails again stays for the next time."
    )
    return View(title, joined(tag("h1", title), tag("p", meaning), confirmation("Replay", f"/connectors/{name}/letters")))


def replayed(moment: Moment, name: str, _fields: Fields) -> View:
    """Do it, and say what came of it. Raises UnknownConnectorError, and BusyError while another replay is under way."""
    moment.control.status(name)
    if not _replaying.acquire(blocking=False):
        raise BusyError("another replay is under way", "try again when it is done")
    try:
        told = moment.commands.of_agent("dlq", "replay", name, "--limit", str(REPLAYED))
    finally:
        _replaying.release()
    title = f"Dead letters of {name}, replayed"
    links = tag("p", tag("a", "Dead letters", href=f"/connectors/{name}/letters"))
    return View(title, joined(tag("h1", title), links, ran(told)))
