"""The part of a record that templates read."""

from __future__ import annotations

from typing import Any, Protocol


class HasKey(Protocol):
    """The part of an envelope that templates read."""

    @property
    def key(self) -> bytes | None:
        """Returns the record's key."""


class RecordLike(Protocol):
    """The part of a record that templates read; `model.Record` is one."""

    @property
    def value(self) -> bytes | dict[str, Any] | None:
        """Returns the framed bytes, or the fields."""

    @property
    def start(self) -> int:
        """Returns the first byte of the record."""

    @property
    def end(self) -> int:
        """Returns the first byte after the record."""

    @property
    def number(self) -> int:
        """Returns the number of the record, from 1."""

    @property
    def timestamp_ms(self) -> int | None:
        """Returns the event time in epoch milliseconds."""

    @property
    def envelope(self) -> HasKey | None:
        """Returns what came with the record beside its value."""
