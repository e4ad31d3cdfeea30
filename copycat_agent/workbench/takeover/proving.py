"""Decides whether a present file proves a peer's position. The file is opened, and compared with all that the peer knows of it.

A position is proven by the same device and inode (or the same first bytes, if the peer identifies files by these), by a file that is not
younger than the peer's state, by the first bytes that the peer remembers, and by a line that ends just before the position.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from copycat_agent.errors import DataError
from copycat_agent.formats import Reader
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity, identify
from copycat_agent.sources.files.packing import compressions
from copycat_agent.sources.files.packing.unpacking import Unpacker
from copycat_agent.sources.files.paths.regular_files import open_regular
from copycat_agent.sources.log_file.beginning.manual_position import LineRules, place
from copycat_agent.workbench.takeover.peer_state import PeerPosition

_BLOCK = 2**20
_COMPARED = 4096
"""Bytes compared at the beginning, and before a position, to recognise a copy of a log."""


class Evidence(NamedTuple):
    """The result of a comparison. `offset` is the offset to save, None if the position is not proven; `why` gives the reasons.

    `is_another`: it is certainly not the file that the peer read.
    """

    why: str
    partition: SourcePartition | None = None
    offset: SourceOffset | None = None
    is_another: bool = False


def prove(
    connector: str,
    path: str,
    position: PeerPosition,
    rules: LineRules,
    saved_ns: int,
    archives: Sequence[str],
    *,
    trust_names: bool,
) -> Evidence:
    """Compares the file at `path` with a peer's position. `saved_ns` is when the peer last wrote its state.

    `archives` are files that may be copies of it. `trust_names`: a name alone identifies the file if the peer keeps nothing else.
    """
    try:
        if position.unusable:
            return Evidence(position.unusable)
        identity, size, position = _compared(path, position, saved_ns, archives)
        found = place(connector, {}, str(position.position), path=path, rules=rules, counts_lines=False)
    except _AnotherFileError as error:
        return Evidence(error.message, is_another=True)
    except OSError as error:
        return Evidence(f"it cannot be read: {error.strerror}")
    except DataError as error:
        return Evidence(error.message)
    doubts = () if position.is_all else found.doubts  # a last line without a line feed was read, too
    if Identity.parse(found.partition.key)[0] != identity:
        doubts = ("it was renamed while it was looked at: try again",)
    speaks_for = _speaks_for(position, size)
    if not doubts and position.is_by_name and position.position and not trust_names:
        doubts = (f"the peer keeps only its name, which another file may have by now ({speaks_for}): --trust-names takes it",)
    return Evidence("; ".join(doubts)) if doubts else Evidence(speaks_for, found.partition, replace(found.offset, done=position.is_all))


class _AnotherFileError(DataError):
    """The file is not the one that the peer read."""


def _compared(path: str, position: PeerPosition, saved_ns: int, archives: Sequence[str]) -> tuple[Identity, int, PeerPosition]:
    """Returns identity and size of the file, and the position to read next. Raises DataError if the file contradicts it, and OSError."""
    fd, info = open_regular(path, follow_symlinks=True)
    try:
        identity, read = identify(fd, info), fingerprint.reader(fd)
        for why in _another(read, identity, position, min(saved_ns, position.seen_ns or saved_ns)):
            raise _AnotherFileError(why)
        for why in _against(read, info.st_size, position):
            raise DataError(why)
        if position.position and (copy := next((one for one in archives if _is_copy(one, read, position.position, saved_ns)), "")):
            raise DataError(f"it was cut: {copy.rpartition('/')[2]} was copied since, and holds other bytes before {position.position:,}")
        return identity, info.st_size, _before_held(read, position)
    finally:
        os.close(fd)


def _before_held(read: Reader, position: PeerPosition) -> PeerPosition:
    """Returns the position, or that of the line before it if the peer had not sent that line. Raises OSError."""
    begin = max(0, position.position - _BLOCK)
    line = read(begin, position.position - begin).removesuffix(b"\n").rpartition(b"\n")[2]
    if not position.held or not position.position or not position.held.startswith(line):
        return position
    return position._replace(position=position.position - len(line) - 1)


def _another(read: Reader, identity: Identity, position: PeerPosition, saved_ns: int) -> Iterator[str]:
    """Yields reasons why it is another file than the peer's, the clearest first. Raises OSError."""
    if position.inode is not None and identity.inode != position.inode:
        yield f"another file has its name: inode {identity.inode}, the peer read {position.inode}"
    if position.device is not None and identity.device != position.device:
        yield f"it is on another device than the peer's file: {identity.device}, not {position.device}"
    if position.position and identity.birth_ns > saved_ns:
        yield "it was made after the peer last saved where it was"
    if position.position and position.head is not None and position.head.of(read) != position.head.value:
        yield f"it begins with other bytes than the peer's file: {position.head.what} differs"


