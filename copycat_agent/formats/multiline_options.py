"""Options of `multiline`."""

from __future__ import annotations

from typing import Literal

from copycat_agent.formats.grouping import Rule, continues, ends, start
from copycat_agent.formats.model import OnTooLong
from copycat_agent.formats.presets import PRESETS
from copycat_agent.options import ByteSize, Duration, Field, Options, Regex

_RULES = {"start": start, "continues": continues, "ends": ends, "preset": PRESETS.__getitem__}


class MultilineOptions(Options):
    """Which lines are one record. Patterns are looked for anywhere in a line; write `^` for its beginning.

    Of a line longer than `grouping.LOOK_CHARACTERS` they see the first ones only, `ends` the last ones.
    """

    start: Regex | None = Field(None, description="A line in which this regular expression is found begins a record.")
    continues: Regex | None = Field(None, description="A line in which it is found belongs to the record before it.")
    ends: Regex | None = Field(None, description="A line in which it is found is the last one of its record.")
    preset: Literal["java", "python", "indented", "container"] | None = Field(
        None,
        description="java, python: a stack trace belongs to the line before it. indented: a line that begins with white space does. "
        "container: only what a container runtime has cut into parts is joined; it is the default with a cri or docker step.",
    )
    timeout: Duration = Field(2.0, ge=0.01, le=86400, description="A record to which nothing was added for so long is complete.")
    max_lines: int = Field(500, ge=1, le=1_000_000, description="Most lines of a record.")
    max_bytes: ByteSize = Field(2**20, ge=1, le=2**30, description="Largest record, its last delimiter not counted.")
    on_too_long: OnTooLong = Field(
        "split",
        description="What becomes of a record over max_lines, max_bytes or, in one of its lines, line.max_bytes. split: all of it is sent, "
        "in numbered parts, with the headers copycat.part. truncate: sent cut at the end of a character, with the header "
        "copycat.truncated. dlq: a bad record, as `errors` says, with its beginning as raw bytes. drop: counted and passed. Where it "
        "is not written and line.on_too_long is, that holds for these records as well.",
    )

    def model_post_init(self, _: object) -> None:
        """Refuse what says nothing, or two things. pydantic reports the ValueError with its place."""
        if len([name for name in _RULES if getattr(self, name) is not None]) != 1:
            msg = f"needs exactly one of {', '.join(_RULES)}"
            raise ValueError(msg)

    def rule(self) -> Rule:
        """Which lines belong together."""
        (rule,) = (make(value) for name, make in _RULES.items() if (value := getattr(self, name)) is not None)
        return rule
