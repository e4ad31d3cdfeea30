"""Rules for `record`, queries and `converters` beyond the type of each option, options implied by steps, and doubtful ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, get_args

from copycat_agent.converters import CONVERTERS, ConverterProblem, Site, registry_problems
from copycat_agent.converters.value_readers import READABLE
from copycat_agent.definitions.kafka_rules import lacking
from copycat_agent.definitions.models import Loc, key_of, markers
from copycat_agent.definitions.options_reader import InvalidValue, Reader
from copycat_agent.definitions.problems import Finding
from copycat_agent.encoding.files_layout import directory
from copycat_agent.errors import DataError
from copycat_agent.formats import MultilineOptions
from copycat_agent.formats.multiline_options import GroupOptions
from copycat_agent.formats.records.byte_records import LinesOptions
from copycat_agent.model import Column
from copycat_agent.options import (
    ConverterOptions,
    ConvertersOptions,
    Definition,
    ErrorsOptions,
    KafkaOptions,
    Options,
    RecordOptions,
    Regex,
    SinkOptions,
    SourceOptions,
    TransformOptions,
)
from copycat_agent.patterns import compile_pattern
from copycat_agent.sinks.files_options import FilesSinkOptions
from copycat_agent.sources import declared_columns
from copycat_agent.sources.log_file.log_options import LogFileOptions
from copycat_agent.templates import Template, compile_template
from copycat_agent.transforms import (
    TRANSFORMS,
    UNKNOWN_COLUMNS,
    UNKNOWN_COLUMNS_HINT,
    StepOptions,
    action_of,
    columns_after,
    columns_at,
    kind_of,
)
from copycat_agent.transforms.grok import GrokOptions, translated
from copycat_agent.transforms.match import PlainCondition
from copycat_agent.transforms.sql import SqlOptions, sql_at

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_TOPIC_HINT = "a topic name has 1 to 249 of the characters A-Z a-z 0-9 . _ -"
_KAFKAS_OWN = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__copycat_offsets"})
"""Topics for the internal data of Kafka or this agent: a log line in there harms all users of the cluster."""


def is_topic(name: str) -> bool:
    """Returns whether Kafka accepts `name` as a topic's."""
    return bool(_TOPIC.fullmatch(name)) and name not in {".", ".."}


def check_record(reader: Reader, record: RecordOptions) -> None:
    """Checks that templates compile, topics can exist, and a topic made from data stays within intended names."""
    for number, name in enumerate(record.allowed_topics):
        _check_topic(reader, ("record", "allowed_topics", number), name)
    if topic := _template(reader, ("record", "topic"), record.topic):
        _check_topic_template(reader, record, topic)
    for name in ("key", "value"):
        if (text := getattr(record, name)) is not None:
            _template(reader, ("record", name), text)
    for name, text in record.headers.items():
        _template(reader, ("record", "headers", name), text)
    if isinstance(record.partition, int) and not 0 <= record.partition < 2**31:
        reader.report(("record", "partition"), "bad-value", "a partition is a number from 0", "or one of key, sticky, file")


def check_files(
    reader: Reader,
    sink: SinkOptions,
    source: SourceOptions | InvalidValue,
    converters: ConvertersOptions | InvalidValue,
    transforms: Sequence[TransformOptions] | InvalidValue,
) -> None:
    """Checks that the path of files compiles and is not hidden from readers, and that records come from Kafka, can be read and written."""
    path = _template(reader, ("sink", "path"), getattr(sink, "path", ""))
    if path is not None:
        made = "".join(one if isinstance(one, str) else "x" for one in path.parts).strip("/")
        try:
            directory(made, sink.prefix_bytes)
        except DataError as error:
            reader.report(("sink", "path"), "bad-value", error.message, error.hint)
        if any(name[:1] in {"_", "."} for name in made.split("/")):
            hint = "readers pass over files and directories with such names"
            reader.report(("sink", "path"), "bad-value", "no directory of it may begin with _ or a dot", hint)
    value = None if isinstance(converters, InvalidValue) else converters.value
    if value is not None and value.type not in READABLE:
        reader.report(("converters", "value"), "converter", f"values of {value.type} cannot be read", f"known are {', '.join(READABLE)}")
    form = getattr(sink, "format", "")
    maker = None if form not in {"lines", "binary"} else _maker(value, () if isinstance(transforms, InvalidValue) else transforms)
    if maker is not None:
        hint = "write format jsonl, or one with columns, or leave out what makes fields: bytes are written as they are in Kafka"
        reader.report(("sink", "format"), "sink", f"format {form} takes bytes or text, and {maker} makes fields of every record", hint)
    if isinstance(source, SourceOptions) and source.type != "kafka":
        hint = "files are written from source: {type: kafka}; the source's records can go to a topic first"
        reader.report(("sink", "type"), "sink", f"records of source {source.type} cannot go into files", hint)


