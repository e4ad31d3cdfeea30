"""The schemas of `json_schema`, including those made for declared columns. Only this package uses jsonschema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import orjson
import referencing
from jsonschema import Draft7Validator, validators
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from referencing.jsonschema import DRAFT7

from copycat_agent.converters.base import BadSchemaError, ConverterProblem, RegistrySchema, Site, UnfitValueError
from copycat_agent.converters.json_approval import approver
from copycat_agent.converters.json_checking import SlowError, bounded, check_patterns, give
from copycat_agent.converters.plain import dump
from copycat_agent.converters.schema_forms import Key, Scalar, SchemaForm, Writer, referred, typed
from copycat_agent.converters.schema_options import JsonSchemaOptions, file_problem, underivable
from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.records.json_values import parse
from copycat_agent.model import Column

if TYPE_CHECKING:
    from copycat_agent.converters.registry_access import SchemaRegistry
    from copycat_agent.sql_types import SqlType

_DRAFT = "http://json-schema.org/draft-07/schema#"
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_SIMPLE: dict[str, dict[str, Any]] = {
    **{word: {"type": "integer"} for word in _WHOLE},
    **{word: {"type": "number"} for word in ("float", "double", "decimal")},
    "string": {"type": "string"}, "boolean": {"type": "boolean"}, "void": {"type": "null"},
    "binary": {"type": "string", "contentEncoding": "base64"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string"},
    "timestamp": {"type": "string", "format": "date-time"},
    "timestamp_ntz": {"type": "string"},
    "variant": {},
}  # fmt: skip
_WORDS_MAX = 100
_PLAIN = frozenset((str, int, bool, type(None)))
"""Types that are read back from JSON unchanged. A float may be NaN, which is written as null."""
_KEYS: dict[str, Scalar] = {"string": "string", "integer": "int", "number": "double", "boolean": "boolean"}


def json_schema_of(columns: tuple[Column, ...], name: str) -> dict[str, Any]:
    """Returns an object schema with this title. Raises BadSchemaError for an unknown type."""
    made = _object(typed(columns))
    required = [column.name for column in columns if not column.nullable]
    return {"$schema": _DRAFT, "title": name, **made, **({"required": required} if required else {})}


def _object(fields: list[tuple[str, SqlType, bool]]) -> dict[str, Any]:
    made = {name: _or_null(_type(type_, name)) if nullable else _type(type_, name) for name, type_, nullable in fields}
    return {"type": "object", "properties": made}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Allows null, which JSON has in place of NaN and infinities, and which any field may be."""
    type_ = schema.get("type")
    return schema if type_ in (None, "null") else {**schema, "type": [type_, "null"]}


def _type(type_: SqlType, field: str) -> dict[str, Any]:
    if type_.word == "array":
        return {"type": "array", "items": _or_null(_type(type_.parts[0][1], field))}
    if type_.word == "map":
        return {"type": "object", "additionalProperties": _or_null(_type(type_.parts[1][1], field))}
    if type_.word == "struct":
        return _object([(name, inner, True) for name, inner in type_.parts])
    if type_.word in _SIMPLE:
        return _SIMPLE[type_.word]
    raise BadSchemaError(f"field {field[:100]!r} is of type {type_.word}, for which JSON Schema has none")


class JsonForm(SchemaForm):
    """JSON Schema. References are resources under the names that the schemas give them."""

    kind = "JSON"
    _options: JsonSchemaOptions

    def of_columns(self, columns: tuple[Column, ...], name: str, written: str) -> tuple[RegistrySchema, Writer]:
        """Makes the schema of the columns: a file's own schema is not JSON Schema."""
        del written
        return self.own(json.dumps(json_schema_of(columns, name), separators=(",", ":")))

    def of_key(self, name: str) -> tuple[RegistrySchema, Writer]:
        return self.own(json.dumps({"$schema": _DRAFT, "title": name, "type": "string"}))

    def _others(self, schema: RegistrySchema, registry: SchemaRegistry) -> dict[str, Any]:
        return {name: schema_of(other.text) for name, other in referred(schema, registry, lambda one: one.name)}

    def _writer(self, text: str, others: dict[str, Any]) -> Writer:
        schema = schema_of(text)
        title = schema.get("title") if isinstance(schema, dict) else None
        write = _writing(schema, others) if self._options.validate_ else _write_unchecked
        return Writer(write, title if isinstance(title, str) else "", _key(schema))


def schema_of(text: str) -> Any:  # noqa: ANN401 - JSON
    """Returns a JSON Schema. Raises BadSchemaError."""
    try:
        schema = json.loads(text)
        validators.validator_for(schema, default=Draft7Validator).check_schema(schema)
    except SchemaError as error:
        raise BadSchemaError(f"it is no JSON Schema: {'.'.join(map(str, error.absolute_path)) or 'as a whole'}") from None
    except (ValueError, RecursionError):
        raise BadSchemaError("it is no JSON") from None
    except Exception as error:  # noqa: BLE001 - a pattern that is none, a reference to nowhere
        raise BadSchemaError(f"it is no JSON Schema ({type(error).__name__})") from None
    return schema


