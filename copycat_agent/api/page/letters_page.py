"""The pages of a connector's dead letters and of their replay, from `copycat dlq show` and `replay`."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

from copycat_agent.api.page.markup import Html, joined, lines, tag, within
from copycat_agent.api.page.order_page import confirmation
from copycat_agent.api.page.page_frame import COMMAND_BYTES, Fields, View, ViewContext, back_to, ran
from copycat_agent.display import visible
from copycat_agent.errors import BusyError

SHOWN = 50
"""Most letters shown, the newest ones."""
REPLAYED = 1_000
"""Most letters of a replay."""
_CHOSEN = re.compile(r"letter-(\d{1,9})-(\d{1,18})", re.ASCII)
"""The name of a letter's checkbox, and of its form field: partition and offset."""
_SOME = "some"
"""The form field that asks for the chosen letters, so that none chosen does not mean all."""
_replaying = threading.Lock()
"""Only one replay at a time: two of one connector would send its letters twice."""


def letters_page(moment: ViewContext, name: str, _fields: Fields) -> View:
    """Returns the page of the connector's newest letters. Raises UnknownConnectorError."""
    title, dlq = f"Dead letters of {name}", moment.control.definition(name).errors.dlq
    head = joined(tag("h1", title), back_to(name))
    if dlq is None:
        return View(title, joined(head, tag("p", "It has no dead-letter topic: set errors.dlq.topic.")))
    result = moment.commands.of_agent("dlq", "show", name, "-n", str(SHOWN))
    letters = list(_letters(result.text, dlq.topic)) if result.code == 0 else []
    everything = tag("nav", tag("a", "Replay all", href=f"/connectors/{name}/replay", class_="button"), aria_label="What can be done")
    words = tag("p", f"The newest {SHOWN} in topic {dlq.topic}, the newest last.")
    shown = _choice(name, letters) if letters else ran(result)
    return View(title, joined(head, everything, words, shown))


def _letters(text: str, topic: str) -> Iterator[tuple[str, str]]:
    """Yields name of checkbox and text of each letter in the output of `dlq show`, where all lines but the first are indented."""
    place = re.compile(rf"{re.escape(visible(topic))}\[(\d+)\] (\d+)  ", re.ASCII)
    box, words = "", list[str]()
    for line in text.split("\n"):
        if match := place.match(line):
            if words:
                yield box, "\n".join(words)
            box, words = f"letter-{match[1]}-{match[2]}", []
        words.append(line)
    if words:
        yield box, "\n".join(words)


def _choice(name: str, letters: list[tuple[str, str]]) -> Html:
    """Returns a form with a checkbox for each letter, and a button."""
    made = ((joined(_box(box), tag("pre", lines(words), tabindex="0")),) for box, words in reversed(letters))
    rows = [row for (row,) in within(made, COMMAND_BYTES)][::-1]
    button = tag("p", tag("button", "Replay those chosen", name=_SOME, value="1"))
    return tag("form", *rows, button, action=f"/connectors/{name}/replay", class_="fields", id="letters")


def _box(box: str) -> Html:
    """Returns a letter's checkbox; nothing for text without a letter."""
    label = tag("label", f"Replay {_place(box)}", for_=box)
    return tag("p", tag("input", type="checkbox", name=box, id=box, value="1"), label) if box else Html()


def _place(box: str) -> str:
    """Returns a letter's place in the command's form, such as `0:17`, from the name of its checkbox; "" for any other name."""
    match = _CHOSEN.fullmatch(box)
    return f"{int(match[1])}:{int(match[2])}" if match else ""


def replay_page(moment: ViewContext, name: str, fields: Fields) -> View:
    """Returns the page that asks to confirm a replay of all letters, or of the chosen ones. Raises UnknownConnectorError."""
    moment.control.status(name)
    letters = f"/connectors/{name}/letters"
    if places := [place for field in fields if (place := _place(field))]:
        title = f"Replay {len(places)} dead {'letter' if len(places) == 1 else 'letters'} of {name}?"
        meaning = f"Partition and offset: {', '.join(places)}. What was replayed before is not sent again."
    elif _SOME in fields:
        title = "No letter is chosen"
        return View(title, joined(tag("h1", title), tag("p", tag("a", "Dead letters", href=letters))))
    else:
        title = f"Replay the dead letters of {name}?"
        meaning = (
            f"Up to {REPLAYED:,} letters that were not replayed yet are sent again, through the definition as it is now. "
            "One that fails again stays for the next time."
        )
    kept = [tag("input", type="hidden", name=field, value="1") for field in fields if _place(field) or field == _SOME]
    return View(title, joined(tag("h1", title), tag("p", meaning), confirmation("Replay", letters, *kept)))


def replayed(moment: ViewContext, name: str, fields: Fields) -> View:
    """Replays letters. Returns a page with the result. Raises UnknownConnectorError, and BusyError while another replay is under way."""
    moment.control.status(name)
    places = [place for field in fields if (place := _place(field))]
    if _SOME in fields and not places:
        return replay_page(moment, name, fields)
    if not _replaying.acquire(blocking=False):
        raise BusyError("another replay is under way", "try again when it is done")
    try:
        result = moment.commands.of_agent("dlq", "replay", name, "--limit", str(REPLAYED), *(f"--only={place}" for place in places))
    finally:
        _replaying.release()
    title = f"Dead letters of {name}, replayed"
    links = tag("p", tag("a", "Dead letters", href=f"/connectors/{name}/letters"))
    return View(title, joined(tag("h1", title), links, ran(result)))
