"""The schemas of `protobuf`, and compiling .proto files to descriptors in this process. Only this module uses grpcio-tools' compiler."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc_tools  # type: ignore[import-untyped]
from google.protobuf.descriptor import (  # type: ignore[import-untyped]
    Descriptor,
    FieldDescriptor,
    FileDescriptor,
)
from google.protobuf.descriptor_pb2 import FileDescriptorSet  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from grpc_tools import _protoc_compiler, protoc

from copycat_agent.converters.avro_numbers import varint
from copycat_agent.converters.base import BadSchemaError, ConverterProblem, Reference, RegistrySchema, Site
from copycat_agent.converters.proto_fields import writer_of
from copycat_agent.converters.schema_forms import Key, Scalar, SchemaForm, Writer, referred
from copycat_agent.converters.schema_options import ProtobufOptions, file_problem, is_inside

if TYPE_CHECKING:
    from copycat_agent.converters.registry_access import SchemaRegistry
    from copycat_agent.model import Column

_GOOGLE = Path(grpc_tools.__file__).parent / "_proto"
_WORDS_MAX = 300
_GOOGLES = "google/protobuf/"
_ROOT = "schema.proto"
"""The file name of a schema from the registry while it is compiled."""
_KEYS: dict[int, Scalar] = {
    FieldDescriptor.CPPTYPE_STRING: "string", FieldDescriptor.CPPTYPE_INT32: "int", FieldDescriptor.CPPTYPE_INT64: "int",
    FieldDescriptor.CPPTYPE_UINT32: "int", FieldDescriptor.CPPTYPE_UINT64: "int", FieldDescriptor.CPPTYPE_DOUBLE: "double",
    FieldDescriptor.CPPTYPE_FLOAT: "double", FieldDescriptor.CPPTYPE_BOOL: "boolean",
}  # fmt: skip


def compile_proto(name: str, texts: Mapping[str, str]) -> FileDescriptor:
    """Returns the descriptor of the file `name` among `texts`. Raises BadSchemaError with the compiler's message."""
    with tempfile.TemporaryDirectory(prefix="copycat-proto-") as directory:
        for each, text in texts.items():
            if not is_inside(each):
                raise BadSchemaError(f"it imports {each[:100]!r}, which is no file below its own directory")
            path = Path(directory, each)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        output = Path(directory, ".descriptors")
        _check(name, directory)
        if protoc.main(["protoc", f"-I{directory}", f"-I{_GOOGLE}", f"--descriptor_set_out={output}", "--include_imports", name]):
            raise BadSchemaError("the compiler refuses it")
        return _file(name, output.read_bytes())


def _check(name: str, directory: str) -> None:
    """Raises BadSchemaError with the compiler's messages, which it would otherwise write to standard error."""
    try:
        _protoc_compiler.get_protos(name.encode(), [directory.encode(), str(_GOOGLE).encode()])
    except _protoc_compiler.ProtocErrors as errors:
        raise BadSchemaError("; ".join(_words(error) for error in errors.errors()[:3])[:_WORDS_MAX]) from None


def _words(error: Any) -> str:  # noqa: ANN401 - the compiler's own
    """Returns a compiler message, with lines and columns that count from 1."""
    place = f"{error.filename.decode('utf-8', 'replace')}:{error.line + 1}:{error.column + 1}"
    return f"{place}: {error.message.decode('utf-8', 'replace')}"


def _file(name: str, descriptors: bytes) -> FileDescriptor:
    pool = DescriptorPool()
    try:
        for file in FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
    except TypeError as error:  # the compiler only warns about some errors, such as two fields with one JSON name
        raise BadSchemaError(str(error).replace("\n", " ")[:_WORDS_MAX]) from None
    return pool.FindFileByName(name)


def message_of(file: FileDescriptor, name: str | None) -> Descriptor:
    """Returns a message of the file, by its name with the package or without; the first one without a name."""
    if name is None:
        if not file.message_types_by_name:
            raise BadSchemaError("it has no message")
        return file.message_types_by_name.values()[0]
    within, *steps = name.removeprefix(f"{file.package}.").split(".")
    found = file.message_types_by_name.get(within)
    for step in steps:
        found = None if found is None else found.nested_types_by_name.get(step)
    if found is None:
        known = ", ".join(sorted(file.message_types_by_name)[:5])
        raise BadSchemaError(f"it has no message {name!r}; there are {known}")
    return found


