"""The pages for pause, resume and restart. Each asks to confirm, so that a link alone changes nothing and no script is needed."""

from __future__ import annotations

from operator import methodcaller
from typing import NamedTuple

from copycat_agent.api.page.markup import Html, joined, tag
from copycat_agent.api.page.page_frame import Fields, View, ViewContext
from copycat_agent.errors import BusyError


class Order(NamedTuple):
    """The button's text, and an explanation of what it does."""

    title: str
    meaning: str


ORDERS = {
    "pause": Order(
        "Pause", "It stops reading and settles what is in flight. Files stay open, and it stays paused when the agent is started again."
    ),
    "resume": Order("Resume", "It goes on from its saved offsets."),
    "restart": Order("Restart", "It settles what is in flight, stops, and starts again from its saved offsets, also when it has failed."),
}
"""Orders by the last part of the address, which is the name of a method of `Control`."""
_RESUMED = frozenset({"paused", "stopped", "failed"})
"""States in which a connector can be resumed."""


def order_links(name: str, state: str) -> Html:
    """Returns links to the orders for a connector in this state."""
    fitting = ("resume" if state in _RESUMED else "pause", "restart")
    return joined(*(tag("a", ORDERS[one].title, href=f"/connectors/{name}/{one}", class_="button") for one in fitting))


def order_page(address: str, moment: ViewContext, name: str, _fields: Fields) -> View:
    """Returns the page that asks to confirm an order. Raises UnknownConnectorError."""
    moment.control.status(name)
    order = ORDERS[address]
    title = f"{order.title} {name}?"
    return View(title, joined(tag("h1", title), tag("p", order.meaning), confirmation(order.title, f"/connectors/{name}")), Html())


def confirmation(button: str, back: str, *fields: Html) -> Html:
    """Returns a form that confirms, with these fields, and a link back."""
    return tag("form", *fields, tag("button", button, class_="does"), tag("a", "No, go back", href=back), method="post")


def carry_out(address: str, moment: ViewContext, name: str, _fields: Fields) -> str:
    """Carries out an order. Returns the address to show next. Raises UnknownConnectorError, and BusyError for a disabled connector."""
    if not moment.control.status(name).enabled:
        raise BusyError(f"connector {name} is disabled by its definition", "set enabled: true there")
    methodcaller(address, name)(moment.control)
    return f"/connectors/{name}"