def _maker(value: ConverterOptions | None, transforms: Sequence[TransformOptions]) -> str | None:
    """Returns what makes every record an object, or a bad record; None if that is not certain. A package's step may leave bytes."""
    if value is not None and value.type in {"json", "json_schema", "protobuf"}:
        return f"converters.value: {value.type}"
    for number, step in enumerate(transforms):
        action = action_of(step)
        is_certain = isinstance(step, StepOptions) and step.if_ is None and step.on_error is None and action in TRANSFORMS.built_in
        if is_certain and not kind_of(step).is_filter:
            return f"transforms[{number}] {action}"
    return None


def check_timestamp(reader: Reader, record: RecordOptions, kafka: KafkaOptions) -> None:
    """Checks that `record.timestamp` fits the topics that this definition creates."""
    made = kafka.create_topics.config.get("message.timestamp.type") if kafka.create_topics else None
    if record.timestamp == "broker" and made not in {None, "LogAppendTime"}:
        hint = "delete message.timestamp.type there: the agent sets LogAppendTime, or choose another record.timestamp"
        reader.report(("record", "timestamp"), "bad-value", "kafka.create_topics.config makes topics without the broker's time", hint)


def check_errors(reader: Reader, errors: ErrorsOptions, transforms: Sequence[TransformOptions]) -> None:
    """Checks that the dead-letter topic can exist, and that there is one if a step needs it."""
    if errors.dlq is not None:
        _check_topic(reader, ("errors", "dlq", "topic"), errors.dlq.topic)
        return
    for number, step in enumerate(transforms):
        if getattr(step, "on_error", None) == "dlq":
            hint = "set errors: {dlq: {topic: NAME}}, or another on_error"
            reader.report(("transforms", number, "on_error"), "bad-value", "there is no dead-letter topic", hint)


def check_dead_letters(reader: Reader, errors: ErrorsOptions, record: RecordOptions) -> None:
    """Checks that dead letters have a topic of their own: readers of one topic must not get the other's records."""
    if errors.dlq is not None and errors.dlq.topic in {record.topic, *record.allowed_topics}:
        reader.report(("errors", "dlq", "topic"), "topic", "is a topic of the records, too", "choose another topic for dead letters")


def _template(reader: Reader, loc: Loc, text: str) -> Template | None:
    try:
        return compile_template(text)
    except ValueError as error:
        reader.report(loc, "template", str(error))
        return None


def _check_topic_template(reader: Reader, record: RecordOptions, topic: Template) -> None:
    loc: Loc = ("record", "topic")
    prefix = topic.literal_prefix
    if topic.is_literal:
        _check_topic(reader, loc, prefix)
        if record.allowed_topics and prefix not in record.allowed_topics:
            reader.report(loc, "topic", "is not among allowed_topics", "add it there, or delete allowed_topics")
    elif prefix and not _TOPIC.fullmatch(prefix):
        reader.report(loc, "topic", "no topic can begin like this", _TOPIC_HINT)
    elif not record.allowed_topics and not prefix.strip("._"):
        hint = 'write a prefix, as in "logs.{name}", or list allowed_topics'
        text = "a topic made from data needs a literal prefix with a letter, a digit or -, or allowed_topics"
        reader.report(loc, "template", text, hint)
    elif not record.allowed_topics and prefix.startswith("__"):
        hint = "choose another prefix, or list allowed_topics"
        reader.report(loc, "topic", "a topic made from data cannot begin with __, as Kafka's own topics do", hint)


def _check_topic(reader: Reader, loc: Loc, name: str) -> None:
    if not is_topic(name):
        reader.report(loc, "topic", "is no topic name", _TOPIC_HINT)
    elif name in _KAFKAS_OWN:
        reader.report(loc, "topic", f"{name} is not for records: Kafka or the agent keeps its books there", "choose another topic")


def check_queries(reader: Reader, source: SourceOptions, transforms: Sequence[TransformOptions]) -> None:
    """Checks that there is at most one query, the columns of its table are known, and its requirements are installed."""
    first = sql_at(transforms)
    if first is None:
        return
    if missing := lacking("sql"):
        reader.report(("transforms", first, "sql"), "not-installed", *missing, on_key=True)
    for number, options in enumerate(transforms):
        if isinstance(options, SqlOptions) and number != first:
            hint = f"write it around the query of step {first}, in brackets behind its FROM"
            reader.report(("transforms", number, "sql"), "sql", "a definition has one query, and this is its second", hint, on_key=True)
    if columns_at(source, transforms, first) is None:
        reader.report(("transforms", first, "sql"), "sql", UNKNOWN_COLUMNS, UNKNOWN_COLUMNS_HINT, on_key=True)


def check_converters(
    reader: Reader,
    converters: ConvertersOptions,
    source: SourceOptions | None,
    transforms: Sequence[TransformOptions] | None,
    record: RecordOptions | None,
) -> None:
    """Checks converters against the fields of records. A section that could not be read is None: no fields are known then."""
    columns: tuple[Column, ...] | None = None
    if source is not None and transforms is not None and record is not None and record.value is None:
        columns = columns_after(transforms, declared_columns(source))
    if converters.schema_registry is not None:
        _report(reader, registry_problems(converters.schema_registry))
    parts: tuple[Literal["key", "value"], ...] = ("key", "value")
    for part in parts:
        options = getattr(converters, part)
        kind = None if options is None else CONVERTERS.get(options.type)
        if kind is not None:
            _report(reader, kind.problems(options, Site(part, converters.schema_registry, columns if part == "value" else None)))