def _against(read: Reader, size: int, position: PeerPosition) -> Iterator[str]:
    """Yields reasons against a position in the peer's file, apart from its line. Raises OSError."""
    if size < position.position:
        yield f"it holds {size:,} bytes and the peer had read {position.position:,}: it was cut, or written anew"
    if position.is_all and size > position.position:
        yield f"it holds {size:,} bytes and the peer had finished it with {position.position:,}: it was written to since"
    if position.position and compressions.recognise(read(0, compressions.MAGIC_BYTES)):
        yield "it is packed, and the peer counted other bytes than we do"
    if position.before is not None and size >= position.position and position.before.of(read) != position.before.value:
        yield f"{position.before.what} before {position.position:,} are other ones than the peer read: it was cut, or written anew"
    if position.in_characters and not _is_ascii(read, position.position):
        yield "the peer counts characters, and not all before its position are of one byte"


def _is_copy(path: str, log: Reader, position: int, saved_ns: int) -> bool:
    """Returns whether the file at `path` was created since, and has as many bytes as the peer had read, but others than the log.

    This is so if the log was copied and truncated (logrotate's copytruncate), and has grown again.
    """
    try:
        fd, info = open_regular(path, follow_symlinks=False)
    except OSError:
        return False
    try:
        if identify(fd, info).birth_ns <= saved_ns:
            return False
        raw = fingerprint.reader(fd)
        codec = compressions.recognise(raw(0, compressions.MAGIC_BYTES), whole=True)
        read = partial(Unpacker(codec).read, raw) if codec else raw
        places = [(at, min(_COMPARED, position - at)) for at in (0, max(0, position - _COMPARED))]
        pairs = [(log(at, size), read(at, size)) for at, size in places]
        return any(one != other for one, other in pairs) and all(
            len(other) == size for (_, size), (_, other) in zip(places, pairs, strict=True)
        )
    except OSError:
        return False
    finally:
        os.close(fd)


def _is_ascii(read: Reader, end: int) -> bool:
    """Returns whether the first `end` bytes are ASCII. Raises OSError."""
    return all(read(at, min(_BLOCK, end - at)).isascii() for at in range(0, end, _BLOCK))


def _speaks_for(position: PeerPosition, size: int) -> str:
    """Returns the reasons why a position is proven, in words."""
    same = ["device"] * (position.device is not None) + ["inode"] * (position.inode is not None)
    words = [f"same {' and '.join(same)}"] if same else []
    words += [f"same {position.head.what}"] if position.head is not None else []
    words += [f"same {position.before.what} before"] if position.before is not None else []
    words += ["same name"] if position.is_by_name else []
    if position.is_all:
        return ", ".join([*words, "it was finished"])
    words += [f"a line ends before byte {position.position:,}"] if position.position else ["nothing of it was read"]
    grown = size - position.position
    return ", ".join([*words, f"{grown:,} bytes more since" if grown else "nothing more since"])
