"""The source on real journals, without an agent: what is read, in which order, and what is told of what can be read no more."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.errors import BlockedError, FatalError, RetriableError
from copycat_agent.extending import Unparsed
from copycat_agent.sources.journald import journald_source
from tests.journald.conftest import Reading, needs_journals
from tests.rig.journals import BEGIN_US, BOOT, JournalWriter, lines, vacuum, write_journal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_journals


def numbered(first: int, last: int) -> list[str]:
    return [f"line {number}" for number in range(first, last + 1)]


def test_entries_come_once_in_their_order_and_what_is_added_comes_next(journal: Path) -> None:
    with JournalWriter(journal) as writer:
        writer.add(lines(0, 99))
        reading = Reading(journal)
        assert reading.messages(30) == numbered(0, 29)
        assert reading.messages() == numbered(30, 99)
        assert reading.look() is None
        writer.add(lines(100, 101))
        assert reading.messages() == numbered(100, 101)
        assert reading.look() is None
    assert reading.lost == []
    assert json.loads(json.dumps(reading.position)) == reading.position


def test_fields_are_those_of_the_journal(journal: Path) -> None:
    odd = {
        "TAG": ["a", "b", "a"],
        "BINARY": b"\xff\x00\n\n\xfe",
        "TEXT": "two\n\nlines = A=1",
        "CONTROL": "\x07\x1b[31m",
        "EMPTY": "",
        "ÜBER": "no",
    }
    write_journal(journal, [{"MESSAGE": "grüße \U0001f408", "_PID": "7", **odd}])
    (entry,) = Reading(journal).read()
    assert entry["MESSAGE"] == "grüße \U0001f408"
    assert (sorted(entry["TAG"]), entry["BINARY"], entry["TEXT"]) == (["a", "b"], odd["BINARY"], odd["TEXT"])
    assert (entry["CONTROL"], entry["EMPTY"], entry["_PID"], entry["_BOOT_ID"]) == ("\x07\x1b[31m", "", "7", BOOT)
    assert int(entry["__REALTIME_TIMESTAMP"]) == BEGIN_US
    assert entry["__CURSOR"].startswith("s=")
    assert "ÜBER" not in entry, "the journal takes no such name"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"priority": "err"}, [0, 1, 2, 3]),
        ({"priority": "4..5"}, [4, 5]),
        ({"units": ["b.service"]}, [1, 3, 5, 7]),
        ({"units": ["b.service", "c*"]}, [1, 3, 5, 6, 7]),
        ({"match": ["PRIORITY=2", "PRIORITY=3"]}, [2, 3]),
        ({"match": ["_SYSTEMD_UNIT=a.service", "PRIORITY=2", "+", "PRIORITY=7"]}, [2, 7]),
        ({"match": ["_SYSTEMD_UNIT=a.service", "+", "PRIORITY=7"], "boot": BOOT}, [0, 2, 4, 7]),
        ({"boot": "f" * 32}, []),
        ({"boot": "current"}, []),
        ({"start_at": "2023-11-14T22:13:20.004Z"}, [4, 5, 6, 7]),
        ({"start_at": "end"}, []),
    ],
)
def test_options_choose(options: dict[str, Any], expected: list[int], journal: Path) -> None:
    units = ["a.service", "b.service"] * 3 + ["c.service", "b.service"]
    entries = [dict(next(lines(number, number)), _SYSTEMD_UNIT=unit) for number, unit in enumerate(units)]
    with JournalWriter(journal) as writer:
        writer.add(entries)
        reading = Reading(journal, **options)
        assert reading.messages() == [f"line {number}" for number in expected]
        assert reading.look() is None
        writer.add(entries[:1])
        assert len(reading.messages()) == (0 in expected or options.get("start_at") in ("end", "2023-11-14T22:13:20.004Z"))
    assert reading.lost == []


def test_a_position_among_entries_that_are_left_out_moves_on_now_and_then(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with JournalWriter(journal) as writer:
        writer.add(lines(0, 9))
        reading = Reading(journal, match=["PRIORITY=1"])
        assert reading.messages() == ["line 1", "line 9"]
        before = reading.position
        writer.add([{"MESSAGE": "left out", "PRIORITY": "2"}])
        assert reading.look() is None
        monkeypatch.setattr(journald_source, "MOVE_SECONDS", 0)
        writer.add([{"MESSAGE": "left out", "PRIORITY": "2"}])
        assert reading.look() is not None
        assert reading.read() == []
        assert reading.position != before
        assert reading.look() is None
        writer.add(lines(9, 9))
        assert reading.messages() == ["line 9"]
    assert reading.lost == [], "the entry at the position is there, though the options leave it out"


def test_a_run_to_the_end_ends_though_more_is_written(journal: Path) -> None:
    with JournalWriter(journal) as writer:
        writer.add(lines(0, 9))
        reading = Reading(journal)
        assert reading.look(to_the_end=True) is not None
        writer.add(lines(10, 19))
        assert len(reading.read(to_the_end=True)) == 20
        writer.add(lines(20, 29))
        assert reading.look(to_the_end=True) is None
        assert reading.messages() == numbered(20, 29)


def test_rotated_journals_are_read_on_in_their_order(journal: Path) -> None:
    with JournalWriter(journal) as writer:
        writer.add(lines(0, 49))
        reading = Reading(journal)
        assert reading.messages(20) == numbered(0, 19)
        writer.rotate()
        writer.add(lines(50, 59))
        assert reading.messages(25) == numbered(20, 44)
        writer.rotate()
        writer.add(lines(60, 69))
        assert reading.messages() == numbered(45, 69)
    assert reading.lost == []


def test_what_was_vacuumed_before_it_was_read_is_a_loss_and_what_is_left_is_read(journal: Path) -> None:
    with JournalWriter(journal) as writer:
        writer.add(lines(0, 49))
        reading = Reading(journal)
        reading.messages(20)
        writer.rotate()
        writer.add(lines(50, 59))
        vacuum(journal)
        assert reading.messages() == numbered(50, 59)
        (lost,) = reading.lost
        assert "is gone, and perhaps some behind it" in lost.why
        assert not lost.damaged
        writer.add(lines(60, 60))
        assert reading.messages() == numbered(60, 60)
    assert len(reading.lost) == 1


def write_many(journal: Path) -> None:
    """8,000 entries in several journals of one sequence."""
    more = ({f"F{i}": f"{number}-{i}" for i in range(40)} for number in range(8000))
    write_journal(journal, ({"MESSAGE": f"line {number}", "PRIORITY": "1", **fields} for number, fields in enumerate(more)))
    if len(list(journal.iterdir())) == 1:
        pytest.skip("systemd-journal-remote has not rotated by itself")


@pytest.mark.parametrize("options", [{}, {"priority": "debug"}])
def test_how_many_were_vacuumed_is_known_within_one_sequence(options: dict[str, Any], journal: Path) -> None:
    """systemd-journal-remote rotates by itself once the table of a file's data is full."""
    write_many(journal)
    reading = Reading(journal, **options)
    assert reading.messages(20) == numbered(0, 19)
    vacuum(journal)
    found = reading.messages()
    first = int(found[0].removeprefix("line "))
    assert found == numbered(first, 7999)
    (lost,) = reading.lost
    assert f"{first - 20:,} entries were removed from the journal" in lost.why
    assert lost.records == (0 if options else first - 20)


