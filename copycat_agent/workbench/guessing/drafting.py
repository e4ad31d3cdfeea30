"""Writes the text of a definition, with comments about what a person may want to change, formatted like `fmt`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from copycat_agent.definitions.formatting import flow, format_text, quoted, written
from copycat_agent.workbench.guessing.guesses import Guess, StepGuess, Value

_COMMENT_COLUMN = 44
_PACKED = re.compile(r"\.(gz|zst|bz2|xz|lz4|sz)$")
_ROTATED = re.compile(r"([-.]\d{4}-?\d\d-?\d\d.*|\.\d{1,4}|\.old)$")
_ENDING = re.compile(r"\.(log|txt|json|jsonl|ndjson|csv|tsv|xml|out|err|parquet|avro)$", re.IGNORECASE)


class Case(NamedTuple):
    """A test: lines of the sample and the expected record. `read_time` is RFC 3339, "" for the default."""

    lines: tuple[str, ...]
    expect: Mapping[str, Value]
    read_time: str = ""


class DefinitionDraft(NamedTuple):
    """The parts of a definition. `subject` is the source's type, `path` the sample, None without one; `encoding` is "" for UTF-8.

    `sample` is that of the source's `SourceKind`.
    """

    subject: str
    name: str
    topic: str
    path: Path | None = None
    guess: Guess | None = None
    case: Case | None = None
    encoding: str = ""
    sample: str = ""


def name_for(path: Path | None, subject: str) -> str:
    """Returns a connector's name from a file's (`access` from `access.log.1.gz`); without a file, from the source's type."""
    if path is None:
        return subject.replace("_", "-")
    name = _ENDING.sub("", _base(path.name))
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].rstrip("-") or subject.replace("_", "-")


def _base(name: str) -> str:
    """Returns the name of the live file from that of a rotated or packed one."""
    return _ROTATED.sub("", _PACKED.sub("", name)) or name


def draft(parts: DefinitionDraft) -> str:
    """Returns the definition's text, as `fmt` writes it."""
    sections = (_head(parts), _source(parts), _transforms(parts), _record(parts), _rest(parts), _tests(parts))
    text = "\n\n".join("\n".join(lines) for section in sections if (lines := list(section)))
    return format_text(f"{text}\n".encode())


def _line(text: str, comment: str = "") -> str:
    return f"{text:<{_COMMENT_COLUMN - 1}} # {comment}" if comment else text


def _head(parts: DefinitionDraft) -> Iterator[str]:
    if parts.guess is not None and parts.path is not None:
        yield f"# {parts.guess.what}, guessed from {_printable(parts.path.name)}."
    else:
        yield "# A definition to begin with."
    yield "# `copycat explain KEY` says what an option means, `copycat check DIR` whether a definition is right."
    yield ""
    yield _line(f"name: {written(parts.name)}", "the key of its offsets: keep it once the connector has run")
    yield "# enabled: false"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def _source(parts: DefinitionDraft) -> Iterator[str]:
    yield "source:"
    if parts.sample:
        yield from (f"  {line}" for line in parts.sample.splitlines())
    else:
        yield from _log_file(parts) if parts.subject == "log_file" else _spool_dir(parts)


def _log_file(parts: DefinitionDraft) -> Iterator[str]:
    yield "  type: log_file"
    yield _line("  include:", "absolute paths or patterns; ** crosses directories")
    yield f"    - {written(_pattern(_live_path(parts.path)) if parts.path else '/var/log/my-app/*.log')}"
    yield _line('  # exclude: ["*.bak"]', "by file name, or by whole path when it holds a slash")
    yield _line("  # start_at: end", 'or a time, "2026-11-21T05:00:00Z"; only for files that were there before')
    chosen = f"encoding: {parts.encoding}" if parts.encoding else "# encoding: latin-1"
    yield _line(f"  {chosen}", "any codec of Python; auto goes by the byte order mark")
    multiline = parts.guess.multiline if parts.guess else None
    if not multiline:
        yield _line("  # line: {max_bytes: 1MiB, on_too_long: split}", "default: a longer line is a bad record; split sends it in parts")
    if multiline:
        why = "a stack trace belongs to the line above it" if "preset" in multiline else "other lines belong to the record above"
        yield _line(f"  multiline: {flow(multiline)}", why)
    else:
        yield _line("  # multiline: {preset: java}", "or python, indented, {start: RE}: records of several lines")


