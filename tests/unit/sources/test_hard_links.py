"""Hard links that anybody may have made: not read where the kernel does not protect files from them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import pytest

from copycat_agent.sources.files.paths import regular_files
from copycat_agent.sources.files.paths.regular_files import LinkError, Opener
from tests.unit.sources.rig import agent_for
from tests.unit.sources.spool.rig import Spool, lines

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")

APP, OTHER = 64_321, 64_322


@pytest.fixture(autouse=True)
def sysctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What stands for /proc/sys/fs/protected_hardlinks: 0."""
    path = tmp_path / "protected_hardlinks"
    path.write_text("0\n")
    monkeypatch.setattr(regular_files, "SYSCTL", path)
    return path


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A directory of user APP."""
    directory = tmp_path / "logs"
    directory.mkdir(mode=0o755)
    os.chown(directory, APP, APP)
    return directory


def linked(directory: Path, uid: int, name: str = "x.log") -> Path:
    """A file of user `uid` that lies elsewhere, under a second name in `directory`."""
    secret = directory.parent / f"{name}.elsewhere"
    secret.write_bytes(lines("secret"))
    os.chown(secret, uid, uid)
    path = directory / name
    path.hardlink_to(secret)
    return path


class Case(NamedTuple):
    owner: int = OTHER
    mode: int = 0o755
    above: int = APP
    sysctl: str = "0\n"
    agent: int = 0
    is_read: bool = False


CASES = {
    "another user's": Case(),
    "another user's in root's directory": Case(above=0),
    "root's, and the agent is root": Case(owner=0),
    "the directory's owner's": Case(owner=APP, is_read=True),
    "the directory's owner's where a group may write": Case(owner=APP, mode=0o775),
    "root's where everybody may write": Case(owner=0, above=0, mode=0o1777),
    "the agent's": Case(owner=OTHER, agent=OTHER, is_read=True),
    "one whose user has no number in this user namespace": Case(owner=65534, above=65534),
    "another user's, protected by the kernel": Case(sysctl="1\n", is_read=True),
    "another user's, protected or not": Case(sysctl=""),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_file_with_several_links_is_read_when_only_its_owner_can_have_linked_it(
    logs: Path, sysctl: Path, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    path = linked(logs, case.owner)
    os.chown(logs, case.above, case.above)
    logs.chmod(case.mode)
    if case.sysctl:
        sysctl.write_text(case.sysctl)
    else:
        sysctl.unlink()
    monkeypatch.setattr(os, "geteuid", lambda: case.agent)
    opener = Opener((f"{logs}/*.log",))
    if case.is_read:
        os.close(opener.open(str(path))[0])
    else:
        with pytest.raises(LinkError, match="follow_hard_links"):
            opener.open(str(path))
    os.close(Opener((f"{logs}/*.log",), follow_hard_links=True).open(str(path))[0])


def test_a_link_behind_a_symbolic_link_is_judged_where_it_lies(logs: Path, tmp_path: Path) -> None:
    linked(logs, OTHER)
    front = tmp_path / "front"
    front.mkdir()
    (front / "x.log").symlink_to(logs / "x.log")
    opener = Opener((f"{front}/*.log",), follow_symlinks=True, symlink_roots=(str(logs),))
    with pytest.raises(LinkError, match="hard links"):
        opener.open(str(front / "x.log"))


def test_a_log_file_is_passed_over_visibly_until_the_link_is_gone(logs: Path) -> None:
    path = linked(logs, OTHER)
    agent = agent_for(logs)
    agent.drain()
    assert agent.lines == []
    assert "follow_hard_links" in agent.source.passed_over()[str(path)]
    (logs.parent / "x.log.elsewhere").unlink()
    agent.drain()
    assert agent.lines == [b"secret"]


def test_a_log_file_that_is_followed_goes_on_when_somebody_links_it(logs: Path) -> None:
    path = logs / "x.log"
    path.write_bytes(lines("one"))
    os.chown(path, OTHER, OTHER)
    agent = agent_for(logs, max_open_files=1)
    agent.drain()
    (logs.parent / "elsewhere").hardlink_to(path)
    with path.open("ab") as file:
        file.write(lines("two"))
    agent.drain()
    agent.restart()
    with path.open("ab") as file:
        file.write(lines("three"))
    agent.drain()
    assert agent.lines == [b"one", b"two", b"three"]
    assert agent.losses == []


def test_a_spooled_file_is_passed_over_visibly_until_the_link_is_gone(logs: Path) -> None:
    path = linked(logs, OTHER, "x")
    spool = Spool(logs)
    spool.drain()
    assert spool.arrived == []
    assert "follow_hard_links" in spool.source.passed_over()[str(path)]
    (logs.parent / "x.elsewhere").unlink()
    spool.drain()
    assert spool.arrived == [b"secret"]


def test_a_spooled_file_that_is_half_read_goes_on_when_somebody_links_it(logs: Path) -> None:
    many = [f"{number:06}" for number in range(30_000)]
    spool = Spool(logs)
    path = spool.drop("x", lines(*many))
    os.chown(path, OTHER, OTHER)
    spool.max_bytes = 2**16
    spool.scan()
    spool.work()
    (logs.parent / "elsewhere").hardlink_to(path)
    spool.scan()
    spool.work()
    spool.restart()
    spool.drain()
    assert spool.arrived == [text.encode() for text in many]
    spool.restart()
    assert spool.drain() == 0
    assert spool.losses == []


def test_both_sources_read_it_where_the_definition_says_so(logs: Path) -> None:
    linked(logs, OTHER)
    agent, spool = agent_for(logs, follow_hard_links=True), Spool(logs, follow_hard_links=True)
    agent.drain()
    spool.drain()
    assert agent.lines == spool.arrived == [b"secret"]
