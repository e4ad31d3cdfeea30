"""What every page has around its content: head, navigation, the agent's own warnings, and the line of a rate."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from copycat_agent.api.handlers import Request, agent
from copycat_agent.api.page.child_commands import SECONDS, ChildCommands, Told
from copycat_agent.api.page.markup import Html, joined, lines, tag, within
from copycat_agent.api.rate_history import RateHistory, means
from copycat_agent.api.words import warnings
from copycat_agent.control import Control
from copycat_agent.display import age, rate
from copycat_agent.templates import time_text

DOCTYPE = "<!doctype html>\n"
COMMAND_BYTES = 80 * 1024
"""Of a command's words, which are then shown no further: a page has 100 KB at most."""
HEIGHT = 20
"""Of a line, in its own units."""
_POINTS = 60
"""Of a line that is 15 minutes long."""


Fields = Mapping[str, str]
"""Of a query, or of a form."""


class Moment(NamedTuple):
    """What a view looks at, and when (epoch seconds)."""

    control: Control
    commands: ChildCommands
    history: RateHistory
    now: float
    operates: bool = False
    """Whether who looks may change something, and see records."""

    def rate_words(self, name: str) -> str:
        """Records per second of a connector, "" before the history knows any."""
        known = self.history.rate(name)
        return "" if known is None else rate(known)


class View(NamedTuple):
    """A page: its title, what stays when it is looked at again, and what is new each time. Without the last it is not looked at again."""

    title: str
    fixed: Html
    live: Html = Html()


def back_to(name: str) -> Html:
    """A link to the connector that a page is about."""
    return tag("p", tag("a", f"Connector {name}", href=f"/connectors/{name}"))


def ran(told: Told) -> Html:
    """What a command put out, as it stands."""
    late = tag("p", f"It took longer than {SECONDS:.0f} s, and was ended.", class_="warning") if told.code is None else Html()
    return joined(late, tag("pre", *_bounded(told.text), tabindex="0") if told.text else Html())


def _bounded(text: str) -> list[Html]:
    """A text line by line, as far as a page has room for it."""
    every = [lines(f"{one}\n") for one in text.split("\n")]
    kept = len(within(((one,) for one in every), COMMAND_BYTES))
    return [*every[:kept], *([Html("... there is more: the command shows all of it")] if kept < len(every) else [])]


def document(view: View, moment: Moment) -> str:
    """The whole page around a view."""
    about = agent(moment.control, Request("", None))
    assert isinstance(about, dict)
    banner = [tag("p", words, class_="warning", role="alert") for words in warnings(about)]
    where = f" on {about['master']}" if about["master"] else ""
    made = f"copycat {about['version']} on {socket.gethostname()}, up {age(moment.now - about['started'])}, Spark {about['spark']}{where}. "
    foot = tag("footer", made, f"As of {time_text(moment.now * 1000, 'seconds')}.")
    live = tag("div", *banner, view.live, foot, id="live" if view.live else None)
    return _around(view.title, joined(view.fixed, live), operates=moment.operates)


def error_document(title: str, words: str, hint: str) -> str:
    """A page that says what went wrong, and what to do."""
    return _around(title, joined(tag("h1", title), tag("p", words), tag("p", hint) if hint else Html()))


def line(rates: Sequence[float], name: str) -> Html:
    """The rates of the last 15 minutes as a line whose highest point is the largest of them; nothing where there are no two."""
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
    """Epoch seconds."""
    return time.time()
