"""The output of `copycat try`: the line, what the steps made of it, and the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from copycat_agent.cli.value_text import as_json, leaves, plain, type_of, value_text
from copycat_agent.display import SecretMask, visible
from copycat_agent.options import Definition
from copycat_agent.templates import time_text
from copycat_agent.transforms import kind_of
from copycat_agent.workbench.trying import Fields, Output, StepTrace, TrialResult, TriedRecord, stopped

_MOST_LINES = 20
"""The most lines of one record that are shown; a group may have hundreds."""
_MOST_CHARACTERS = 2000
"""The most characters of one line that are shown."""
_LEAST_ROOM, _MOST_ROOM = 30, 120
"""The most and least characters around the caret if a line has to be cut."""
_BAR = " | "
_ORIGIN = ("copycat.file", "copycat.offset", "copycat.end")
_LABELS = {"dead-lettered": "dead letter", "passed over": "passed over", "stops": "stops the connector"}


def masked(line: Text, mask: SecretMask) -> Text:
    """Returns the line without secrets; it loses its colours if it held one."""
    shown = mask.text(line.plain)
    return line if shown == line.plain else Text(shown)


def hidden(samples: TrialResult, mask: SecretMask) -> TrialResult:
    """Hides secrets, before anything is cut or encoded: half of one, or its base64, would show. Messages of errors stay."""
    return samples._replace(records=tuple(hidden_in(one, mask) for one in samples.records))


def hidden_in(one: TriedRecord, mask: SecretMask) -> TriedRecord:
    """Returns one record without secrets."""
    return one._replace(
        raw=mask.value(one.raw),
        value=mask.value(one.value),
        steps=tuple(step._replace(before=mask.value(step.before), after=mask.value(step.after)) for step in one.steps),
        outputs=tuple(mask.value(output) for output in one.outputs),
    )


def picture(samples: TrialResult, definition: Definition, width: int, *, verbose: bool) -> Iterator[Text]:
    """Yields all records, line by line, and remarks about all of them. `width`: the length of a line that is not wrapped."""
    for sampled in samples.records:
        yield from _record(sampled, definition, width, verbose=verbose)
        yield Text("")
    if samples.unchecked:
        yield Text("nothing was checked against the schema: only the schema registry knows it, and try is offline", "yellow")
    if samples.damage:
        yield Text(f"the file cannot be read on: {visible(samples.damage)}", "red")
    if samples.error is not None:
        yield Text(f"then the connector stops: {visible(str(samples.error))}", "red")


def _record(sampled: TriedRecord, definition: Definition, width: int, *, verbose: bool) -> Iterator[Text]:
    yield from _input(sampled)
    for step in sampled.steps:
        if verbose:
            yield from _step(step, definition)
        if step.error is not None and (step.outcome in {"failed", "kept"} or verbose):
            yield from _where(step, sampled, definition, width, is_below=not verbose and step is sampled.steps[0])
            if step.outcome != "failed":
                yield Text.assemble("  ", ("kept     ", "yellow"), f"{step.name}: {visible(step.error.message)}")
    for output in sampled.outputs:
        yield from _output(output)
    if sampled.fate == "dropped":
        last = sampled.ended_by
        why = f" ({visible(last.error.message)})" if last is not None and last.error is not None else ""
        yield Text.assemble("  ", ("dropped  ", "yellow"), f"by {last.name}{why}" if last else "by the definition")
    if sampled.error is not None:
        yield from _failure(sampled, definition)


def _input(sampled: TriedRecord) -> Iterator[Text]:
    """Yields the record as it is in the file, with its number."""
    text = value_text(sampled.value) if sampled.raw is None else sampled.raw.decode("utf-8", "backslashreplace")
    lines = text.split("\n")
    width = _gutter(sampled)
    for number, line in enumerate(lines[:_MOST_LINES]):
        label = f"{sampled.number:>{width}} | " if not number else f"{'':>{width}} | "
        yield Text.assemble((label, "cyan"), visible(_short(line)))
    if len(lines) > _MOST_LINES:
        yield Text(f"{'':>{width}} | and {len(lines) - _MOST_LINES} more lines", "dim")


def _gutter(sampled: TriedRecord) -> int:
    return max(4, len(str(sampled.number)))


def _short(line: str) -> str:
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}... ({len(line):,} characters)"


def _step(step: StepTrace, definition: Definition) -> Iterator[Text]:
    """Yields one step and its changes."""
    changes = list(changed(step.before, step.after)) if step.outcome in {"done", "kept"} else []
    words = {"skipped": "  skipped, its if does not match", "dropped": "  drops it", "kept": "  fails", "failed": "  fails"}.get(
        step.outcome
    )
    if words is None:
        is_filter = kind_of(definition.transforms[step.number]).is_filter
        words = "" if changes or step.timestamp_ms is not None else "  lets it pass" if is_filter else "  changes nothing"
    yield Text.assemble("  ", (step.name, "bold" if changes else ""), (words, "dim"))
    if step.timestamp_ms is not None:
        yield Text.assemble("    ", ("+ @timestamp  ", "green"), time_text(step.timestamp_ms))
    for sign, name, before, after in changes:
        if sign == "-":
            yield Text.assemble("    ", (f"- {name}", "red"))
        elif sign == "+":
            yield Text.assemble("    ", (f"+ {name}  ", "green"), *_value(after))
        else:
            yield Text.assemble("    ", (f"~ {name}  ", "yellow"), *_value(before), "  ->  ", *_value(after))


def changed(before: Fields, after: Fields) -> Iterator[tuple[str, str, object, object]]:
    """Yields fields that a step removed (-), added (+) or changed (~), with their values: by dotted names."""
    old, new = _leaves(before), _leaves(after)
    yield from (("-", name, value, None) for name, value in old.items() if name not in new)
    for name, value in new.items():
        if name not in old:
            yield "+", name, None, value
        elif type(old[name]) is not type(value) or old[name] != value:
            yield "~", name, old[name], value


def _leaves(value: Fields) -> dict[str, object]:
    return dict(leaves(value)) if isinstance(value, Mapping) else {"message": value.decode("utf-8", "backslashreplace")}


def _where(step: StepTrace, sampled: TriedRecord, definition: Definition, width: int, *, is_below: bool) -> Iterator[Text]:
    """Yields a caret where the pattern stopped. `is_below`: the record's line is just above; else the parsed text is shown too."""
    found = stopped(definition, step)
    if found is None:
        return
    begin = found.text.rfind("\n", 0, found.at) + 1
    end = found.text.find("\n", found.at)
    line, at = found.text[begin : None if end < 0 else end], found.at - begin
    room = max(_LEAST_ROOM, min(_MOST_ROOM, width - _gutter(sampled) - len(_BAR) - len("...")))
    fits = cell_len(visible(line)) + _gutter(sampled) + len(_BAR) <= width
    is_shown = is_below and fits and sampled.raw == line.encode() and len(line) <= _MOST_CHARACTERS
    cut = max(0, at - room * 2 // 3) if len(line) > room and not is_shown else 0
    before = ("..." if cut else "") + visible(line[cut:at])
    if not is_shown:
        yield Text.assemble((f"{'':>{_gutter(sampled)}} : ", "cyan"), before, (visible(line[at : cut + room]), "red"))
    element = visible(_short(found.element))
    element = f'"{element}"' if element != element.strip() else element  # a blank would not show
    expects = f" expects {element}" if element else ""
    yield Text.assemble((f"{'':>{_gutter(sampled)}} | ", "cyan"), " " * cell_len(before), ("^", "bold red"), (expects, "red"))


def _output(output: Output) -> Iterator[Text]:
    """Yields a record as it would be sent."""
    head = Text.assemble("  ", ("sent     ", "green"), (visible(output.topic), "bold"))
    if output.key is not None:
        head.append("  key ").append(_bytes(output.key), "bold")
    if output.partition is not None:
        head.append(f"  partition {output.partition}")
    if output.timestamp_ms is not None:
        head.append(f"  at {time_text(output.timestamp_ms)}")
    yield head
    for name, content in output.headers:
        if name not in _ORIGIN:
            yield Text.assemble("           ", (f"header {visible(name)}: ", "dim"), _bytes(content))
    if isinstance(output.value, Mapping):
        rows = list(leaves(output.value))
        width = min(30, max((cell_len(name) for name, _ in rows), default=0))
        for name, value in rows:
            yield Text.assemble("           ", (f"{name}{' ' * (width - cell_len(name))}  ", "cyan"), *_value(value))
    elif isinstance(output.value, bytes):
        yield Text.assemble("           ", visible(_short(_decoded(output.value))))
    else:
        yield Text.assemble("           ", *_value(output.value))


def _value(value: object) -> Iterator[tuple[str, str]]:
    """Yields a value, and its type if that is not obvious."""
    yield _short(value_text(value)), ""
    if not isinstance(value, str | list | tuple | Mapping) and value is not None:
        yield f"  {type_of(value)}", "dim"


def _failure(sampled: TriedRecord, definition: Definition) -> Iterator[Text]:
    assert sampled.error is not None
    dlq = definition.errors.dlq
    to = f" to {dlq.topic}" if sampled.fate == "dead-lettered" and dlq is not None else ""
    words = f"{_LABELS[sampled.fate]}{to}, stage {sampled.stage}: {visible(sampled.error.message)}"
    yield Text.assemble("  ", ("failed   ", "bold red"), words)
    if sampled.error.hint and not sampled.error.hint.startswith("copycat try"):
        yield Text.assemble("           ", ("hint: ", "cyan"), visible(sampled.error.hint))


def assumed_words(references: Sequence[str]) -> str:
    """Returns that secrets are not read, and which ones."""
    return f"looked at without {', '.join(map(visible, references))}: the name stands for each"


def summary(samples: TrialResult) -> str:
    """Returns `20 records in: 17 out, 2 dropped (transforms[3] drop_if), 1 failed (transforms[0] regex)`."""
    records = samples.records
    parts = [f"{sum(len(one.outputs) for one in records):,} out"]
    for words, chosen in (
        ("dropped", [one for one in records if one.fate == "dropped"]),
        ("failed", [one for one in records if one.error is not None]),
    ):
        if chosen:
            parts.append(f"{len(chosen):,} {words}{_by_step(chosen)}")
    if kept := [step for one in records for step in one.kept_errors]:
        parts.append(f"{len(kept):,} error{'' if len(kept) == 1 else 's'} kept{_counted(Counter(step.name for step in kept))}")
    if samples.long_dropped:
        parts.append(f"{samples.long_dropped:,} lines dropped, longer than line.max_bytes")
    more = "; there is more in the file, see -n" if samples.has_more else ""
    return f"{len(records):,} record{'' if len(records) == 1 else 's'} in: {', '.join(parts)}{more}"


def _by_step(records: list[TriedRecord]) -> str:
    return _counted(Counter(one.ended_by.name if one.ended_by else f"stage {one.stage}" for one in records))


def _counted(counts: Counter[str]) -> str:
    if len(counts) == 1:
        return f" ({next(iter(counts))})"
    return f" ({', '.join(f'{count:,} {name}' for name, count in counts.items())})"


def report(samples: TrialResult) -> dict[str, Any]:
    """Returns the results for programs."""
    return {
        "records": [_entry(one) for one in samples.records],
        "has_more": samples.has_more,
        "unchecked": samples.unchecked,
        "long_dropped": samples.long_dropped,
        "damage": samples.damage or None,
        "error": str(samples.error) if samples.error is not None else None,
        "summary": summary(samples),
    }


def _entry(one: TriedRecord) -> dict[str, Any]:
    return {
        "record": one.number,
        "start": one.start,
        "end": one.end,
        "positions": "records" if one.by_record else "bytes",
        "input": as_json(one.raw) if one.raw is not None else plain(one.value),
        "fate": one.fate,
        "steps": [_step_entry(step) for step in one.steps],
        "outputs": [_output_entry(output) for output in one.outputs],
        **({"stage": one.stage, "reason": one.error.message, "hint": one.error.hint} if one.error is not None else {}),
    }


def _step_entry(step: StepTrace) -> dict[str, Any]:
    error = {"reason": step.error.message} if step.error is not None else {}
    set_ms = {"timestamp_ms": step.timestamp_ms} if step.timestamp_ms is not None else {}
    return {"step": step.name, "outcome": step.outcome, "fields": plain(_fields(step.after)), **set_ms, **error}


def _fields(value: object) -> object:
    return as_json(value) if isinstance(value, bytes) else value


def _output_entry(output: Output) -> dict[str, Any]:
    return {
        "topic": output.topic,
        "key": as_json(output.key),
        "value": plain(_fields(output.value)),
        "payload": as_json(output.payload),
        "headers": {name: as_json(content) for name, content in output.headers if name not in _ORIGIN},
        "timestamp_ms": output.timestamp_ms,
        "partition": output.partition,
    }


def _bytes(content: bytes) -> str:
    return visible(_decoded(content))


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")
