"""The store of open files: what nobody knows goes, what is not known yet stays, and a service manager that hangs holds nobody up."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from copycat_agent.agent.descriptor_store import RETRY_SECONDS, SystemdDescriptorStore, known_files
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.systemd import ServiceManager
from tests.rig.service_manager import ServiceManager as Systemd

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from copycat_agent.offsets import OffsetStore


@pytest.fixture
def systemd() -> Iterator[Systemd]:
    with Systemd() as systemd:
        systemd.serve(os.getpid())
        yield systemd


def store(rows: dict[str, dict[str, SourceOffset]]) -> OffsetStore:
    read = {name: {SourcePartition(name, key): offset for key, offset in offsets.items()} for name, offsets in rows.items()}
    return cast("OffsetStore", SimpleNamespace(connectors=lambda: tuple(read), read=lambda name: read[name]))


def passed(systemd: Systemd, path: Path, *names: str) -> ServiceManager:
    """The service's end, to which files of these names were passed."""
    path.touch()
    for name in names:
        systemd.keep(name, os.open(path, os.O_RDONLY))
    manager = ServiceManager(dict(systemd.environment))
    manager.passed.update(systemd.passed())
    return manager


def test_files_are_known_by_rows_that_are_not_done() -> None:
    rows = {
        "a": {"1:2:3:0": SourceOffset(5), "1:2:3:1": SourceOffset(0), "9:9:9:0": SourceOffset(5, done=True), "started": SourceOffset(1)},
        "b": {"1:2:3:0": SourceOffset(7)},
    }
    assert known_files(store(rows), rebuild=True) == {"copycat-1-2-3": {"a", "b"}}


def test_what_a_store_that_is_begun_anew_cannot_know_waits_for_who_does(systemd: Systemd, tmp_path: Path) -> None:
    kept = SystemdDescriptorStore(passed(systemd, tmp_path / "f", "copycat-1-2-3", "copycat-4-5-6"), known_files(store({}), rebuild=True))
    kept.looked("other", set())
    fd = kept.find("copycat-1-2-3")
    assert fd is not None
    kept.keep("app", "copycat-1-2-3", fd)
    kept.release("app", "copycat-1-2-3")
    systemd.catch_up()
    assert systemd.names == ["copycat-4-5-6"]


def test_a_connector_that_is_renamed_keeps_its_files(systemd: Systemd, tmp_path: Path) -> None:
    kept = SystemdDescriptorStore(passed(systemd, tmp_path / "f", "copycat-1-2-3"), {"copycat-1-2-3": {"old"}})
    kept.rename("old", "new")
    kept.release("old", "copycat-1-2-3")
    assert kept.find("copycat-1-2-3") is not None
    kept.looked("new", set())
    systemd.catch_up()
    assert systemd.names == []


class Deaf(ServiceManager):
    """One that takes no message for a while, and counts what it is told."""

    def __init__(self, environ: dict[str, str]) -> None:
        super().__init__(environ)
        self.told: list[str] = []
        self.hears = False

    def store(self, name: str, fd: int) -> bool:
        del fd
        self.told.append(f"+{name}")
        return self.hears

    def unstore(self, name: str) -> bool:
        self.told.append(f"-{name}")
        return self.hears


def test_a_service_manager_that_takes_no_message_is_not_waited_for_with_every_file() -> None:
    manager = Deaf({"NOTIFY_SOCKET": "/nowhere"})
    now = [0.0]
    kept = SystemdDescriptorStore(manager, {}, lambda: now[0])
    for number in range(100):
        kept.keep("app", f"f{number}", 0)
    assert manager.told == ["+f0"]
    now[0] += RETRY_SECONDS
    manager.hears = True
    kept.keep("app", "kept", 0)
    manager.hears = False
    kept.release("app", "kept")
    now[0] += RETRY_SECONDS
    manager.hears = True
    kept.keep("app", "next", 0)
    assert manager.told == ["+f0", "+kept", "-kept", "-kept", "+next"], "what could not be removed is removed later"
