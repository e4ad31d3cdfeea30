"""A schema out of a file, read when the definition is: what is not there or not text is a problem of the definition, with its place.

The text travels with the definition, so that every process has the same one, and a changed file is a changed definition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated

from copycat_agent.options import BeforeValidator, PlainSerializer, WithJsonSchema
from copycat_agent.small_files import read_small_file

BYTES_MAX = 2**20
"""Of one file."""
_IMPORTS_MAX = 100
_IMPORT = re.compile(r'(?<![\w.])import\s+(?:public\s+|weak\s+|option\s+)?"([^"\n]{1,255})"\s*;')


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """`text` stood in the file at `path`. `imports` are the texts of what a .proto file imports from beside it, by their names there."""

    path: str
    text: str = field(repr=False)
    imports: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """The file's name without its directories."""
        return PurePosixPath(self.path).name


def _read(path: object) -> object:
    """A path becomes its file. Raises ValueError that says what is wrong with it."""
    if not isinstance(path, str):
        return path
    if not path.startswith("/"):
        msg = "a schema's file needs an absolute path; start it with /"
        raise ValueError(msg)
    return SchemaFile(path, _text(path))


def _read_proto(path: object) -> object:
    """The same with what it imports."""
    file = _read(path)
    if not isinstance(file, SchemaFile) or not isinstance(path, str):
        return file
    found: dict[str, str] = {}
    _follow(Path(path).parent, file.text, found)
    found.pop(file.name, None)
    return SchemaFile(path, file.text, tuple(sorted(found.items())))


def _follow(directory: Path, text: str, found: dict[str, str]) -> None:
    """Only files beside the first one, or below: the compiler says of the others that they are not there."""
    for name in _imports_of(text):
        if name in found or not is_inside(name) or not (directory / name).is_file():
            continue
        if len(found) >= _IMPORTS_MAX:
            msg = f"imports more than {_IMPORTS_MAX} files"
            raise ValueError(msg)
        found[name] = _text(str(directory / name))
        _follow(directory, found[name], found)


def _imports_of(text: str) -> list[str]:
    """The names that a .proto file imports, without those that come with the compiler."""
    return [name for name in _IMPORT.findall(text) if not name.startswith("google/protobuf/")]


def is_inside(name: str) -> bool:
    """Whether a name leads nowhere but below the directory it is put into."""
    parts = name.split("/")
    return not name.startswith("/") and "\\" not in name and "\0" not in name and not {"", ".", ".."} & set(parts)


def _text(path: str) -> str:
    """A small regular file's text."""
    try:
        return read_small_file(path, BYTES_MAX).decode("utf-8-sig")
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
    except UnicodeDecodeError:
        msg = f"{path} is not UTF-8 text"
    raise ValueError(msg)


_AS_PATH = PlainSerializer(lambda file: file.path, return_type=str)
_PATH_SCHEMA = WithJsonSchema({"type": "string"})

SchemaPath = Annotated[SchemaFile, BeforeValidator(_read), _AS_PATH, _PATH_SCHEMA]
"""The file of a schema: a path in YAML."""
ProtoPath = Annotated[SchemaFile, BeforeValidator(_read_proto), _AS_PATH, _PATH_SCHEMA]
"""The same of a .proto file."""
