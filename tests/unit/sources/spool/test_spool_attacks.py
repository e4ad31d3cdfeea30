from __future__ import annotations

import os
import json
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.sources.spool import ranges, catalog as catalog_module, admission
from copycat_agent.sources.identity import Identity
from tests.unit.sources.spool.rig import Spool, lines, touch_later

if TYPE_CHECKING:
    from pathlib import Path

MANY = [f"{number:06}" for number in range(30_000)]
OLD = 1_600_000_000.0


def test_recycled_inode_same_size_and_time(tmp_path: Path) -> None:
    spool = Spool(tmp_path, cleanup={"policy": "delete"})
    path = spool.drop("a", lines("one"), OLD)
    inode = path.stat().st_ino
    spool.drain()
    assert not path.exists()
    for i in range(200):
        p = spool.drop(f"b{i}", lines("two"), OLD)
        if p.stat().st_ino == inode:
            break
    else:
        pytest.skip("no recycled")
    spool.drain()
    assert b"two" in spool.arrived
    assert sorted(os.listdir(tmp_path)) == []


def test_recycled_policy_none(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    path = spool.drop("a", lines("one"), OLD)
    inode = path.stat().st_ino
    spool.drain()
    path.unlink()
    for i in range(200):
        p = spool.drop(f"b{i}", lines("two"), OLD)
        if p.stat().st_ino == inode:
            break
    else:
        pytest.skip("no recycled")
    n = i + 1
    spool.drain()
    assert spool.arrived.count(b"two") == n


def test_two_identities_with_generations(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    path = spool.drop("a", lines("one"))
    spool.drain()
    key = next(iter(spool.store))
    off = spool.store[key]
    ident, gen = Identity.parse(key.key)
    other = Identity(ident.device, ident.inode, ident.birth_ns - 5_000_000_000)
    from dataclasses import replace
    from copycat_agent.model import SourcePartition
    spool.store[SourcePartition("drops", other.key(3))] = replace(off, gone_ms=5, size=99, path="/old")
    spool.restart()
    spool.drain()
    assert spool.arrived == [b"one"]


def _cut(root: Path, monkeypatch, tasks=2, **o):
    monkeypatch.setattr(ranges, "LEAST_BYTES", 10_000)
    monkeypatch.setattr(ranges.cut, "__defaults__", (10_000,))
    spool = Spool(root, tasks=tasks, delivery={"ordering": "none"}, **o)
    return spool


def test_append_between_cut_and_read(tmp_path: Path, monkeypatch) -> None:
    spool = _cut(tmp_path, monkeypatch)
    path = spool.drop("a", lines(*MANY))
    spool.scan()
    assert spool.source._catalog.files and next(iter(spool.source._catalog.files.values())).parts
    with path.open("ab") as f:
        f.write(lines("last"))
    touch_later(path)
    spool.drain()
    assert b"last" in spool.arrived
    assert sorted(set(spool.arrived)) == sorted([*(m.encode() for m in MANY), b"last"])


def test_append_half_ranges_continue(tmp_path: Path, monkeypatch) -> None:
    spool = _cut(tmp_path, monkeypatch, on_changed_file="continue")
    path = spool.drop("a", lines(*MANY))
    spool.scan()
    spool.max_bytes = 30_000
    spool.work()
    with path.open("ab") as f:
        f.write(lines("last"))
    touch_later(path)
    spool.max_bytes = 2**26
    spool.drain()
    assert b"last" in spool.arrived


def test_append_in_flight_ranges_continue(tmp_path: Path, monkeypatch) -> None:
    spool = _cut(tmp_path, monkeypatch, on_changed_file="continue")
    path = spool.drop("a", lines(*MANY))
    spool.scan()
    p1 = spool.source.plan(2).splits
    p2 = spool.source.plan(1).splits
    r2 = spool.read(p2)
    with path.open("ab") as f:
        f.write(lines("last"))
    touch_later(path)
    r1 = spool.read(p1)
    spool.bring(r1)
    spool.bring(r2)
    spool.drain()
    assert b"last" in spool.arrived


def test_last_two_parts_settled_together(tmp_path: Path, monkeypatch) -> None:
    spool = _cut(tmp_path, monkeypatch)
    spool.drop("a", lines(*MANY))
    spool.scan()
    source = spool.source
    for _ in range(50):
        p1, p2 = source.plan(2).splits, source.plan(1).splits
        if not p1 and not p2:
            break
        r1, r2 = spool.read(p1), spool.read(p2)
        c1 = source.settle(r1) if r1 else None
        c2 = source.settle(r2) if r2 else None
        if r1: spool._save2(r1, c1) if hasattr(spool, "_save2") else (spool._store(c1), source.finish(r1, c1))
        if r2: (spool._store(c2), source.finish(r2, c2))
    spool.drain()
    assert len(spool.arrived) == len(MANY)
    assert spool.states() == {"a": "done"}
    assert len(spool.store) == 1


def test_unbegun_stale_parts_restart(tmp_path: Path, monkeypatch) -> None:
    spool = _cut(tmp_path, monkeypatch)
    path = spool.drop("a", lines(*MANY))
    spool.scan()
    with path.open("ab") as f:
        f.write(lines("last"))
    touch_later(path)
    spool.restart()
    spool.max_bytes = 65536
    spool.scan(); spool.work()
    spool.restart()
    n = len(spool.arrived)
    spool.max_bytes = 2**26
    spool.drain()
    assert len(spool.arrived) == len(MANY) + 1, (n, len(spool.arrived))
    assert len(spool.store) == 1


def test_ordering_switched(tmp_path: Path, monkeypatch) -> None:
    spool = _cut(tmp_path, monkeypatch)
    path = spool.drop("a", lines(*MANY))
    spool.scan()
    spool.max_bytes = 20_000
    spool.work()
    from copycat_agent.options import DeliveryOptions
    spool.delivery = DeliveryOptions.model_validate({"tasks_max": 1})
    spool.restart()
    spool.drain()
    assert len(spool.arrived) == len(MANY)


def test_format_changed_to_counting(tmp_path: Path) -> None:
    a = tmp_path / "in"; a.mkdir()
    spool = Spool(a, format="lines")
    spool.drop("a", b"[" + b",\n".join(json.dumps({"n": i}).encode() for i in range(20000)) + b"]")
    spool.max_bytes = 65536
    spool.scan(); spool.work()
    assert 0 < spool.rows()["a"].position < 200_000
    store = dict(spool.store)
    spool.source.close()
    again = Spool(a, format="json")
    again.store = store
    again.restart()
    again.drain()
    assert len(again.arrived) == 20000


def test_format_changed_from_counting(tmp_path: Path) -> None:
    a = tmp_path / "in"; a.mkdir()
    spool = Spool(a, format="json")
    spool.drop("a", b"[" + b",\n".join(json.dumps({"n": i}).encode() for i in range(20000)) + b"]")
    spool.max_bytes = 65536
    spool.scan(); spool.work()
    print(spool.rows()["a"])
    store = dict(spool.store)
    spool.source.close()
    again = Spool(a, format="lines")
    again.store = store
    again.restart()
    again.drain()
    assert len(again.arrived) == 20000


@pytest.mark.parametrize("policy", ["move", "delete"])
def test_empty_file_with_writer_is_not_cleaned(tmp_path: Path, policy: str) -> None:
    a = tmp_path / "in"; a.mkdir()
    cleanup = {"policy": "move", "to": str(tmp_path / "done")} if policy == "move" else {"policy": "delete"}
    spool = Spool(a, ready={"min_age": 0.01}, cleanup=cleanup)
    import time
    with (a / "report").open("wb") as f:
        for _ in range(6):
            spool.scan(); spool.work(); time.sleep(0.02)
        assert (a / "report").exists()
        f.write(lines("row"))
    for _ in range(6):
        spool.scan(); spool.work(); time.sleep(0.02)
    assert spool.arrived == [b"row"]


def test_move_with_writer(tmp_path: Path) -> None:
    a = tmp_path / "in"; a.mkdir()
    spool = Spool(a, cleanup={"policy": "move", "to": str(tmp_path / "done")})
    with (a / "report").open("wb") as f:
        f.write(lines("one")); f.flush()
        spool.drain()
        assert (a / "report").exists()
        f.write(lines("two"))
    touch_later(a / "report")
    import time
    for _ in range(4):
        spool.drain(); time.sleep(0.6)
    assert b"two" in spool.arrived
    assert not (a / "report").exists()


def test_many_begun_files_open(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(admission, "MOST_OPEN", 4)
    spool = Spool(tmp_path, order_by="none")
    for i in range(30):
        spool.drop(f"f{i:02}", lines(*MANY[:20_000]))
    spool.max_bytes = 65536
    spool.scan()
    for _ in range(40):
        spool.work()
        assert spool.source.lag().open_files <= 5
    spool.drain(2000)
    assert len(spool.arrived) == 30 * 20_000


def test_stat_refused_is_not_gone(tmp_path: Path, monkeypatch) -> None:
    from copycat_agent.sources.paths.discovery import Discovery
    spool = Spool(tmp_path)
    spool.drop("a", lines("one"))
    spool.drain()
    real = Discovery._file
    def bad(self, entry, path, warn, *, told):
        warn(path, "cannot be looked at: Permission denied")
        return None
    monkeypatch.setattr(Discovery, "_file", bad)
    spool.source._look_anyway = True
    spool.scan()
    assert not spool.rows()["a"].gone_ms


def test_rewritten_in_place_with_its_time(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    path = spool.drop("a", lines("one"), OLD)
    spool.drain()
    path.write_bytes(lines("two"))
    os.utime(path, (OLD, OLD))
    spool.drain()
    print(spool.arrived)


@pytest.mark.parametrize("name", ["a\nb", os.fsdecode(b"\xff\xfe"), "x" * 255])
def test_names(tmp_path: Path, name: str) -> None:
    a = tmp_path / "in"; a.mkdir()
    spool = Spool(a, cleanup={"policy": "move", "to": str(tmp_path / "done")})
    path = a / name
    path.write_bytes(lines("one"))
    spool.drain()
    assert spool.arrived == [b"one"]
    assert not path.exists() and os.listdir(tmp_path / "done")


@pytest.mark.parametrize("form", ["lines", "csv", "json", "jsonl", "xml", "avro", "parquet", "binary"])
def test_header_only_or_empty_gzip(tmp_path: Path, form: str) -> None:
    import gzip
    a = tmp_path / "in"; a.mkdir()
    options = {"type": form}
    if form == "xml": options["record"] = "r"
    spool = Spool(a, format=options, cleanup={"policy": "move", "to": str(tmp_path / "done"), "failed_to": str(tmp_path / "bad")})
    spool.drop("e.gz", gzip.compress(b""))
    spool.drop("t.gz", gzip.compress(b"")[:-4])
    spool.drain()
    print(form, spool.arrived, spool.states(), os.listdir(tmp_path / "bad") if (tmp_path / "bad").exists() else None, spool.losses)
    assert os.listdir(a) == []


def test_csv_header_only(tmp_path: Path) -> None:
    a = tmp_path / "in"; a.mkdir()
    spool = Spool(a, format="csv", cleanup={"policy": "move", "to": str(tmp_path / "done")})
    spool.drop("h", b"a,b\n")
    spool.drain()
    assert os.listdir(a) == [] and not spool.arrived