def _pattern(path: str) -> str:
    """Returns a pattern that matches only this path."""
    return re.sub(r"[*?\[]", r"[\g<0>]", path)


def _live_path(path: Path) -> str:
    """Returns the path of the live log: the sample's path without suffixes of rotation and packing."""
    return str(path.absolute().parent / _base(path.name))


def _spool_dir(parts: DefinitionDraft) -> Iterator[str]:
    yield "  type: spool_dir"
    yield f"  dir: {written(str(parts.path.absolute().parent) if parts.path else '/var/spool/my-app/in')}"
    ending = (
        "".join(Path(parts.path.name).suffixes[-2:] if _PACKED.search(parts.path.name) else parts.path.suffix) if parts.path else ".csv"
    )
    pattern = f"*{_PACKED.sub('', ending)}*"
    yield _line(f"  pattern: {written(pattern)}", "names of the files")
    yield _line("  # recursive: true", "directories below as well")
    yield _line("  ready: {min_age: 5s}", "complete when unchanged for so long")
    yield _line('  # ready: {done_file: "{name}.done"}', "or when this file is there")
    layout = parts.guess.layout if parts.guess else None
    if parts.encoding:
        layout = {**(layout or {"type": "lines"}), "encoding": parts.encoding}
    if layout:
        yield from _layout(layout)
    elif parts.guess:
        yield _line("  # format: csv", "default: each line is a record; copycat explain source.format")
    else:
        yield _line("  format: {type: csv, header: true}", "or jsonl, json, xml, avro, parquet, lines, fixed_width, binary")
    yield _line("  cleanup: {policy: none}", "what becomes of a file that is delivered: delete, move, move_by_date")
    yield "  # cleanup: {policy: move, to: /var/spool/my-app/done, failed_to: /var/spool/my-app/failed}"


def _layout(layout: Mapping[str, Value]) -> Iterator[str]:
    types = layout.get("types")
    if not isinstance(types, Mapping):
        yield f"  format: {flow(layout)}"
        return
    yield "  format:"
    yield from (f"    {name}: {flow(value)}" for name, value in layout.items() if name != "types")
    yield _line("    types:", "columns that are not listed are text")
    yield from (f"      {written(name)}: {flow(value)}" for name, value in types.items())


def _steps_of(parts: DefinitionDraft) -> Sequence[StepGuess]:
    """Returns the steps. A spooled format has parsed the fields already, so only the step for the time is left."""
    if parts.guess is None:
        return ()
    if parts.subject == "spool_dir" and parts.guess.layout:
        return tuple(step for step in parts.guess.steps if step.action == "timestamp")
    return parts.guess.steps


def _transforms(parts: DefinitionDraft) -> Iterator[str]:
    steps = _steps_of(parts)
    if not steps:
        yield "# transforms:"
        yield "#   - json: {}                             # or regex, grok, logfmt, csv, syslog, cri, key_value: makes fields of a line"
        yield "#   - timestamp: {field: ts, format: iso8601}"
        yield "#   - drop_if: {level: [DEBUG, TRACE]}     # dropped records are settled: offsets move on"
        return
    yield "transforms:"
    for step in steps:
        yield from _step(step)
    yield _line('  # - drop_if: {FIELD: {matches: "RE"}}', "what nobody needs; or keep_if")
    yield _line("  # - mask: {FIELD: 'RE'}", "what nobody may see")


