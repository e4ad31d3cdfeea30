"""Writes fields as messages: each value is checked against the type of its field, so that nothing is changed or lost."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from google.protobuf import json_format  # type: ignore[import-untyped]
from google.protobuf.descriptor import Descriptor, FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

from copycat_agent.converters.base import UnfitValueError, wanted
from copycat_agent.converters.schema_forms import nanos_of

Fit = Callable[[Any], Any]
"""Returns what a message's constructor takes for a value. Raises UnfitValueError."""

_EXACT_DOUBLE, _EXACT_FLOAT = 2**53, 2**24
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The range of google.protobuf.Timestamp, in seconds since 1970."""
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,19}")
JSON_TYPES = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
_WRAPPED = "google.protobuf."
WRAPPERS = frozenset(
    _WRAPPED + name
    for name in (
        "DoubleValue",
        "FloatValue",
        "Int64Value",
        "UInt64Value",
        "Int32Value",
        "UInt32Value",
        "BoolValue",
        "StringValue",
        "BytesValue",
    )
)


def writer_of(message: Descriptor, *, drops: bool) -> Callable[[Any], bytes]:
    """Returns a function from fields to the message's bytes. `drops`: fields that the message does not have are left out."""
    make, fit = GetMessageClass(message), _TypeFunctions(drops=drops).message(message)

    def write(value: object) -> bytes:
        try:
            data: bytes = make(**fit(value)).SerializeToString()
        except EncodeError:
            raise UnfitValueError("a field that the message requires is missing") from None
        except RecursionError:
            raise UnfitValueError("the value is nested too deeply") from None
        return data

    return write


class _TypeFunctions:
    """The functions for the types of one schema."""

    def __init__(self, *, drops: bool) -> None:
        self._drops = drops
        self._messages: dict[str, Fit] = {}

    def message(self, message: Descriptor) -> Fit:
        name = message.full_name
        if name == "google.protobuf.Timestamp":
            return _timestamp
        if name in JSON_TYPES:
            return _json(message)
        if name in WRAPPERS:
            inner = self._single(message.fields_by_name["value"])
            return lambda value: {"value": inner(value)}
        if name not in self._messages:
            fields: dict[str, tuple[str, Fit]] = {}
            self._messages[name] = _object(fields, message, drops=self._drops)
            for field in message.fields:
                fields[field.name] = field.name, self._field(field)
            for field in message.fields:
                fields.setdefault(field.json_name, fields[field.name])
        return self._messages[name]

    def _field(self, field: FieldDescriptor) -> Fit:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = field.message_type.fields_by_name
            return _map(_map_key(entry["key"]), self._single(entry["value"]))
        return _list(self._single(field)) if field.is_repeated else self._single(field)

    def _single(self, field: FieldDescriptor) -> Fit:
        if field.message_type is not None:
            return self.message(field.message_type)
        if field.enum_type is not None:
            return _enum(field)
        return _SCALARS[field.cpp_type](field)