def imports_of(file: FileDescriptor) -> list[FileDescriptor]:
    """Returns a file's imports, except those that every reader has."""
    return [one for one in file.dependencies if not one.name.startswith(_GOOGLES)]


def message_indexes(message: Descriptor) -> bytes:
    """Returns the message's index in its file, as it precedes a payload: one zero for the first, else the number of steps, and each."""
    path: list[int] = []
    current: Descriptor | None = message
    while current is not None:
        outer = current.containing_type
        beside = current.file.message_types_by_name if outer is None else outer.nested_types_by_name
        path.insert(0, beside.keys().index(current.name))  # in the order in the file
        current = outer
    if path == [0]:
        return b"\0"
    return b"".join(map(varint, (len(path), *path)))


class ProtoForm(SchemaForm):
    """Protobuf. A file's imports are in the registry under their names in the import, as with Confluent's serializers."""

    kind = "PROTOBUF"
    _options: ProtobufOptions

    def of_file(self, registry: SchemaRegistry, *, registers: bool) -> tuple[RegistrySchema, Writer]:
        file = self._options.schema_
        assert file is not None
        message = self.message()
        done: dict[str, Reference] = {}
        for other in imports_of(message.file):
            _refer(other, dict(file.imports), registry, done, registers=registers)
        references = tuple(done[other.name] for other in imports_of(message.file))
        return RegistrySchema(self.kind, file.text, references), self._compiled(message)

    def message(self) -> Descriptor:
        """Returns the message of the options' file."""
        file = self._options.schema_
        assert file is not None
        return message_of(compile_proto(file.name, {file.name: file.text, **dict(file.imports)}), self._options.message)

    def of_columns(self, columns: tuple[Column, ...], name: str, written: str) -> tuple[RegistrySchema, Writer]:
        """Raises BadSchemaError: field numbers could not stay the same when columns come and go."""
        del columns, name, written
        raise BadSchemaError("a Protobuf schema cannot be made from types")

    def of_key(self, name: str) -> tuple[RegistrySchema, Writer]:
        return self.of_columns((), name, "")

    def _others(self, schema: RegistrySchema, registry: SchemaRegistry) -> dict[str, Any]:
        return _imported(schema, registry)

    def _writer(self, text: str, others: dict[str, Any]) -> Writer:
        return self._compiled(message_of(compile_proto(_ROOT, {_ROOT: text, **others}), self._options.message))

    def _compiled(self, message: Descriptor) -> Writer:
        before, write = message_indexes(message), writer_of(message, drops=self._options.extra_fields == "drop")
        return Writer(lambda value: before + write(value), message.full_name, _key(message))


def _imported(schema: RegistrySchema, registry: SchemaRegistry) -> dict[str, str]:
    """Returns the texts that a schema of the registry imports, by their names."""
    found = referred(schema, registry, lambda one: None if one.name == _ROOT or one.name.startswith(_GOOGLES) else one.name)
    return {name: other.text for name, other in found}


def file_of(schema: RegistrySchema, registry: SchemaRegistry) -> FileDescriptor:
    """Compiles a schema of the registry. Raises BadSchemaError, and what the registry raises."""
    return compile_proto(_ROOT, {_ROOT: schema.text, **_imported(schema, registry)})


def _refer(file: FileDescriptor, texts: dict[str, str], registry: SchemaRegistry, done: dict[str, Reference], *, registers: bool) -> None:
    """Adds a file to `done`, after its own imports."""
    name, inner = file.name, imports_of(file)
    if name in done:
        return
    for other in inner:
        _refer(other, texts, registry, done, registers=registers)
    written = RegistrySchema("PROTOBUF", texts[name], tuple(done[other.name] for other in inner))
    if registers:
        registry.register(name, written)
    done[name] = Reference(name, name, registry.find(name, written).version)


def _key(message: Descriptor) -> Key | None:
    """Returns the key form of a message with a single suitable field, else None."""
    field = message.fields[0] if len(message.fields) == 1 else None
    if field is None or field.is_repeated or field.cpp_type not in _KEYS:
        return None
    return Key("bytes" if field.type == FieldDescriptor.TYPE_BYTES else _KEYS[field.cpp_type], field.name)


def problems(options: ProtobufOptions, site: Site) -> Iterator[ConverterProblem]:
    """Yields problems of the schema's file, and declared fields that its message does not have."""
    file = options.schema_
    if file is None:
        return
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
