"""The parts of a definition, compiled: steps, templates and converters."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from copycat_agent.batch.window import window_of
from copycat_agent.converters import CONVERTERS, Converter, Site, build_converter
from copycat_agent.options import Definition, KafkaOptions, TransformOptions
from copycat_agent.sources import SOURCES
from copycat_agent.sources.declared import declared_columns
from copycat_agent.templates import compile_template
from copycat_agent.transforms import Transform, build_transform, columns_after, kind_of

_TAKE_TEXT = ("string", "bytes")
"""Converters that take the bytes of a record that also has fields."""


class Recipe:
    """What a definition is made of. Stateless after construction; shared by threads."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.clock: Callable[[], float] = time.time
        self.source = SOURCES[definition.source.type]
        self.frames = self.source.framing(definition.source, raw=_is_raw(definition))
        self.transforms = tuple(self.step(step, number) for number, step in enumerate(definition.transforms))
        self._queries = [number for number, step in enumerate(definition.transforms) if kind_of(step).is_query]
        self.changes_fields = not all(kind_of(step).is_filter for step in definition.transforms)
        self.window = window_of(definition, raw=_is_raw(definition))
        record = definition.record
        self.topic = compile_template(record.topic)
        self.key = None if record.key is None else compile_template(record.key)
        self.headers = {name: compile_template(text) for name, text in record.headers.items()}
        self.value = None if record.value is None else compile_template(record.value)
        has_fields = bool(definition.transforms) or self.value is not None or getattr(self.frames, "makes_fields", False)
        self.convert_key: Converter = _key_converter(definition)
        self.convert_value = _value_converter(definition, has_fields=has_fields)
        key, value = definition.converters.key, definition.converters.value
        self.key_wants_record = key is not None and CONVERTERS[key.type].wants_record
        self.wants_record = value is not None and CONVERTERS[value.type].wants_record
        self._wants_bytes = value is not None and CONVERTERS[value.type].is_identity
        self._wants_fields = value is not None and value.type not in _TAKE_TEXT

    def step(self, options: TransformOptions, number: int) -> Transform:
        """The `number`-th of its steps, from 0."""
        return build_transform(options, number)

    def takes_raw(self, *, as_is: bool) -> bool:
        """Whether the value of a record with fields is its raw bytes, as long as no step makes other fields of it; `as_is` see `Parsed`."""
        return self.value is None and (self._wants_bytes or (as_is and not self._wants_fields))

    @property
    def convert_fields(self) -> Converter | None:
        """What `convert_value` does to fields, when it goes by what the value is; bytes go as they are then. Else None."""
        return _json if self.convert_value is _by_shape else None

    @property
    def stages(self) -> tuple[tuple[Transform, ...], ...]:
        """The steps, cut at every query: those before the first one, those between it and the next, and so on. One stage without any."""
        cuts = [-1, *self._queries, len(self.transforms)]
        return tuple(self.transforms[before + 1 : cut] for before, cut in pairwise(cuts))

    def options_of(self, stage: int) -> tuple[TransformOptions, ...]:
        """The options of the steps of one stage."""
        cuts = [-1, *self._queries, len(self.transforms)]
        return self.definition.transforms[cuts[stage] + 1 : cuts[stage + 1]]

    @property
    def kafka(self) -> KafkaOptions:
        """The cluster; topics that are made get the broker's time where records are to have it."""
        kafka = self.definition.kafka
        if self.definition.record.timestamp != "broker" or kafka.create_topics is None:
            return kafka
        config = {**kafka.create_topics.config, "message.timestamp.type": "LogAppendTime"}
        return kafka.model_copy(update={"create_topics": kafka.create_topics.model_copy(update={"config": config})})

    def literal_topics(self) -> tuple[str, ...]:
        """Topics known before any record is read."""
        return (self.topic.literal_prefix,) if self.topic.is_literal else ()


def _is_raw(definition: Definition) -> bool:
    """Whether values go as the bytes that stand in the file: asked for by `converters: {value: bytes}`, without transforms."""
    value = definition.converters.value
    return not definition.transforms and definition.record.value is None and value is not None and CONVERTERS[value.type].is_identity


def _key_converter(definition: Definition) -> Converter:
    options = definition.converters.key
    site = Site("key", definition.converters.schema_registry)
    return build_converter(options, site) if options else str.encode


def _value_converter(definition: Definition, *, has_fields: bool) -> Converter | None:
    """The converter of values; None where bytes can go as they are."""
    options = definition.converters.value
    if options is None:
        return _by_shape if has_fields else None
    site = _site(definition)
    return None if CONVERTERS[options.type].is_identity and not has_fields else build_converter(options, site)


def _site(definition: Definition) -> Site:
    """Where the converter of values works. A value made by a template has no declared fields."""
    steps, registry = definition.transforms, definition.converters.schema_registry
    if definition.record.value is not None:
        return Site("value", registry, None, lambda _: None)
    after = (lambda columns: columns_after(steps, columns)) if steps else None
    return Site("value", registry, columns_after(steps, declared_columns(definition.source)), after)


def _by_shape(value: bytes | str | dict[str, Any]) -> bytes:
    """The default: bytes and texts as they are, JSON once a transform has made fields."""
    if isinstance(value, bytes):
        return value
    return value.encode("utf-8", "backslashreplace") if isinstance(value, str) else _json(value)


_json: Converter = build_converter(CONVERTERS["json"].options(type="json"))
