"""The types of values in a definition: durations, sizes, patterns, secrets; and the base of every section of options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    WithJsonSchema,
)

from copycat_agent.display import HIDDEN, is_secret_name

FROM_YAML = "from yaml"
"""Validation context of the loader: numbers without a unit are refused for durations and sizes."""

_LOGIN = re.compile(r"//[^\s:/]*:.*@")
_SECRET_OPTION = re.compile(
    r"([?&][\w%.-]*(?:key|secret|token|passw|credential|signature|\b(?:sas|sig))[\w%.-]*=)[^&\s\"'},\]]+", re.IGNORECASE
)
"""Options in signed addresses, such as `?X-Amz-Signature=...`."""
_JDBC_SECRET = re.compile(
    r"(jdbc:(?:(?!jdbc:).)*?(?:secret|token|passw|pwd|credential|(?:private|pvt|api|access|client)[._-]?key)[\w.-]{0,40}\s{0,4}=).+"
    r"|(jdbc:oracle:\w+:)[^@/]{0,256}/.*@",
    re.IGNORECASE,
)
"""A secret in the address of a database, and all behind it: each driver has separators of its own. Oracle's login has no // before it."""
_DURATION_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def _duration(value: object, info: ValidationInfo) -> object:
    """Converts `"500ms"` to 0.5 seconds. A bare number is seconds in code (defaults, tests) and an error in YAML."""
    if info.context != FROM_YAML and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return seconds_of(value if isinstance(value, str) else "")


def _size(value: object, info: ValidationInfo) -> object:
    """Converts `"64KiB"` to 65536 bytes. A bare number is bytes in code (defaults, tests) and an error in YAML."""
    if info.context != FROM_YAML and isinstance(value, int) and not isinstance(value, bool):
        return value
    match = re.fullmatch(r"(\d{1,15})(B|KiB|MiB|GiB|kB|KB|MB|GB)", value, re.ASCII) if isinstance(value, str) else None
    if match is None:
        raise ValueError("a size needs a whole number and a unit, such as 64KiB, 10MiB or 1GB")
    return int(match[1]) * _SIZE_BYTES[match[2]]


def _memory(value: object, info: ValidationInfo) -> object:
    """Converts a size, also in Spark's and Java's own notation: `"512m"`, `"2g"`."""
    match = re.fullmatch(r"(\d{1,9})([mg])", value, re.ASCII) if isinstance(value, str) else None
    return _size(value if match is None else f"{match[1]}{match[2].upper()}iB", info)


def _regex(value: object) -> object:
    """Checks that a pattern can be compiled."""
    if isinstance(value, str):
        try:
            re.compile(value)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"not a regular expression: {error}") from None
    return value


def seconds_of(text: str) -> float:
    """Converts `"10m"` to 600.0, as a definition writes it. Raises ValueError for any other text."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?)(ms|s|m|h|d)", text, re.ASCII)
    if match is None:
        raise ValueError("a duration needs a number and a unit, such as 500ms, 5s, 2m, 1h or 7d")
    return float(match[1]) * _DURATION_SECONDS[match[2]]


def format_duration(seconds: float) -> str:
    """Writes seconds as in a definition, in the largest unit that leaves a whole number: 0.05 -> `50ms`, 5.0 -> `5s`."""
    milliseconds = round(seconds * 1000)
    for unit in ("d", "h", "m", "s"):
        per_unit = round(_DURATION_SECONDS[unit] * 1000)
        if milliseconds >= per_unit and milliseconds % per_unit == 0:
            return f"{milliseconds // per_unit}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"


def format_size(size_bytes: int) -> str:
    """Writes bytes as in a definition, in the largest binary unit that leaves a whole number: 65536 -> `64KiB`."""
    for unit in ("GiB", "MiB", "KiB"):
        if size_bytes >= _SIZE_BYTES[unit] and size_bytes % _SIZE_BYTES[unit] == 0:
            return f"{size_bytes // _SIZE_BYTES[unit]}{unit}"
    return f"{size_bytes}B"


class WrittenFloat(float):
    """A decimal number from YAML that keeps its original text (`text`): `1.10` stays `1.10` where text is wanted.

    Equal to, and pickled as, the plain float.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        """Raises ValueError when `text` is not a number."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        """Pickles as the plain float: only the loader needs the text."""
        return float, (float(self),)


def _as_written(value: object) -> object:
    """Converts a number or boolean in a map of texts to its text in the file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, WrittenFloat):
        return value.text
    return str(value) if isinstance(value, int | float) else value