def _object(fields: dict[str, tuple[str, Fit]], message: Descriptor, *, drops: bool) -> Fit:
    """Returns a function from fields to a message's constructor arguments; null means that the field is not set."""
    oneofs = [[field.name for field in one.fields] for one in message.oneofs if len(one.fields) > 1]

    def fit(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wanted("an object", value)
        found: dict[str, Any] = {}
        for name, inner in value.items():
            field = fields.get(name)
            if field is None and not drops:
                raise UnfitValueError(_NO_SUCH).within(str(name))
            if field is not None and inner is not None:
                _set(found, field, inner, name)
        for names in oneofs:
            if sum(one in found for one in names) > 1:
                raise UnfitValueError(f"the message takes one of {', '.join(names)[:200]}, the record has more")
        return found

    return fit


def _set(found: dict[str, Any], field: tuple[str, Fit], value: object, name: str) -> None:
    """Sets a field; `name` is its name in the record."""
    if field[0] in found:
        raise UnfitValueError(_TWICE).within(name)
    try:
        found[field[0]] = field[1](value)
    except UnfitValueError as unfit:
        raise unfit.within(name) from None


_TWICE = "the record has this field twice, once under its JSON name"
_NO_SUCH = "the message has no such field; extra_fields: drop leaves such fields out"


def _whole(least: int, most: int, bits: str) -> Fit:
    def fit(value: Any) -> Any:  # noqa: ANN401 - see `Fit`
        if type(value) is not int:
            raise wanted("a whole number", value)
        if not least <= value <= most:
            raise UnfitValueError(f"the number is beyond {bits}")
        return value

    return fit


def _double(value: Any) -> Any:  # noqa: ANN401 - see `Fit`
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wanted("a number", value)
    if type(value) is int and not -_EXACT_DOUBLE <= value <= _EXACT_DOUBLE:
        raise UnfitValueError("the number has more digits than double holds")
    return value


def _float(value: Any) -> Any:  # noqa: ANN401 - see `Fit`
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wanted("a number", value)
    if type(value) is int and not -_EXACT_FLOAT <= value <= _EXACT_FLOAT:
        raise UnfitValueError("the number has more digits than float holds")
    try:
        struct.pack("<f", value)  # raises for a value that would silently become infinite
    except (OverflowError, struct.error):
        raise UnfitValueError("the number is beyond what float holds") from None
    return value


def _boolean(value: Any) -> Any:  # noqa: ANN401 - see `Fit`
    if not isinstance(value, bool):
        raise wanted("true or false", value)
    return value


def _text(value: Any) -> Any:  # noqa: ANN401 - see `Fit`
    if not isinstance(value, str):
        raise wanted("text", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UnfitValueError("the text holds half of a character, which UTF-8 cannot") from None
    return value


def _bytes(value: Any) -> Any:  # noqa: ANN401 - see `Fit`
    if not isinstance(value, bytes):
        raise UnfitValueError(str(wanted("bytes", value)).replace(" is needed", " are needed"))
    return value


def _enum(field: FieldDescriptor) -> Fit:
    assert field.enum_type is not None
    names, numbers = set(field.enum_type.values_by_name), set(field.enum_type.values_by_number)

    def fit(value: Any) -> Any:  # noqa: ANN401 - see `Fit`
        if type(value) in (str, int):
            if value in names or value in numbers:
                return value
            raise UnfitValueError("it is none of the enum's words and numbers")
        raise wanted("one of the words of an enum", value)

    return fit


def _timestamp(value: Any) -> dict[str, int]:  # noqa: ANN401 - see `Fit`
    seconds, nanos = divmod(nanos_of(value), 10**9)
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
        raise UnfitValueError("the time is beyond the years 1 to 9999 in UTC")
    return {"seconds": seconds, "nanos": nanos}


def _json(message: Descriptor) -> Fit:
    """Returns the function for Google's types of any JSON."""
    make = GetMessageClass(message)

    def fit(value: Any) -> Any:  # noqa: ANN401 - see `Fit`
        _check_numbers(value)
        try:
            return json_format.ParseDict(value, make())
        except (json_format.ParseError, TypeError, ValueError, AttributeError):
            raise wanted(f"what {message.name} holds, plain JSON", value) from None

    return fit


def _check_numbers(value: Any) -> None:  # noqa: ANN401 - JSON
    """Raises UnfitValueError for numbers that are not finite, or not exact as doubles."""
    if isinstance(value, int | float):
        if not isinstance(value, bool) and _double(value) - value:  # NaN too
            raise UnfitValueError("the number is not finite")
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _check_numbers(item)


def _list(fit_item: Fit) -> Fit:
    def fit(value: Any) -> list[Any]:  # noqa: ANN401 - see `Fit`
        if not isinstance(value, list | tuple):
            raise wanted("a list", value)
        found: list[Any] = []
        try:
            for item in value:
                found.append(fit_item(item))  # noqa: PERF401 - its length says which one does not fit
        except UnfitValueError as unfit:
            raise unfit.within(f"[{len(found)}]") from None
        return found

    return fit


def _map_key(field: FieldDescriptor) -> Fit:
    """Returns the function for a map's keys. JSON's names are texts; whole numbers are written as digits."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return _text
    fit_number = _SCALARS[field.cpp_type](field)

    def fit(name: Any) -> Any:  # noqa: ANN401 - see `Fit`
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return fit_number({"true": True, "false": False}.get(name, name))
        return fit_number(int(name) if isinstance(name, str) and _WHOLE_NUMBER.fullmatch(name) else name)

    return fit


def _map(fit_key: Fit, fit_value: Fit) -> Fit:
    def fit(value: Any) -> dict[Any, Any]:  # noqa: ANN401 - see `Fit`
        if not isinstance(value, dict):
            raise wanted("an object", value)
        found: dict[Any, Any] = {}
        name: object = ""
        try:
            for name, item in value.items():
                found[fit_key(name)] = fit_value(item)
        except UnfitValueError as unfit:
            raise unfit.within(str(name)) from None
        return found

    return fit


_SCALARS: dict[int, Callable[[FieldDescriptor], Fit]] = {
    FieldDescriptor.CPPTYPE_INT32: lambda _: _whole(-(2**31), 2**31 - 1, "32 bits"),
    FieldDescriptor.CPPTYPE_INT64: lambda _: _whole(-(2**63), 2**63 - 1, "64 bits"),
    FieldDescriptor.CPPTYPE_UINT32: lambda _: _whole(0, 2**32 - 1, "0 and 32 bits"),
    FieldDescriptor.CPPTYPE_UINT64: lambda _: _whole(0, 2**64 - 1, "0 and 64 bits"),
    FieldDescriptor.CPPTYPE_DOUBLE: lambda _: _double,
    FieldDescriptor.CPPTYPE_FLOAT: lambda _: _float,
    FieldDescriptor.CPPTYPE_BOOL: lambda _: _boolean,
    FieldDescriptor.CPPTYPE_STRING: lambda field: _bytes if field.type == FieldDescriptor.TYPE_BYTES else _text,
}
