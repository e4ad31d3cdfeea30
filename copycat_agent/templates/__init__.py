"""Templates: Python format strings over one record, such as `"{client}"`, `"{user.id}"` or `"{@timestamp:%Y-%m-%d}"`.

`compile_template` checks a text once, `Template.bind` fixes what is constant for a split and returns a closure for the hot path. A name is
a dotted path of dict keys, never an attribute or an index, so a template can only read the record. While a record's value is still bytes
its only field is `message`: the line, decoded as UTF-8 with U+FFFD for invalid bytes.

Names that begin with `@` are metadata, see `templates.metadata`; `@timestamp` and `@read_time` are written in UTC, RFC 3339 with
milliseconds, or by the strftime directives after the colon.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from operator import attrgetter
from string import Formatter

from copycat_agent.errors import DataError
from copycat_agent.templates.fields import MISSING, compile_path, is_path
from copycat_agent.templates.metadata import METADATA, OF_SPLIT, TIME_NAMES, Access, SplitMeta
from copycat_agent.templates.record_like import RecordLike
from copycat_agent.templates.texts import is_not_utf8, readable, scalar_text

__all__ = [
    "METADATA",
    "MISSING",
    "Access",
    "RecordLike",
    "SplitMeta",
    "Template",
    "bind",
    "compile_path",
    "compile_template",
    "scalar_text",
    "time_text",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Name:
    """One `{name:spec}` of a template."""

    name: str
    spec: str


def _key_text(record: RecordLike) -> str:
    key = None if record.envelope is None else record.envelope.key
    if key is None:
        raise DataError("the record has no key for '@key'")
    return key.decode("utf-8", "replace")


_OF_RECORD: dict[str, Callable[[SplitMeta], Callable[[RecordLike], str | int]]] = {
    "@offset": lambda meta: meta.origin.offset_of,
    "@record.number": lambda _: attrgetter("number"),
    "@file.member": lambda meta: lambda record: readable(meta.origin.member(record.start)),
    "@key": lambda _: _key_text,
}


def bind(parts: Iterable[str | Name], meta: SplitMeta, clock: Callable[[], float]) -> Callable[[RecordLike], str]:
    """Joins texts and names into one closure; see `Template.bind`."""
    pattern, getters = "", []
    for part in parts:
        bound = part if isinstance(part, str) else _bind(part, meta, clock)
        if isinstance(bound, str):
            pattern += bound.replace("%", "%%")
        else:
            pattern += "%s"
            getters.append(bound)
    return _assemble(pattern, getters)


def _bind(part: Name, meta: SplitMeta, clock: Callable[[], float]) -> str | Callable[[RecordLike], str]:
    """Returns a text if it is constant within the split, else a closure."""
    name, spec = part.name, part.spec
    if name in OF_SPLIT:
        value = OF_SPLIT[name](meta)
        return (lambda _: _required(MISSING, name)) if value is None else _formatted(value, name, spec)
    if name in _OF_RECORD:
        get = _OF_RECORD[name](meta)
        return (lambda record: _formatted(get(record), name, spec)) if spec else (lambda record: str(get(record)))
    if name == "@read_time":
        stamp = _stamper(spec)
        return lambda _: stamp(int(clock() * 1000))
    if name == "@timestamp":
        stamp = _stamper(spec)
        return lambda record: stamp(int(clock() * 1000) if record.timestamp_ms is None else record.timestamp_ms)
    return _field(name, spec)


def _field(name: str, spec: str) -> Callable[[RecordLike], str]:
    """Returns a closure that renders one field of the record."""
    find = compile_path(name)

    def plain(record: RecordLike) -> str:
        value = find(record)
        if not isinstance(value, str):
            value = _required(value, name)
        return value if value.isascii() or not is_not_utf8(value) else readable(value)

    def formatted(record: RecordLike) -> str:
        value = find(record)
        return readable(_formatted(value if isinstance(value, int | float | Decimal) else _required(value, name), name, spec))

    return formatted if spec else plain


def _required(value: object, name: str) -> str:
    """Returns the text of a field. Raises a `DataError` that names the field and the problem."""
    try:
        text = scalar_text(value)
    except ValueError:  # an int of more digits than Python turns into text
        text = None
    if text is not None:
        return text
    what = "is missing" if value is MISSING else "is null" if value is None else "is not a text or a number"
    raise DataError(f"field {name!r} {what}")


def _formatted(value: object, name: str, spec: str) -> str:
    try:
        return format(value, spec)
    except (ValueError, TypeError, ArithmeticError):
        msg = f"field {name!r} cannot be written as {spec!r}"
    raise DataError(msg)  # outside the except: the cause may quote the data


def _stamper(spec: str) -> Callable[[int], str]:
    """Returns a function from epoch milliseconds to text. It caches the last text: records come in runs, and strftime costs 1 µs."""
    whole_seconds = bool(spec) and "%f" not in spec
    last_key, last_text = None, ""

    def stamp(epoch_ms: int) -> str:
        nonlocal last_key, last_text
        key = epoch_ms // 1000 if whole_seconds else epoch_ms
        if key != last_key:
            last_text = _time_text(epoch_ms, spec)
            last_key = key
        return last_text

    return stamp


def _time_text(epoch_ms: int, spec: str) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=epoch_ms)
    except OverflowError:
        raise DataError("the record's timestamp is outside the years 1 to 9999") from None
    return moment.strftime(spec) if spec else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_text(epoch_ms: float, timespec: str = "milliseconds") -> str:
    """Returns RFC 3339 in UTC, for people; a number of milliseconds for a time outside of the years 1 to 9999, which files may have."""
    try:
        moment = _EPOCH + timedelta(milliseconds=epoch_ms)
    except OverflowError:
        return f"{int(epoch_ms)} ms since 1970"
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def _assemble(pattern: str, getters: list[Callable[[RecordLike], str]]) -> Callable[[RecordLike], str]:
    """Returns a closure for `pattern % texts`, in the cheapest form for the number of texts."""
    if not getters:
        text = pattern.replace("%%", "%")
        return lambda _: text
    if pattern == "%s":
        return getters[0]
    if len(getters) == 1:
        get = getters[0]
        return lambda record: pattern % get(record)
    return lambda record: pattern % tuple([get(record) for get in getters])


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
        """Returns whether it has no names: every record renders to `literal_prefix`."""
        return not any(isinstance(part, Name) for part in self.parts)

    @property
    def literal_prefix(self) -> str:
        """Returns the text that every rendering begins with (doubled braces resolved); all of it for a literal."""
        return self.parts[0] if self.parts and isinstance(self.parts[0], str) else ""

    @property
    def fields(self) -> frozenset[str]:
        """Returns every name in it, metadata with their `@`."""
        return frozenset(part.name for part in self.parts if isinstance(part, Name))

    @property
    def is_of_split(self) -> bool:
        """Returns whether it renders to one text for all records of a split."""
        return self.fields <= OF_SPLIT.keys()

    @property
    def is_of_second(self) -> bool:
        """Returns whether it renders to one text for all records of a split with times in the same second."""
        parts = [part for part in self.parts if isinstance(part, Name) and part.name not in OF_SPLIT]
        return all(part.name == "@timestamp" and part.spec and "%f" not in part.spec for part in parts)

    @property
    def single_field(self) -> str | None:
        """Returns the field's name if the template is exactly one unformatted field; None for all other templates and for metadata."""
        match self.parts:
            case (Name(name=name, spec=""),) if not name.startswith("@"):
                return name
        return None

    def bind(self, meta: SplitMeta, clock: Callable[[], float] | None = None) -> Callable[[RecordLike], str]:
        """Returns a closure that renders records of one split; `clock` gives epoch seconds for `@read_time`, None: the split's.

        Its result always encodes as UTF-8. It raises `DataError`, naming the field and never its content, when a field is missing, null, an
        object or a list, or does not fit its format spec.
        """
        return bind(self.parts, meta, clock or meta.clock)

    def render(self, record: RecordLike, meta: SplitMeta) -> str:
        """Returns `bind(meta)(record)`, for single use."""
        return self.bind(meta)(record)


def compile_template(text: str) -> Template:
    """Checks `text` and returns a template. Raises ValueError with the problem, for the author of the definition."""
    if is_not_utf8(text):
        raise ValueError("a template must be valid Unicode; this one holds a lone surrogate")
    try:
        pieces = list(Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"bad template: {str(error).lower()}; a literal brace is written twice: {{{{ or }}}}") from None
    parts: list[str | Name] = []
    for literal, name, spec, conversion in pieces:
        if literal:
            parts[-1:] = [parts[-1] + literal] if parts and isinstance(parts[-1], str) else [*parts[-1:], literal]
        if name is not None:
            parts.append(_checked(name, spec or "", conversion))
    return Template(text, tuple(parts))


def _checked(name: str, spec: str, conversion: str | None) -> Name:
    """Returns the name. Raises ValueError for a `{name!conversion:spec}` that is not allowed."""
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