Duration = Annotated[
    float,
    BeforeValidator(_duration),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(\.\d+)?(ms|s|m|h|d)$", "examples": ["500ms", "5s", "7d"]}),
]
"""Seconds, written with a unit."""

ByteSize = Annotated[
    int,
    BeforeValidator(_size),
    PlainSerializer(format_size, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(B|KiB|MiB|GiB|kB|KB|MB|GB)$", "examples": ["64KiB", "10MiB"]}),
]
"""Bytes, written with a unit."""

JvmMemory = Annotated[
    int,
    BeforeValidator(_memory),
    PlainSerializer(format_size, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(m|g|MiB|GiB|MB|GB)$", "examples": ["512m", "1GiB"]}),
]
"""Bytes of a JVM's heap, written with a unit, including Spark's own units."""

Regex = Annotated[str, BeforeValidator(_regex)]
"""A regular expression in Python's syntax."""

Secret = Annotated[SecretStr, PlainSerializer(lambda _: HIDDEN, return_type=str)]
"""A text that no repr, log or dump shows; call `.get_secret_value()` only where it is needed."""

ScalarText = Annotated[str, BeforeValidator(_as_written), WithJsonSchema({"type": ["string", "number", "boolean"]})]
"""Text for which a number or boolean is accepted too, as its text in the file."""

T = TypeVar("T", bound=str)
OneOrMore = Annotated[
    tuple[T, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
"""A text, or a list of them."""
Patterns = OneOrMore[str]
"""One pattern, or a list of them."""


class Options(BaseModel):
    """Base of every section: frozen, compared by value, unknown keys are errors, nothing is coerced silently."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, validate_default=False, hide_input_in_errors=True,
        defer_build=True,  # a process validates a few of a hundred models, and Spark's workers none: building all is a fifth of a start
    )  # fmt: skip

    _hidden: frozenset[str] = PrivateAttr(frozenset())

    @property
    def hidden(self) -> frozenset[str]:
        """Returns names of fields whose values came from `${file:}` or `${cred:}`: secrets, although the field itself is not one."""
        return self._hidden

    def hide(self, names: Iterable[str]) -> None:
        """Masks these fields in every repr and in `masked`. Called by the loader, before anyone else has seen the value."""
        self._hidden = self._hidden | frozenset(names)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yields names and values for repr and str, hidden fields masked."""
        return ((name, HIDDEN if name in self._hidden else value) for name, value in super().__repr_args__())

    def masked(self) -> dict[str, Any]:
        """Returns all options as plain JSON values in the units of a definition, with every secret as `HIDDEN`: safe to show."""
        return {name: HIDDEN if name in self._hidden else _masked(value, name, self) for name, value in self}


def without_login(text: str) -> str:
    """Returns `text` with user and password of an address hidden, up to the last @ of the line: the password may hold anything.

    It also hides options after the question mark whose names suggest secrets, and in the address of a database everything from the first
    option with such a name.
    """
    text = _JDBC_SECRET.sub(lambda match: f"{match[1]}{HIDDEN}" if match[1] else f"{match[2]}{HIDDEN}@", text)
    return _SECRET_OPTION.sub(rf"\g<1>{HIDDEN}", _LOGIN.sub(f"//{HIDDEN}@", text))


def without_named_secrets(value: object, name: str = "") -> object:
    """Returns `value` with everything hidden under password-like names, and logins in addresses: for maps with any keys.

    Nothing else marks secrets in such maps. `name` is that of the value itself.
    """
    if is_secret_name(name) and value not in ("", None, True, False):
        return HIDDEN
    if isinstance(value, dict):
        return {key: without_named_secrets(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_named_secrets(inner) for inner in value]
    return without_login(value) if isinstance(value, str) else value


def _masked(value: object, name: str, owner: Options) -> object:
    if isinstance(value, Options):
        return value.masked()
    if isinstance(value, tuple) and value and isinstance(value[0], Options):
        return [_masked(item, name, owner) for item in value]
    shown = owner.model_dump(mode="json", include={name})[name]
    return without_login(shown) if isinstance(shown, str) else shown
