"""What became of sample records: the steps they went through, and what came out."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from copycat_agent.errors import CopycatError, DataError

Fields = bytes | dict[str, Any]
"""A record's value on its way: the framed bytes, or fields."""

Fate = Literal["sent", "dropped", "dead-lettered", "passed over", "stops"]
"""sent; dropped on purpose; a bad record: to the dead-letter topic, passed over and counted, or the end of the connector."""

StepOutcome = Literal["done", "skipped", "kept", "dropped", "failed"]
"""done; skipped: its `if` does not match; kept: it failed, and `on_error: keep` passed over that; dropped: here; failed: here."""


class StepTrace(NamedTuple):
    """What one step did to one record. `number` counts from 0, `action` is its name.

    `error` is why it failed, also where that was kept. `timestamp_ms` is the record's own time, where the step has set it. `before` and
    `after` share what lies within a field with the record: they are to be read only.
    """

    number: int
    action: str
    outcome: StepOutcome
    before: Fields
    after: Fields
    error: DataError | None = None
    timestamp_ms: int | None = None

    @property
    def name(self) -> str:
        """As errors name it: `transforms[2] convert`."""
        return f"transforms[{self.number}] {self.action}"


class Output(NamedTuple):
    """A record as it would be sent. `value` is what the converter gets, `payload` what it makes of it, `fields` are the record's, if any.

    `payload` is None where only a schema registry could tell, `partition` where the producer chooses, `timestamp_ms` where it is
    the time of sending.
    """

    topic: str
    key: bytes | None
    value: object
    fields: dict[str, Any] | None
    payload: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int | None
    partition: int | None


class TriedRecord(NamedTuple):
    """One record of a sample. `start` and `end` are its bytes in the file, or record numbers from 0 (`by_record`).

    `raw` are its bytes as they stand there; None where the file holds none of it alone. `outputs` are what is sent of it: one record,
    or as many as a query made. Of a bad one: `stage`, and `error`, whose message begins with the step where one failed.
    """

    number: int
    start: int
    end: int
    by_record: bool
    raw: bytes | None
    value: Fields | None
    fate: Fate
    steps: tuple[StepTrace, ...] = ()
    outputs: tuple[Output, ...] = ()
    stage: str = ""
    error: DataError | None = None

    @property
    def ended_by(self) -> StepTrace | None:
        """The step that dropped it or failed, None when none did."""
        last = self.steps[-1] if self.steps and (self.error is not None or not self.outputs) else None
        return last if last is not None and last.outcome in {"dropped", "failed"} else None

    @property
    def kept_errors(self) -> tuple[StepTrace, ...]:
        """The steps that failed and were passed over by `on_error: keep`."""
        return tuple(step for step in self.steps if step.outcome == "kept")


class TrialResult(NamedTuple):
    """What became of a sample.

    `error` is what would hold up the connector behind the last record, `damage` why the file ends there.
    `has_more`: not all of the file was looked at. `unchecked`: nobody knows whether values (or keys) fit their schema, as only a schema
    registry has it.
    `long_dropped` lines were over `line.max_bytes`, and dropped.
    """

    records: tuple[TriedRecord, ...]
    error: CopycatError | None = None
    damage: str = ""
    has_more: bool = False
    unchecked: bool = False
    long_dropped: int = 0
