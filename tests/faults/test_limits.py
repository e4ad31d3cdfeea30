"""The host gives too little: descriptors, processes, memory. The agent says so, does what it can, and loses nothing."""

from __future__ import annotations

import resource
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.scene import Topics
from tests.kill.killing import found, kill
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.scene import Scene

pytestmark = pytest.mark.timeout(300)
"""On a machine that does much else."""
FILES = 200
DESCRIPTORS = 80
"""More than the agent itself needs, far fewer than the files of two connectors."""
IN_CGROUP = ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"')


@pytest.fixture
def make_cgroup() -> Iterator[Callable[[str], Path]]:
    """`make_cgroup("pids")` makes a control group of its own for the test, or skips it."""
    made: list[Path] = []

    def make(controller: str) -> Path:
        path = Path(f"/sys/fs/cgroup/{controller}/copycat-{uuid.uuid4().hex[:8]}")
        try:
            path.mkdir()
        except OSError as error:
            pytest.skip(f"control groups of version 1 cannot be made here: {error}")
        made.append(path)
        return path

    yield make
    for path in made:
        with suppress(OSError):
            path.rmdir()


def test_with_too_few_descriptors_files_take_turns_and_nothing_is_lost(scene: Scene) -> None:
    before = resource.prlimit(scene.agent.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(scene.agent.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, before[1]))
    writers = [scene.writer(f"file-{number}.log") for number in range(FILES)]
    for _ in range(2):
        for writer in writers:
            writer.write(5)
        scene.wait_arrived()
    wait_until(lambda: scene.state == "running", 60, lambda: f"{scene.status}")
    assert len(list(Path(f"/proc/{scene.agent.pid}/fd").iterdir())) < DESCRIPTORS, "some are left for what else is needed"
    resource.prlimit(scene.agent.pid, resource.RLIMIT_NOFILE, before)
    verdict = scene.verdict()
    assert verdict, verdict


@pytest.mark.long
@pytest.mark.timeout(300)
def test_connectors_that_share_too_few_descriptors_make_room_for_each_other(make_scene: Callable[..., Scene]) -> None:
    """Each alone would be within the limit, together they are not."""
    scenes = [make_scene("one", source={"max_open_files": 512}), make_scene("two")]
    one, two = scenes
    two.agent = one.agent
    for number in range(4):
        definition = {"source": {"type": "log_file", "include": [f"{two.logs}/{number}-*.log"]}, "record": {"topic": two.topic}}
        one.agent.define(f"two-{number}", definition)
    for scene in scenes:
        scene.writer("0-first.log").write(1)
    one.start()
    resource.prlimit(one.agent.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS + 10, DESCRIPTORS + 10))
    for scene in scenes:
        for number in range(FILES):
            scene.writer(f"{number % 4}-file-{number}.log").write(5)
    for scene in scenes:
        scene.wait_arrived(120)
        assert scene.verdict(), scene.verdict()
    told = [line for line in one.events("warning") if line["event"] == "the process may open too few files, fewer are held open"]
    assert told
    assert len(one.events("warning")) < 100, "not once per file"
    one.agent.stop()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_worker_that_cannot_be_forked_is_told_and_made_when_it_can(
    make_scene: Callable[..., Scene], make_cgroup: Callable[[str], Path]
) -> None:
    group = make_cgroup("pids")
    scene = make_scene(command=[*IN_CGROUP, str(group)])
    writer = scene.writer()
    writer.write(10)
    scene.start()
    wait_until(lambda: scene.state == "running", 60, lambda: f"{scene.status}")
    workers = scene.agent.python_processes()[1:]
    said = len(scene.events())
    (group / "pids.max").write_text("5")  # less than there are: nothing may be forked
    for worker in workers:
        kill(worker)
    writer.write(100)
    wait_until(lambda: scene.events()[said:], 60, "it says something")
    wait_until(lambda: not scene.agent.is_running or scene.state == "retrying", 60, lambda: f"{scene.state}: {scene.agent.log}")
    (group / "pids.max").write_text("max")
    with Topics(scene.bootstrap, scene.topic) as topic:
        wait_until(lambda: not scene.agent.is_running or topic.size() >= scene.ledger.written, 150, lambda: scene.agent.log[-3000:])
    if not scene.agent.is_running:  # after three attempts it leaves it to the service manager
        assert scene.agent.wait() == 75, scene.agent.log
        scene.agent.start()
    scene.wait_arrived()
    verdict = scene.verdict()
    assert verdict.is_complete, verdict
    for line in scene.events()[said:]:
        print(line["level"], line["event"], {name: text for name, text in line.items() if name in {"why", "text", "hint"}})
    scene.agent.stop()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_too_little_memory_ends_processes_and_costs_no_line(make_scene: Callable[..., Scene], make_cgroup: Callable[[str], Path]) -> None:
    group = make_cgroup("memory")
    limit = group / "memory.limit_in_bytes"
    if not limit.exists():
        pytest.skip("no memory controller")
    scene = make_scene(command=[*IN_CGROUP, str(group)])
    writer = scene.writer()
    writer.write(10)
    scene.start()
    found(scene.agent.jvm, lambda: scene.agent.log)
    writer.write(20_000)
    scene.agent.close()
    limit.write_text(str(120 * 2**20))
    scene.agent.start()
    code = scene.agent.wait(180)
    assert code in {-9, 75}, f"exit {code}: killed, or it gave up after its JVM was"
    limit.write_text(str(2 * 2**30))
    scene.agent.start()
    scene.wait_arrived(120)
    verdict = scene.verdict()
    assert verdict.is_complete, verdict
    print(f"exit {code} with 120 MiB; {verdict}; said: {[(line['event'], line.get('why', '')) for line in scene.events('warning')]}")
    scene.agent.stop()
