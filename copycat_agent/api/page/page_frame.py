"""The frame of every page: head, navigation and the agent's warnings; and the chart of a rate."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from copycat_agent.api.handlers import Request, agent
from copycat_agent.api.page.child_commands import SECONDS, ChildCommands, CommandOutput
from copycat_agent.api.page.markup import Html, joined, lines, tag, within
from copycat_agent.api.rate_history import RateHistory, means
from copycat_agent.api.status_text import warnings
from copycat_agent.control import Control
from copycat_agent.display import age, rate
from copycat_agent.templates import time_text

DOCTYPE = "<!doctype html>\n"
COMMAND_BYTES = 80 * 1024
"""Most bytes of a command's output that are shown: a page has 100 KB at most."""
HEIGHT = 20
"""Height of a chart, in its own units."""
_POINTS = 60
"""Points of a chart, which covers 15 minutes."""


Fields = Mapping[str, str]
"""The fields of a query or form."""


class ViewContext(NamedTuple):
    """Everything that a view can access, and the time of the request (epoch seconds)."""

    control: Control
    commands: ChildCommands
    history: RateHistory
    now: float
    operates: bool = False
    """Whether the user may make changes and see records."""

    def rate_words(self, name: str) -> str:
        """Returns a connector's records per second, "" before the history has a rate."""
        known = self.history.rate(name)
        return "" if known is None else rate(known)


class View(NamedTuple):
    """A page: its title, a fixed part, and a live part that `page.js` refreshes. Without a live part it does not refresh."""

    title: str
    fixed: Html
    live: Html = Html()


def back_to(name: str) -> Html:
    """Returns a link to the connector that a page is about."""
    return tag("p", tag("a", f"Connector {name}", href=f"/connectors/{name}"))


def ran(output: CommandOutput) -> Html:
    """Returns a command's output."""
    late = tag("p", f"It took longer than {SECONDS:.0f} s, and was ended.", class_="warning") if output.code is None else Html()
    return joined(late, tag("pre", *_bounded(output.text), tabindex="0") if output.text else Html())


def _bounded(text: str) -> list[Html]:
    """Returns the lines of a text that fit into `COMMAND_BYTES`."""
    every = [lines(f"{one}\n") for one in text.split("\n")]
    kept = len(within(((one,) for one in every), COMMAND_BYTES))
    return [*every[:kept], *([Html("... there is more: the command shows all of it")] if kept < len(every) else [])]


def document(view: View, moment: ViewContext) -> str:
    """Returns the whole document of a view."""
    about = agent(moment.control, Request("", None))
    assert isinstance(about, dict)
    banner = [tag("p", words, class_="warning", role="alert") for words in warnings(about)]
    where = f" on {about['master']}" if about["master"] else ""
    made = f"copycat {about['version']} on {socket.gethostname()}, up {age(moment.now - about['started'])}, Spark {about['spark']}{where}. "
    foot = tag("footer", made, f"As of {time_text(moment.now * 1000, 'seconds')}.")
    live = tag("div", *banner, view.live, foot, id="live" if view.live else None)
    return _around(view.title, joined(view.fixed, live), operates=moment.operates)


def error_document(title: str, words: str, hint: str) -> str:
    """Returns a document that says what went wrong, and what to do."""
    return _around(title, joined(tag("h1", title), tag("p", words), tag("p", hint) if hint else Html()))


def line(rates: Sequence[float], name: str) -> Html:
    """Returns a chart of the rates of the last 15 minutes, scaled to the largest; nothing for fewer than two."""
    drawn = means(rates, _POINTS)
    if len(drawn) < 2:  # noqa: PLR2004 - a line has two ends
        return Html()
    most, width = max(drawn), _POINTS - 1
    left = width - (len(drawn) - 1)
    points = " ".join(f"{left + x},{_height(mean, most)}" for x, mean in enumerate(drawn))
    words = f"{name}: records per second over the last {age(15 * 60)}, at most {rate(most)}"
    return tag(
        "svg",
        tag("polyline", points=points),
        viewBox=f"0 -1 {width} {HEIGHT + 2}",
        preserveAspectRatio="none",
        role="img",
        aria_label=words,
    )


def _height(mean: float, most: float) -> int:
    return HEIGHT - round(mean / most * HEIGHT) if most > 0 else HEIGHT


def _around(title: str, content: Html, *, operates: bool = False) -> str:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · copycat"),
        tag("link", rel="stylesheet", href="/page.css"),
        tag("script", src="/page.js", defer=True),
    )
    more = tag("a", "Try", href="/try") if operates else Html()
    navigation = tag("nav", tag("a", "Connectors", href="/"), tag("a", "Losses", href="/losses"), more, aria_label="Pages")
    top = tag("header", tag("a", "Skip to content", href="#content", class_="skip"), navigation, tag("p", id="refresh"))
    return DOCTYPE + tag("html", head, tag("body", top, tag("main", content, id="content", tabindex="-1")), lang="en")


def now() -> float:
    """Returns the time in epoch seconds."""
    return time.time()
