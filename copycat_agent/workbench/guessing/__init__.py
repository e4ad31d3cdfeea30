"""From a sample of a file to the definition that reads it: what is it, and how would a person write that down.

`look` reads a little of the sample, `guess` says what it is, `draft` writes the definition. Nothing here knows Kafka or the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from copycat_agent.workbench.guessing import log_layouts, structured_lines
from copycat_agent.workbench.guessing.drafting import Case, DefinitionDraft, draft, name_for
from copycat_agent.workbench.guessing.guesses import Guess, Recogniser
from copycat_agent.workbench.guessing.sample_file import SampleFile, look

__all__ = ["RECOGNISERS", "Case", "DefinitionDraft", "Guess", "SampleFile", "draft", "guess", "look", "name_for"]

RECOGNISERS: Mapping[str, Recogniser] = {
    "access": log_layouts.access_log,
    "w3c": log_layouts.w3c_log,
    "syslog": log_layouts.syslog_lines,
    "containers": structured_lines.recogniser((structured_lines.json_lines, structured_lines.logfmt)),
    "json": structured_lines.json_lines,
    "layouts": log_layouts.program_log,
    "logfmt": structured_lines.logfmt,
    "key_value": structured_lines.key_value,
    "csv": structured_lines.delimited,
    "plain": log_layouts.plain_text,
}


def guess(lines: Sequence[str]) -> Guess:
    """What the sample is: the best of all recognisers, the earlier of equals. Plain text when nothing else fits."""
    found = [one for recognise in RECOGNISERS.values() if (one := recognise(lines)) is not None]
    return max(found, key=lambda one: one.score)
