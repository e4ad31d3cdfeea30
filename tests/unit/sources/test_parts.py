"""Names of generations, fingerprints, identities, beginnings, and one followed file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from copycat_agent.model import SourceOffset, SourcePartition, SplitResult
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity, identify
from copycat_agent.sources.files.paths.regular_files import NotRegularError, Opener, has_no_writer, open_regular
from copycat_agent.sources.log_file.rotation import log_of
from copycat_agent.sources.log_file.tracked import TrackedFile


@pytest.mark.parametrize(
    "name",
    [
        "app.log",
        "app.log.1",
        "app.log.23",
        "app.log-20261121",
        "app.log.2026-11-21",
        "app.log-20261121-1795302180",
        "app.log.20261121-050000",
        "app.log.1795302180",
        "app.log.1795302180123",
        "app.log.old",
        "app.log.bak",
        "app.log_1",
        "app.log.2026-11-21T05:00:00",
    ],
)
def test_generations_share_a_family(name: str) -> None:
    assert log_of(f"/var/{name}") == ("/var", "app.log")


@pytest.mark.parametrize("name", ["app.gz.log", "app.1.log", "app.txt", "1", ".1", "app.log.123456", "20261121"])
def test_other_names_are_families_of_their_own(name: str) -> None:
    assert log_of(f"/var/{name}") == ("/var", name)


def test_a_fingerprint_holds_until_a_byte_it_covers_changes(tmp_path: Path) -> None:
    path = tmp_path / "f"
    data = bytes(range(256)) * 40
    path.write_bytes(data)

    def read(position: int, size: int) -> bytes:
        with path.open("rb") as file:
            file.seek(position)
            return file.read(size)

    position = 9000
    proof = fingerprint.take(read, position)
    assert fingerprint.holds(read, proof, position)
    path.write_bytes(data[:position] + b"other bytes behind the offset")
    assert fingerprint.holds(read, proof, position)
    for changed in (0, fingerprint.HEAD_BYTES - 1, position - 256, position - 1):
        path.write_bytes(data[:changed] + bytes([data[changed] ^ 1]) + data[changed + 1 :])
        assert not fingerprint.holds(read, proof, position)
    for size in (0, 10, position - 1):
        path.write_bytes(data[:size])
        assert not fingerprint.holds(read, proof, position)


def test_nothing_read_is_nothing_to_prove() -> None:
    assert fingerprint.holds(lambda *_: b"", fingerprint.of(b"", b""), 0)


@pytest.mark.parametrize("identity", [Identity(0, 1, 0), Identity(2**40 + 5, 2**64 - 1, 1_795_302_180_123_456_789)])
def test_a_partition_key_tells_identity_and_generation(identity: Identity) -> None:
    assert Identity.parse(identity.key(7)) == (identity, 7)


def test_what_is_no_partition_key_is_refused() -> None:
    with pytest.raises(ValueError, match="unpack"):
        Identity.parse("started")


def test_a_file_made_anew_with_the_same_inode_is_another_one(tmp_path: Path) -> None:
    def make() -> Identity:
        fd, info = open_regular(_touch(tmp_path / "f"), follow_symlinks=False)
        found = identify(fd, info)
        os.close(fd)
        (tmp_path / "f").unlink()
        return found

    before, after = make(), make()
    if before.birth_ns:  # not every file system keeps it
        assert before != after
    assert after.birth_ns >= before.birth_ns


def _touch(path: Path, data: bytes = b"") -> str:
    path.write_bytes(data)
    return str(path)


def tracked(path: Path) -> TrackedFile:
    """An open file of which nothing is read yet."""
    fd, info = open_regular(str(path), follow_symlinks=False)
    identity = identify(fd, info)
    file = TrackedFile(SourcePartition("app", identity.key(0)), identity, str(path), SourceOffset(0), set())
    file.observe(info)
    file.adopt(fd)
    return file


def test_a_writer_is_seen_as_long_as_it_has_the_file_open(tmp_path: Path) -> None:
    path = tmp_path / "f"
    _touch(path, b"line\n")
    file = tracked(path)
    assert has_no_writer(file.fd)
    with path.open("ab"):
        assert not has_no_writer(file.fd)
    with path.open("rb"):
        assert has_no_writer(file.fd)
    file.close()


def test_only_regular_files_are_opened_and_none_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo"):
        with pytest.raises(NotRegularError):
            open_regular(str(path), follow_symlinks=False)
    (tmp_path / "link").symlink_to(_touch(tmp_path / "f"))
    with pytest.raises(OSError, match="symbolic"):
        open_regular(str(tmp_path / "link"), follow_symlinks=False)
    os.close(open_regular(str(tmp_path / "link"), follow_symlinks=True)[0])


def test_a_closed_file_is_not_opened_again_when_its_name_leads_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "f"
    _touch(path, b"line\n")
    file = tracked(path)
    file.close()
    path.rename(tmp_path / "away")
    _touch(path, b"another\n")
    assert not file.open(Opener((str(path),)))
    assert file.fd < 0
    assert not file.open_files
    assert not file.seen.replaced


def test_bytes_written_in_place_are_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "f"
    _touch(path, b"abc")
    file = tracked(path)
    file.note_end(SplitResult(file.split(100), file.offset, at_end=True))
    before = file.unread
    os.utime(path, (1, 1))
    file.refresh()
    assert (before, file.unread) == (False, True)
    file.close()


def test_a_cut_is_remembered_from_the_largest_to_the_smallest_size(tmp_path: Path) -> None:
    path = tmp_path / "f"
    _touch(path, b"x" * 100)
    file = tracked(path)
    for size in (60, 80, 20, 90):
        os.truncate(path, size)
        file.refresh()
    assert file.seen.cut == (100, 20)
    file.close()
