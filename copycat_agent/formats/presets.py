"""Ready-made rules for groups of lines.

What belongs to a stack trace is what the runtimes print (`Throwable.printStackTrace`, `traceback.print_exception`); Fluent Bit's and
Vector's parsers recognise much the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from copycat_agent.formats.grouping import CLOSED, Rule, by_alternatives, continues

_FRAME, _HEADER = 1, 2
_LINE, _TRACE = 0, 1
_JAVA = (
    r"([ \t]+at \S|[ \t]+\.{3} ?[0-9]+ |[ \t]*(?:Caused by|Suppressed|Wrapped by): |[ \t]*nested exception is:|[ \t]+- (?:locked|waiting) )"
    r'|((?:Exception in thread "[^"]*" )?(?:[a-z_$][\w$]*\.)*[A-Z][\w$]*(?:Exception|Error|Throwable|Failure|Interrupt)(?::|[ \t]*$))'
)
"""1: more of a trace. 2: the line above it, which names the exception."""


def _java() -> Rule:
    """A trace goes with the line before it; the line that names the exception too, unless that line belongs to another trace."""
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
    """A traceback goes with the line before it, ends with the line that names the exception, and may be one of a chain."""
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
    """Each line is a record, but for the parts that a container runtime has made of one."""
    joins = {(0, 0): 0, (0, 1): CLOSED}
    return Rule(_whole, _whole, joins, (0, CLOSED), frozenset({0}), is_end=True, only_parts=True)


def _whole(lines: Sequence[object]) -> list[int]:
    return [1] * len(lines)


PRESETS: Mapping[str, Rule] = {"java": _java(), "python": _python(), "indented": continues(r"^[ \t]"), "container": _container()}
"""By the names that `multiline.preset` takes."""