def _writing(schema: Any, others: dict[str, Any]) -> Callable[[Any], bytes]:  # noqa: ANN401 - JSON
    """Returns a function that validates and writes. It validates what is written: a date as the text that it becomes."""
    resources = [(name, referencing.Resource.from_contents(other, default_specification=DRAFT7)) for name, other in others.items()]
    near: referencing.Registry[Any] = referencing.Registry().with_resources(resources)  # nothing is fetched
    for one in (schema, *others.values()):
        check_patterns(one)
    validator = bounded(validators.validator_for(schema, default=Draft7Validator))(schema, registry=near)
    approve = approver(schema, others)

    def write(value: object) -> bytes:
        data = _write_unchecked(value)
        seen = value if type(value) is dict and _PLAIN.issuperset(map(type, value.values())) else _read_back(data)
        if approve is None or not approve(seen):
            give(len(data))
            _judge(validator, seen)
        return data

    return write


def _write_unchecked(value: Any) -> bytes:  # noqa: ANN401 - a record's fields, or a key
    try:
        return dump(value)
    except DataError as error:
        raise UnfitValueError(error.message) from None


def _read_back(data: bytes) -> Any:  # noqa: ANN401 - JSON
    """Returns what a reader gets from written JSON. Raises UnfitValueError for a number that nothing holds."""
    try:
        return orjson.loads(data)
    except ValueError:  # a number beyond floats
        found = parse(data)
    if isinstance(found, Unparsed):
        raise UnfitValueError(found.why)
    return found


def _judge(validator: Any, value: object) -> None:  # noqa: ANN401 - of the schema's own draft
    """Raises UnfitValueError for what the schema does not allow, in words without the value."""
    try:
        error = best_match(validator.iter_errors(value))
    except SlowError:
        raise UnfitValueError("it would take too long to apply the schema to this record") from None
    except DataError as slow:  # a pattern
        raise UnfitValueError(slow.message) from None
    except Exception as trouble:  # noqa: BLE001 - a reference to nowhere, a number beyond floats, whatever else a schema brings about
        raise UnfitValueError(f"the schema cannot be applied ({type(trouble).__name__})") from None
    if error is None:
        return
    unfit = UnfitValueError(_words(error))
    for step in reversed(error.absolute_path):
        unfit.within(f"[{step}]" if isinstance(step, int) else str(step))
    raise unfit


def _words(error: ValidationError) -> str:
    """Returns a message by the keyword of the schema; the library's own messages show values."""
    keyword, said = str(error.validator), error.validator_value
    names: Any = error.instance
    if keyword == "required" and isinstance(said, list):
        missing = next((name for name in said if name not in names), "")
        return f"field {str(missing)[:_WORDS_MAX]!r} is missing, and the schema requires it"
    if keyword == "additionalProperties" and isinstance(error.schema, dict):
        known, patterns = error.schema.get("properties", {}), error.schema.get("patternProperties", {})
        extra = next((name for name in names if name not in known), "")
        if patterns:
            return "it has a field that is not in the schema, which allows no others"
        return f"field {str(extra)[:_WORDS_MAX]!r} is not in the schema, which allows no others"
    shown = json.dumps(said)
    return f"the schema's {keyword} does not allow it" + (f" ({shown})" if len(shown) <= _WORDS_MAX else "")


def _key(schema: Any) -> Key | None:  # noqa: ANN401 - JSON
    if not isinstance(schema, dict):
        return Key("string")
    type_ = schema.get("type", "string")
    if type_ == "object" and isinstance(schema.get("properties"), dict) and len(schema["properties"]) == 1:
        ((name, inner),) = schema["properties"].items()
        found = _key(inner)
        return Key(found.kind, name) if found is not None and not found.field else None
    return Key(_KEYS[type_]) if isinstance(type_, str) and type_ in _KEYS else None


def problems(options: JsonSchemaOptions, site: Site) -> Iterator[ConverterProblem]:
    """Yields problems of the schema's file, or of the declared fields that a schema has to be made of."""
    file = options.schema_
    if file is not None:
        try:
            schema = schema_of(file.text)
            if options.validate_:
                check_patterns(schema)
        except BadSchemaError as error:
            yield file_problem(site, file, str(error), "correct the file; it is a JSON Schema")
            return
        title = isinstance(schema, dict) and isinstance(schema.get("title"), str) and schema["title"]
        if options.subject is None and options.subject_strategy != "topic" and not title:
            hint = "give it a title, or name the subject"
            yield ConverterProblem((site.part, "subject_strategy"), f"{file.path} has no title, which would be its name", hint)
        if site.part == "key" and _key(schema) is None:
            yield file_problem(site, file, "it takes no text, and a key is one", "use a simple type, or an object with one such property")
    elif options.derives and site.part == "value" and site.columns is not None:
        try:
            json_schema_of(site.columns, "r")
        except BadSchemaError as error:
            yield underivable(site, error)
