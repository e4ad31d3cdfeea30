"""Options of `multiline`, and the rules of its presets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, Self

from copycat_agent.formats.grouping import CLOSED, Rule, TextField, by_alternatives, continues, ends, start
from copycat_agent.formats.lines import TextLineOptions
from copycat_agent.formats.model import OnTooLong
from copycat_agent.options import ByteSize, Duration, Field, Options, Regex
from copycat_agent.templates import compile_path

_FRAME, _HEADER = 1, 2
_LINE, _TRACE = 0, 1
_JAVA = (
    r"([ \t]+at \S|[ \t]+\.{3} ?[0-9]+ |[ \t]*(?:Caused by|Suppressed|Wrapped by): |[ \t]*nested exception is:|[ \t]+- (?:locked|waiting) )"
    r'|((?:Exception in thread "[^"]*" )?(?:[a-z_$][\w$]*\.)*[A-Z][\w$]*(?:Exception|Error|Throwable|Failure|Interrupt)(?::|[ \t]*$))'
)
"""1: more of a trace. 2: the line above it, which names the exception."""


def _java() -> Rule:
    """Returns the rule: a trace joins the line before it, and so does a line that names an exception outside of other traces."""
    joins = {(_LINE, _FRAME): _TRACE, (_TRACE, _FRAME): _TRACE, (_LINE, _HEADER): _TRACE}
    return Rule(*by_alternatives(_JAVA), joins, (_LINE, _TRACE, _TRACE), frozenset({_FRAME}))


_TITLE, _CHAIN, _BLANK, _INDENTED, _NAME = 1, 2, 3, 4, 5
_TRACEBACK, _NAMED, _GAP, _CHAINED = 1, 2, 3, 4
_PYTHON = (
    r"([ \t]*(?:\+ Exception Group )?Traceback \(most recent call last\):)"
    r"|(During handling of the above exception, another |The above exception was the direct cause of )"
    r"|(\s*$)"
    r"|([ \t])"
    r"|(?!(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b)([A-Za-z_][\w.<>]*(?:: |:?\s*$))"
)
"""1: begins a traceback. 2: joins two of them. 3: an empty line. 4: an indented one. 5: may name an exception."""


def _python() -> Rule:
    """Returns the rule: a traceback joins the line before it, ends with the line that names the exception, and may be one of a chain."""
    joins = {
        (_LINE, _TITLE): _TRACEBACK,
        (_TRACEBACK, _INDENTED): _TRACEBACK,
        (_TRACEBACK, _NAME): _NAMED,
        (_NAMED, _BLANK): _GAP,
        (_NAMED, _CHAIN): _CHAINED,
        (_GAP, _CHAIN): _CHAINED,
        (_CHAINED, _BLANK): _CHAINED,
        (_CHAINED, _TITLE): _TRACEBACK,
    }
    first = (_LINE, _TRACEBACK, _CHAINED, _LINE, _TRACEBACK, _LINE)
    return Rule(*by_alternatives(_PYTHON), joins, first, frozenset({_CHAIN, _BLANK, _INDENTED}))


def _container() -> Rule:
    """Returns the rule: each line is a record, but the parts that a container runtime has made of one are joined."""
    joins = {(0, 0): 0, (0, 1): CLOSED}
    return Rule(_whole, _whole, joins, (0, CLOSED), frozenset({0}), is_end=True, only_parts=True)


def _whole(lines: Sequence[object]) -> list[int]:
    return [1] * len(lines)


PRESETS: Mapping[str, Rule] = {"java": _java(), "python": _python(), "indented": continues(r"^[ \t]"), "container": _container()}
"""Rules by the names for `multiline.preset`."""


_RULES = {"start": start, "continues": continues, "ends": ends, "preset": PRESETS.__getitem__}


class GroupOptions(Options):
    """Which lines are one record, in a file that is complete. Patterns are looked for anywhere in a line; write `^` for its beginning.

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
    field: str | None = Field(
        None,
        max_length=255,
        description="Of lines that are JSON objects the text in this field is looked at, as in log or event.message, and a record is the "
        "first line's object with the texts of all its lines in the field. A line without the field is its own text. "
        "Records over the limit cannot go in parts then: on_too_long has to be dlq, truncate or drop.",
    )
    max_lines: int = Field(500, ge=1, le=1_000_000, description="Most lines of a record.")
    max_bytes: ByteSize = Field(2**20, ge=1, le=2**30, description="Largest record, its last delimiter not counted.")
    on_too_long: OnTooLong = Field(
        "split",
        description="What becomes of a record over max_lines, max_bytes or, in one of its lines, line.max_bytes. split: all of it is sent, "
        "in numbered parts, with the headers copycat.part. truncate: sent cut at the end of a character, with the header "
        "copycat.truncated. dlq: a bad record, as `errors` says, with its beginning as raw bytes. drop: skipped and counted. Where it "
        "is not written and line.on_too_long is, that holds for these records as well.",
    )

    def model_post_init(self, _: object) -> None:
        """Refuses options without a rule, or with two. pydantic reports the ValueError with its place."""
        if len([name for name in _RULES if getattr(self, name) is not None]) != 1:
            raise ValueError(f"needs exactly one of {', '.join(_RULES)}")
        if self.field is not None:
            compile_path(self.field)
            if self.on_too_long == "split":
                raise ValueError("with a field, a record over the limit cannot go in parts: set on_too_long to dlq, truncate or drop")

    def rule(self) -> Rule:
        """Returns the rule that joins lines."""
        (rule,) = (make(value) for name, make in _RULES.items() if (value := getattr(self, name)) is not None)
        return rule if self.field is None else replace(rule, field=TextField(self.field))

    def under(self, line: TextLineOptions) -> Self:
        """Returns the options with the `line` policy for records over the limit, if they have none of their own."""
        if "on_too_long" in self.model_fields_set or "on_too_long" not in line.model_fields_set:
            return self
        return self.model_copy(update={"on_too_long": line.on_too_long})


class MultilineOptions(GroupOptions):
    """The same in a file that grows."""

    timeout: Duration = Field(2.0, ge=0.01, le=86400, description="A record to which nothing was added for so long is complete.")
