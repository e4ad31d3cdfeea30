"""What tried to lose a record of a spooled file, to send it twice, or to clean up what was not sent; each once did."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from copycat_agent.model import Fingerprint, SourcePartition
from copycat_agent.options import DeliveryOptions
from copycat_agent.sources.files.identity import Identity, identify_by_name
from copycat_agent.sources.files.paths.discovery import Discovery, Warn
from copycat_agent.sources.spool_dir import admission
from tests.rig.waiting import wait_until
from tests.unit.sources.archives import tar
from tests.unit.sources.spool.rig import Spool, lines, touch_later

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MANY = [f"{number:06}" for number in range(30_000)]
LONG_AGO = 1_600_000_000.0


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of a size that suits a test."""
    monkeypatch.setattr(admission, "LEAST_BYTES", 10_000)


def _cut(root: Path, **options: str) -> Spool:
    """An agent that has cut `a` and read nothing of it."""
    spool = Spool(root, tasks=2, delivery={"ordering": "none"}, **options)
    spool.drop("a", lines(*MANY))
    spool.scan()
    assert len(spool.store) == 8
    return spool


def _append(path: Path, text: str) -> None:
    with path.open("ab") as file:
        file.write(lines(text))
    touch_later(path)


@pytest.mark.parametrize("policy", ["none", "delete"])
def test_a_new_file_with_the_inode_size_and_time_of_one_that_was_read_is_read(tmp_path: Path, policy: str) -> None:
    path = tmp_path / "b"
    spool = Spool(tmp_path)
    spool.drop("a", lines("one"), LONG_AGO).rename(path)
    spool.drain()
    ((partition, offset),) = spool.store.items()
    identity, _ = Identity.parse(partition.key)
    path.write_bytes(lines("two"))
    os.utime(path, (LONG_AGO, LONG_AGO))
    older = identity._replace(birth_ns=identity.birth_ns - 10**9)  # the file system has given the inode away again
    again = Spool(tmp_path, cleanup={"policy": policy})
    again.store = {SourcePartition("drops", older.key(0)): offset}
    again.restart()
    again.drain()
    assert again.arrived == [b"two"]
    assert path.exists() == (policy == "none")


def test_rows_of_an_older_file_with_the_same_inode_hide_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.drop("a", lines("one"))
    spool.drain()
    ((partition, offset),) = spool.store.items()
    identity, _ = Identity.parse(partition.key)
    offset = spool.store[partition] = replace(offset, fingerprint=Fingerprint())  # as of a file that is too long for a digest
    older = identity._replace(birth_ns=identity.birth_ns - 10**9)
    spool.store[SourcePartition("drops", older.key(3))] = replace(offset, gone_ms=5, size=99, path="/old")
    spool.restart()
    spool.drain()
    assert spool.arrived == [b"one"]


def test_without_times_of_birth_a_file_whose_row_had_gone_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def unborn(path: str, stat: os.stat_result, *, follow_symlinks: bool) -> Identity | None:
        found = identify_by_name(path, stat, follow_symlinks=follow_symlinks)
        return found and found._replace(birth_ns=0)

    monkeypatch.setattr("copycat_agent.sources.spool_dir.spool_catalog.identify_by_name", unborn)
    monkeypatch.setattr(admission, "identify", lambda fd, info: Identity(info.st_dev, info.st_ino, 0 * fd))
    spool = Spool(tmp_path)
    path = spool.drop("a", lines("one"), LONG_AGO)
    spool.drain()
    path.rename(tmp_path / ".away")
    spool.drain()
    (tmp_path / ".away").write_bytes(lines("two"))
    os.utime(tmp_path / ".away", (LONG_AGO, LONG_AGO))
    (tmp_path / ".away").rename(tmp_path / "b")
    spool.drain()
    assert spool.arrived == [b"one", b"two"]


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("end", [Spool.scan, Spool.restart, Spool.stop], ids=["running", "killed", "stopped"])
def test_what_is_added_to_a_cut_file_before_it_is_read_is_read(tmp_path: Path, end: Callable[[Spool], None]) -> None:
    spool = _cut(tmp_path)
    _append(tmp_path / "a", "last")
    end(spool)
    spool.max_bytes = 65536
    spool.scan()
    spool.work()
    end(spool)
    spool.max_bytes = 2**26
    spool.drain()
    assert sorted(spool.arrived) == sorted(text.encode() for text in [*MANY, "last"])
    (row,) = spool.store.values()
    assert row.done


