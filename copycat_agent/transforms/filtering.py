"""`keep_if`, `drop_if` and `sample` choose records. A dropped record is settled: its offset moves."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Annotated

from copycat_agent.formats.draft import Draft
from copycat_agent.options import Field, Options
from copycat_agent.templates import SplitMeta, compile_path, scalar_text
from copycat_agent.transforms.base import Columns, Steady, Step, StepOptions, Transform, TransformKind, in_short
from copycat_agent.transforms.match import Condition, Matcher, compile_matcher
from copycat_agent.transforms.paths import FieldName

_MASK = 0xFFFFFFFF


class KeepIfOptions(StepOptions):
    """Only matching records go on."""

    keep_if: Matcher[dict[str, Condition]] = Field(
        min_length=1,
        description="Only records that match go on: fields, each with a value, a list of values, or "
        "{matches: RE}, {lt|le|gt|ge: n}, {exists: bool}, {not: any of these}. All fields have to match.",
    )


class DropIfOptions(StepOptions):
    """Matching records are dropped."""

    drop_if: Matcher[dict[str, Condition]] = Field(
        min_length=1,
        description="Records that match are dropped: fields, each with a value, a list of values, or "
        "{matches: RE}, {lt|le|gt|ge: n}, {exists: bool}, {not: any of these}. All fields have to match.",
    )


def _drop(options: DropIfOptions) -> Transform:
    matches = compile_matcher(options.drop_if)

    def drop_if(draft: Draft) -> bool:
        return not matches(draft)

    return Steady(drop_if)


def _same(_: object, before: Columns | None) -> Columns | None:
    return before


KEEP_IF = TransformKind(KeepIfOptions, lambda options: Steady(compile_matcher(options.keep_if)), _same, is_filter=True)
DROP_IF = TransformKind(DropIfOptions, _drop, _same, is_filter=True)


class SampleSettings(Options):
    """How many, and chosen by what."""

    rate: float = Field(gt=0, le=1, description="The part that goes on: 0.1 is one in ten.")
    key: FieldName | None = Field(
        None,
        description="All records with one value of this field go on, or none of them. Absent, or missing in a record: each for itself.",
    )


class SampleOptions(StepOptions):
    """A part of the records goes on."""

    sample: Annotated[SampleSettings, in_short("rate", int | float, float | SampleSettings)] = Field(
        description="`sample: 0.1` lets one record in ten go on; the others are dropped. By the record's place in its file, or by a key: "
        "what is read again is chosen again."
    )


@dataclass(frozen=True, slots=True)
class _SampleFilter:
    settings: SampleSettings

    def bind(self, meta: SplitMeta) -> Step:
        """Seeds the hash by inode, which a rename does not change; by path if a file has none.

        The record's position is hashed and not its content, since equal lines would all be kept or all dropped. CRC-32 takes 0.2 µs, is the
        same everywhere, and even enough.
        """
        below = round(self.settings.rate * 2**32)
        seed = meta.inode & _MASK if meta.inode else zlib.crc32(meta.path.encode("utf-8", "surrogatepass"))
        crc = zlib.crc32

        def sample(draft: Draft) -> bool:
            place = draft.start if draft.envelope is None else draft.end - 1  # `Draft.first`, in half the time
            return crc(b"%d" % place, seed) < below

        if self.settings.key is None:
            return sample
        find = compile_path(self.settings.key)

        def sample_by_key(draft: Draft) -> bool:
            value = find(draft)
            try:
                text = value if isinstance(value, str) else scalar_text(value)
            except ValueError:  # an int of more digits than Python turns into text
                text = None
            if text is None:
                return sample(draft)
            return crc(text.encode("utf-8", "surrogatepass")) < below

        return sample_by_key


SAMPLE = TransformKind(SampleOptions, lambda options: _SampleFilter(options.sample), _same, is_filter=True)