def test_nothing_is_lost_where_only_what_was_read_is_vacuumed(journal: Path) -> None:
    write_many(journal)
    kept = Reading(journal)
    vacuum_first = sorted(journal.glob("app@*"))
    reading = Reading(journal)
    boundary = _first_of_rest(journal, vacuum_first)
    assert reading.messages(boundary) == numbered(0, boundary - 1)
    vacuum(journal)
    assert reading.messages() == numbered(boundary, 7999)
    assert (reading.lost, kept.lost) == ([], [])


def _first_of_rest(journal: Path, archived: list[Path]) -> int:
    """Number of the first entry that is not in archived journals."""
    aside = journal.parent / "aside"
    aside.mkdir()
    for path in archived:
        path.rename(aside / path.name)
    first = Reading(journal).messages(1)[0]
    for path in archived:
        (aside / path.name).rename(path)
    return int(first.removeprefix("line "))


def test_another_journal_in_its_place_is_told_and_read(journal: Path) -> None:
    write_journal(journal, lines(0, 9))
    reading = Reading(journal)
    reading.messages()
    shutil.rmtree(journal)
    with JournalWriter(journal, boot="f" * 32, first=100) as writer:
        writer.add(lines(100, 104))
    assert reading.messages() == numbered(100, 104)
    assert len(reading.lost) == 1


def test_an_older_journal_in_its_place_is_told_and_read_on_from_its_end(journal: Path) -> None:
    with JournalWriter(journal, first=100) as writer:
        writer.add(lines(100, 109))
    reading = Reading(journal)
    reading.messages()
    shutil.rmtree(journal)
    with JournalWriter(journal, boot="f" * 32) as writer:
        writer.add(lines(0, 4))
        assert reading.messages() == []
        assert [one.why for one in reading.lost] == [
            "the journal ends before the entry that was read last: it is another one, or its clock was set back"
        ]
        writer.add(lines(5, 6))
        assert reading.messages() == numbered(5, 6)
    assert len(reading.lost) == 1


def test_a_journal_of_random_bytes_is_told_once_and_the_others_are_read(journal: Path, rng: random.Random) -> None:
    with JournalWriter(journal) as writer:
        writer.add(lines(0, 9))
        (journal / "bad.journal").write_bytes(rng.randbytes(500_000))
        reading = Reading(journal)
        assert reading.messages() == numbered(0, 9)
        (lost,) = reading.lost
        assert lost.damaged
        assert "bad.journal corrupted, ignoring file" in lost.why
        writer.add(lines(10, 12))
        assert reading.messages() == numbered(10, 12)
        assert len(reading.lost) == 1