@pytest.mark.usefixtures("small_ranges")
def test_what_is_added_to_a_cut_file_that_is_begun_is_read(tmp_path: Path) -> None:
    spool = _cut(tmp_path, on_changed_file="continue")
    spool.max_bytes = 20_000
    spool.work()
    _append(tmp_path / "a", "last")
    spool.max_bytes = 2**26
    spool.drain()
    assert set(spool.arrived) == {text.encode() for text in [*MANY, "last"]}


@pytest.mark.usefixtures("small_ranges")
def test_what_is_added_while_one_of_two_ranges_is_read_is_read(tmp_path: Path) -> None:
    spool = _cut(tmp_path, on_changed_file="continue")
    first, second = spool.source.plan(2).splits, spool.source.plan(1).splits
    before = spool.read(second)
    _append(tmp_path / "a", "last")
    spool.bring(spool.read(first))
    spool.bring(before)
    spool.drain()
    assert set(spool.arrived) == {text.encode() for text in [*MANY, "last"]}


@pytest.mark.usefixtures("small_ranges")
def test_the_last_two_ranges_come_back_together(tmp_path: Path) -> None:
    spool = _cut(tmp_path)
    source = spool.source
    while splits := [splits for splits in (source.plan(2).splits, source.plan(1).splits) if splits]:
        results = [spool.read(one) for one in splits]
        for one, changes in [(one, source.changes_of(one)) for one in results]:  # all are settled before the first is saved
            spool._save(one, changes)
    spool.drain()
    assert sorted(spool.arrived) == [text.encode() for text in MANY]
    (row,) = spool.store.values()
    assert row.done


@pytest.mark.usefixtures("small_ranges")
def test_a_cut_file_is_read_on_when_order_is_asked_for_again(tmp_path: Path) -> None:
    spool = _cut(tmp_path)
    spool.max_bytes = 20_000
    spool.work()
    spool.delivery = DeliveryOptions(tasks_max=1)
    spool.restart()
    spool.drain()
    assert sorted(spool.arrived) == [text.encode() for text in MANY]


def _avro(count: int) -> bytes:
    out = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "s", "type": "string"}]}
    fastavro.writer(out, schema, ({"s": f"{number:040}\n"} for number in range(count)), sync_interval=4000)
    return out.getvalue()


@pytest.mark.parametrize(("before", "after"), [("lines", "avro"), ("avro", "lines")])
def test_a_record_number_is_never_taken_for_a_byte_nor_the_other_way_round(tmp_path: Path, before: str, after: str) -> None:
    (tmp_path / "in").mkdir()
    spool = Spool(tmp_path / "in", format=before)
    spool.drop("a", _avro(20_000))
    spool.max_bytes = 65536
    spool.scan()
    spool.work()
    assert spool.rows()["a"].position > 0
    spool.source.close()
    changed = Spool(tmp_path / "in", format=after)
    changed.store = spool.store
    changed.restart()
    changed.drain()
    whole = Spool(tmp_path / "in", format=after)
    whole.drain()
    assert changed.arrived == whole.arrived


def _is_held(spool: Spool) -> bool:
    spool.drain()
    return any("writing" in view.why for view in spool.source.files())


