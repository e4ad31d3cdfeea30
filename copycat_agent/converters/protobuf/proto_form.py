"""What `protobuf` knows of schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor  # type: ignore[import-untyped]

from copycat_agent.converters.base import OptionProblem, Site
from copycat_agent.converters.protobuf.compiling import compile_proto, imports_of, message_indexes, message_of
from copycat_agent.converters.protobuf.setting import writer_of
from copycat_agent.converters.schemas.form import REFERENCES_MAX, BadSchemaError, Key, Scalar, TooManyReferencesError, Writer
from copycat_agent.converters.schemas.options import file_problem
from copycat_agent.converters.schemas.registry import Reference, Registry, Written

if TYPE_CHECKING:
    from copycat_agent.converters.protobuf.options import ProtobufOptions
    from copycat_agent.model import Column

_ROOT = "schema.proto"
"""What a schema from the registry is called while it is compiled."""
_KEYS: dict[int, Scalar] = {
    FieldDescriptor.CPPTYPE_STRING: "string", FieldDescriptor.CPPTYPE_INT32: "int", FieldDescriptor.CPPTYPE_INT64: "int",
    FieldDescriptor.CPPTYPE_UINT32: "int", FieldDescriptor.CPPTYPE_UINT64: "int", FieldDescriptor.CPPTYPE_DOUBLE: "double",
    FieldDescriptor.CPPTYPE_FLOAT: "double", FieldDescriptor.CPPTYPE_BOOL: "boolean",
}  # fmt: skip


class ProtoForm:
    """See `Form`."""

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options

    def of_file(self, registry: Registry, *, registers: bool) -> tuple[Written, Writer]:
        """See `Form`. What it imports is in the registry under the name in the import, as with Confluent's serializers."""
        file = self._options.schema_
        assert file is not None
        message = self.message()
        texts = dict(file.imports)
        done: dict[str, Reference] = {}
        for other in imports_of(message.file):
            _refer(other, texts, registry, done, registers=registers)
        references = tuple(done[other.name] for other in imports_of(message.file))
        return Written("PROTOBUF", file.text, references), self._writer(message)

    def message(self) -> Descriptor:
        """The message of the options' file."""
        file = self._options.schema_
        assert file is not None
        return message_of(compile_proto(file.name, {file.name: file.text, **dict(file.imports)}), self._options.message)

    def of_registry(self, schema: Written, registry: Registry) -> Writer:
        """See `Form`."""
        if schema.kind != "PROTOBUF":
            raise BadSchemaError(f"it is of type {schema.kind}, the converter is protobuf")
        texts = {_ROOT: schema.text}
        _load_references(schema, registry, texts)
        return self._writer(message_of(compile_proto(_ROOT, texts), self._options.message))

    def of_columns(self, columns: tuple[Column, ...], name: str, written: str) -> tuple[Written, Writer]:
        """No numbers for the fields would stay the same when columns come and go."""
        del columns, name, written
        msg = "a Protobuf schema cannot be made from types"
        raise BadSchemaError(msg)

    def of_key(self, name: str) -> tuple[Written, Writer]:
        """See `of_columns`."""
        return self.of_columns((), name, "")

    def _writer(self, message: Descriptor) -> Writer:
        before, write = message_indexes(message), writer_of(message, drops=self._options.extra_fields == "drop")
        return Writer(lambda value: before + write(value), message.full_name, _key(message))


def _refer(file: FileDescriptor, texts: dict[str, str], registry: Registry, done: dict[str, Reference], *, registers: bool) -> None:
    """Put a file, and before it what it imports itself, into `done`."""
    name, inner = file.name, imports_of(file)
    if name in done:
        return
    for other in inner:
        _refer(other, texts, registry, done, registers=registers)
    written = Written("PROTOBUF", texts[name], tuple(done[other.name] for other in inner))
    if registers:
        registry.register(name, written)
    done[name] = Reference(name, name, registry.find(name, written).version)


def _load_references(schema: Written, registry: Registry, texts: dict[str, str]) -> None:
    for one in schema.references:
        if one.name in texts or one.name.startswith("google/protobuf/"):
            continue
        if len(texts) > REFERENCES_MAX:
            raise TooManyReferencesError
        other = registry.version(one.subject, one.version).schema
        texts[one.name] = other.text
        _load_references(other, registry, texts)


def _key(message: Descriptor) -> Key | None:
    """A text goes into the only field of a message, where it has one."""
    field = message.fields[0] if len(message.fields) == 1 else None
    if field is None or field.is_repeated or field.cpp_type not in _KEYS:
        return None
    return Key("bytes" if field.type == FieldDescriptor.TYPE_BYTES else _KEYS[field.cpp_type], field.name)


def problems(options: ProtobufOptions, site: Site) -> Iterator[OptionProblem]:
    """What is wrong with the schema's file, and declared fields that its message does not have."""
    file = options.schema_
    assert file is not None
    try:
        message = ProtoForm(options).message()
    except BadSchemaError as error:
        hint = "correct the file, or message" if options.message else "correct the file"
        yield file_problem(site, file, str(error), hint)
        return
    if site.part == "key":
        if _key(message) is None:
            yield file_problem(site, file, f"message {message.name} takes no text, and a key is one", "use one with one field")
        return
    known = {name for field in message.fields for name in (field.name, field.json_name)}
    extra = sorted({column.name for column in site.columns or ()} - known)
    if extra and options.extra_fields == "error":
        why = f"message {message.name} has no field {extra[0]!r}, which the records have"
        hint = "drop it in transforms (drop_fields), add it to the message, or set extra_fields: drop"
        yield file_problem(site, file, why, hint)
