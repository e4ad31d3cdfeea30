"""What stands in the way of a store that is a directory, and what goes on in it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from copycat_agent.errors import BlockedError, CopycatError, FatalError, FileError, RetriableError
from copycat_agent.sinks.claims import Claims, LocalFile, Range
from copycat_agent.sinks.directory_store import DirectoryStore
from copycat_agent.sinks.scratch import scratch_below


def upload(store: DirectoryStore, key: str, data: bytes) -> None:
    path = store.scratch() / "file"
    path.write_bytes(data)
    store.upload({key: path})


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, BlockedError),
        (errno.EDQUOT, BlockedError),
        (errno.EACCES, BlockedError),
        (errno.EROFS, BlockedError),
        (errno.ENAMETOOLONG, FatalError),
        (errno.EIO, RetriableError),
        (errno.ESTALE, RetriableError),
    ],
)
def test_trouble_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[CopycatError]) -> None:
    store = DirectoryStore(tmp_path / "lake")
    upload(store, "_copycat/x/0", b"x")
    (tmp_path / "beside").write_bytes(b"x")

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    asked: list[Callable[[], object]] = [
        lambda: store.put_if_absent("a/b", b"x"),
        lambda: store.upload({"a/c": tmp_path / "beside"}),
        lambda: store.publish({"_copycat/x/0": "a/d"}),
    ]
    for name in ("link", "fsync", "mkdir"):
        monkeypatch.setattr(os, name, fail)
    for ask in asked:
        with pytest.raises(kind, match=os.strerror(number)) as raised:
            ask()
        assert type(raised.value) is kind


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake").write_bytes(b"")
    with pytest.raises(FatalError, match=r"look at sink\.uri"):
        DirectoryStore(tmp_path / "lake").put_if_absent("a", b"")


def test_a_root_behind_a_link_whose_target_is_not_mounted_yet_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "lake").symlink_to(tmp_path / "mnt")
    store = DirectoryStore(tmp_path / "lake")
    with pytest.raises(BlockedError, match="lake is a link to a directory that is not there; mount it"):
        store.has_conditional_put()
    (tmp_path / "mnt").mkdir()
    assert store.put_if_absent("a", b"")


def test_a_file_system_without_links_is_no_store_for_several_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    assert not DirectoryStore(tmp_path / "lake").has_conditional_put()


def test_a_file_of_another_is_not_taken_for_ones_own(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "lake")
    upload(store, "_copycat/x/0", b"mine")
    (tmp_path / "lake/a").mkdir()
    (tmp_path / "lake/a/b").write_bytes(b"another's")
    with pytest.raises(FatalError, match="is not this connector's file"):
        store.publish({"_copycat/x/0": "a/b"})
    assert (tmp_path / "lake/a/b").read_bytes() == b"another's"


@pytest.mark.parametrize("key", ["../a", "a/../b", "a//b", "/a", "a/.", "a\0b"])
def test_a_key_that_leads_elsewhere_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(FatalError, match=r"look at sink\.path"):
        DirectoryStore(tmp_path / "lake").put_if_absent(key, b"")


def test_links_in_the_tree_are_not_listed(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "lake")
    store.put_if_absent("a/b", b"")
    (tmp_path / "lake/a/c").symlink_to(tmp_path)
    assert list(store.list("")) == ["a/b"]


def test_a_file_from_another_file_system_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"x")

    def rename(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "elsewhere")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        store = DirectoryStore(tmp_path / "lake")
        store.upload({"a/b": tmp_path / "file"})
    assert store.get("a/b") == b"x"


def test_what_dead_processes_left_in_scratch_goes(tmp_path: Path) -> None:
    words = (
        f"from pathlib import Path; from copycat_agent.sinks import scratch as s; print(s.scratch_below(Path('{tmp_path}')), flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", f"{words}; input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        its = Path(other.stdout.readline().decode().strip())
        (its / "file").write_bytes(b"x")
        mine = scratch_below(tmp_path)
        assert mine != its
        assert (its / "file").exists(), "it lives"
        other.kill()
    subprocess.run([sys.executable, "-c", words], check=True, stdout=subprocess.DEVNULL)
    assert not its.exists()
    assert mine.exists()
    assert scratch_below(tmp_path) == mine


@pytest.mark.parametrize("made", ["on-another-host/its", "of-an-earlier-version", "here/new-1"])
def test_what_may_be_in_use_on_another_host_stays_until_it_is_old(tmp_path: Path, made: str) -> None:
    """Its lock is not seen here."""
    here = scratch_below(tmp_path / "other").parent.name
    its = tmp_path / made.replace("here", here) / "range"
    its.mkdir(parents=True)
    words = f"from pathlib import Path; from copycat_agent.sinks import scratch as s; s.scratch_below(Path('{tmp_path}'))"
    subprocess.run([sys.executable, "-c", words], check=True)
    assert its.exists()
    os.utime(its.parent, (time.time() - 2 * 86400,) * 2)
    subprocess.run([sys.executable, "-c", words], check=True)
    assert not its.parent.exists()


def test_a_range_whose_files_could_have_no_names_is_not_claimed(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    claims, topic = Claims(store, "lake"), "t" * 249
    assert claims.resume(topic, 3, 0) == 0
    path = store.scratch() / "one"
    path.write_text("{}\n")
    with pytest.raises(FileError, match="no name of more than 255 bytes: ttt"):
        claims.commit(Range(topic, 3, 0, 9), [LocalFile(path, "dt=1", 1)], "jsonl")
    assert claims.resume(topic, 3, 0) == 0
