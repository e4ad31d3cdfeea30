"""What is left out because it was delivered before is that very file: in doubt it is sent again."""

from __future__ import annotations

import gzip
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.backfill.conftest import by_name

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.backfill.conftest import Rig

BANNER = [f"== part {number} of what this job says each night before it begins" for number in range(30)]
FOOTER = [f"== part {number} of what this job says each night when it ends" for number in range(10)]
TICKS = ["tick"] * 1000


def night(number: int) -> list[str]:
    """As long each night, with the same beginning and the same end."""
    return [*BANNER, *(f"night {number:04d} row {row:04d}" for row in range(200)), *FOOTER]


def packed(path: Path) -> Path:
    archive = path.with_name(f"{path.name}.gz")
    archive.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return archive


@pytest.mark.parametrize("packs", [False, True])
def test_another_file_that_begins_and_ends_alike_is_sent_while_the_first_stands(rig: Rig, packs: bool) -> None:
    first = rig.write("job.log", *night(1))
    rig.run([first])
    first.rename(rig.logs / "job.log.2")
    other = rig.write("job.log.1", *night(2))
    rig.run([packed(other) if packs else other])
    assert rig.lines() == [*night(1), *night(2)]


def test_a_copy_beside_the_file_that_was_delivered_is_compared_and_left_out(rig: Rig) -> None:
    rig.run([rig.write("job.log", *night(1))])
    summary = rig.run([rig.write("job.log.1", *night(1))])
    assert [file["state"] for file in summary["files"]] == ["skipped"]
    assert len(rig.lines()) == len(night(1))


@pytest.mark.parametrize("sections", [{}, {"source": {"type": "spool_dir", "dir": "/nowhere", "format": "csv"}}])
def test_a_renamed_file_is_left_out_whatever_number_its_device_has_now(rig: Rig, sections: dict[str, Any]) -> None:
    path = rig.write("first", *night(1))
    rig.run([path], **sections)
    sent = len(rig.lines())
    rig.remount()
    path.rename(rig.logs / "second")
    os.utime(rig.logs / "second", (5, 5))
    summary = rig.run([rig.logs / "second"], **sections)
    assert [file["state"] for file in summary["files"]] == ["skipped"]
    assert len(rig.lines()) == sent


@pytest.mark.parametrize("packs", [False, True])
def test_text_that_repeats_itself_proves_nothing_also_when_the_first_is_gone(rig: Rig, packs: bool) -> None:
    first = rig.write("job.log.1", *TICKS, "one", *TICKS)
    rig.run([first])
    first.unlink()
    other = rig.write("job.log.2", *TICKS, "two", *TICKS)
    rig.run([packed(other) if packs else other])
    assert "two" in rig.lines()


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("count", [1, 100])
def test_neither_does_a_short_text_that_many_logs_begin_with(rig: Rig, packs: bool, count: int) -> None:
    first = rig.write("job.log.1", *TICKS[:count])
    rig.run([first])
    first.unlink()
    other = rig.write("job.log.2", *TICKS[:count], *BANNER)
    rig.run([packed(other) if packs else other])
    assert rig.lines() == [*TICKS[:count], *TICKS[:count], *BANNER]


def test_a_short_text_that_says_when_it_was_written_is_known_when_the_first_is_gone(rig: Rig) -> None:
    first = rig.write("job.log", "2026-11-21T05:00:00Z started")
    rig.run([first])
    copy = rig.logs / "job.log.1"
    copy.write_bytes(first.read_bytes() + b"2026-11-21T05:00:09Z ended\n")
    first.unlink()
    rig.run([copy])
    assert rig.lines() == ["2026-11-21T05:00:00Z started", "2026-11-21T05:00:09Z ended"]


SPOOL: dict[str, Any] = {"source": {"type": "spool_dir", "dir": "/nowhere", "format": "csv"}}


def test_a_spooled_file_is_known_by_its_bytes_and_its_name_or_its_time(rig: Rig) -> None:
    first = rig.write("a.csv", "x,y", "1,2")
    os.utime(first, (1, 1))
    rig.run([first], **SPOOL)
    place = rig.logs / "done"
    place.mkdir()
    for name, mtime in (("a.csv", 5), ("copied.csv", 1), ("of-the-next-hour.csv", 5)):
        copy = place / name
        copy.write_bytes(first.read_bytes())
        os.utime(copy, (mtime, mtime))
    first.rename(rig.logs / "renamed.csv")
    files = by_name(rig.run([rig.logs / "renamed.csv", *place.iterdir()], **SPOOL))
    assert {name: file["state"] for name, file in files.items()} == {
        "renamed.csv": "skipped", "a.csv": "skipped", "copied.csv": "skipped", "of-the-next-hour.csv": "done",
    }  # fmt: skip
