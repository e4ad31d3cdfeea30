"""From a sample of a file to the definition that reads it: what is it, and how would a person write that down.

`look` reads a little of the sample, `guess` says what it is, `draft` writes the definition. Nothing here knows Kafka or the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from copycat_agent.guessing import access, containers, layouts, objects, pairs, plain, syslog, tables, w3c
from copycat_agent.guessing.drafting import Case, Draft, draft, name_for
from copycat_agent.guessing.model import Guess, Recogniser
from copycat_agent.guessing.sample import Sample, look

__all__ = ["RECOGNISERS", "Case", "Draft", "Guess", "Sample", "draft", "guess", "look", "name_for"]

RECOGNISERS: Mapping[str, Recogniser] = {
    "access": access.recognise,
    "w3c": w3c.recognise,
    "syslog": syslog.recognise,
    "containers": containers.recogniser((objects.recognise, pairs.logfmt)),
    "json": objects.recognise,
    "layouts": layouts.recognise,
    "logfmt": pairs.logfmt,
    "key_value": pairs.key_value,
    "csv": tables.recognise,
    "plain": plain.recognise,
}


def guess(lines: Sequence[str]) -> Guess:
    """What the sample is: the best of all recognisers, the earlier of equals. Plain text when nothing else fits."""
    found = [one for recognise in RECOGNISERS.values() if (one := recognise(lines)) is not None]
    return max(found, key=lambda one: one.score)
