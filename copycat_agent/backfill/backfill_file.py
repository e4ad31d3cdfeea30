"""One file of a backfill: what it is, how far it is read, and its next split."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from copycat_agent.backfill.delivered import EarlierDeliveries, EarlierDelivery, ReadableFile
from copycat_agent.formats import Reader
from copycat_agent.model import SourceOffset, SourcePartition, Split, SplitResult
from copycat_agent.sources import FileView
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity, identify, is_at
from copycat_agent.sources.files.packing.compressions import MAGIC_BYTES
from copycat_agent.sources.files.packing.unpacking import codec_of
from copycat_agent.sources.planner import READY
from copycat_agent.sources.spool_dir.spool_stream import ENDLESS

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Links are followed, since the file was given by name. Opening a pipe does not block."""


class BackfillFile:
    """One file, open while a split of it is under way. `state`: failed files are left out, with the reason in `why`.

    `after` is the older file of its log, which is read first; `before` the younger one.
    `end` is where it ends for this run: what is written to it later is not read. `formers` correspond to the origins of its next split.
    Used from the connector's thread; methods raise nothing unless they say so.
    """

    def __init__(self, path: str, options: Any) -> None:  # noqa: ANN401 - options of any source
        self.path = path
        self.partition = SourcePartition("", "")
        self.state: Literal["", "failed"] = ""
        self.why = ""
        self.after: BackfillFile | None = None
        self.before: BackfillFile | None = None
        self.formers: tuple[EarlierDelivery, ...] = ()
        self.packed_position = 0
        self.backoff = READY
        self.read_at = 0.0
        self.fd = -1
        self.identity = Identity(0, 0, 0)
        self._mtime_ns = 0
        self.end = 0
        codec = ""
        try:
            self._look()
            codec = "" if self.why else codec_of(self._read(0, MAGIC_BYTES), options)
        except OSError as error:
            self.why = f"it cannot be opened: {error.strerror}"
        finally:
            self.close()
        self.offset = SourceOffset(0, path=path, size=self.end, mtime_ns=self._mtime_ns, compression=codec, done=not self.end)

    def _look(self) -> None:
        """Opens the file and notes its identity and size, or why it cannot be read. Raises OSError."""
        self.fd = os.open(self.path, _FLAGS)
        info = os.fstat(self.fd)
        if not stat.S_ISREG(info.st_mode):
            self.why = "it is a directory" if stat.S_ISDIR(info.st_mode) else "it is not a regular file"
            return
        self.identity = identify(self.fd, info)
        self.end, self._mtime_ns = info.st_size, info.st_mtime_ns

    @property
    def key(self) -> str:
        """Returns the key of its partition: the file's identity, or its name if it cannot be opened."""
        return f"path:{fingerprint.digest(os.fsencode(self.path))}" if self.why else self.identity.key(0)

    @property
    def age(self) -> tuple[int, int]:
        """Returns the sort key for the files of one log."""
        return self._mtime_ns, self.identity.birth_ns

    @property
    def is_over(self) -> bool:
        """Returns whether nothing of it will be read any more."""
        return self.offset.done or self.state == "failed"

    @property
    def unread(self) -> int:
        """Returns an estimate of the stored bytes that are not read yet."""
        if self.is_over:
            return 0
        return max(0, self.end - (self.packed_position if self.offset.compression else self.offset.position))

    def go_on(self, offset: SourceOffset) -> None:
        """Continues at the offset of an earlier part of this run."""
        self.offset = offset
        self.end = offset.size

    def find_again(self, key: str) -> bool:
        """Looks for the file with this key in its directory, and takes its new name. Returns False if not found, or never opened.

        A task compares what was read. Without birth times, a file whose device number changed has to have its old name.
        """
        directory = self.path.rpartition("/")[0] or "/"
        try:
            saved_as, _ = Identity.parse(key)
            with os.scandir(directory) as entries:
                names = [one.path for one in entries if one.inode() == saved_as.inode and one.is_file(follow_symlinks=False)]
            is_named = not (saved_as.birth_ns or self.identity.birth_ns) and self.path in names
            found = self.path if is_named else next((name for name in names if is_at(name, saved_as)), None)
            if found is None:
                return False
            self.path, self.why = found, ""
            self._look()
        except (OSError, ValueError):
            return False
        finally:
            self.close()
        return True

    def former(self, delivered: EarlierDeliveries, *, whole: bool) -> EarlierDelivery | None:
        """Continues after what was delivered of it, and returns that, if it is proven now; else keeps what a task has to look for.

        Raises OSError.
        """
        self.fd = os.open(self.path, _FLAGS)
        try:
            looked = ReadableFile(self.path, self.identity, self.end, self._mtime_ns, self.offset.compression, self._read)
            if whole:
                found = delivered.whole(looked)
                self.offset = replace(self.offset, done=True) if found else self.offset
                return found
            formers = delivered.before(looked)
        finally:
            self.close()
        if self.offset.compression:
            self.formers = tuple(formers)
            return None
        if not formers:
            return None
        begin = formers[0].offset
        self.offset = replace(
            self.offset, position=begin.position, records=begin.records, skipping=begin.skipping, cut=begin.cut,
            fingerprint=begin.fingerprint, done=begin.position >= self.end,
        )  # fmt: skip
        return formers[0]

    @property
    def is_first(self) -> bool:
        """Returns whether no older file of its log has to be read first."""
        return self.after is None or self.after.is_over

    def split(self, *, counts_records: bool) -> Split:
        """Returns its next split; the batch's limits decide how much of it is read. If it cannot be opened, the task reports why."""
        if self.fd < 0:
            try:
                self.fd = os.open(self.path, _FLAGS)
            except OSError:
                self.fd = -1
        opened = f"/proc/{os.getpid()}/fd/{self.fd}" if self.fd >= 0 else self.path
        offset = self.offset
        is_plain = not (offset.compression or counts_records)
        grown = is_plain and self._size_now() > self.end
        origins = () if offset.position else tuple(former.offset for former in self.formers)
        return Split(
            self.partition, self.path, opened, offset, self.end if is_plain else ENDLESS, final=not grown, inode=self.identity.inode,
            mtime_ms=self._mtime_ns // 1_000_000, flush=not grown, origins=origins,
            after=None if self.after is None else self.after.partition,
        )  # fmt: skip

    def taken_in(self, result: SplitResult) -> SourceOffset:
        """Returns the offset to save after a result. It keeps the name that the run was given: a newer file of that name is not read."""
        is_read = result.at_end and result.error is None and not result.changed
        self.read_at = time.time()
        return replace(result.offset, path=self.offset.path, size=self.end, mtime_ns=self.offset.mtime_ns, done=is_read)

    def cut_to(self, result: SplitResult) -> int | None:
        """Returns its size if it ends before `end`, so that the rest can never be read; else None. The file is open."""
        is_plain = result.split.end != ENDLESS
        is_cut = is_plain and result.offset.position < self.end and self._size_now() < self.end
        return self._size_now() if is_cut else None

    def view(self) -> FileView:
        """Returns its state for a status."""
        offset = self.offset
        why = self.why or offset.trouble
        state: Literal["following", "failing", "blocked", "waiting"]
        state = "failing" if why else "blocked" if self.backoff.blocked else "following" if self.is_first else "waiting"
        return FileView(
            self.path, self.partition.key, offset.position, self.end, offset.records, state, self.fd >= 0, self.read_at, self.unread, why,
            compression=offset.compression,
        )  # fmt: skip

    def close(self) -> None:
        """Closes the file; its state is kept."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    @contextlib.contextmanager
    def reading(self) -> Iterator[Reader]:
        """Opens the file and yields a reader of its stored bytes. Raises OSError."""
        self.fd = os.open(self.path, _FLAGS)
        try:
            yield self._read
        finally:
            self.close()

    @property
    def mtime(self) -> float:
        """Returns when it was last changed, in epoch seconds."""
        return self._mtime_ns / 1e9

    def _read(self, position: int, size: int) -> bytes:
        return os.pread(self.fd, size, position)

    def _size_now(self) -> int:
        try:
            return os.fstat(self.fd).st_size if self.fd >= 0 else self.end
        except OSError:
            return self.end
