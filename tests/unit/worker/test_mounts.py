"""A mount that hangs takes a few threads, however many connectors read from it, and nobody beside it waits."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from copycat_agent.sources import SOURCES
from copycat_agent.wake import Wake
from copycat_agent.worker import State, connector, poll_loop
from copycat_agent.worker.mounts import ConnectorMounts, mount_points, touched
from copycat_agent.worker.poll_loop import THREADS, PollLoop, Wait
from tests.rig.hanging import HangingMount, why_not
from tests.rig.threads import NewThreads
from tests.rig.waiting import wait_until
from tests.unit.worker.doubles import ScriptedExecutor, definition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.worker import Worker
    from copycat_agent.worker.poll_loop import Steps

needs_fuse = pytest.mark.skipif(bool(why_not()), reason=why_not())
POINTS = ("/", "/no", "/no/nfs", "/no/nfs/deep", "/nothing")


@pytest.mark.parametrize(
    ("pattern", "mounts"),
    [
        ("/elsewhere/*.log", ["/"]),
        ("/no/logs/*.log", ["/", "/no"]),
        ("/no/nfs/app.log", ["/", "/no", "/no/nfs"]),
        ("/no/./nfs//a/b/*.log", ["/", "/no", "/no/nfs"]),
        ("/no/nfs/../logs/*.log", ["/", "/no", "/no/nfs"]),
        ("/no/n*/*.log", ["/", "/no", "/no/nfs"]),
        ("/no/x*/*.log", ["/", "/no"]),
        ("/no/*/*/*.log", ["/", "/no", "/no/nfs", "/no/nfs/deep"]),
        ("/no/**/*.log", ["/", "/no", "/no/nfs", "/no/nfs/deep"]),
        ("/*.log", ["/"]),
    ],
)
def test_a_pattern_touches_the_mounts_above_it_and_those_that_it_leads_to(pattern: str, mounts: list[str]) -> None:
    assert sorted(touched(pattern, POINTS)) == mounts


def test_links_lead_to_mounts_and_are_looked_at_only_when_the_mount_they_lie_in_has_answered(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "logs").symlink_to("../other/logs")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    points = {"/", str(tmp_path / "real"), str(tmp_path / "other")}
    assert list(touched(f"{tmp_path}/link/logs/*.log", points)) == ["/", str(tmp_path / "real"), str(tmp_path / "other")]
    way = touched(f"{tmp_path}/link/logs/*.log", points)
    assert [next(way), next(way)] == ["/", str(tmp_path / "real")]
    (tmp_path / "real" / "logs").unlink()
    assert list(way) == []


def test_a_link_that_leads_to_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert list(touched(f"{tmp_path}/loop/*.log", ("/",))) == ["/"]


def test_mount_points_are_the_kernels() -> None:
    text = "36 35 98:0 / /mnt/a\\040b rw,noatime shared:1 - ext4 /dev/sda rw\n37 35 0:30 / /mnt/nfs rw - nfs4 server:/ rw\nnonsense\n"
    assert mount_points(text) == {"/": "", "/mnt/a b": "36", "/mnt/nfs": "37"}
    assert {"/", "/proc"} <= mount_points().keys()


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[HangingMount]:
    with HangingMount(tmp_path / "remote") as mount:
        yield mount


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[PollLoop]:
    """It takes no step for a slow one before the mounts of those that hang are asked, however busy this machine is."""
    monkeypatch.setattr(poll_loop, "SLOW_SECONDS", 5.0)
    loop = PollLoop()
    yield loop
    loop.close()


class Looker:
    """A connector that looks at a directory again and again."""

    def __init__(self, loop: PollLoop, directory: Path | str) -> None:
        self.looks = 0
        self.wake = Wake()
        self.mount_user = ConnectorMounts((f"{directory}/*.log",))
        self._directory = directory
        self.running = loop.start(self._steps(), self.wake, self.mount_user)

    def _steps(self) -> Steps:
        while True:
            os.statvfs(self._directory)
            self.looks += 1
            yield Wait(time.monotonic() + 0.05)


@needs_fuse
def test_many_connectors_of_a_mount_that_hangs_are_held_and_go_on_with_it(
    loop: PollLoop, mount: HangingMount, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    threads = NewThreads()
    (tmp_path / "link").symlink_to(mount.path)
    remote = [Looker(loop, mount.path if number % 2 else tmp_path / "link") for number in range(50)]
    local = [Looker(loop, tmp_path) for _ in range(5)]
    wait_until(lambda: min(one.looks for one in (*remote, *local)) > 2, message="all look")
    mount.hang()
    try:
        wait_until(lambda: all(one.running.busy_since for one in remote), message="all of them hang or are held")
        looks = [one.looks for one in local]
        most = 0

        def all_blocked() -> bool:
            nonlocal most
            most = max(most, len(threads.named("connectors-")))
            return all(loop.mounts.hung_seconds(one.mount_user) for one in remote)

        wait_until(all_blocked, 60, lambda: str([one.mount_user for one in remote]))
        assert all(one.mount_user.mount == str(mount.path) for one in remote)
        wait_until(lambda: all(one.looks > seen + 5 for one, seen in zip(local, looks, strict=True)), message="those beside it go on")
        wait_until(lambda: not any(loop.mounts.hung_seconds(one.mount_user) for one in local), message="and are not taken for blocked")
        assert most <= 2 * THREADS, "8 that hang, 8 at work"
        wait_until(lambda: len(threads.named("mounts")) <= 1, message="one that asks hangs in the mount, the others come back")
        assert loop.longest_step() > 0
        wait_until(lambda: "mount does not answer" in caplog.text, message="it is told")
    finally:
        mount.go_on()
    looks = [one.looks for one in remote]
    wait_until(lambda: all(one.looks > seen + 2 for one, seen in zip(remote, looks, strict=True)), message="all go on")
    wait_until(lambda: not any(loop.mounts.hung_seconds(one.mount_user) for one in remote), message="none is taken for blocked")
    told = [record for record in caplog.records if record.name.endswith("mounts")]
    of_it = [record.getMessage() for record in told if record.fields["mount"] == str(mount.path)]  # type: ignore[attr-defined]
    assert of_it == ["mount does not answer", "mount answers again"]


@needs_fuse
@pytest.mark.parametrize("is_replaced", [False, True])
def test_who_is_held_goes_on_when_the_mount_is_gone_or_another_one_is_in_its_place(
    loop: PollLoop, mount: HangingMount, is_replaced: bool
) -> None:
    """Those whose step hangs in it stay there, as the kernel has it."""
    lookers = [Looker(loop, mount.path) for _ in range(20)]
    wait_until(lambda: min(one.looks for one in lookers) > 2, message="all look")
    mount.hang()
    try:
        wait_until(lambda: all(loop.mounts.hung_seconds(one.mount_user) for one in lookers), 60, "all hang or are held")
        looks = [one.looks for one in lookers]
        mount.unmount()
        if is_replaced:
            mount.mount_anew()

        def that_go_on() -> int:
            return sum(one.looks > seen + 2 for one, seen in zip(lookers, looks, strict=True))

        wait_until(lambda: that_go_on() >= len(lookers) - THREADS, message=lambda: f"those that were held go on: {that_go_on()}")
        one = Looker(loop, mount.path)
        wait_until(lambda: one.looks > 2, message="one that begins now, too")
    finally:
        mount.go_on()


@needs_fuse
def test_a_name_that_the_kernel_does_not_take_ends_no_thread(loop: PollLoop, mount: HangingMount, tmp_path: Path) -> None:
    strange = ConnectorMounts((f"{tmp_path}/a\0b/x/*.log", f"{tmp_path}/\ud800/x/*.log"))
    one = Looker(loop, mount.path)
    wait_until(lambda: one.looks > 1, message="it looks")
    mount.hang()
    try:
        loop.mounts.ask([strange, one.mount_user])
        wait_until(lambda: str(mount.path) in loop.mounts.waited, message="the mount is asked")
        stepped = threading.Event()

        def steps() -> Steps:
            stepped.set()
            yield Wait(math.inf)

        loop.start(steps(), Wake(), strange)
        assert stepped.wait(30)
    finally:
        mount.go_on()


@needs_fuse
def test_a_connector_that_touches_a_mount_that_hangs_is_held_as_a_whole(loop: PollLoop, mount: HangingMount, tmp_path: Path) -> None:
    one = Looker(loop, mount.path)
    wait_until(lambda: one.looks > 1, message="it looks")
    mount.hang()
    try:

        def is_waited() -> bool:
            loop.look_at_slow_steps()
            return str(mount.path) in loop.mounts.waited

        wait_until(is_waited, message="the mount is asked")
        stepped = threading.Event()

        def steps() -> Steps:
            stepped.set()
            yield Wait(math.inf)

        both = ConnectorMounts((f"{tmp_path}/*.log", f"{mount.path}/*.log"))
        running = loop.start(steps(), Wake(), both)
        wait_until(lambda: loop.mounts.hung_seconds(both), message="it is held")
        assert not stepped.is_set()
        assert running.busy_since is not None
    finally:
        mount.go_on()
    assert stepped.wait(30)


@needs_fuse
def test_two_mounts_that_hang_are_both_found(loop: PollLoop, mount: HangingMount, tmp_path: Path) -> None:
    with HangingMount(tmp_path / "second") as second:
        lookers = [Looker(loop, one.path) for one in (mount, second) for _ in range(20)]
        wait_until(lambda: min(one.looks for one in lookers) > 1, message="all look")
        mount.hang()
        second.hang()
        try:
            wait_until(lambda: all(loop.mounts.hung_seconds(one.mount_user) for one in lookers), 60, "both are known to hang")
        finally:
            mount.go_on()
            second.go_on()
        looks = [one.looks for one in lookers]
        wait_until(lambda: all(one.looks > seen + 2 for one, seen in zip(lookers, looks, strict=True)), message="all go on")


@needs_fuse
def test_a_connector_whose_files_are_moved_to_a_mount_that_hangs_is_blocked_and_named_to_who_runs_its_batches(
    run: Callable[..., Worker], mount: HangingMount, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    cleanup = {"policy": "move", "to": str(mount.path / "done"), "across_devices": "copy"}
    spooled = SOURCES["spool_dir"].options.model_validate({"type": "spool_dir", "dir": str(tmp_path / "in"), "cleanup": cleanup})
    worker = run(ScriptedExecutor())
    worker.apply([definition(tmp_path).model_copy(update={"source": spooled})])
    wait_until(worker.started, message="it runs")
    assert worker.hung(("app", "another")) == set()
    mount.hang()
    try:
        wait_until(lambda: worker.hung(("app", "another")) == {"app"}, message="its mount was asked, and does not answer")
        words = connector.NO_ANSWER.format(mount.path)
        wait_until(lambda: worker.status("app").reason == words, message=lambda: f"{worker.status('app')}")
        assert worker.status("app").state is State.BLOCKED
        assert worker.states() == {State.BLOCKED: 1}
    finally:
        mount.go_on()
    wait_until(lambda: not worker.hung(("app",)), message="it answers")
    wait_until(lambda: worker.status("app").state is not State.BLOCKED, message="it goes on")


@needs_fuse
def test_batches_of_a_connector_that_is_gone_are_known_to_be_in_a_mount_that_hangs(
    run: Callable[..., Worker], mount: HangingMount, tmp_path: Path
) -> None:
    """Also once another connector has begun: a runner is not killed for them."""
    app = definition(tmp_path)
    remote = app.model_copy(update={"source": app.source.model_copy(update={"include": (f"{mount.path}/*.log",)})})
    worker = run(ScriptedExecutor())
    worker.apply([remote])
    wait_until(worker.started, message="it runs")
    mount.hang()
    try:
        wait_until(lambda: worker.hung(("app",)) == {"app"}, message="its mount was asked, and does not answer")
        mount.go_on()
        worker.apply([])
        mount.hang()
        wait_until(lambda: worker.hung(("app",)) == {"app"}, message="it is gone, and its batch may be in the mount")
        worker.apply([definition(tmp_path, "other")])
        assert worker.hung(("app",)) == {"app"}
    finally:
        mount.go_on()
