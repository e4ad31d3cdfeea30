"""What may be opened: regular files, beneath what a definition names, whatever is swapped for what meanwhile."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.sources.files.paths import beneath
from copycat_agent.sources.files.paths.regular_files import LinkError, NotRegularError, Opener
from tests.unit.sources.rig import agent_for

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBC = ctypes.CDLL(None, use_errno=True)
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


@pytest.fixture(params=["openat2", "name by name"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without openat2."""
    if request.param == "name by name":
        monkeypatch.setattr(beneath, "has_openat2", lambda: False)
    elif not beneath.has_openat2():
        pytest.skip("the kernel has no openat2, or a sandbox hides it")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A directory that a pattern names, with a file two levels below it, and a secret beside it."""
    (tmp_path / "logs" / "a" / "b").mkdir(parents=True)
    (tmp_path / "logs" / "a" / "b" / "x.log").write_text("log\n")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "x.log").write_text("SECRET\n")
    return tmp_path / "logs"


def read(opener: Opener, path: Path | str) -> bytes:
    """All that is in the file."""
    fd, info = opener.open(str(path))
    try:
        assert stat.S_ISREG(info.st_mode)
        return os.read(fd, 1000)
    finally:
        os.close(fd)


@pytest.mark.usefixtures("kernel")
def test_below_a_patterns_fixed_part_no_link_is_followed_and_the_fixed_part_may_lead_through_links(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(logs)
    (logs / "loop").symlink_to(logs)
    (logs / "a" / "link.log").symlink_to("b/x.log")
    opener = Opener((f"{tmp_path}/current/*/b/*.log", f"{tmp_path}/current/**/*.log"))
    assert read(opener, tmp_path / "current" / "a" / "b" / "x.log") == b"log\n"
    for path in ("loop/a/b/x.log", "a/link.log", "loop"):
        with pytest.raises(LinkError, match="follow_symlinks"):
            opener.open(f"{tmp_path}/current/{path}")
    for path in ("../logs/a/b/x.log", "a/../../secret/x.log"):
        with pytest.raises(OSError, match=r"link|cross"):
            opener.open(f"{tmp_path}/current/{path}")


@pytest.mark.usefixtures("kernel")
def test_a_longer_fixed_part_opens_what_a_shorter_one_may_not(logs: Path, tmp_path: Path) -> None:
    (logs / "link").symlink_to(tmp_path / "secret")
    path = logs / "link" / "x.log"
    with pytest.raises(LinkError):
        Opener((f"{logs}/**/*.log", f"{logs}/link/y.log")).open(str(path))
    assert read(Opener((f"{logs}/**/*.log", f"{logs}/link/*.log")), path) == b"SECRET\n"


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("roots", [(), ("{tmp}/elsewhere",), ("{tmp}/secre",)])
def test_followed_links_stay_beneath_what_the_definition_names(logs: Path, tmp_path: Path, roots: tuple[str, ...]) -> None:
    for name, target in (("in.log", "a/b/x.log"), ("out.log", "../secret/x.log"), ("far.log", "out.log"), ("self.log", "/proc/self/exe")):
        (logs / name).symlink_to(target)
    (logs / "away").symlink_to(tmp_path / "secret")
    opener = Opener((f"{logs}/**",), follow_symlinks=True, symlink_roots=tuple(root.format(tmp=tmp_path) for root in roots))
    assert read(opener, logs / "in.log") == b"log\n"
    for name in ("out.log", "far.log", "away/x.log"):
        with pytest.raises(LinkError, match=f"leads to {tmp_path}/secret/x.log, .* list a directory above it in symlink_roots"):
            opener.open(f"{logs}/{name}")
    with pytest.raises(OSError, match="link"):
        opener.open(f"{logs}/self.log")
    with pytest.raises(LinkError, match="symlink_roots"):
        opener.open_directory(f"{logs}/away", str(logs))


@pytest.mark.usefixtures("kernel")
def test_symlink_roots_let_links_lead_there_also_through_links_of_their_own(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "pods").symlink_to(tmp_path / "secret")
    (logs / "out.log").symlink_to("../pods/x.log")
    opener = Opener((f"{logs}/*",), follow_symlinks=True, symlink_roots=(f"{tmp_path}/not-there", f"{tmp_path}/pods"))
    with opener.held_roots():
        assert read(opener, logs / "out.log") == read(opener, logs / "out.log") == b"SECRET\n"


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("follow", [False, True])
def test_nothing_but_a_regular_file_is_opened_not_even_for_a_moment(logs: Path, follow: bool) -> None:
    opener = Opener((f"{logs}/*",), follow_symlinks=follow)
    os.mkfifo(logs / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(logs / "socket"))
        for name in ("fifo", "socket", "a"):
            with pytest.raises(NotRegularError, match="not a regular file"):
                opener.open(f"{logs}/{name}")
    with pytest.raises(OSError, match=os.strerror(errno.ENXIO)):  # nobody reads, and nobody did
        os.open(logs / "fifo", os.O_WRONLY | os.O_NONBLOCK)


def _open_files(below: Path) -> int:
    """Descriptors of this process for what lies there; others come and go with threads of earlier tests."""
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += one.readlink().is_relative_to(below)
    return found


def test_fixed_parts_are_held_for_one_pass_and_looked_up_anew_for_the_next(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(logs / "a" / "b")
    opener = Opener((f"{tmp_path}/current/*",))
    before = _open_files(tmp_path)
    with opener.held_roots():
        assert read(opener, tmp_path / "current" / "x.log") == b"log\n"
        assert _open_files(tmp_path) == before + 1
        assert read(opener, tmp_path / "current" / "x.log") == b"log\n"
        assert _open_files(tmp_path) == before + 1
    assert _open_files(tmp_path) == before
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to(tmp_path / "secret")
    assert read(opener, tmp_path / "current" / "x.log") == b"SECRET\n"


def exchange(one: Path, other: Path) -> None:
    """Each gets the other's name, in one step."""
    assert not _LIBC.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE), ctypes.get_errno()


