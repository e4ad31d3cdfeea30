"""A spool directory, as the agent's user would meet it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from copycat_agent.mountinfo import Mount
from copycat_agent.options import Definition
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions
from copycat_agent.workbench.doctor import CheckVerdict, User, find_user
from copycat_agent.workbench.doctor.spool_checks import examine_spool
from copycat_agent.workbench.doctor.steps import CheckStep, Notes
from tests.rig.disk import mounted

NOBODY = User("somebody", 64_321, frozenset({64_321}), is_current=False)
ME = find_user(None)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """An input directory that everybody may look into, beside an open `done`."""
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid() and parent.stat().st_mode & 0o001 == 0:
            parent.chmod(parent.stat().st_mode | 0o011)
    for name in ("in", "done"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    (tmp_path / "in/a.csv").write_text("a\n")
    return tmp_path


def look(spool: Path, user: User = ME, mounts: list[Mount] | None = None, cleanup: Any = None, **source: Any) -> dict[str, CheckStep]:
    options = SpoolDirOptions.model_validate({"type": "spool_dir", "dir": str(spool / "in"), "cleanup": cleanup or {}, **source})
    definition = Definition.model_validate({"name": "app", "source": options, "record": {"topic": "t"}})
    notes = Notes("connector app")
    examine_spool(notes, definition, user, mounts or [])
    return {step.name: step for step in notes.steps}


def bad(steps: dict[str, CheckStep]) -> list[str]:
    return [step.name for step in steps.values() if step.verdict in (CheckVerdict.FAIL, CheckVerdict.WARN)]


def move(spool: Path, **over: Any) -> dict[str, Any]:
    return {"policy": "move", "to": str(spool / "done"), **over}


def test_all_is_well(spool: Path) -> None:
    for user in (ME, NOBODY):
        steps = look(spool, user, cleanup=move(spool))
        assert bad(steps) == []
        assert steps["files"].text == "1 file there now, 2 bytes"
        assert f"{spool}/done, " in steps["to"].text


def test_with_policy_none_nothing_has_to_be_writable(spool: Path) -> None:
    (spool / "in").chmod(0o755)
    assert bad(look(spool, NOBODY)) == []
    steps = look(spool, NOBODY, cleanup={"policy": "delete"})
    assert bad(steps) == ["cleanup"]
    assert steps["cleanup"].fix == f"setfacl -m u:somebody:rwx {spool}/in"


def test_a_sticky_directory_lets_only_owners_take_files_away(spool: Path) -> None:
    (spool / "in").chmod(0o1777)
    steps = look(spool, NOBODY, cleanup={"policy": "delete"})
    assert bad(steps) == ["cleanup"]
    assert steps["cleanup"].fix.startswith(f"chmod -t {spool}/in")
    assert bad(look(spool, ME, cleanup={"policy": "delete"})) == [], "its owner may"


def test_a_missing_directory_comes_with_the_command_that_makes_it(spool: Path) -> None:
    steps = look(spool / "none", NOBODY)
    assert steps["directory"].fix == f"install -d -o somebody {spool}/none/in"
    steps = look(spool, NOBODY, cleanup=move(spool, to=str(spool / "deep/er")))
    assert (steps["to"].verdict, steps["to"].fix) == (CheckVerdict.FAIL, f"install -d -o somebody {spool}/deep/er")
    assert "which will be made" in look(spool, NOBODY, cleanup=move(spool, to=str(spool / "done/er")))["to"].text
    assert not (spool / "done/er").exists(), "the doctor changes nothing"


def test_what_cannot_be_listed_or_read_comes_with_an_acl(spool: Path) -> None:
    (spool / "in/a.csv").chmod(0o600)
    assert f"setfacl -m u:somebody:r {spool}/in/a.csv" in look(spool, NOBODY)["files"].fix
    (spool / "in").chmod(0o700)
    assert f"setfacl -m u:somebody:rx {spool}/in" in look(spool, NOBODY)["directory"].fix


@pytest.mark.parametrize("option", ["to", "failed_to"])
def test_a_target_that_is_a_link_a_file_or_the_input_itself_fails(spool: Path, option: str) -> None:
    (spool / "link").symlink_to(spool / "done")
    (spool / "file").write_text("")
    for name, words in (("link", "is a symbolic link"), ("file", "is not a directory"), ("in", "files are read from")):
        steps = look(spool, cleanup={"policy": "move", "to": str(spool / "done"), option: str(spool / name)})
        assert bad(steps) == [option]
        assert words in steps[option].text
    (spool / "done").chmod(0o755)
    assert bad(look(spool, NOBODY, cleanup=move(spool, failed_to=str(spool / "done"))))[-2:] == ["to", "failed_to"]


def test_another_device_needs_leave_and_room(spool: Path) -> None:
    with mounted(spool, "64k") as small:
        steps = look(spool, cleanup=move(spool, to=str(small / "done")))
        assert (steps["to"].verdict, "across_devices: copy" in steps["to"].fix) == (CheckVerdict.FAIL, True)
        assert bad(look(spool, cleanup=move(spool, to=str(small / "done"), across_devices="copy"))) == []
        (spool / "in/b.csv").write_bytes(bytes(200_000))
        steps = look(spool, cleanup=move(spool, to=str(small / "done"), across_devices="copy"))
        assert (steps["to"].verdict, "wait to be copied" in steps["to"].text) == (CheckVerdict.WARN, True)


def test_a_read_only_file_system_lets_nothing_be_taken_away(spool: Path) -> None:
    mounts = [Mount(str(spool), "ext4", frozenset({"ro"}))]
    assert bad(look(spool, mounts=mounts, cleanup=move(spool))) == ["cleanup", "to"]
    assert bad(look(spool, mounts=mounts)) == []


def test_a_file_system_that_tells_nothing_asks_for_polling(spool: Path) -> None:
    mounts = [Mount(str(spool), "nfs4", frozenset())]
    assert bad(look(spool, mounts=mounts)) == ["events"]
    assert bad(look(spool, mounts=mounts, watch="poll")) == []


def test_what_matches_and_is_never_read_is_told(spool: Path) -> None:
    (spool / "in/b.csv.tmp").write_text("")
    step = look(spool)["passed over"]
    assert step.text.startswith(f"{spool}/in/b.csv.tmp: ")
    assert ".tmp: so programs name what is not finished" in step.text
