"""Pause, resume and restart: an address asks before it does, so that a link alone changes nothing and no script is needed."""

from __future__ import annotations

from operator import methodcaller
from typing import NamedTuple

from copycat_agent.api.page.markup import Html, joined, tag
from copycat_agent.api.page.page_frame import Moment, View
from copycat_agent.control import Control
from copycat_agent.errors import BusyError


class Order(NamedTuple):
    """What its button says, and what it does, in words. Its name is that of a method of `Control`."""

    title: str
    meaning: str


ORDERS = {
    "pause": Order(
        "Pause", "It stops reading and settles what is in flight. Files stay open, and it stays paused when the agent is started again."
    ),
    "resume": Order("Resume", "It goes on from its saved offsets."),
    "restart": Order("Restart", "It settles what is in flight, stops, and starts again from its saved offsets, also when it has failed."),
}
"""By the last part of the address."""


def order_links(name: str) -> Html:
    """Links to what can be done with a connector."""
    return joined(*(tag("a", order.title, href=f"/connectors/{name}/{address}", class_="button") for address, order in ORDERS.items()))


def order_page(moment: Moment, name: str, address: str) -> View:
    """Asks whether it is meant. Raises UnknownConnectorError."""
    moment.control.status(name)
    order = ORDERS[address]
    title = f"{order.title} {name}?"
    return View(title, joined(tag("h1", title), tag("p", order.meaning), confirmation(order.title, f"/connectors/{name}")), Html())


def confirmation(button: str, back: str) -> Html:
    """A form that does what the page asks about, and a way back."""
    return tag("form", tag("button", button, class_="does"), tag("a", "No, go back", href=back), method="post")


def carry_out(control: Control, name: str, address: str) -> None:
    """Do it, and return when it has happened. Raises BusyError for a connector that is off on purpose."""
    if not control.status(name).enabled:
        raise BusyError(f"connector {name} is disabled by its definition", "set enabled: true there")
    methodcaller(address, name)(control)
