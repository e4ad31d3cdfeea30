"""A backfill of PATHs: every record of exactly these files, once, with an account that says so."""

from __future__ import annotations

import bz2
import gzip
import json
import os
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent import logs
from copycat_agent.backfill.backfill_file import BackfillFile
from copycat_agent.backfill.dry_run import plan_of
from copycat_agent.backfill.path_runs import choose
from copycat_agent.backfill.summary import RunPart, summarise
from copycat_agent.model import Account, Counts, OffsetRange, SourceOffset, SourcePartition, Split
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import DeliveryOptions
from copycat_agent.sources.files.identity import identify
from copycat_agent.sources.log_file.log_options import LogFileOptions
from tests.rig.waiting import wait_until
from tests.unit.backfill.conftest import by_name

if TYPE_CHECKING:
    from tests.unit.backfill.conftest import Rig


def numbered(count: int, word: str = "line") -> list[str]:
    return [f"2026-11-21T05:{number // 60 % 60:02d}:{number % 60:02d}Z {word} {number}" for number in range(count)]


def test_every_line_is_sent_and_accounted_for_packed_or_not_the_unfinished_last_one_too(rig: Rig) -> None:
    plain = rig.write("a.log", *numbered(300, "a"), end="")
    packed = rig.logs / "b.log.gz"
    packed.write_bytes(gzip.compress("\n".join(numbered(200, "b")).encode()))
    empty = rig.write("c.log", end="")
    summary = rig.run([plain, packed, empty])
    files = by_name(summary)
    assert (summary["state"], summary["complete"]) == ("finished", True)
    assert {name: (file["state"], file["read"], file["acknowledged"]) for name, file in files.items()} == {
        "a.log": ("done", 300, 300), "b.log.gz": ("done", 200, 200), "c.log": ("done", 0, 0),
    }  # fmt: skip
    assert sorted(rig.lines()) == sorted([*numbered(300, "a"), *numbered(200, "b")])


def test_the_account_says_where_in_kafka_the_records_of_a_file_are(rig: Rig) -> None:
    first, second = rig.write("x.log.1", *numbered(40)), rig.write("x.log", *numbered(7))
    os.utime(first, (1, 1))
    files = by_name(rig.run([first, second]))
    assert files["x.log.1"]["delivered"] == [{"topic": "t", "partition": 0, "first": 0, "last": 39}]
    assert files["x.log"]["delivered"] == [{"topic": "t", "partition": 0, "first": 40, "last": 46}]


def test_files_of_one_log_are_sent_in_the_order_of_their_age(rig: Rig) -> None:
    paths = [rig.write(f"app.log.{number}", *numbered(50, f"generation {number}")) for number in range(6)]
    for age, path in enumerate(paths):
        os.utime(path, (1000 - age, 1000 - age))
    rig.run(paths)
    generations = [line.split()[2] for line in rig.lines()]
    assert [generations[0], *(now for before, now in pairwise(generations) if now != before)] == ["5", "4", "3", "2", "1", "0"]