@pytest.mark.parametrize("policy", ["move", "delete"])
@pytest.mark.parametrize("content", [b"", lines("one")], ids=["empty", "quiet"])
def test_a_file_is_not_cleaned_up_while_a_program_has_it_open_for_writing(tmp_path: Path, policy: str, content: bytes) -> None:
    home = tmp_path / "in"
    home.mkdir()
    to = {"to": str(tmp_path / "done")} if policy == "move" else {}
    spool = Spool(home, ready={"min_age": 0.01} if not content else {"min_age": 0.0}, cleanup={"policy": policy, **to})
    with (home / "report").open("wb") as file:
        file.write(content)
        file.flush()
        wait_until(lambda: _is_held(spool))
        assert (home / "report").exists()
        file.write(lines("two"))
    touch_later(home / "report")
    wait_until(lambda: spool.drain() < 0 or not (home / "report").exists())
    assert b"two" in spool.arrived


def test_many_files_that_are_begun_hold_up_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MOST_OPEN", 4)
    spool = Spool(tmp_path, order_by="none")
    for number in range(12):
        spool.drop(f"f{number:02}", lines(*MANY[:20_000]))
    spool.max_bytes = 65536
    spool.scan()
    while spool.work():
        assert spool.source.lag().open_files <= 4
    assert len(spool.arrived) == 12 * 20_000


