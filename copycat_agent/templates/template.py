"""The text of a template: its syntax, and what may be in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING

from copycat_agent.templates.fields import is_not_utf8, is_path
from copycat_agent.templates.render import SPLIT_NAMES, TIME_NAMES, Name, bind

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.templates.fields import RecordLike
    from copycat_agent.templates.render import SplitMeta

METADATA = frozenset((*SPLIT_NAMES, *TIME_NAMES, "@offset", "@record.number"))
"""Every name that may follow an `@`, the sign included."""

_MAX_SPEC_CHARS = 64
_MAX_WIDTH = 200  # a format spec pads to this many characters at most: {a:1000000000} would be a gigabyte
_SPEC = re.compile(r"(?:[^{}]?[<>=^])?[-+ ]?#?0?(?P<width>\d*)[,_]?(?:\.(?P<precision>\d+))?[sdxXobeEfFgG%]?")
_STRFTIME = re.compile(r"(?:[^%{}]|%[YmdHMSfjyBbAaIpzZGVuwUW%])*")


@dataclass(frozen=True, slots=True)
class Template:
    """A checked template. Made by `compile_template`; equal by its text; pickles."""

    text: str
    parts: tuple[str | Name, ...]

    @property
    def is_literal(self) -> bool:
        """Whether it names nothing: every record renders to `literal_prefix`."""
        return not any(isinstance(part, Name) for part in self.parts)

    @property
    def literal_prefix(self) -> str:
        """What every rendering begins with (doubled braces resolved); all of it for a literal."""
        return self.parts[0] if self.parts and isinstance(self.parts[0], str) else ""

    @property
    def fields(self) -> frozenset[str]:
        """Every name in it, metadata with their `@`."""
        return frozenset(part.name for part in self.parts if isinstance(part, Name))

    @property
    def uses_fields(self) -> bool:
        """Whether it names a field of the record (not only metadata)."""
        return any(not name.startswith("@") for name in self.fields)

    @property
    def single_field(self) -> str | None:
        """The field when it is exactly one, unformatted, with nothing around it; None for all other templates and for metadata."""
        match self.parts:
            case (Name(name=name, spec=""),) if not name.startswith("@"):
                return name
        return None

    def bind(self, meta: SplitMeta, clock: Callable[[], float] | None = None) -> Callable[[RecordLike], str]:
        """A closure that renders records of one split; `clock` gives epoch seconds for `@read_time`, None: the split's.

        What it returns always encodes as UTF-8. It raises `DataError`, naming the field and never its content, when a field
        is missing, null, an object or a list, or does not go with its format spec.
        """
        return bind(self.parts, meta, clock or meta.clock)

    def render(self, record: RecordLike, meta: SplitMeta) -> str:
        """`bind(meta)(record)`, for once; see there."""
        return self.bind(meta)(record)


def compile_template(text: str) -> Template:
    """Check `text` and make a template of it. ValueError says what is wrong with it, for the author of the definition."""
    if is_not_utf8(text):
        msg = "a template must be valid Unicode; this one holds a lone surrogate"
        raise ValueError(msg)
    try:
        pieces = list(Formatter().parse(text))
    except ValueError as error:
        msg = f"bad template: {str(error).lower()}; a literal brace is written twice: {{{{ or }}}}"
        raise ValueError(msg) from None
    parts: list[str | Name] = []
    for literal, name, spec, conversion in pieces:
        if literal:
            parts[-1:] = [parts[-1] + literal] if parts and isinstance(parts[-1], str) else [*parts[-1:], literal]
        if name is not None:
            parts.append(_checked(name, spec or "", conversion))
    return Template(text, tuple(parts))


def _checked(name: str, spec: str, conversion: str | None) -> Name:
    """ValueError for a `{name!conversion:spec}` that is not allowed."""
    shown = f"{{{name}{':' + spec if spec else ''}}}"
    if conversion:
        msg = f"bad template: conversions such as !{conversion} are not available in {shown}"
    elif name.startswith("@") and name not in METADATA:
        msg = f"bad template: unknown metadata {name!r}; there are {' '.join(sorted(METADATA))}"
    elif not name.startswith("@") and not is_path(name):
        msg = f"bad template: {shown} needs a field name: names joined by dots, such as {{user.id}}"
    elif name in TIME_NAMES and not (_STRFTIME.fullmatch(spec) and len(spec) <= _MAX_SPEC_CHARS):
        msg = f"bad template: {shown} takes strftime directives such as %Y-%m-%d, at most {_MAX_SPEC_CHARS} characters"
    elif name not in TIME_NAMES and not _spec_allowed(spec):
        msg = f"bad template: {shown}: not a format of texts or numbers such as >8, 05d or .2f (width at most {_MAX_WIDTH})"
    else:
        return Name(name, spec)
    raise ValueError(msg)


def _spec_allowed(spec: str) -> bool:
    match = _SPEC.fullmatch(spec) if len(spec) <= _MAX_SPEC_CHARS else None
    return match is not None and int(match["width"] or 0) <= _MAX_WIDTH and int(match["precision"] or 0) <= _MAX_WIDTH
