""".proto files to descriptors, in this process. Door to the compiler in grpcio-tools.

The compiler reads files, so the texts are put into a private directory that is gone afterwards. It finds nothing outside of it but
Google's own types.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc_tools  # type: ignore[import-untyped]
from google.protobuf.descriptor import Descriptor, FileDescriptor  # type: ignore[import-untyped]
from google.protobuf.descriptor_pb2 import FileDescriptorSet  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from grpc_tools import _protoc_compiler, protoc

from copycat_agent.converters.schemas.form import BadSchemaError
from copycat_agent.converters.schemas.schema_file import is_inside

_GOOGLE = Path(grpc_tools.__file__).parent / "_proto"
_WORDS_MAX = 300


def compile_proto(name: str, texts: Mapping[str, str]) -> FileDescriptor:
    """The descriptor of the file `name` among `texts`. Raises BadSchemaError with the compiler's words."""
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
            msg = "the compiler refuses it"
            raise BadSchemaError(msg)
        return _file(name, output.read_bytes())


def _check(name: str, directory: str) -> None:
    """What the compiler does not like, as words: on its own it writes them to standard error."""
    try:
        _protoc_compiler.get_protos(name.encode(), [directory.encode(), str(_GOOGLE).encode()])
    except _protoc_compiler.ProtocErrors as errors:
        raise BadSchemaError("; ".join(_words(error) for error in errors.errors()[:3])[:_WORDS_MAX]) from None


def _words(error: Any) -> str:  # noqa: ANN401 - the compiler's own
    """Lines and columns count from 1 for people."""
    place = f"{error.filename.decode('utf-8', 'replace')}:{error.line + 1}:{error.column + 1}"
    return f"{place}: {error.message.decode('utf-8', 'replace')}"


def _file(name: str, descriptors: bytes) -> FileDescriptor:
    pool = DescriptorPool()
    try:
        for file in FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
    except TypeError as error:  # what the compiler only warns of, such as two fields with one JSON name
        raise BadSchemaError(str(error).replace("\n", " ")[:_WORDS_MAX]) from None
    return pool.FindFileByName(name)


def message_of(file: FileDescriptor, name: str | None) -> Descriptor:
    """A message of the file, by its name with the package or without; the first without a name."""
    if name is None:
        if not file.message_types_by_name:
            msg = "it has no message"
            raise BadSchemaError(msg)
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
    """What a file imports, without what every reader has."""
    return [one for one in file.dependencies if not one.name.startswith("google/protobuf/")]


def message_indexes(message: Descriptor) -> bytes:
    """Which message of its file, as stands before it in a payload: one zero for the first, else how many steps, and each."""
    path: list[int] = []
    current: Descriptor | None = message
    while current is not None:
        outer = current.containing_type
        beside = current.file.message_types_by_name if outer is None else outer.nested_types_by_name
        path.insert(0, beside.keys().index(current.name))  # in the order in which they stand in the file
        current = outer
    if path == [0]:
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(path), *path))


def _zigzag(number: int) -> bytes:
    number <<= 1
    out = bytearray()
    while number > 127:  # noqa: PLR2004 - seven bits
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