def _report(reader: Reader, problems: Iterable[ConverterProblem]) -> None:
    for place, why, hint, code in problems:
        reader.report(("converters", *place), code, why, hint)


FILE_SECONDS = 60.0
"""A file that takes longer to write ends there, unless `delivery.max_batch_time` is set."""
_WRAPPED = frozenset({"cri", "docker"})
_MOST_PARTS = 100_000


def with_implied(definition: Definition) -> Definition:
    """Returns the definition with implied options.

    A step that unwraps lines of containers implies joining the parts of a line. The limits of over-long lines also apply to records of
    several lines, unless those have their own. Records that come from Kafka keep their times.
    """
    source, form = definition.source, getattr(definition.source, "format", None)
    if source.type == "kafka":
        return _of_kafka(definition)
    if isinstance(source, LogFileOptions):
        return definition.model_copy(update={"source": _grouped(definition, source)})
    if isinstance(form, LinesOptions):
        return definition.model_copy(update={"source": source.model_copy(update={"format": _grouped(definition, form)})})
    return definition


def _of_kafka(definition: Definition) -> Definition:
    record, delivery, sink = definition.record, definition.delivery, definition.sink
    if "timestamp" not in record.model_fields_set:
        record = record.model_copy(update={"timestamp": "event"})
    if isinstance(sink, FilesSinkOptions):
        wanted = {"max_batch_bytes": sink.roll.bytes, "max_batch_time": FILE_SECONDS}
        changed = {name: value for name, value in wanted.items() if name not in delivery.model_fields_set}
        delivery = delivery.model_copy(update={**changed, "guarantee": "at_least_once"})  # files need no lanes, whatever guarantee is set
        record = record.model_copy(update={"topic": sink.path})
    return definition.model_copy(update={"record": record, "delivery": delivery})


def _grouped(definition: Definition, options: LogFileOptions | LinesOptions) -> Options:
    multiline: GroupOptions | None = options.multiline
    if multiline is None and any(action_of(step) in _WRAPPED for step in definition.transforms):
        kind = MultilineOptions if isinstance(options, LogFileOptions) else GroupOptions
        multiline = kind(preset="container", max_lines=_MOST_PARTS, max_bytes=max(2**20, options.line.max_bytes))
    return options if multiline is None else options.model_copy(update={"multiline": multiline.under(options.line)})


_HINT = "leave no two ways to match one text: (?:[^,]+,)* instead of (?:.+,?)*, or (?>...) around what need not be tried again"
_OVERRULED = "is not used: multiline.on_too_long says what becomes of a record over a limit, its lines included"
_OVERRULED_HINT = "delete one of the two"
_MARKER = get_args(Regex)[1]


def doubtful(definition: Definition) -> list[Finding]:
    """Returns a warning for each pattern with which a match may take too long, and for a policy that is not used."""
    found = [*_patterns(definition.source, ("source",))]
    for number, step in enumerate(definition.transforms):
        found += _patterns(step, ("transforms", number))
    slow = [Finding(loc, "slow-pattern", doubt, _HINT) for loc, pattern in found if (doubt := compile_pattern(pattern).doubt)]
    form = getattr(definition.source, "format", None)
    place: Loc = ("source", "format") if isinstance(form, LinesOptions) else ("source",)
    options: Any = form if isinstance(form, LinesOptions) else definition.source
    line: Any = getattr(options, "line", None)
    multiline = getattr(options, "multiline", None)
    if multiline is None or "on_too_long" not in line.model_fields_set or line.on_too_long == multiline.on_too_long:
        return slow
    return [*slow, Finding((*place, "line", "on_too_long"), "unused", _OVERRULED, _OVERRULED_HINT)]


def _patterns(options: Options, loc: Loc) -> Iterator[tuple[Loc, str]]:
    """Yields every regular expression in these options, with its place."""
    if isinstance(options, GrokOptions):
        yield from (((*loc, "pattern", number), text) for number, text in enumerate(translated(options)))
        return
    for name, field in type(options).model_fields.items():
        is_pattern = _MARKER in markers(field) or (isinstance(options, PlainCondition) and name == "matches")
        yield from _within(getattr(options, name), (*loc, key_of(name, field)), is_pattern=is_pattern)


def _within(value: object, loc: Loc, *, is_pattern: bool) -> Iterator[tuple[Loc, str]]:
    if isinstance(value, Options):
        yield from _patterns(value, loc)
    elif isinstance(value, str) and is_pattern:
        yield loc, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _within(inner, (*loc, key), is_pattern=is_pattern)
    elif isinstance(value, tuple):
        for number, inner in enumerate(value):
            yield from _within(inner, (*loc, number), is_pattern=is_pattern)
