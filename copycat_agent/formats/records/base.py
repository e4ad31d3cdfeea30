"""What a record format is, and how the dict of formats lists one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from copycat_agent.formats.model import OnTooLong, RecordFile, RecordFormat
from copycat_agent.model import Column
from copycat_agent.options import Field, Options


class FormatOptions(Options):
    """Base of a format's options. `type` is the name in `FORMATS`."""

    type: str = Field(description="Format of the files.")


class FileFormat:
    """What most formats of whole files are, see `RecordFormat`: each says what else it is."""

    counts_records = False
    finds_end = False
    makes_fields = True
    on_too_long: OnTooLong = "dlq"

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """Not cut: where a record begins shows only from the beginning."""
        del file, parts
        return ()


class OptionProblem(NamedTuple):
    """What options cannot mean together: where (names of options and keys, from the format on), why, and the next step."""

    place: tuple[str | int, ...]
    why: str
    hint: str


def _none(_: Any) -> Iterable[OptionProblem]:  # noqa: ANN401 - options of any format
    return ()


def one_line(_: Any) -> tuple[Column, ...]:  # noqa: ANN401 - options of any format
    """The columns of records without fields: the record itself."""
    return (Column("message"),)


def _unknown(_: Any) -> tuple[Column, ...] | None:  # noqa: ANN401 - options of any format
    return None


@dataclass(frozen=True, slots=True)
class FormatKind:
    """An entry of `FORMATS`. `problems`: what its options cannot mean though each of them is valid; with one, `build` is not called.

    `columns`: the columns of every file, where the options say them; None where only the files do.
    """

    options: type[FormatOptions]
    build: Callable[[Any], RecordFormat]
    problems: Callable[[Any], Iterable[OptionProblem]] = _none
    columns: Callable[[Any], tuple[Column, ...] | None] = _unknown