@contextmanager
def swapping(one: Path, other: Path, pause_seconds: float = 0.0) -> Iterator[list[int]]:
    """Exchanges two names again and again while the block runs; yields a list with the number of exchanges."""
    over, count = threading.Event(), [0]

    def swap() -> None:
        while not over.is_set():
            exchange(one, other)
            count[0] += 1
            if pause_seconds:
                time.sleep(pause_seconds)

    thread = threading.Thread(target=swap, daemon=True)
    thread.start()
    try:
        yield count
    finally:
        over.set()
        thread.join()


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("follow", [False, True])
def test_swaps_between_a_look_and_an_opening_read_no_byte_of_what_lies_elsewhere(logs: Path, tmp_path: Path, follow: bool) -> None:
    """A file and a link, a directory and a link, a file and a pipe: each pair changes places all the time."""
    (tmp_path / "secret" / "b").mkdir()
    (tmp_path / "secret" / "b" / "x.log").write_text("SECRET\n")
    (logs / "y.log").write_text("log\n")
    (logs / "p.log").write_text("log\n")
    (tmp_path / "y").symlink_to(tmp_path / "secret" / "x.log")
    (tmp_path / "a").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "p")
    opener = Opener((f"{logs}/*.log", f"{logs}/**/x.log"), follow_symlinks=follow)
    paths = [logs / "y.log", logs / "p.log", logs / "a" / "b" / "x.log"]
    seen = {path: set[bytes]() for path in paths}
    with ExitStack() as swaps:
        counts = [swaps.enter_context(swapping(*pair)) for pair in ((logs / "y.log", tmp_path / "y"), (logs / "a", tmp_path / "a"))]
        counts.append(swaps.enter_context(swapping(logs / "p.log", tmp_path / "p")))
        tries = 0
        while tries < 300 or min(count[0] for count in counts) < 300 or not all(seen.values()):
            tries += 1
            for path in paths:
                with suppress(OSError):
                    seen[path].add(read(opener, path))
            with suppress(OSError):
                fd = opener.open_directory(f"{logs}/a", str(logs))
                assert "x.log" not in os.listdir(fd)  # noqa: PTH208 - a descriptor
                os.close(fd)
    assert seen == {path: {b"log\n"} for path in paths}


def test_a_connector_in_front_of_a_swapping_loop_ships_what_is_its_own_and_nothing_else(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "secret" / "b").mkdir()
    (tmp_path / "secret" / "b" / "x.log").write_text("SECRET\n")
    (logs / "y.log").write_text("y\n")
    (logs / "steady.log").write_text("steady\n")
    (tmp_path / "y").symlink_to(tmp_path / "secret" / "x.log")
    (tmp_path / "a").symlink_to(tmp_path / "secret")
    agent = agent_for(logs, "**/*.log", max_open_files=1)
    with swapping(logs / "y.log", tmp_path / "y"), swapping(logs / "a", tmp_path / "a"):
        rounds = 0
        while rounds < 200 or len(set(agent.lines)) < 3:
            rounds += 1
            agent.scan()
            agent.work()
            agent.store.clear()  # every file is new in every round
            agent.restart()
    agent.drain()
    assert set(agent.lines) == {b"log", b"y", b"steady"}
    agent.source.close()


def test_the_age_of_what_a_link_leads_to_is_its_targets_however_old_link_and_directory_are(logs: Path, tmp_path: Path) -> None:
    (logs / "link").symlink_to(tmp_path / "secret")
    for name, age in (("old.log", 3600), ("new.log", 0)):
        (tmp_path / "secret" / name).write_text(f"{name}\n")
        os.utime(tmp_path / "secret" / name, (time.time() - age,) * 2)
        (logs / name).symlink_to(tmp_path / "secret" / name)
    for path in (tmp_path / "secret", *(logs / name for name in ("link", "old.log", "new.log"))):
        os.utime(path, (1, 1), follow_symlinks=False)
    for pattern in ("link/*.log", "*.log"):
        agent = agent_for(
            logs, pattern, follow_symlinks=True, symlink_roots=(f"{tmp_path}/secret",), ignore_older=600.0, exclude=("x.log",)
        )
        agent.drain()
        assert agent.lines == [b"new.log"]
        with (tmp_path / "secret" / "old.log").open("a") as file:
            file.write("later\n")
        agent.drain()
        assert agent.lines == [b"new.log", b"later"]
        agent.source.close()
        (tmp_path / "secret" / "old.log").write_text("old.log\n")
        os.utime(tmp_path / "secret" / "old.log", (time.time() - 3600,) * 2)
