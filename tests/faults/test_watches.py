"""The kernel grants no inotify watch: scans do alone, and one warning per directory says so."""

from __future__ import annotations

import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.scene import Scene

pytestmark = pytest.mark.timeout(300)
"""On a machine that does much else."""
FEW_WATCHES = ("unshare", "--user", "--map-root-user", "sh", "-c", 'echo 1 > /proc/sys/user/max_inotify_watches && exec "$@"', "sh")
TOLD = "directory cannot be watched, it is looked at every scan_interval instead"


def test_without_inotify_watches_lines_arrive_by_scans_and_it_is_told_once(make_scene: Callable[..., Scene]) -> None:
    if subprocess.run([*FEW_WATCHES, "true"], check=False, capture_output=True).returncode:
        pytest.skip("user namespaces cannot be made here")
    scene = make_scene(command=FEW_WATCHES, source={"include": []})
    directories = [scene.logs / name for name in ("a", "b", "c")]
    for directory in directories:
        directory.mkdir()
    scene.define(source={"include": [f"{scene.logs}/*/*.log"]})
    writers = [scene.writer(f"{directory.name}/app.log") for directory in directories]
    for writer in writers:
        writer.write(10)
    scene.start()
    for number in range(3):
        for writer in writers:
            writer.write(10)
        late = scene.writer(f"c/late-{number}.log")
        late.write(5)
        scene.wait_arrived()
    assert scene.verdict()

    def told() -> Counter[str]:
        return Counter(line["path"] for line in scene.events("warning") if line["event"] == TOLD)

    wait_until(lambda: len(told()) >= len(directories) - 1, 60, lambda: scene.agent.log)
    assert set(told().values()) == {1}, told()
    wait_until(lambda: scene.state == "running", 60, lambda: f"{scene.status}")
    scene.agent.stop()
