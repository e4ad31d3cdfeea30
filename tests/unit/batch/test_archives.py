"""Files in zip and tar files are read as if each were one of its own, over kills, and hostile archives end as bad files."""

from __future__ import annotations

import io
import random
import struct
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.formats.tar_members import TAR_BLOCK
from tests.unit.batch.test_resumes import COUNT, FILES, Tiny, _csv, _joined, work_with_kills
from tests.unit.sources.archives import ARCHIVES, tar, zipped
from tests.unit.sources.packing import PACK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

OPEN: dict[str, Any] = {"archives": True}
FORMATS: dict[str, tuple[dict[str, Any], bytes]] = {
    **{name: FILES[name] for name in FILES if name not in {"avro", "parquet"}},
    "groups": ({"type": "lines", "multiline": {"start": r"^\S*[05]$"}, "skip_footer": 1}, FILES["lines"][1] + b"end"),
    "csv without an end": ({"type": "csv", "skip_footer": 1}, _joined(_csv, "id,text,amount\n") + b"rows"),
}


def drained(root: Path, files: Mapping[str, bytes], **options: Any) -> Tiny:
    spool = Tiny(root, at_once=True, **options)
    for name, data in files.items():
        spool.drop(name, data)
    spool.drain(500)
    return spool


@pytest.mark.parametrize("kind", ARCHIVES)
@pytest.mark.parametrize("name", FORMATS)
def test_files_of_an_archive_are_read_as_each_by_itself(name: str, kind: str, tmp_path: Path) -> None:
    form, data = FORMATS[name]
    files = {"logs/1": data, "logs/empty": b"", "logs/2": data.rstrip(b"\n"), "../../3": data}
    alone = drained(tmp_path / "alone", {key.rpartition("/")[2]: one for key, one in files.items()}, format=form, order_by="name")
    spool = drained(tmp_path / "archive", {"f": ARCHIVES[kind](files)}, format=form, unpack=OPEN)
    assert spool.arrived == alone.arrived
    assert spool.picky.letters == alone.picky.letters
    assert spool.why("f") == ""
    assert [row.done for row in spool.store.values()] == [True]


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
@pytest.mark.parametrize("name", FORMATS)
def test_tiny_batches_and_kills_send_what_one_batch_sends(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    form, data = FORMATS[name]
    archive = ARCHIVES[kind]({"a": data, "b": b"", "c": data})
    whole = drained(tmp_path / "whole", {"f": archive}, format=form, unpack=OPEN)
    chance = random.Random(f"{name}{kind}")
    for max_bytes, max_records in ((700, 0), (2**26, 7)):
        tiny = Tiny(tmp_path / f"{max_bytes}", at_once=False, format=form, unpack=OPEN)
        tiny.max_bytes, tiny.max_records = max_bytes, max_records
        tiny.drop("f", archive)
        work_with_kills(tiny, chance, monkeypatch)
        assert tiny.arrived == whole.arrived
        assert [(row.position, row.records, row.done) for row in tiny.store.values()] == [
            (row.position, row.records, row.done) for row in whole.store.values()
        ]


@pytest.mark.parametrize("kind", ["plain", "gzip"])
def test_what_is_no_archive_is_read_as_without(kind: str, tmp_path: Path) -> None:
    data = FILES["lines"][1] if kind == "plain" else PACK["gzip"](FILES["lines"][1])
    opened = drained(tmp_path / "opened", {"f": data, "short": b"a"}, unpack=OPEN)
    assert opened.arrived == drained(tmp_path / "plain", {"f": data, "short": b"a"}).arrived
    assert opened.counted == COUNT + 1


def test_archives_are_not_opened_unless_that_is_asked_for(tmp_path: Path) -> None:
    spool = drained(tmp_path, {"f": tar({"a": b"one\n"})}, format={"type": "binary"})
    assert len(spool.arrived[0]) % TAR_BLOCK == 0


def test_an_archive_in_an_archive_is_not_opened(tmp_path: Path) -> None:
    inner = zipped({"a": b"one\n"})
    assert drained(tmp_path, {"f": tar({"a.zip": inner, "b": b"two"})}, format={"type": "binary"}, unpack=OPEN).arrived == [inner, b"two"]


@pytest.mark.parametrize("empty", [zipped({}), tar({}), PACK["gzip"](tar({}))], ids=["zip", "tar", "tar.gz"])
def test_an_archive_without_files_holds_no_record(empty: bytes, tmp_path: Path) -> None:
    spool = drained(tmp_path, {"f": empty}, unpack=OPEN)
    assert (spool.arrived, spool.why("f"), [row.done for row in spool.store.values()]) == ([], "", [True])


def test_long_names_and_those_in_no_known_letters_are_names(tmp_path: Path) -> None:
    long = "d/" * 120 + "log"
    for form in ("gnu", "pax"):
        spool = drained(tmp_path / form, {"f": tar({long: b"one\n", "caf\udce9": b"two\n"}, form)}, unpack=OPEN)
        assert spool.arrived == [b"one", b"two"]


def encrypted() -> bytes:
    data = bytearray(zipped({"good": b"one\n", "secret": b"two\n"}))
    for magic, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.rfind(magic) + place] |= 1
    return bytes(data)