def _step(step: StepGuess) -> Iterator[str]:
    if step.why:
        yield f"  # {step.why}"
    value = step.options
    yield f"  - {step.action}: {quoted(value) if isinstance(value, str) else flow(value)}"
    yield from (f"    {name}: {flow(option)}" for name, option in step.beside.items())
    if step.keep:
        yield _line("    on_error: keep", "counted, and the record goes on; default: what errors says")


def _copied(parts: DefinitionDraft) -> Iterator[str]:
    """Yields `record` for records of topics, which have a key, headers and a time already, and a commented sink of files."""
    topic = "copy.{@topic}" if parts.topic == f"logs.{parts.name}" else parts.topic
    yield "record:"
    yield _line(f"  topic: {written(topic)}", "key, headers and time of records stay as they are")
    yield _line("  partition: source", "if the target has as many; default: by the key")
    yield _line("# sink:", "in place of record: files of a directory or an object store")
    yield "#   type: files"
    yield _line("#   uri: file:///srv/lake/orders/", "or s3://lake/orders/, gs://, abfss://")
    yield '#   path: "{@topic}/dt={@timestamp:%Y-%m-%d}"'
    yield _line("#   format: parquet", "converters.value: json says then how values are read")


def _record(parts: DefinitionDraft) -> Iterator[str]:
    if parts.subject == "kafka":
        yield from _copied(parts)
        return
    guess = parts.guess
    yield "record:"
    yield _line(f"  topic: {written(parts.topic)}", 'or a template with a literal beginning, "logs.{level}"')
    if guess and guess.key:
        yield _line(f"  key: {written(guess.key)}", "records with one key stay in order, in one partition")
    else:
        yield _line('  # key: "{@file.path}"', "records with one key stay in order, in one partition")
    yield _line('  # headers: {host: "{@host}"}', "cost half the rate and more")
    if guess and guess.timestamp and _sets_time(_steps_of(parts)):
        yield _line("  timestamp: event", "the time in the record; default: when it is sent")
    else:
        yield _line("  # timestamp: event", "the time in the record, as a timestamp step found it; default: when it is sent")


def _sets_time(steps: Sequence[StepGuess]) -> bool:
    return any(step.action in ("timestamp", "syslog", "cri", "docker") for step in steps)


def _rest(parts: DefinitionDraft) -> Iterator[str]:
    yield "errors:"
    yield _line("  tolerance: all", "none: a bad record stops the connector")
    yield _line("  dlq: {topic: logs.dlq}", "where bad records go, with the reason")
    yield ""
    yield _line("# converters: {value: json}", "the default once a step has made fields; or avro, json_schema, protobuf")
    yield _line("# delivery: {tasks_max: 2}", "files that are read side by side")
    yield _line("# limits: {records_per_second: 10000}", "slows down, drops nothing")
    yield _line("# kafka: {bootstrap_servers: [127.0.0.1:9092]}", "better in agent.yaml, for all connectors")
    if parts.case is None and parts.guess is None:
        yield "# tests: []                               # sample lines and the records they should become: copycat test DIR"


def _tests(parts: DefinitionDraft) -> Iterator[str]:
    if parts.case is None:
        return
    case = parts.case
    yield "tests:"
    yield "  # quotes the sample: change what should not stand in a file"
    yield "  - name: a line of the sample"
    if len(case.lines) == 1:
        yield f"    input: {quoted(case.lines[0])}"
    else:
        yield "    input:"
        yield from (f"      - {quoted(line)}" for line in case.lines)
    if case.read_time:
        yield f"    read_time: {quoted(case.read_time)}"
    yield "    expect:"
    yield from _expected(case.expect)


def _expected(expect: Mapping[str, Value]) -> Iterator[str]:
    lead = "      - "
    for key, value in expect.items():
        if isinstance(value, Mapping):
            yield f"{lead}{key}:"
            yield from (f"          {written(name)}: {flow(inner)}" for name, inner in value.items())
        else:
            yield f"{lead}{key}: {flow(value)}"
        lead = "        "
