"""One record on its way from the bytes that framing found to the fields that steps make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from copycat_agent.model import Schema


class Unparsed(NamedTuple):
    """A record that a format found and could not read: a bad record. `why` never holds its data."""

    why: str
    hint: str = ""


class Draft:
    """One record while it is worked on. A chunk makes one for each record that is looked at by itself, and one for all others.

    Steps change it in place: a new record per step, or a frozen one, would cost more than the work of most steps (0.1 µs).

    `value` is the framed bytes, or the fields once the format or a step has made some. The dict of fields is the steps' own: they may
    change it. What lies within a field (a dict, a list) is not: it is replaced, never changed, since it may be the format's.
    `timestamp_ms` is the event time in epoch milliseconds, None while no step has set one.

    Steps only read the rest. The record is bytes `start` up to, not including, `end` of its file, delimiter included, or record
    numbers where the format counts those; it is the `number`-th of its file, from 1. `framed` is `value` as framing left it, `raw` the
    record's bytes as they stand in the file, None where the format has none or `framed` is those. `as_is` see `Parsed`. `partial`: no
    delimiter ends it, and nobody will finish it. `kept` counts the errors that `on_error: keep` passed over, `trouble` is the first
    one that it or `on_error: drop` passed over, in words; "" for none.
    """

    __slots__ = ("as_is", "end", "framed", "kept", "number", "partial", "raw", "schema", "start", "timestamp_ms", "trouble", "value")

    def __init__(
        self,
        value: bytes | dict[str, Any] | Unparsed,
        start: int = 0,
        end: int = 0,
        number: int = 1,
        raw: bytes | None = None,
        schema: Schema | None = None,
        as_is: bool = False,  # noqa: FBT001, FBT002 - as in `Parsed`
    ) -> None:
        self.framed = value
        self.value: bytes | dict[str, Any] = value  # type: ignore[assignment]  # no step sees an `Unparsed`
        self.start = start
        self.end = end
        self.number = number
        self.raw = raw
        self.schema = schema
        self.as_is = as_is
        self.partial = False
        self.timestamp_ms: int | None = None
        self.kept = 0
        self.trouble = ""

    def fields(self) -> dict[str, Any]:
        """The fields, to be changed in place. A raw line gets its one field, `message`: UTF-8, U+FFFD for what is not."""
        value = self.value
        if isinstance(value, bytes):
            value = self.value = {"message": value.decode("utf-8", "replace")}
        return value

    @property
    def bytes(self) -> bytes:
        """The record's bytes, for a dead letter; b"" where the format has none."""
        if self.raw is not None:
            return self.raw
        return self.framed if isinstance(self.framed, bytes) else b""

    def anew(self) -> Draft:
        """The same record as framing left it."""
        draft = Draft(self.framed, self.start, self.end, self.number, self.raw, self.schema, self.as_is)
        draft.partial = self.partial
        return draft
