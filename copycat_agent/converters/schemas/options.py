"""Options of converters with schemas, and what they cannot mean together."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

from copycat_agent.converters.base import OptionProblem, Site
from copycat_agent.converters.schemas.form import BadSchemaError
from copycat_agent.converters.schemas.schema_file import SchemaFile, SchemaPath
from copycat_agent.options import ConverterOptions, Field, SchemaRegistryOptions

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
        """Whether the schema is made from declared types, or from the files that are read."""
        return self.schema_ is None and self.auto_register


class StrictOptions(SchemaOptions):
    """Base of those whose records hold the schema's fields and no others."""

    extra_fields: Literal["error", "drop"] = Field(
        "error", description="Fields that the schema does not have. error: a bad record. drop: they are left out."
    )


def schema_problems(options: SchemaOptions, site: Site) -> Iterator[OptionProblem]:
    """What is wrong whatever the format of the schema. Reads files, asks no network."""
    part = site.part
    if site.registry is None:
        hint = "add converters.schema_registry: {url: http://HOST:PORT}"
        yield OptionProblem((part,), f"converter {options.type} needs a schema registry", hint, "missing-key")
    if options.subject is not None and "subject_strategy" in options.model_fields_set:
        yield OptionProblem((part, "subject_strategy"), "has no effect beside subject", "delete one of the two")
    if options.subject is None and options.subject_strategy != "topic" and options.schema_ is None and not options.auto_register:
        hint = "add schema: FILE, or name the subject"
        yield OptionProblem((part, "subject_strategy"), "the name of the record is only known with its schema", hint)


def registry_problems(registry: SchemaRegistryOptions) -> Iterator[OptionProblem]:
    """What is wrong with the registry's own options."""
    try:
        address = urlsplit(registry.url)
        good = address.scheme in ("http", "https") and bool(address.hostname) and (address.port is None or address.port > 0)
    except ValueError:
        yield OptionProblem(_URL, "is no address", "as in http://registry.example.test:8081")
        return
    if "@" in address.netloc:
        yield OptionProblem(_URL, "has a login in it", "write it under schema_registry.basic_auth: {username, password}")
    elif not good or "," in registry.url or address.query or address.fragment:
        yield OptionProblem(
            _URL, "is no address of a registry", "one address, http:// or https://, as in http://registry.example.test:8081"
        )
    if registry.basic_auth is not None and ":" in registry.basic_auth.username:
        hint = "HTTP ends the user's name at the first :"
        yield OptionProblem(("schema_registry", "basic_auth", "username"), "has a : in it", hint)
    if registry.ca_file is not None:
        yield from _ca_problems(registry.ca_file, address.scheme)


def _ca_problems(path: str, scheme: str) -> Iterator[OptionProblem]:
    place = ("schema_registry", "ca_file")
    if scheme == "http":
        yield OptionProblem(place, "needs an https:// address", "correct url, or delete ca_file")
        return
    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        yield OptionProblem(place, "holds no certificates", "it has to be PEM (-----BEGIN CERTIFICATE-----)")
    except (OSError, ValueError) as error:
        yield OptionProblem(place, f"cannot be read: {getattr(error, 'strerror', None) or 'not a file name'}", "name a readable PEM file")


def underivable(site: Site, error: BadSchemaError) -> OptionProblem:
    """Why no schema can be made from the declared fields."""
    hint = "correct it in transforms, or name a schema FILE"
    return OptionProblem((site.part,), f"no schema can be made from the declared fields: {error}", hint)


def file_problem(site: Site, file: SchemaFile, why: str, hint: str) -> OptionProblem:
    """What is wrong with a schema's file."""
    return OptionProblem((site.part, "schema"), f"{file.path}: {why}", hint)
