"""Options of converters with schemas, the files that they name, and problems of their combinations.

A schema's file is read when the definition is: a missing file, or one that is not text, is a problem of the definition, with its place. The
text is part of the definition, so that every process has the same one, and a changed file is a changed definition.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal
from urllib.parse import urlsplit

from copycat_agent.converters.base import BadSchemaError, ConverterProblem, Site
from copycat_agent.oauth import token_problems
from copycat_agent.options import BeforeValidator, ConverterOptions, Field, PlainSerializer, SchemaRegistryOptions, WithJsonSchema
from copycat_agent.small_files import read_small_file

BYTES_MAX = 2**20
"""The most bytes of one file."""
_IMPORTS_MAX = 100
_IMPORT = re.compile(r'(?<![\w.])import\s+(?:public\s+|weak\s+|option\s+)?"([^"\n]{1,255})"\s*;')


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """The `text` of the file at `path`. `imports` are the names and texts of the files beside it that a .proto file imports."""

    path: str
    text: str = field(repr=False)
    imports: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """Returns the file's name without its directories."""
        return PurePosixPath(self.path).name


OPENED: ContextVar[frozenset[str] | None] = ContextVar("OPENED", default=None)
"""Paths of the schemas that may be opened, None for any. A definition from outside may only use those that the host's own ones name."""


def _read(path: object) -> object:
    """Returns the file at a path. Raises ValueError that says what is wrong with it."""
    if not isinstance(path, str):
        return path
    if not path.startswith("/"):
        raise ValueError("a schema's file needs an absolute path; start it with /")
    if (opened := OPENED.get()) is not None and path not in opened:
        raise ValueError("is not opened here: no definition that runs names this schema")
    return SchemaFile(path, _text(path))


def _read_proto(path: object) -> object:
    """Returns the file at a path with its imports."""
    file = _read(path)
    if not isinstance(file, SchemaFile) or not isinstance(path, str):
        return file
    found: dict[str, str] = {}
    _follow(Path(path).parent, file.text, found)
    found.pop(file.name, None)
    return SchemaFile(path, file.text, tuple(sorted(found.items())))


def _follow(directory: Path, text: str, found: dict[str, str]) -> None:
    """Reads imports beside the first file, or below: the compiler reports all others as missing."""
    for name in _imports_of(text):
        if name in found or not is_inside(name) or not (directory / name).is_file():
            continue
        if len(found) >= _IMPORTS_MAX:
            raise ValueError(f"imports more than {_IMPORTS_MAX} files")
        found[name] = _text(str(directory / name))
        _follow(directory, found[name], found)


def _imports_of(text: str) -> list[str]:
    """Returns the names that a .proto file imports, without those that come with the compiler."""
    return [name for name in _IMPORT.findall(text) if not name.startswith("google/protobuf/")]


def is_inside(name: str) -> bool:
    """Returns whether a name stays below the directory that it is put into."""
    parts = name.split("/")
    return not name.startswith("/") and "\\" not in name and "\0" not in name and not {"", ".", ".."} & set(parts)


def _text(path: str) -> str:
    """Returns a small regular file's text."""
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
"""The file of a .proto schema with its imports: a path in YAML."""


_URL = ("schema_registry", "url")


class SchemaOptions(ConverterOptions):
    """Base of converters that find their schema in a schema registry."""

    subject: str | None = Field(
        None, min_length=1, max_length=512, description="Subject in the schema registry. Default: by subject_strategy."
    )
    subject_strategy: Literal["topic", "record", "topic_record"] = Field(
        "topic",
        description="topic: TOPIC-value or TOPIC-key. record: the schema's full name. topic_record: TOPIC- and that. As in Kafka Connect's "
        "TopicNameStrategy, RecordNameStrategy and TopicRecordNameStrategy.",
    )
    schema_: SchemaPath | None = Field(
        None, alias="schema", description="File with the schema, absolute. Default: the latest version of the subject."
    )
    auto_register: bool = Field(
        False,
        description="true registers the schema: that of the file, or one made from the declared types or from the files that are read. "
        "false: it has to be in the registry.",
    )

    @property
    def derives(self) -> bool:
        """Returns whether the schema is made from declared types, or from the files that are read."""
        return self.schema_ is None and self.auto_register


class StrictOptions(SchemaOptions):
    """Base of those whose records hold the schema's fields and no others."""

    extra_fields: Literal["error", "drop"] = Field(
        "error", description="Fields that the schema does not have. error: a bad record. drop: they are left out."
    )


def schema_problems(options: SchemaOptions, site: Site) -> Iterator[ConverterProblem]:
    """Yields problems of any kind of schema. Reads files, does not use the network."""
    part = site.part
    if site.registry is None:
        hint = "add converters.schema_registry: {url: http://HOST:PORT}"
        yield ConverterProblem((part,), f"converter {options.type} needs a schema registry", hint, "missing-key")
    if options.subject is not None and "subject_strategy" in options.model_fields_set:
        yield ConverterProblem((part, "subject_strategy"), "has no effect beside subject", "delete one of the two")
    if options.subject is None and options.subject_strategy != "topic" and options.schema_ is None and not options.auto_register:
        hint = "add schema: FILE, or name the subject"
        yield ConverterProblem((part, "subject_strategy"), "the name of the record is only known with its schema", hint)
    if options.type == "protobuf" and options.derives:
        why = "needs a schema to register: the numbers of Protobuf's fields cannot be made from declared types and stay the same"
        yield ConverterProblem((part, "auto_register"), why, "name its file under schema")