def overlapping() -> bytes:
    """Two entries of the directory, one stretch of bytes: the way of the densest bombs."""
    data = zipped({"good": b"one\n", "b": b"two\n"})
    entries = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 1))
    last = data.rindex(b"PK\x01\x02")
    offset = struct.unpack_from("<L", data, entries + 42)[0]
    return data[: last + 42] + struct.pack("<L", offset) + data[last + 46 :]


def wrong(data: bytes) -> bytes:
    """The last member's content is not what its checksum says."""
    return data.replace(b"two\n", b"twO\n", 1)


def sparse() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content, headers in (("good", b"one\n", {}), ("holes", b"1\n0\n4\ntwo\n", {"GNU.sparse.major": "1"})):
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(content), headers
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def claims(size: int) -> bytes:
    """A member that says it is so large."""
    data = tar({"good": b"one\n"})[: -TAR_BLOCK * 2].rstrip(b"\0")
    data += bytes(-len(data) % TAR_BLOCK)
    info = tarfile.TarInfo("large")
    info.size = size
    return data + info.tobuf(tarfile.GNU_FORMAT) + b"two\n"


def extended(records: bytes) -> bytes:
    """A member with this beside its header."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, len(records)
    before = tar({"good": b"one\n"})
    end = before.index(b"one\n") + TAR_BLOCK
    return before[:end] + info.tobuf() + records + bytes(-len(records) % TAR_BLOCK) + tar({"b": b"two\n"})


DAMAGE: dict[str, tuple[bytes, str]] = {
    "an encrypted member": (encrypted(), "zip: member 'secret' is encrypted"),
    "members over each other": (overlapping(), "zip: member 'good' lies over another one"),
    "a wrong checksum": (wrong(zipped({"good": b"one\n", "b": b"two\n"}, zipfile.ZIP_STORED)), "zip: member 'b' is damaged"),
    "an unknown method": (zipped({"good": b"one\n", "b": b"two\n"}, zipfile.ZIP_LZMA), "zip: member 'good' is packed by method 14"),
    "a zip cut off": (zipped({"good": b"one\n"})[:-30], "zip: it ends before its directory"),
    "no directory": (zipped({"good": b"one\n"}).replace(b"PK\x01\x02", b"PK\x01\x00"), "zip: its directory is damaged"),
    "a tar cut off in a member": (tar({"good": b"one\n", "b": b"two\n" * 300})[: -TAR_BLOCK * 15], "the archive ends "),
    "a tar without its end": (tar({"good": b"one\n"})[: TAR_BLOCK * 5], "the archive ends before its end mark"),
    "a packed tar cut off": (PACK["gzip"](tar({"good": b"one\n"}))[:-12], "gzip: it ends before its end marker"),
    "a damaged header": (
        tar({"good": b"one\n", "b": b"two\n"}).replace(b"b\0\0", b"c\0\0", 1),
        "the archive has a damaged header at byte 2560",
    ),
    "a sparse file": (sparse(), "the archive has a sparse file"),
    "a size that is not there": (claims(2**60), "the archive ends within its member 'large'"),
    "a size below zero": (claims(-5), "the archive has a damaged header"),
    "a long name": (tar({"good": b"one\n", "n" * 5000: b"two\n"}), "the archive has a header that is too long"),
    "records of no length": (extended(b"0 path=x\n"), "the archive has a damaged extended header"),
    "records of endless length": (extended(b"9" * 6000 + b" path=x\n"), "the archive has a damaged extended header"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_what_stands_before_damage_arrives_and_the_file_is_bad(case: str, tmp_path: Path) -> None:
    data, why = DAMAGE[case]
    for max_bytes in (1, 2**26):
        spool = Tiny(tmp_path / str(max_bytes), at_once=True, unpack=OPEN)
        spool.max_bytes = max_bytes
        spool.drop("f", data)
        spool.drain(300)
        assert why in spool.why("f")
        assert b"one" in spool.arrived or data.startswith(b"PK") or "gzip" in why
        assert all(not value.startswith(b"two") or "ends" in why or "checksum" in case for value in spool.arrived)


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
def test_no_more_members_are_read_than_allowed(kind: str, tmp_path: Path) -> None:
    files = {f"{number}": b"x\n" for number in range(20)}
    spool = drained(tmp_path / "few", {"f": ARCHIVES[kind](files)}, unpack={**OPEN, "max_members": 19})
    assert "unpack.max_members, 19" in spool.why("f")
    assert len(spool.arrived) == (0 if kind == "zip" else 19)
    assert len(drained(tmp_path / "all", {"f": ARCHIVES[kind](files)}, unpack={**OPEN, "max_members": 40}).arrived) == 20


def test_a_zip_of_65535_members_is_refused_before_any_is_read(tmp_path: Path) -> None:
    spool = drained(tmp_path, {"f": zipped({str(number): b"" for number in range(65_534)})}, unpack=OPEN)
    assert "it has 65535 members, more than unpack.max_members, 10000" in spool.why("f")


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_a_bomb_in_an_archive_is_refused(kind: str, tmp_path: Path) -> None:
    archive = ARCHIVES[kind]({"bomb": bytes(100 * 2**20)})
    assert len(archive) < 2**18
    spool = drained(tmp_path, {"f": archive}, format={"type": "binary", "chunk": 2**20}, unpack=OPEN)
    assert "unpack.max_ratio" in spool.why("f")
    assert sum(map(len, spool.arrived)) <= 66 * 2**20
