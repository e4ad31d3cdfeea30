"""Device numbers change with a reboot or a remount: files that were read, wholly or in part, are known all the same."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from copycat_agent.model import Fingerprint
from copycat_agent.sources.spool_dir import admission, spool_stream
from copycat_agent.sources.spool_dir.spool_stream import MOST_BYTES
from tests.rig.disk import remountable
from tests.unit.sources import saved
from tests.unit.sources.spool.rig import Spool, lines

if TYPE_CHECKING:
    from pathlib import Path

MANY = [f"{number:06}" for number in range(30_000)]


def remount(spool: Spool) -> None:
    """Begin again with another device number than the one that is saved."""
    spool.store = saved.remount(spool.store)
    spool.restart()


def begun(spool: Spool) -> None:
    """Some batches of what lies there, not all."""
    spool.max_bytes = 2**16
    spool.scan()
    spool.work()
    assert 0 < len(spool.arrived) < len(MANY)


def read_once(spool: Spool, expected: list[str]) -> None:
    """Nothing is missing, and nothing came twice."""
    spool.drain()
    assert sorted(spool.arrived) == sorted(text.encode() for text in expected)
    assert spool.losses == []


def table() -> bytes:
    """Rows of a Parquet file, in many row groups."""
    content = io.BytesIO()
    pq.write_table(pa.table({"a": MANY}), content, row_group_size=1000)
    return content.getvalue()


@pytest.mark.parametrize("form", ["plain", "packed", "parquet"])
def test_a_file_that_is_half_read_goes_on(tmp_path: Path, form: str) -> None:
    spool = Spool(tmp_path, format="parquet" if form == "parquet" else "lines")
    spool.drop("a", {"plain": lines(*MANY), "packed": gzip.compress(lines(*MANY)), "parquet": table()}[form])
    begun(spool)
    remount(spool)
    keys = set(spool.store)
    read_once(spool, [json.dumps({"a": text}, separators=(",", ":")) for text in MANY] if form == "parquet" else MANY)
    assert set(spool.store) == keys
    remount(spool)
    assert spool.drain() == 0


def test_a_file_that_is_cut_into_ranges_goes_on_in_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "LEAST_BYTES", 2**14)
    spool = Spool(tmp_path, tasks=2, delivery={"ordering": "none"})
    spool.drop("a", lines(*MANY))
    begun(spool)
    assert len(spool.store) > 2
    remount(spool)
    read_once(spool, MANY)
    assert [offset.done for offset in spool.store.values()] == [True]
    remount(spool)
    assert spool.drain() == 0


@pytest.mark.parametrize("most_bytes", [MOST_BYTES, 0])
@pytest.mark.parametrize("packs", [False, True])
def test_files_that_are_read_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int, packs: bool) -> None:
    """Those that are too long for a digest, too."""
    monkeypatch.setattr(spool_stream, "MOST_BYTES", most_bytes)
    spool = Spool(tmp_path)
    for name, texts in (("short", ["one"]), ("long", MANY), ("empty", [])):
        content = lines(*texts)
        spool.drop(name, gzip.compress(content) if packs else content)
    spool.drain()
    remount(spool)
    (tmp_path / "long").rename(tmp_path / "renamed")
    assert spool.drain() == 0
    read_once(spool, ["one", *MANY])
    assert set(spool.states().values()) == {"done"}
    assert len(spool.store) == 3


def test_one_that_has_grown_meanwhile_is_read_on_where_that_is_wished(tmp_path: Path) -> None:
    spool = Spool(tmp_path, on_changed_file="continue")
    spool.drop("a", lines(*MANY))
    spool.drain()
    with (tmp_path / "a").open("ab") as file:
        file.write(lines("more"))
    remount(spool)
    read_once(spool, [*MANY, "more"])


def test_one_that_holds_other_bytes_is_another_file(tmp_path: Path) -> None:
    """As on a copy of the file system that was written to since: inode and time of birth are the same."""
    spool = Spool(tmp_path)
    spool.drop("a", lines(*MANY))
    begun(spool)
    sent = len(spool.arrived)
    other = Fingerprint(6, "0" * 32)
    spool.store = {partition: replace(offset, fingerprint=other) for partition, offset in spool.store.items()}
    remount(spool)
    spool.drain()
    assert len(spool.arrived) == sent + len(MANY)


@pytest.mark.parametrize("name", ["a", "b"])
def test_without_times_of_birth_the_name_has_to_be_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("copycat_agent.sources.files.identity._birth", lambda *_: 0)
    spool = Spool(tmp_path)
    spool.drop("a", lines(*MANY))
    begun(spool)
    sent = len(spool.arrived)
    (tmp_path / "a").rename(tmp_path / name)
    remount(spool)
    spool.drain()
    assert len(spool.arrived) == (len(MANY) if name == "a" else sent + len(MANY))


def test_a_file_that_cannot_be_looked_at_yet_is_not_taken_for_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path)
    spool.drop("a", lines(*MANY))
    begun(spool)
    remount(spool)
    with monkeypatch.context() as patch:
        patch.setattr("copycat_agent.sources.files.paths.regular_files.Opener.open", _refused)
        spool.scan()
        assert spool.source.lag().troubled_files == 1
    read_once(spool, MANY)


def _refused(*_: Any, is_known: bool) -> Any:
    assert is_known
    raise PermissionError(13, "Permission denied")


def test_files_that_went_meanwhile_are_forgotten_once_one_that_is_there_tells_the_new_number(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.drop("stays", lines("one"))
    spool.drop("went", lines("two"))
    spool.drain()
    (tmp_path / "went").unlink()
    remount(spool)
    spool.drain()
    assert {name: bool(row.gone_ms) for name, row in spool.rows().items()} == {"stays": False, "went": True}


def test_those_of_a_file_system_that_is_not_mounted_are_kept(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.drop("a", lines("one"))
    spool.drain()
    (tmp_path / "a").rename(tmp_path.parent / "away")
    remount(spool)
    spool.drain()
    assert [row.gone_ms for row in spool.rows().values()] == [0]
    (tmp_path.parent / "away").rename(tmp_path / "a")
    read_once(spool, ["one"])


@pytest.mark.parametrize("policy", ["delete", "move"])
def test_they_are_cleaned_up(tmp_path: Path, policy: str) -> None:
    to = tmp_path / "to"
    spool = Spool(tmp_path / "in")
    spool.drop("a", lines("one"))
    spool.drain()
    cleanup = {"policy": policy, **({"to": str(to)} if policy == "move" else {})}
    spool.options = Spool(tmp_path / "in", cleanup=cleanup).options
    remount(spool)
    read_once(spool, ["one"])
    assert not (tmp_path / "in" / "a").exists()
    assert (to / "a").exists() == (policy == "move")


def test_a_file_system_that_is_mounted_again_while_the_agent_runs(tmp_path: Path) -> None:
    """On a loop device, twice; one file is read, one waits to be complete."""
    with remountable(tmp_path) as disk:
        spool = Spool(disk.place)
        spool.drop("a", lines("one"))
        spool.drain()
        spool.options = Spool(disk.place, ready={"done_file": "{name}.done"}).options
        spool.restart()
        spool.drop("b", lines("two"))
        for _ in range(2):
            spool.drain()
            disk.again()
        spool.drop("b.done", b"")
        read_once(spool, ["one", "two"])
        assert spool.states() == {"a": "done", "b": "done"}
        lag = spool.source.lag()
        assert (lag.files, lag.known_files, lag.troubled_files) == (0, 2, 0)
        spool.source.close()


def test_a_deletion_that_a_crash_cut_short_is_finished(tmp_path: Path) -> None:
    """What it had put out of the way gets its name again first: it bears the identity that it had then."""
    spool = Spool(tmp_path)
    spool.drop("a", lines("one"))
    spool.drop("b", lines("two"))
    spool.drain()
    spool.options = Spool(tmp_path, cleanup={"policy": "delete"}).options
    remount(spool)
    key = next(one.key for one, offset in spool.store.items() if offset.path.endswith("/a"))
    aside = tmp_path / f".copycat-{'-'.join(key.split(':')[:3])}.gone"
    (tmp_path / "a").rename(aside)
    spool.restart()
    spool.drain()
    spool.drain()
    assert list(tmp_path.iterdir()) == []
    assert spool.arrived == [b"one", b"two"]