def test_a_journal_with_damage_within_is_read_as_far_as_journalctl_does_and_that_is_told(journal: Path) -> None:
    path = write_journal(journal, lines(0, 2999))
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0"))
    data[used - 100_000 : used - 60_000] = random.Random(5).randbytes(40_000)
    path.write_bytes(data)
    reading = Reading(journal)
    found = reading.messages()
    assert len(found) < 3000
    assert found[:100] == numbered(0, 99)
    assert reading.lost
    assert all(one.damaged for one in reading.lost)
    assert len({one.why for one in reading.lost}) == len(reading.lost)


def test_large_entries_are_bad_records_and_the_rest_is_read(journal: Path) -> None:
    large = {"MESSAGE": "core", "COREDUMP": b"\0" * 3_000_000}
    write_journal(journal, [*lines(0, 0), large, *lines(2, 2)])
    reading = Reading(journal)
    first, bad, last = reading.read()
    assert (first["MESSAGE"], last["MESSAGE"]) == ("line 0", "line 2")
    assert isinstance(bad, Unparsed)
    assert "by its field COREDUMP, where 1,048,576 are the most" in bad.why
    assert "journalctl --cursor='s=" in bad.hint
    whole = Reading(journal, max_bytes="64MiB").read()
    assert len(whole[1]["COREDUMP"]) == 3_000_000


@pytest.mark.parametrize("position", [[], {"cursor": 1}, {"since": "x"}, {"other": ""}, "s=1", 7, None])
def test_a_position_that_is_none_ends_the_connector_with_words(position: Any, journal: Path) -> None:
    write_journal(journal, lines(0, 1))
    reading = Reading(journal)
    reading.position = position
    if position is None:
        return
    with pytest.raises(FatalError, match="is none of a journal"):
        reading.look()


def test_what_cannot_be_read_is_told_and_tried_again(journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RetriableError, match="No such file or directory"):
        Reading(journal, start_at="end")
    write_journal(journal, lines(0, 1))
    reading = Reading(journal, position={"cursor": "nonsense"})
    with pytest.raises(RetriableError, match="Failed to seek to cursor"):
        reading.read()
    if setpriv := shutil.which("setpriv"):  # which would start, and fail
        (tmp_path / "setpriv").symlink_to(setpriv)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BlockedError, match="journalctl is not there"):
        reading.read()


def test_a_journalctl_that_fails_within_an_entry_is_started_again(journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in that gives the beginning of what the real one does, then is killed, or ends as if nothing were wrong."""
    write_journal(journal, lines(0, 999))
    real, count = shutil.which("journalctl"), tmp_path / "count"
    fake = tmp_path / "bin/journalctl"
    fake.parent.mkdir()
    fake.write_text(f"""#!/bin/bash
[[ "$*" == *--lines* ]] && exec {real} "$@"
echo x >> {count}
case $(wc -l < {count}) in
1) {real} "$@" | head -c 20000; kill -KILL $$ ;;
2) {real} "$@" | head -c 30000 ;;
*) exec {real} "$@" ;;
esac
""")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    reading = Reading(journal)
    found: list[str] = []
    for words in ("journalctl ended with -9", "journalctl ended within an entry"):
        stretch = reading.look()
        assert stretch is not None
        taken: list[Any] = []
        with pytest.raises(RetriableError, match=words):
            taken.extend(reading.source.read(stretch))
        found += [record["MESSAGE"] for record, _ in taken]
        reading.position = reading.source.apply(stretch, taken[-1][1], finished=False)
    assert found == numbered(0, len(found) - 1)
    assert found + reading.messages() == numbered(0, 999)


def test_journals_that_are_renamed_while_they_are_opened_are_listed_anew(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal that is missed would be passed over for good: the stand-in renames it away before the first listing, and back behind it."""
    with JournalWriter(journal) as writer:
        writer.add(lines(0, 9))
        archived = writer.rotate()
        writer.add(lines(10, 19))
    real, mark = shutil.which("journalctl"), tmp_path / "mark"
    fake = tmp_path / "bin/journalctl"
    fake.parent.mkdir()
    fake.write_text(f"""#!/bin/bash
[[ "$*" == *--lines* || -e {mark} ]] && exec {real} "$@"
touch {mark}; mv '{archived}' {tmp_path}/away
{real} "$@" > {tmp_path}/given
mv {tmp_path}/away '{archived.with_name("renamed.journal")}'
cat {tmp_path}/given
""")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    reading = Reading(journal)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    assert reading.messages() == numbered(0, 19)


def test_nothing_of_the_agents_environment_reaches_a_child(journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_journal(journal, lines(0, 1))
    seen, real = tmp_path / "seen", shutil.which("journalctl")
    fake = tmp_path / "bin/journalctl"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/bash\nenv >> {seen}\nexec {real} "$@"\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("KAFKA_PASSWORD", "c4n4ry")
    assert Reading(journal).messages() == numbered(0, 1)
    assert "LC_ALL=C.UTF-8" in seen.read_text()
    assert "c4n4ry" not in seen.read_text()
