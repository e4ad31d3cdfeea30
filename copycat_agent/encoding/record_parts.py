"""Applies steps to the parts of a record over the limit: the first part passes through them like any record; later ones copy its results.

After each step a later part has the fields and the time of the first one, with its own text in place of the end of the first one's text.
So parsing steps and filters are not applied to later parts: the first part has decided. All other steps are: masking, for example, has to
mask every part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from copycat_agent.errors import DataError
from copycat_agent.formats import Draft
from copycat_agent.options import TransformOptions
from copycat_agent.templates import compile_path
from copycat_agent.transforms import Step, action_of, kind_of
from copycat_agent.transforms.parsing import ParseOptions
from copycat_agent.transforms.paths import with_field

Value = bytes | dict[str, Any]

_UNWRAPS = ("cri", "docker")
"""Steps that remove something from every line of a record, and so from those of later parts, too."""


class PartOfRecord(NamedTuple):
    """The `number`-th part, from 1, of a record, whose first part is the bytes from `first[0]` up to `first[1]`.

    `read_first` returns a draft of the first part, a new one with each call. `record` names the record, equal for all of its parts.
    """

    draft: Draft
    number: int
    first: tuple[int, int]
    read_first: Callable[[], Draft]
    record: bytes


@dataclass(slots=True)
class FirstPartResult:
    """The results of one stage's steps for a record's first part, `draft`.

    `seen`: the values before and after each step that was applied. `goes_on`: no step dropped it. `trouble` see `Draft`.
    `bad`: why the first part is a bad record, and with it all others; None when it is not.
    """

    draft: Draft
    seen: list[tuple[Value, Value]] = field(default_factory=list)
    goes_on: bool = False
    trouble: str = ""
    bad: DataError | None = None


class PartSteps:
    """The steps of one stage, with their options."""

    def __init__(self, steps: Sequence[Step], options: Sequence[TransformOptions]) -> None:
        self._steps = tuple(zip(steps, options, strict=True))

    def begin(self, begun: FirstPartResult) -> None:
        """Applies the steps to the first part, and stores their results in `begun`."""
        draft = begun.draft
        try:
            for step, _ in self._steps:
                before = _copy(draft.value)
                if not step(draft):
                    break
                begun.seen.append((before, _copy(draft.value)))
            else:
                begun.goes_on = True
        except DataError as error:
            begun.bad = error
        begun.trouble = draft.trouble

    def go_on(self, begun: FirstPartResult, draft: Draft) -> bool:
        """Applies the steps to a later part. Returns False when one of them dropped it. Raises DataError."""
        for (step, options), (before, after) in zip(self._steps, begun.seen, strict=True):
            if kind_of(options).is_filter:
                continue
            parsing = next((value for _, value in options if isinstance(value, ParseOptions)), None)
            if parsing is None or not _takes_text(draft, before, parsing):
                if not step(draft):
                    return False
            else:
                _carry(draft, before, after, parsing, step if action_of(options) in _UNWRAPS else None)
        draft.timestamp_ms = begun.draft.timestamp_ms
        return True


def _takes_text(draft: Draft, before: Value, parsing: ParseOptions) -> bool:
    """Returns whether the step parses the part's own text, and not a field copied from the first part."""
    own = _text(draft.value, parsing.field)
    return own is not None and own != _text(before, parsing.field)


def _carry(draft: Draft, before: Value, after: Value, parsing: ParseOptions, unwrap: Step | None) -> None:
    """Gives a later part the results of a parsing step for the first one; `unwrap` is that step if it is one of `_UNWRAPS`."""
    if isinstance(after, bytes):
        return  # its condition did not hold
    text, first = _text(draft.value, parsing.field), _text(before, parsing.field) or ""
    known: dict[str, Any] = before if isinstance(before, dict) else {"message": first}
    own = draft.fields()
    made = {name: value for name, value in after.items() if name not in known or known[name] != value}
    path = _end_of(first, made)
    if unwrap is not None and made:
        path = [*(parsing.into.split(".") if parsing.into else []), "message"]
        text = _unwrapped(draft, unwrap, ".".join(path)) or text
    # if no field has the text, the step removes it from every record: it must not return, since it may hold what has to be masked
    carried = {name: value if name in made else own.get(name, value) for name, value in after.items()}
    draft.value = carried if path is None else with_field(carried, path, text)


def _unwrapped(draft: Draft, unwrap: Step, path: str) -> str | None:
    """Returns the text of a part without the wrapping of its lines; None for one that begins or ends within a line."""
    alone = Draft(dict(draft.fields()), draft.start, draft.end, draft.number)
    try:
        goes_on = unwrap(alone)
    except DataError:
        return None
    return _text(alone.value, path) if goes_on and not alone.trouble else None


def _end_of(text: str, fields: dict[str, Any]) -> list[str] | None:
    """Returns the path of the field that a step made of the end of `text`: the longest that ends with the text, else with a line of it."""
    found = sorted(_ends(text.rstrip() + "\n", fields), reverse=True)
    return found[0][2] if found else None


def _ends(text: str, fields: dict[str, Any]) -> Iterator[tuple[bool, int, list[str]]]:
    """Yields fields that end with a line of `text`: whether it is the last one, their length, and their path."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from ((is_last, size, [name, *path]) for is_last, size, path in _ends(text, value))
        elif isinstance(value, str) and (end := value.rstrip()) and (end + "\n" in text or end + "\r\n" in text):
            yield text.endswith(end + "\n"), len(end), [name]


def _text(value: Value, name: str) -> str | None:
    """Returns a field's text; a raw line is the text of its field `message`. None for anything else."""
    found = compile_path(name)(Draft(value))
    if isinstance(found, bytes):
        return found.decode("utf-8", "replace")
    return found if isinstance(found, str) else None


def _copy(value: Value) -> Value:
    """Returns a copy that later steps do not change: they change the dict of fields, and nothing within a field."""
    return dict(value) if isinstance(value, dict) else value