def test_an_older_file_that_fails_once_is_still_sent_before_the_newer_one(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    older, newer = rig.write("app.log.1", *numbered(50, "older")), rig.write("app.log", *numbered(50, "newer"))
    os.utime(older, (1, 1))
    split, failed = BackfillFile.split, list[str]()

    def fail_once(self: BackfillFile, **how: bool) -> Split:
        if self.path == str(older) and not failed:
            failed.append(self.path)
            return replace(split(self, **how), open_path="/nowhere")
        return split(self, **how)

    monkeypatch.setattr(BackfillFile, "split", fail_once)
    assert rig.run([older, newer])["complete"]
    assert failed
    assert rig.lines() == [*numbered(50, "older"), *numbered(50, "newer")]


@pytest.mark.parametrize("packs", [gzip.compress, bz2.compress])
def test_what_was_delivered_is_skipped_also_rotated_and_packed(rig: Rig, packs: Any) -> None:
    kept, rotated = rig.write("app.log", *numbered(100, "kept")), rig.write("app.log.1", *numbered(200, "rotated"))
    rig.run([kept, rotated])
    sent = len(rig.lines())
    archive = rig.logs / "app.log.2.gz"
    archive.write_bytes(packs(rotated.read_bytes()))
    rotated.unlink()
    kept.rename(rig.logs / "app.log.1")
    summary = rig.run([rig.logs / "app.log.1", archive])
    assert {name: file["state"] for name, file in by_name(summary).items()} == {"app.log.1": "skipped", "app.log.2.gz": "skipped"}
    assert all("delivered by run-0" in file["why"] for file in summary["files"])
    assert (len(rig.lines()), summary["complete"]) == (sent, True)


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_was_delivered_in_part_goes_on_behind_it(rig: Rig, packed: bool) -> None:
    path = rig.write("app.log", *numbered(100))
    rig.run([path])
    path.write_text("\n".join(numbered(150)) + "\n")
    if packed:
        archive = rig.logs / "app.log.1.gz"
        archive.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
        path = archive
    (file,) = rig.run([path])["files"]
    assert (file["read"], file["state"]) == (50, "done")
    assert "begun at" in file["why"]
    assert rig.lines() == numbered(150)


def test_a_run_that_goes_on_also_skips_archives_that_it_had_not_begun(rig: Rig) -> None:
    """What was delivered of an archive shows only when it is unpacked."""
    logs = [rig.write(f"{name}.log", *numbered(300, name)) for name in "abcd"]
    rig.run(logs)
    archives = [log.with_name(f"{log.name}.1.gz") for log in logs]
    for log, archive in zip(logs, archives, strict=True):
        archive.write_bytes(gzip.compress(log.read_bytes()))
        log.unlink()
    new = [rig.write(f"{number}-new.log", *numbered(6000, f"new {number}")) for number in range(3)]
    home = rig.root / "own"
    part = rig.interrupt([*new, *archives], home)
    assert any(by_name(part)[archive.name]["state"] == "unfinished" for archive in archives)
    files = by_name(rig.run([*new, *archives], home))
    assert {files[archive.name]["state"] for archive in archives} == {"skipped"}
    assert len(rig.lines()) == len(set(rig.lines())) == 4 * 300 + 3 * 6000


def test_again_sends_what_was_delivered(rig: Rig) -> None:
    path = rig.write("app.log", *numbered(10))
    rig.run([path])
    rig.run([path], again=True)
    assert rig.lines() == numbered(10) * 2


def test_another_log_that_begins_alike_is_not_taken_for_a_copy(rig: Rig) -> None:
    """All that is equal is text that says nothing: in doubt it is sent."""
    ticks = ["tick"] * 2000
    first = rig.write("app.log", *ticks)
    rig.run([first])
    rig.run([rig.write("app.log.1", *ticks, "end")])
    assert len(rig.lines()) == 4001


def test_what_cannot_be_read_is_failed_and_the_others_are_done(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    good = rig.write("good.log", *numbered(10))
    pipe, gone = rig.logs / "pipe.log", rig.logs / "gone.log"
    os.mkfifo(pipe)
    broken = rig.logs / "broken.log.gz"
    packed = gzip.compress("\n".join(numbered(50_000)).encode())
    middle = len(packed) // 2
    broken.write_bytes(packed[:middle] + b"\xff" * 64 + packed[middle + 64 :])
    summary = rig.run([good, pipe, gone, broken])
    files = by_name(summary)
    assert {name: file["state"] for name, file in files.items()} == {
        "good.log": "done", "pipe.log": "failed", "gone.log": "failed", "broken.log.gz": "failed",
    }  # fmt: skip
    assert files["pipe.log"]["why"] == "it is not a regular file"
    assert "No such file" in files["gone.log"]["why"]
    assert files["broken.log.gz"]["why"].startswith("gzip: ")
    assert files["broken.log.gz"]["read"] > 0, "what comes before the damage is sent"
    assert (summary["state"], summary["complete"]) == ("finished", False)
    assert [loss["reason"] for loss in summary["losses"]] == ["damaged"]
    logged = [str(vars(record)) for record in caplog.records if "left out of this run" in record.getMessage()]
    assert {name: "what comes before it was sent" in line for line in logged for name in files if name in line} == {
        "pipe.log": False, "gone.log": False, "broken.log.gz": True,
    }  # fmt: skip


def test_files_that_cannot_be_opened_are_told_apart_however_long_their_names_are(rig: Rig) -> None:
    gone = [rig.logs / ("x" * 200) / name for name in ("a.log", "b.log")]
    assert {name: file["state"] for name, file in by_name(rig.run(gone)).items()} == {"a.log": "failed", "b.log": "failed"}


def test_odd_bytes_of_names_are_escaped_in_accounts_and_plans(rig: Rig) -> None:
    """Half a surrogate is no text for most JSON libraries."""
    odd = rig.write("odd \udcff\n.log", "one")
    accounts = rig.run([odd]), rig.run([odd])
    job = rig.job([odd], None, again=False, window=None, rate=0)
    for document in (*accounts, plan_of(job.definition, choose([str(odd)]), None, {}, 0, 0.0)):
        assert list(by_name(document)) == ["odd \\xff\\n.log"]
        json.dumps(document, ensure_ascii=False).encode()


def test_rejected_records_are_counted_and_no_complete_account(rig: Rig) -> None:
    path = rig.write("app.log", *numbered(5), "x" * 4000)
    sections: dict[str, Any] = {
        "source": {"type": "log_file", "include": ["/nowhere/*"], "line": {"max_bytes": "1KiB"}},
        "errors": {"tolerance": "all"},
    }
    summary = rig.run([path], **sections)
    (file,) = summary["files"]
    assert (file["read"], file["acknowledged"], file["rejected"], file["too_long"]) == (6, 5, 1, 1)
    assert not summary["complete"]


def test_an_interrupted_run_goes_on_where_it_was_and_counts_nothing_twice(rig: Rig) -> None:
    paths = [rig.write(f"{name}.log", *numbered(3000, name)) for name in "abcd"]
    home = rig.root / "own"
    sections: dict[str, Any] = {"delivery": {"max_batch_bytes": "64KiB"}}
    with rig.start(paths, home, rate=10_000, **sections) as work:
        wait_until(lambda: work.status.counts.read > 0, 60)
        part = work.stop(interrupted=True)
    assert part["state"] == "interrupted"
    assert 0 < part["totals"]["records"]["read"] < 12_000
    assert part["totals"]["files"]["unfinished"] > 0
    summary = rig.run(paths, home)
    records = summary["totals"]["records"]
    assert (records["read"], records["acknowledged"], summary["complete"]) == (12_000, 12_000, True)
    assert sorted(rig.lines()) == sorted(line for name in "abcd" for line in numbered(3000, name))


@pytest.mark.parametrize("parts", [0, 1])
def test_a_file_that_was_renamed_between_two_parts_of_a_run_is_found(rig: Rig, parts: int) -> None:
    path = rig.write("app.log", *numbered(6000))
    home = rig.root / "own"
    sections: dict[str, Any] = {"delivery": {"max_batch_bytes": "64KiB"}}
    with rig.start([path], home, rate=10_000, **sections) as work:
        wait_until(lambda: work.status.counts.read > 0, 60)
        work.stop(interrupted=True)
    path.rename(rig.logs / "app.log.1")
    rig.write("app.log", "a new file, which was not there when the run began")
    for _ in range(parts):
        rig.interrupt([path], home)
    summary = rig.run([path], home)
    assert (summary["totals"]["records"]["read"], summary["complete"]) == (6000, True)
    assert rig.lines() == numbered(6000)


@pytest.mark.parametrize("packs", [False, True])
def test_the_unfinished_file_of_a_run_is_found_after_a_rotation_or_failed(rig: Rig, packs: bool) -> None:
    """The PATH that it had is now the name of the other file of the run."""
    newer, older, home = rig.write("app.log", *numbered(300, "newer")), rig.write("app.log.1", *numbered(6000, "older")), rig.root / "own"
    os.utime(older, (1, 1))
    rig.interrupt([newer, older], home)
    oldest = older.rename(rig.logs / "app.log.2")
    newer.rename(older)
    rig.write("app.log", "a new file, which was not there when the run began")
    if packs:
        oldest.with_name("app.log.2.gz").write_bytes(gzip.compress(oldest.read_bytes()))
        oldest.unlink()
    summary = rig.run([newer, older], home)
    if packs:
        assert (summary["complete"], by_name(summary)["app.log.1"]["state"]) == (False, "failed")
        assert "is gone" in by_name(summary)["app.log.1"]["why"]
    else:
        assert (summary["totals"]["records"]["read"], summary["complete"]) == (6300, True)
        assert rig.lines() == [*numbered(6000, "older"), *numbered(300, "newer")]


def test_a_file_that_was_read_to_its_end_may_be_deleted_before_the_run_goes_on(rig: Rig) -> None:
    first, second, home = rig.write("app.log.1", *numbered(3)), rig.write("app.log", *numbered(6000)), rig.root / "own"
    os.utime(first, (1, 1))
    rig.interrupt([first, second], home)
    first.unlink()
    summary = rig.run([first, second], home)
    assert (summary["totals"]["records"]["read"], summary["complete"]) == (6003, True)


@pytest.mark.parametrize("has_births", [True, False])
def test_a_run_goes_on_after_its_files_device_number_has_changed(rig: Rig, monkeypatch: pytest.MonkeyPatch, has_births: bool) -> None:
    if not has_births:
        monkeypatch.setattr("copycat_agent.sources.files.identity._birth", lambda *_: 0)
    paths = [rig.write(f"{name}.log", *numbered(3000, name)) for name in "ab"]
    home = rig.root / "own"
    with rig.start(paths, home, rate=10_000, delivery={"max_batch_bytes": "64KiB"}) as work:
        wait_until(lambda: work.status.counts.read > 0, 60)
        work.stop(interrupted=True)
    rig.remount()
    summary = rig.run(paths, home)
    assert summary["complete"]
    assert sorted(rig.lines()) == sorted([*numbered(3000, "a"), *numbered(3000, "b")])


def test_a_file_that_could_not_be_read_is_tried_again_when_the_run_goes_on(rig: Rig) -> None:
    path, home = rig.logs / "late.log", rig.root / "own"
    assert not rig.run([path], home)["complete"]
    rig.write("late.log", *numbered(3))
    summary = rig.run([path], home)
    assert [(file["state"], file["why"], file["read"]) for file in summary["files"]] == [("done", "", 3)]
    assert summary["complete"]


def test_two_names_of_one_file_are_one_file(rig: Rig) -> None:
    path = rig.write("app.log", *numbered(3))
    link = rig.logs / "link.log"
    link.hardlink_to(path)
    assert len(rig.run([path, link])["files"]) == 1
    assert rig.lines() == numbered(3)


@pytest.mark.parametrize(
    ("change", "why"), [("cut", "it was cut to"), ("rewritten", "it was cut, rewritten or replaced"), ("gone", "is gone")]
)
def test_what_was_destroyed_between_two_parts_of_a_run_is_failed(rig: Rig, change: str, why: str) -> None:
    path, home = rig.write("app.log", *numbered(6000)), rig.root / "own"
    with rig.start([path], home, rate=10_000, delivery={"max_batch_bytes": "64KiB"}) as work:
        wait_until(lambda: work.status.counts.read > 0, 60)
        work.stop(interrupted=True)
    if change == "cut":
        os.truncate(path, path.stat().st_size - 1000)
    elif change == "rewritten":
        path.write_text("\n".join(numbered(6000, "othr")) + "\n")
    else:
        path.unlink()
    summary = rig.run([path], home)
    (file,) = summary["files"]
    assert (file["state"], summary["complete"]) == ("failed", False)
    assert why in file["why"]


def test_what_is_written_after_the_run_met_a_file_is_left_and_its_open_line_is_no_record(rig: Rig) -> None:
    path = rig.write("app.log", *numbered(3), "unfinis", end="")
    met = path.stat().st_size
    source = rig.job([path], None, again=True, window=None, rate=0).make_source
    assert source is not None
    files = source("app", LogFileOptions(type="log_file", include=("/x",)), DeliveryOptions(), {}, logs.get("test"))
    files.scan()
    with path.open("a") as file:
        file.write("hed\nnew\n")
    (split,) = files.plan(1).splits
    files.close()
    assert (split.end, split.final, split.flush) == (met, False, False)


def test_a_file_that_was_left_out_and_can_be_read_now_is_failed_no_more(rig: Rig) -> None:
    path, home = rig.write("app.log", *numbered(3)), rig.root / "own"
    with path.open("rb") as file:
        partition = SourcePartition("app", identify(file.fileno(), path.stat()).key(0))
    with OffsetStore.open(home) as store:
        failed = Account(path=str(path), state="failed", why="it could not be read")
        store.commit({partition: SourceOffset(0, path=str(path), size=path.stat().st_size)}, accounts={partition: failed})
    summary = rig.run([path], home)
    assert [(file["state"], file["why"], file["read"]) for file in summary["files"]] == [("done", "", 3)]


def test_a_given_file_that_was_not_read_to_its_end_makes_no_complete_account(rig: Rig) -> None:
    """Whatever the reason is, in an account of a run that ended."""
    home = rig.root / "own"
    rig.interrupt([rig.write("app.log", *numbered(6000))], home)
    with rig.start([rig.write("other.log", "x")]) as work:
        wait_until(lambda: work.wait(0.01), 60)
        work.stop(interrupted=False)
        part = RunPart(work.status, 0.0, 1.0)
    with OffsetStore.open_existing(home) as store:
        summary = summarise(work.definition, store, part, untouched=True, given=True)
    assert (summary["state"], summary["complete"], summary["totals"]["files"]["unfinished"]) == ("finished", False, 1)


def test_accounts_of_a_file_add_up() -> None:
    one = Account(Counts(2, 20, 2), (OffsetRange("t", 0, 5, 9), OffsetRange("t", 1, 3, 3)), "/a", "failed", "why", 1)
    other = Account(Counts(3, 30, 1, 2), (OffsetRange("t", 0, 2, 7),), "/b", "read")
    assert one + other == Account(Counts(5, 50, 3, 2), (OffsetRange("t", 0, 2, 9), OffsetRange("t", 1, 3, 3)), "/b", "read", "", 1)


KEYS = {
    "version", "connector", "topic", "state", "complete", "problem", "began", "ended", "seconds", "records_per_second", "bytes_per_second",
    "files_that_could_not_be_read", "offsets_unsaved", "totals", "losses", "files",
}  # fmt: skip


def test_the_form_of_the_summary_is_what_scripts_know(rig: Rig) -> None:
    summary = rig.run([rig.write("app.log", *numbered(3))])
    assert summary.keys() == KEYS
    assert summary["version"] == 1
    assert summary["totals"].keys() == {"files", "bytes", "records"}
    assert summary["totals"]["files"].keys() == {"all", "done", "skipped", "failed", "unfinished"}
    counts = {"read", "acknowledged", "dead_lettered", "dropped", "rejected", "too_long", "kept", "undated"}
    assert summary["totals"]["records"].keys() == counts
    assert summary["files"][0].keys() == counts | {"path", "state", "why", "size", "compression", "bytes", "delivered"}
