"""A record format with what else a task has to know of a connector's files: how much a packed one may hold."""

from __future__ import annotations

from collections.abc import Iterator

from copycat_agent.formats import Frame, OnTooLong, RecordFile, RecordFormat
from copycat_agent.sources.files.packing.limits import UnpackOptions


class LimitedFormat:
    """See `RecordFormat`; all of it is the format's own."""

    def __init__(self, form: RecordFormat, limits: UnpackOptions) -> None:
        self._form = form
        self.limits = limits
        self.on_too_long: OnTooLong = form.on_too_long
        self.counts_records = form.counts_records
        self.finds_end = form.finds_end
        self.makes_fields = form.makes_fields
        self.alone = getattr(form, "alone", None)  # only some formats can, see `dlq.rows`
        self.as_is = bool(getattr(form, "as_is", False))

    def frames(
        self,
        file: RecordFile,
        start: int,
        end: int,
        *,
        skipping: bool = False,
        final: bool = True,
        flush: bool = False,
        block_bytes: int | None = None,
        **cut: str,
    ) -> Iterator[Frame]:
        """See `RecordFormat.frames`."""
        return self._form.frames(file, start, end, skipping=skipping, final=final, flush=flush, block_bytes=block_bytes, **cut)

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """See `RecordFormat.cuts`."""
        return self._form.cuts(file, parts)
