"""A file that is done goes where the policy says, and nothing that is there already is ever overwritten."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from copycat_agent.sources.spool_dir.cleanup import cleaner, copies, moves
from copycat_agent.sources.spool_dir.cleanup.moves import first_free, is_numbered, numbered
from copycat_agent.sources.spool_dir.cleanup.target_notes import moment
from tests.rig.disk import mounted
from tests.unit.sources.spool.cleaning import DAY, Spool, finished, killed_at, without_renameat2

NO_FOLLOW = "is, or leads through, a symbolic link"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Any:
    """A directory on another device, of 1 MiB."""
    with mounted(tmp_path, "1m") as directory:
        yield directory


def test_a_delivered_file_is_moved_and_keeps_its_subdirectory(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="move", to=str(tmp_path / "fin"))
    outcomes = spool.clean(finished(spool.drop("a/b/f.csv")), finished(spool.drop("flat.csv")))
    assert [one.state for one in outcomes] == ["cleaned", "cleaned"]
    assert [one.target for one in outcomes] == [str(tmp_path / "fin/a/b/f.csv"), str(tmp_path / "fin/flat.csv")]
    assert spool.tree(hidden=True) == {"fin/a/b/f.csv": "1\n", "fin/flat.csv": "1\n"}
    assert (tmp_path / "fin/flat.csv").is_file(), "not in a directory named after itself"
    assert (tmp_path / "in/a/b").is_dir(), "directories are kept unless asked"


def test_directories_above_one_that_is_away_are_removed_too(tmp_path: Path) -> None:
    """A kill may come between the removal of one directory and of the one above it."""
    spool = Spool(tmp_path, policy="delete", keep_directories=False)
    path = spool.drop("a/b/c/f.csv")
    file = finished(path)
    shutil.rmtree(tmp_path / "in/a/b")
    assert spool.clean(file)[0].state == "gone"
    assert list(spool.input.iterdir()) == []


@pytest.mark.parametrize(
    ("mtime", "day"), [(DAY, "2024-01-02"), (DAY - 1, "2024-01-01"), (DAY + 86_399, "2024-01-02"), (0, "1970-01-01"), (-1, "1969-12-31")]
)
def test_by_date_is_the_day_of_the_last_change_in_utc(tmp_path: Path, mtime: float, day: str) -> None:
    spool = Spool(tmp_path, policy="move_by_date", to=str(tmp_path / "fin"))
    (outcome,) = spool.clean(finished(spool.drop("a/f.csv", mtime=mtime)))
    assert outcome.target == str(tmp_path / "fin" / day / "a/f.csv")


def test_empty_directories_are_removed_on_request_but_never_the_input_itself(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="delete", keep_directories=False)
    kept = spool.drop("a/keep/g.csv")
    spool.clean(finished(spool.drop("a/b/c/f.csv")), finished(spool.drop("f.csv")))
    assert sorted(path.name for path in spool.input.rglob("*")) == ["a", "g.csv", "keep"]
    spool.clean(finished(kept))
    assert list(spool.input.iterdir()) == []
    assert spool.input.is_dir()


def test_with_policy_none_everything_stays(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    path, done = spool.drop("a.csv"), spool.drop("a.csv.done")
    assert not spool.cleaner.does(troubled=False)
    assert spool.clean(finished(path, done_file=str(done)), finished(path, trouble="x"))[0].state == "stays"
    assert sorted(spool.tree(hidden=True)) == ["in/a.csv", "in/a.csv.done"]


def test_a_done_file_goes_with_its_file(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="delete")
    path, done = spool.drop("a.csv"), spool.drop("a.csv.done", "")
    spool.clean(finished(path, done_file=str(done)))
    assert spool.tree(hidden=True) == {}
    spool = Spool(tmp_path, policy="move", to=str(tmp_path / "fin"))
    path, done = spool.drop("a.csv"), spool.drop("a.csv.done", "sum")
    spool.clean(finished(path, done_file=str(done)))
    assert spool.tree(hidden=True) == {"fin/a.csv": "1\n", "fin/a.csv.done": "sum"}


def test_a_taken_name_gets_a_number_before_its_suffixes(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="move", to=str(tmp_path / "fin"))
    for content in ("1", "2", "3"):
        spool.clean(finished(spool.drop("x.csv.gz", content)))
    assert spool.tree() == {"fin/x.csv.gz": "1", "fin/x-1.csv.gz": "2", "fin/x-2.csv.gz": "3"}


@pytest.mark.parametrize(
    ("name", "second"),
    [
        ("x.csv", "x-1.csv"), ("x.csv.gz", "x-1.csv.gz"), ("x", "x-1"), ("a.b.csv", "a.b-1.csv"), ("v1.2", "v1.2-1"), (".x", ".x-1"),
        ("x.tar.gz", "x-1.tar.gz"), ("2024.01.02.csv.zst", "2024.01.02-1.csv.zst"), ("x.", "x.-1"), ("é" * 127, "é" * 126 + "-1"),
        ("n" * 251 + ".csv", "n" * 249 + "-1.csv"), ("x.gz", "x-1.gz"), ("\udcff.csv", "\udcff-1.csv"),
    ],
)  # fmt: skip
def test_numbered_names(name: str, second: str) -> None:
    assert numbered(name, 0) == name
    assert numbered(name, 1) == second
    assert is_numbered(name, second)
    assert is_numbered(name, name)
    assert not is_numbered(name, "other" + name)
    assert len(os.fsencode(numbered(name, 10**6))) <= 255


def test_a_hundred_thousand_files_of_one_name_are_not_asked_for_one_by_one() -> None:
    asked = 0

    def taken(name: str) -> bool:
        nonlocal asked
        asked += 1
        return name == "x.csv" or int(name[2:-4]) < 100_000

    assert first_free("x.csv", taken) == "x-100000.csv"
    assert asked < 50


@pytest.mark.parametrize("links", [False, True])
def test_a_name_that_somebody_takes_at_the_last_moment_is_not_overwritten(tmp_path: Path, links: bool) -> None:
    spool = Spool(tmp_path, policy="move", to=str(tmp_path / "fin"))
    chosen = moves.free_name

    def late(goal: Any, name: str) -> str:
        free = chosen(goal, name)
        if free == "x.csv":
            (tmp_path / "fin/x.csv").write_text("theirs")
        return free

    with ExitStack() as held:
        held.enter_context(mock.patch("copycat_agent.sources.spool_dir.cleanup.cleaner.free_name", late))
        if links:
            held.enter_context(without_renameat2())
        spool.clean(finished(spool.drop("x.csv", "ours")))
    assert spool.tree() == {"fin/x.csv": "theirs", "fin/x-1.csv": "ours"}


def test_a_target_that_is_there_as_a_directory_or_a_dangling_link_is_no_target(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="move", to=str(tmp_path / "fin"))
    (tmp_path / "fin/x.csv").mkdir(parents=True)
    (tmp_path / "fin/x-1.csv").symlink_to(tmp_path / "victim")
    (outcome,) = spool.clean(finished(spool.drop("x.csv")))
    assert outcome.target.endswith("/fin/x-2.csv")
    assert not (tmp_path / "victim").exists()


def change(path: Path) -> None:
    path.write_text("longer")


def touch(path: Path) -> None:
    os.utime(path, (DAY + 1, DAY + 1))


def replace(path: Path) -> None:
    path.with_name("new").write_text(path.read_text())
    os.utime(path.with_name("new"), (DAY, DAY))
    path.with_name("new").rename(path)


def link(path: Path) -> None:
    path.rename(path.parent.parent / "real")
    path.symlink_to(path.parent.parent / "real")


@pytest.mark.parametrize("policy", ["delete", "move"])
@pytest.mark.parametrize("meddle", [change, touch, replace, link])
def test_what_is_not_the_file_that_was_read_is_left_alone(tmp_path: Path, policy: str, meddle: Any) -> None:
    spool = Spool(tmp_path, policy=policy, **({"to": str(tmp_path / "fin")} if policy == "move" else {}))
    path = spool.drop("x.csv")
    file = finished(path)
    meddle(path)
    before = spool.tree(hidden=True)
    assert spool.clean(file)[0].state == "changed"
    assert spool.tree(hidden=True) == before
    assert path.exists()


@pytest.mark.parametrize("policy", ["delete", "move"])
@pytest.mark.parametrize("links", [False, True])
def test_a_file_that_is_renamed_over_it_between_look_and_step_survives(tmp_path: Path, policy: str, links: bool) -> None:
    """The one moment in which no check helps: what was taken by mistake is put back, to be read."""
    spool = Spool(tmp_path, policy=policy, **({"to": str(tmp_path / "fin")} if policy == "move" else {}))
    path = spool.drop("x.csv", "old")
    file = finished(path)
    looks = moves.seen

    def meddled(folder: Any, name: str, item: Any) -> Any:
        result = looks(folder, name, item)
        if name == "x.csv" and path.read_text() == "old":
            spool.drop("new.csv", "new").rename(path)
        return result

    with mock.patch("copycat_agent.sources.spool_dir.cleanup.cleaner.seen", meddled):
        if links:
            with without_renameat2():
                (outcome,) = spool.clean(file)
        else:
            (outcome,) = spool.clean(file)
    assert outcome.state == "changed"
    assert "new" in [path.read_text() for path in spool.input.iterdir()], "it would be read next"


@pytest.mark.parametrize("step", range(14))
def test_it_survives_a_kill_as_well(tmp_path: Path, step: int) -> None:
    spool = Spool(tmp_path, policy="delete")
    path = spool.drop("x.csv", "old")
    file = finished(path)
    with mock.patch("copycat_agent.sources.spool_dir.cleanup.cleaner.seen", return_value=moves.NameState.IT):
        spool.drop("new.csv", "new").rename(path)
        with killed_at(step):
            spool.clean(file)
    spool.restarted()
    assert spool.clean(file)[0].state in ("changed", "gone")
    assert spool.tree() == {"in/x.csv": "new"}


def test_a_file_from_beyond_the_calendar_is_cleaned_up_too(tmp_path: Path) -> None:
    assert f"{moment(2**70):%Y-%m-%d} {moment(-(2**70)):%m-%d}" == "9999-12-31 01-01"
    assert f"{moment(DAY * 10**9 - 1):%Y-%m-%d}" == "2024-01-01", "not rounded up to the next day"


def test_another_mount_of_the_same_device_is_another_device(tmp_path: Path) -> None:
    """As a service sees two paths of ReadWritePaths=: the device is the same, and renaming fails."""
    (tmp_path / "real").mkdir()
    (tmp_path / "fin").mkdir()
    command = ["mount", "--bind", str(tmp_path / "real"), str(tmp_path / "fin")]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        spool = Spool(tmp_path, policy="move", to=str(tmp_path / "fin"))
        problem = spool.cleaner.check()
        assert problem is not None
        assert "ReadWritePaths=" in problem.message
        spool = Spool(tmp_path, policy="move", to=str(tmp_path / "fin"), across_devices="copy")
        assert spool.clean(finished(spool.drop("x.csv")))[0].state == "cleaned"
    finally:
        subprocess.run(["umount", "-l", str(tmp_path / "fin")], check=True)
    assert spool.tree(hidden=True) == {"real/x.csv": "1\n"}


def test_a_file_that_a_program_still_writes_to_is_not_deleted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="delete")
    path = spool.drop("x.csv")
    file = finished(path)
    with path.open("a"):
        (outcome,) = spool.clean(file)
        assert (outcome.state, outcome.why) == ("kept", "a program has it open for writing")
        assert spool.tree(hidden=True) == {"in/x.csv": "1\n"}
    spool.restarted()
    assert spool.clean(file)[0].state == "cleaned"


def test_somebody_else_took_it_away(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="move", to=str(tmp_path / "fin"))
    path = spool.drop("a/x.csv")
    file = finished(path)
    shutil.rmtree(path.parent)
    assert spool.clean(file)[0].state == "gone"
    spool = Spool(tmp_path, policy="delete", keep_directories=False)
    path = spool.drop("b/y.csv")
    file = finished(path)
    path.unlink()
    assert spool.clean(file)[0].state == "gone"
    assert not path.parent.exists()


def test_a_target_that_vanishes_is_made_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="move", to=str(tmp_path / "deep/er/fin"))
    assert spool.cleaner.check() is None
    shutil.rmtree(tmp_path / "deep")
    assert spool.clean(finished(spool.drop("x.csv")))[0].state == "cleaned"
    assert (tmp_path / "deep/er/fin/x.csv").is_file()


@pytest.mark.parametrize("where", ["to", "below"])
def test_a_target_that_is_a_link_is_refused(tmp_path: Path, where: str) -> None:
    spool = Spool(tmp_path, policy="move", to=str(tmp_path / "fin"))
    (tmp_path / "victim").mkdir()
    if where == "to":
        (tmp_path / "fin").symlink_to(tmp_path / "victim")
        problem = spool.cleaner.check()
        assert problem is not None
        assert problem.message.startswith("cleanup.to: ")
        assert NO_FOLLOW in problem.message
    else:
        (tmp_path / "fin").mkdir()
        (tmp_path / "fin/a").symlink_to(tmp_path / "victim")
    (outcome,) = spool.clean(finished(spool.drop("a/x.csv")))
    assert outcome.state == "kept"
    assert NO_FOLLOW in outcome.why
    assert spool.tree(hidden=True) == {"in/a/x.csv": "1\n"}


def test_a_target_that_is_the_input_itself_is_refused_under_any_name(tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(tmp_path)
    spool = Spool(tmp_path, policy="move", to=str(tmp_path / "alias/in"))
    problem = spool.cleaner.check()
    assert problem is not None
    assert "is read by this connector too" in problem.message
    (outcome,) = spool.clean(finished(spool.drop("x.csv")))
    assert outcome.state == "kept"
    assert spool.tree(hidden=True) == {"in/x.csv": "1\n"}


def test_a_target_inside_the_input_is_good_only_when_directories_below_are_not_read(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="move", to=str(tmp_path / "in/fin"))
    assert spool.cleaner.check() is None
    spool.recursive = True
    problem = spool.restarted().check()
    assert problem is not None
    assert "is read by this connector too" in problem.message


def test_another_device_is_refused_at_the_start_and_the_option_named(tmp_path: Path, elsewhere: Path) -> None:
    spool = Spool(tmp_path, policy="move", to=str(elsewhere / "fin"))
    problem = spool.cleaner.check()
    assert problem is not None
    assert "cleanup.across_devices: copy" in problem.message
    (outcome,) = spool.clean(finished(spool.drop("x.csv")))
    assert outcome.state == "kept"
    assert "cleanup.across_devices: copy" in outcome.why


def test_a_copy_keeps_mode_and_times_and_leaves_no_part(tmp_path: Path, elsewhere: Path) -> None:
    spool = Spool(tmp_path, policy="move", to=str(elsewhere / "fin"), across_devices="copy")
    assert spool.cleaner.check() is None
    path = spool.drop("x.csv", "data")
    path.chmod(0o640)
    (outcome,) = spool.clean(finished(path))
    info = Path(outcome.target).stat()
    assert (stat.S_IMODE(info.st_mode), info.st_mtime_ns, Path(outcome.target).read_text()) == (0o640, DAY * 10**9, "data")
    assert [one.name for one in (elsewhere / "fin").iterdir()] == ["x.csv"]
    assert list(spool.input.iterdir()) == []


def test_a_large_copy_goes_in_steps_and_holds_up_no_other_file(tmp_path: Path, elsewhere: Path) -> None:
    spool = Spool(tmp_path, policy="move", to=str(elsewhere / "fin"), failed_to=str(tmp_path / "bad"), across_devices="copy")
    large, bad = spool.drop("large.bin", "x" * 700_000), spool.drop("bad.csv")
    files = finished(large), finished(bad, trouble="broken")
    with mock.patch.multiple(copies, STEP_SECONDS=0.0, _CHUNK_BYTES=300_000):
        first = spool.cleaner.clean(files)
        assert [one.state for one in first] == ["kept", "cleaned"]
        assert first[0].retry_seconds == 0
        assert first[0].why == f"is being copied to {elsewhere}/fin, 300,000 of 700,000 bytes"
        assert spool.clean(*files)[0].state == "cleaned"
    assert (elsewhere / "fin/large.bin").stat().st_size == 700_000


def test_what_is_left_of_a_copy_that_nobody_asks_for_any_more_holds_up_nothing_and_goes(tmp_path: Path, elsewhere: Path) -> None:
    spool = Spool(tmp_path, policy="move", to=str(elsewhere / "fin"), across_devices="copy")
    first, second = finished(spool.drop("first", "x" * 700_000)), finished(spool.drop("second"))
    with mock.patch.multiple(copies, STEP_SECONDS=0.0, _CHUNK_BYTES=300_000):
        assert [one.why for one in spool.cleaner.clean([first, second])][1] == "waits until first is copied"
        assert spool.clean(second)[0].state == "cleaned"
    assert len(list((elsewhere / "fin").iterdir())) == 2
    spool.restarted()
    spool.clean(finished(spool.drop("third")))
    assert sorted(one.name for one in (elsewhere / "fin").iterdir()) == ["second", "third"]


def test_a_file_that_is_written_to_while_it_is_copied_stays(tmp_path: Path, elsewhere: Path) -> None:
    spool = Spool(tmp_path, policy="move", to=str(elsewhere / "fin"), across_devices="copy")
    path = spool.drop("x.csv", "x" * 700_000)
    file = finished(path)
    with mock.patch.multiple(copies, STEP_SECONDS=0.0, _CHUNK_BYTES=300_000):
        spool.cleaner.clean([file])
        path.write_text("y" * 700_000)
        assert spool.clean(file)[0].state == "changed"
    assert [one.name for one in (elsewhere / "fin").iterdir()] == []
    assert path.exists()


def test_a_full_target_keeps_the_file_and_says_so_until_there_is_room(tmp_path: Path, elsewhere: Path) -> None:
    spool = Spool(tmp_path, policy="move", to=str(elsewhere / "fin"), across_devices="copy")
    file = finished(spool.drop("x.csv", "x" * 900_000))
    (elsewhere / "filler").write_bytes(bytes(500_000))
    (outcome,) = spool.clean(file)
    assert outcome.state == "kept"
    assert outcome.why == f"{elsewhere}/fin: no space is left; make room, or shorten cleanup.retain"
    assert (spool.input / "x.csv").stat().st_size == 900_000
    (elsewhere / "filler").unlink()
    assert spool.clean(file)[0].state == "cleaned"
    assert [one.name for one in (elsewhere / "fin").iterdir()] == ["x.csv"]


def refusing(call: Any, code: int) -> Any:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return mock.patch.object(os, call, refused)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EIO, errno.EDQUOT])
def test_a_target_that_cannot_be_made_keeps_the_file_and_is_tried_again_later(tmp_path: Path, code: int) -> None:
    spool = Spool(tmp_path, policy="move", to=str(tmp_path / "fin"))
    file = finished(spool.drop("x.csv"))
    with refusing("mkdir", code):
        problem = spool.cleaner.check()
        (outcome,) = spool.cleaner.clean([file])
    assert problem is not None
    assert (outcome.state, outcome.retry_seconds) == ("kept", None)
    assert f"{tmp_path}/fin" in outcome.why
    assert spool.tree() == {"in/x.csv": "1\n"}


def test_a_directory_sync_that_fails_is_no_success(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="move", to=str(tmp_path / "fin"))
    (tmp_path / "fin").mkdir()
    file = finished(spool.drop("x.csv"))
    with refusing("fsync", errno.EIO):
        assert spool.cleaner.clean([file])[0].state == "kept"
    assert spool.cleaner.clean([file])[0].state == "gone"
    assert spool.tree() == {"fin/x.csv": "1\n"}


def test_a_call_is_bounded_in_time(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="delete")
    files = [finished(spool.drop(f"{number}.csv")) for number in range(3)]
    with mock.patch.object(cleaner, "CALL_SECONDS", 0.0):
        outcomes = spool.cleaner.clean(files)
    assert {(one.state, one.retry_seconds) for one in outcomes} == {("kept", 0.0)}


def test_a_bad_file_is_set_aside_with_its_explanation(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="move_by_date", to=str(tmp_path / "fin"), failed_to=str(tmp_path / "bad"))
    for content in ("pay-1", "pay-2"):
        path = spool.drop("a/x.csv.gz", content)
        spool.clean(finished(path, trouble="the block at byte 17 is broken", position=17, records=3))
    assert spool.tree() == {
        "bad/a/x.csv.gz": "pay-1", "bad/a/x.csv.gz.error.json": "",
        "bad/a/x-1.csv.gz": "pay-2", "bad/a/x-1.csv.gz.error.json": "",
    }  # fmt: skip
    said = json.loads((tmp_path / "bad/a/x.csv.gz.error.json").read_text())
    assert said["reason"] == "the block at byte 17 is broken"
    assert (said["connector"], said["file"]) == ("orders", str(spool.input / "a/x.csv.gz"))
    assert (said["byte_reached"], said["record_reached"], said["size_bytes"]) == (17, 3, 5)
    assert said["modified"] == "2024-01-02T00:00:00.000Z"
    assert "pay-1" not in json.dumps(said), "no data of users"


def test_an_explanation_of_another_file_is_not_taken_for_its_own(tmp_path: Path) -> None:
    spool = Spool(tmp_path, failed_to=str(tmp_path / "bad"))
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/x.csv.error.json").write_text('{"identity": "another"}')
    (outcome,) = spool.clean(finished(spool.drop("x.csv"), trouble="broken"))
    assert outcome.target.endswith("/bad/x-1.csv")
    assert (tmp_path / "bad/x.csv.error.json").read_text() == '{"identity": "another"}'


def test_without_failed_to_a_bad_file_stays_even_when_good_ones_are_deleted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="delete")
    assert spool.clean(finished(spool.drop("x.csv"), trouble="broken"))[0].state == "stays"
    assert spool.tree() == {"in/x.csv": "1\n"}


def test_a_bad_file_with_the_longest_name_has_an_explanation_too(tmp_path: Path) -> None:
    spool = Spool(tmp_path, failed_to=str(tmp_path / "bad"))
    for _ in range(2):
        assert spool.clean(finished(spool.drop("n" * 251 + ".csv"), trouble="broken"))[0].state == "cleaned"
    assert len(list((tmp_path / "bad").iterdir())) == 4


def test_names_that_are_not_utf8_are_moved_as_they_are(tmp_path: Path) -> None:
    spool = Spool(tmp_path, policy="move", to=str(tmp_path / "fin"), failed_to=str(tmp_path / "bad"), retain="1d")
    good, bad = os.fsdecode(b"\xff.csv"), os.fsdecode(b"b\xfe.csv")
    outcomes = spool.clean(finished(spool.drop(good)), finished(spool.drop(bad), trouble="broken"))
    assert [one.state for one in outcomes] == ["cleaned", "cleaned"]
    spool.now += 90_000
    spool.cleaner.expire()
    assert spool.tree(hidden=True) == {}