def test_a_file_that_cannot_be_looked_at_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path)
    path = spool.drop("a", lines("one"))
    spool.drain()

    def refused(_: Discovery, __: os.DirEntry[str], path: str, warn: Warn, **_more: bool) -> None:
        warn(path, "cannot be looked at: Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Discovery, "_file", refused)
        spool.drop("b", lines("two"))
        spool.scan()
        assert not spool.rows()["a"].gone_ms
    assert path.exists()


def test_a_file_that_went_away_is_in_no_plan_beside_the_one_that_has_its_inode(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    path = spool.drop("a", lines("one"))
    spool.scan()
    stale = spool.source._catalog.files[path.stat().st_dev, path.stat().st_ino]
    spool.source._catalog.vanish(stale)
    spool.scan()
    assert len(spool.source.plan(1).splits) == 1


@pytest.mark.parametrize("name", ["a\nb", os.fsdecode(b"\xff\xfe"), "x" * 255])
def test_names_of_any_bytes_are_read_and_moved(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    spool = Spool(tmp_path / "in", cleanup={"policy": "move", "to": str(tmp_path / "done")})
    (tmp_path / "in" / name).write_bytes(lines("one"))
    spool.drain()
    assert spool.arrived == [b"one"]
    assert [path.name for path in (tmp_path / "done").iterdir()] == [name]


_ROWS = b"".join(b"%06d,%x\n" % (number, number * 0x9E3779B97F4A7C15 % 2**64) for number in range(500))
_WIDTHS = {"type": "fixed_width", "columns": ({"name": "a", "width": 6}, {"name": "b", "width": 17}), "too_short": "null"}
_DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "it is cut": lambda data: data[:-4],
    "something is behind it": lambda data: data + b"garbage",
    "its checksum is wrong": lambda data: data[:-8] + bytes(8),
}


@pytest.mark.parametrize("max_bytes", [2**26, 2000])
@pytest.mark.parametrize("rest", [b"", b"unfinis"])
@pytest.mark.parametrize(
    ("form", "head"),
    [
        ({"type": "csv"}, b"a,b\n"),
        (_WIDTHS, b""),
        ({"type": "lines"}, b""),
        ({"type": "lines", "multiline": {"start": "^0"}, "skip_lines": 1}, b"header\n"),
        ({"type": "w3c"}, b"#Fields: ab\n"),
    ],
)
@pytest.mark.parametrize("damage", _DAMAGE)
def test_every_whole_record_before_damage_is_sent(
    tmp_path: Path, damage: str, form: dict[str, Any], head: bytes, rest: bytes, max_bytes: int
) -> None:
    spool = Spool(tmp_path, format=form)
    spool.max_bytes = max_bytes
    spool.drop("a.gz", _DAMAGE[damage](gzip.compress(head + _ROWS + rest)))
    spool.drain()
    assert len(spool.arrived) == 500
    (row,) = spool.store.values()
    assert (row.done, row.records, row.position) == (True, 500, len(head + _ROWS))
    assert row.trouble


@pytest.mark.parametrize("begun", [b"", b" at"])
@pytest.mark.parametrize("stage", ["as it is", "in an archive", "in an archive of one", "in an archive that is not packed"])
def test_a_group_of_whole_lines_before_damage_is_sent(tmp_path: Path, stage: str, begun: bytes) -> None:
    text = b"S one\n at x\nS two\n at y\n"
    if stage != "as it is":
        files = {"a": b"S zero\n"} if stage != "in an archive of one" else {}
        whole = tar({**files, "b": text + begun + bytes(2000)})
        text = whole[: whole.index(text) + len(text)]
    packer = zlib.compressobj(wbits=31)
    spool = Spool(tmp_path, format={"type": "lines", "multiline": {"start": "^S"}}, unpack={"archives": True})
    packed = packer.compress(text + begun) + packer.flush(zlib.Z_SYNC_FLUSH)
    spool.drop("a", text + begun if stage == "in an archive that is not packed" else packed)
    spool.drain()
    assert [one for one in spool.arrived if one != b"S zero"] == [b"S one\n at x", b"S two\n at y"]
    (row,) = spool.store.values()
    assert (row.done, row.position) == (True, len(text))


_XML = b"<o>" + b"".join(b"<r><n>%s</n></r>" % number for number in (b"1", b"2", b"x", b"4")) + b"</o>"
_TEXTS = [b'{"n":"1"}', b'{"n":"2"}', b'{"n":"x"}', b'{"n":"4"}']
_CORRECTED = [b'{"n":1}', b'{"n":2}', *_TEXTS[2:]]
_TAR = {f"member {number}": b"line %d\n" % number for number in range(4)}
_UTF_16 = {"type": "fixed_width", "skip_lines": 1, "columns": ({"name": "n", "width": 1},)}


@pytest.mark.parametrize(
    ("content", "before", "after", "arrived"),
    [
        (b"n\n1\n2\nx\n4\n", {"format": {"type": "csv", "types": {"n": "int"}}}, {"format": {"type": "csv"}}, _CORRECTED),
        (_XML, {"format": {"type": "xml", "types": {"n": "int"}}}, {"format": {"type": "xml"}}, _CORRECTED),
        (
            tar(_TAR),
            {"unpack": {"archives": True, "max_members": 2}},
            {"unpack": {"archives": True, "max_members": 9}},
            [b"line 0", b"line 1", b"line 2", b"line 3"],
        ),
        (
            "H\n1\n2\nx\n4\n".encode("utf-16-le"),
            {"format": _UTF_16},
            {"format": {**_UTF_16, "encoding": "utf-16-le"}},
            _TEXTS,
        ),
        (
            b"#Fields: n\n1\n2\nx\n4\n",
            {"format": {"type": "w3c", "types": {"n": "int"}}},
            {"format": {"type": "w3c"}},
            _CORRECTED,
        ),
    ],
)
def test_nothing_that_was_met_by_a_definition_is_met_again_by_the_corrected_one(
    tmp_path: Path, content: bytes, before: dict[str, Any], after: dict[str, Any], arrived: list[bytes]
) -> None:
    old = Spool(tmp_path, **before)
    old.drop("a", content)
    old.scan()
    (result,) = old.read(old.source.plan(1).splits)
    assert result.error or result.damage
    corrected = Spool(tmp_path, **after)
    corrected.store[result.split.partition] = result.offset
    corrected.restart()
    corrected.drain()
    assert old.arrived + corrected.arrived == arrived
