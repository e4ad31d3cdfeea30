"""What a template reads of a record."""

from __future__ import annotations

from typing import Any, Protocol


class HasKey(Protocol):
    """What a template reads of an envelope."""

    @property
    def key(self) -> bytes | None:
        """The record's key."""


class RecordLike(Protocol):
    """What a template reads of a record; `model.Record` is one."""

    @property
    def value(self) -> bytes | dict[str, Any] | None:
        """The framed bytes, or the fields."""

    @property
    def start(self) -> int:
        """First byte of the record."""

    @property
    def end(self) -> int:
        """Byte behind the record."""

    @property
    def number(self) -> int:
        """Number of the record, from 1."""

    @property
    def timestamp_ms(self) -> int | None:
        """Event time in epoch milliseconds."""

    @property
    def envelope(self) -> HasKey | None:
        """What came with the record beside its value."""
