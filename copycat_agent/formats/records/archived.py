"""Records of the files in an archive, each read by a format as if it were a separate file.

Positions are bytes of the archive: a tar holds files unchanged, so a record is found again at its position. Hence formats that count
records cannot be used. A record never continues from one file to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Unpack

from copycat_agent.errors import DamageError
from copycat_agent.formats.draft import Parsed
from copycat_agent.formats.model import FileFormat, Frame, FrameOptions, RecordCut, RecordFile, RecordFormat, RecordPart
from copycat_agent.formats.records.byte_records import header_gap
from copycat_agent.formats.tar_members import TAR_BLOCK, TarMember, TarMembers, is_archive


def _cut_off(member: TarMember) -> str:
    return f"the archive ends within its member {member.name!r:.200}"


class ArchivedFile:
    """A file in an archive, as a `RecordFile` for formats. `end`: no more of the archive can be read."""

    def __init__(self, archive: RecordFile, member: TarMember, end: int) -> None:
        self._archive = archive
        self._member = member
        self._end = min(member.end, end)
        self.size = member.end - member.begin if member.end <= end else -1
        self.name = f"{archive.name}: {member.name}"
        begun, memo = archive.memo.get("member", (-1, {}))
        self.memo: dict[str, Any] = memo if begun == member.begin else {}
        archive.memo["member"] = member.begin, self.memo

    def __call__(self, position: int, size: int, /) -> bytes:
        """Returns up to `size` bytes from `position` on. Raises DamageError if the archive ends before."""
        begin = self._member.begin + position
        wanted = max(0, min(size, self._end - begin))
        data = self._archive(begin, wanted) if wanted else b""
        if len(data) < wanted:
            raise DamageError(_cut_off(self._member))
        return data


class ArchiveFormat(FileFormat):
    """A format for files that may be archives with at most `most` members. Other files are read as usual."""

    def __init__(self, form: RecordFormat, most: int) -> None:
        self._form = form
        self._most = most
        self.finds_end = form.finds_end
        self.makes_fields = form.makes_fields
        self.on_too_long = form.on_too_long
        self.alone = getattr(form, "alone", None)
        self.as_is = bool(getattr(form, "as_is", False))

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        members = self._members(file, end)
        if members is None:
            yield from self._form.frames(file, start, end, **how)
            return
        position, final = start, how.get("final", True)
        while (member := members.behind(file, position, end)) is not None:
            if member.begin > end:
                return
            stop = min(member.end, end)
            if position < member.begin:
                yield header_gap(file, position, member.begin)
                position = member.begin
            if position != start:
                how = {"block_bytes": how.get("block_bytes")}
            how["final"], how["flush"] = member.end <= end, final or how.get("flush", False)
            if position < stop:  # an empty file has no records, whatever its format asks of a file
                yield from self._of_member(ArchivedFile(file, member, end), member.begin, position, stop, how)
            if member.end > end:
                if final:
                    raise DamageError(_cut_off(member))
                return
            position = member.end
        if final:
            yield from _rest(file, members.end, position)

    def _members(self, file: RecordFile, end: int) -> TarMembers | None:
        """Returns the archive's members; None for other files."""
        if "archive" not in file.memo:
            is_one = end >= TAR_BLOCK and is_archive(file(0, TAR_BLOCK))
            file.memo["archive"] = TarMembers(self._most) if is_one else None
        found: TarMembers | None = file.memo["archive"]
        return found

    def _of_member(self, file: ArchivedFile, begin: int, start: int, end: int, how: FrameOptions) -> Iterator[Frame]:
        """Yields the frames of one file, up to its end."""
        if (cut := RecordCut.parse(how.get("cut", ""), start)) is not None:
            how["cut"] = cut._replace(start=cut.start - begin, end=cut.end - begin).text()
        reached = start
        for frame in self._form.frames(file, start - begin, end - begin, **how):
            moved = _moved(frame, begin)
            reached = moved.end
            yield moved
        if reached < end and file.size >= 0:
            yield header_gap(file, reached - begin, end - begin)._replace(start=reached, end=end)


def _rest(file: RecordFile, mark: int | None, position: int) -> Iterator[Frame]:
    """Yields what follows the last member: its padding, the end mark, and the rest."""
    if mark is None:
        raise DamageError("the archive ends before its end mark")
    stop = file.size if file.size >= 0 else mark + TAR_BLOCK
    if position < stop:
        yield header_gap(file, position, stop)


def _moved(frame: Frame, by: int) -> Frame:
    """Returns the frame of a file that begins at byte `by` of the archive."""
    if isinstance(frame, Parsed):
        return frame._replace(places=[place + by for place in frame.places])
    if isinstance(frame, RecordPart):
        cut = frame.cut and frame.cut._replace(start=frame.cut.start + by, end=frame.cut.end + by)
        frame = frame._replace(first=(frame.first[0] + by, frame.first[1] + by), cut=cut)
    return frame._replace(start=frame.start + by, end=frame.end + by)


def finds_end(memo: dict[str, Any]) -> bool:
    """Returns whether the file with this memo is an archive, which determines its own end."""
    return memo.get("archive") is not None


def name_at(memo: dict[str, Any], position: int) -> str:
    """Returns the name of the archive member at this byte; "" outside of archives. `memo` is that of the `RecordFile`."""
    members: TarMembers | None = memo.get("archive")
    return "" if members is None else members.name_at(position)