def registry_problems(registry: SchemaRegistryOptions) -> Iterator[ConverterProblem]:
    """Yields problems of the registry's own options."""
    try:
        address = urlsplit(registry.url)
        good = address.scheme in ("http", "https") and bool(address.hostname) and (address.port is None or address.port > 0)
    except ValueError:
        yield ConverterProblem(_URL, "is no address", "as in http://registry.example.test:8081")
        return
    if "@" in address.netloc:
        yield ConverterProblem(_URL, "has a login in it", "write it under schema_registry.basic_auth: {username, password}")
    elif not good or "," in registry.url or address.query or address.fragment:
        yield ConverterProblem(
            _URL, "is no address of a registry", "one address, http:// or https://, as in http://registry.example.test:8081"
        )
    if registry.basic_auth is not None and ":" in registry.basic_auth.username:
        hint = "HTTP ends the user's name at the first :"
        yield ConverterProblem(("schema_registry", "basic_auth", "username"), "has a : in it", hint)
    yield from _tls_problems(registry, address.scheme)
    if registry.oauth is not None:
        if registry.basic_auth is not None:
            yield ConverterProblem(("schema_registry", "oauth"), "has no effect beside basic_auth", "delete one of the two")
        for name, code, why, hint in token_problems(registry.oauth):
            yield ConverterProblem(("schema_registry", "oauth", name) if name else ("schema_registry", "oauth"), why, hint, code)


class CertificateError(Exception):
    """A file that cannot be used. `option` names it; the text holds no secret."""

    def __init__(self, option: str, why: str) -> None:
        super().__init__(f"{option}: {why}")
        self.option = option
        self.why = why


def tls_context(options: SchemaRegistryOptions) -> ssl.SSLContext:
    """Returns a context for connections. Without `ca_file` it trusts the host's authorities, as for Kafka. Raises CertificateError."""
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except ssl.SSLError:
        raise CertificateError("ca_file", f"{options.ca_file} holds no certificates (PEM)") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a file name"
        raise CertificateError("ca_file", f"{options.ca_file} cannot be read: {why}") from None
    if options.cert_file is not None:
        password = options.key_password.get_secret_value() if options.key_password else ""
        try:
            context.load_cert_chain(options.cert_file, options.key_file, lambda: password)  # without one OpenSSL would ask a terminal
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or "not PEM, or another key"
            raise CertificateError("cert_file", f"{options.cert_file} and its key cannot be used: {why}") from None
    return context


def _tls_problems(registry: SchemaRegistryOptions, scheme: str) -> Iterator[ConverterProblem]:
    """Yields problems of TLS options. The client's certificate is not opened: only the agent may read its key, and `doctor` checks it."""
    said = [name for name in ("ca_file", "cert_file", "key_file", "key_password") if getattr(registry, name) is not None]
    if not said:
        return
    if scheme == "http":
        for name in said:
            yield ConverterProblem(("schema_registry", name), "needs an https:// address", f"correct url, or delete {name}")
    elif (registry.cert_file is None) != (registry.key_file is None) or (registry.key_password is not None and registry.key_file is None):
        yield ConverterProblem(("schema_registry", said[-1]), "a certificate and its key go together", "cert_file: PATH, key_file: PATH")
    else:
        try:
            tls_context(registry.model_copy(update={"cert_file": None}))
        except CertificateError as error:
            yield ConverterProblem(("schema_registry", error.option), error.why, "name a readable PEM file (-----BEGIN CERTIFICATE-----)")


def underivable(site: Site, error: BadSchemaError) -> ConverterProblem:
    """Returns the problem when no schema can be made from the declared fields."""
    hint = "correct it in transforms, or name a schema FILE"
    return ConverterProblem((site.part,), f"no schema can be made from the declared fields: {error}", hint)


def file_problem(site: Site, file: SchemaFile, why: str, hint: str) -> ConverterProblem:
    """Returns a problem of a schema's file."""
    return ConverterProblem((site.part, "schema"), f"{file.path}: {why}", hint)


class AvroConverterOptions(StrictOptions):
    """Avro with a schema registry: a zero byte, the schema's id, the record in Avro's binary form."""

    type: Literal["avro"] = Field("avro", description="Avro, with the schema's id in a schema registry.")


class JsonSchemaOptions(SchemaOptions):
    """JSON with a schema registry: a zero byte, the schema's id, the record as the json converter writes it."""

    type: Literal["json_schema"] = Field("json_schema", description="JSON, with the schema's id in a schema registry.")
    validate_: bool = Field(
        True,
        alias="validate",
        description="true: a record that the schema does not allow is a bad record. false: nothing is checked, which is much faster with "
        "schemas that use more than types, required, enum and bounds.",
    )


class ProtobufOptions(StrictOptions):
    """Protobuf with a schema registry: a zero byte, the schema's id, which message of it, the message."""

    type: Literal["protobuf"] = Field("protobuf", description="Protobuf, with the schema's id in a schema registry.")
    schema_: ProtoPath | None = Field(
        None,
        alias="schema",
        description="A .proto file, absolute. It may import files from its own directory and below, and google/protobuf/*. Default: the "
        "latest version of the subject.",
    )
    message: str | None = Field(
        None, min_length=1, max_length=512, description="Message of the schema, with its package or without. Default: the first."
    )
