from __future__ import annotations
import gzip, os
from typing import Any
import pytest
from tests.rig.waiting import wait_until
from tests.unit.backfill.conftest import by_name
from tests.unit.backfill.test_given import numbered
S: dict[str, Any] = {"delivery": {"max_batch_bytes": "64KiB"}}

def half(rig, paths, home, **s):
    with rig.start(paths, home, rate=50_000, **{**S, **s}) as work:
        wait_until(lambda: work.status.counts.read > 0, 20)
        return work.stop(interrupted=True)

def test_deleted(rig):
    path = rig.write("app.log", *numbered(6000)); other = rig.write("b.log", *numbered(6000, "b")); home = rig.root / "own"
    half(rig, [path, other], home)
    path.unlink()
    s = rig.run([path, other], home)
    print(s["state"], s["complete"], [(f["path"][-8:], f["state"], f["why"], f["read"]) for f in s["files"]], s["losses"])
    assert by_name(s)["app.log"]["state"] == "failed"

def test_shrunk(rig):
    path = rig.write("app.log", *numbered(6000)); home = rig.root / "own"
    p = half(rig, [path], home)
    os.truncate(path, 100000)
    s = rig.run([path], home)
    print(s["state"], s["complete"], [(f["path"][-8:], f["state"], f["why"], f["read"]) for f in s["files"]], s["losses"])
    assert not s["complete"]

def test_rewritten(rig):
    path = rig.write("app.log", *numbered(6000)); home = rig.root / "own"
    half(rig, [path], home)
    path.write_text("\n".join(numbered(6000, "othr")) + "\n")
    s = rig.run([path], home)
    print(s["state"], s["complete"], [(f["path"][-8:], f["state"], f["why"], f["read"]) for f in s["files"]], s["losses"])
    assert not s["complete"]

HEAD = "\n".join(f"== banner of the nightly job, which says the same each night, part {i} of the text" for i in range(20))
FOOT = "\n".join(f"== the end of the nightly job, which says the same each night, part {i}" for i in range(8))
def job(n): return HEAD + "\n" + "\n".join(f"row {n:04d} {i:04d}" for i in range(200)) + "\n" + FOOT

@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("gone", [False, True])
def test_middle(rig, gone, pack):
    a = rig.write("job.log.1", job(1)); rig.run([a])
    before = len(rig.lines())
    if gone: a.unlink()
    b = rig.write("job.log.2", job(2))
    if pack:
        c = rig.logs / "job.log.2.gz"; c.write_bytes(gzip.compress(b.read_bytes())); b.unlink(); b = c
    rig.run([b])
    assert len(rig.lines()) == 2 * before

@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("gone", [False, True])
def test_repetitive(rig, gone, pack):
    t = ["tick"] * 1000
    a = rig.write("job.log.1", *t, "one", *t); rig.run([a])
    if gone: a.unlink()
    b = rig.write("job.log.2", *t, "two", *t)
    if pack:
        c = rig.logs / "job.log.2.gz"; c.write_bytes(gzip.compress(b.read_bytes())); b.unlink(); b = c
    rig.run([b])
    assert "two" in rig.lines()
