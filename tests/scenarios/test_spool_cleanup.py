"""What becomes of spooled files once Kafka has them, on the real broker: scenarios 38, 41, 42, 56, fault 61."""

from __future__ import annotations

import gzip
import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from copycat_agent.definitions import load_file
from copycat_agent.options import AgentOptions, KafkaOptions
from tests.rig.disk import mounted
from tests.rig.shipping import Shipping
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.executor import Executor
    from copycat_agent.options import Definition
    from copycat_agent.watch import Watcher

DAY = 1_704_153_600
"""2024-01-02T00:00:00Z."""


class Spool(Shipping):
    """A connector over the spool directory `root / "logs"`; `cleanup` as given to the fixture's user."""

    def definition(self, *, source: dict[str, Any] | None = None, record: dict[str, Any] | None = None, **sections: Any) -> Definition:
        """See `Shipping.definition`."""
        spool = {"type": "spool_dir", "dir": str(self.logs), "scan_interval": "200ms", "ready": {"min_age": "0s"}}
        document = {"name": self.name, "source": {**spool, **(source or {})}, "record": {"topic": self.topic, **(record or {})}, **sections}
        path = self._root / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
        loaded = load_file(path, AgentOptions(kafka=KafkaOptions(bootstrap_servers=(self.bootstrap,))))
        assert loaded.definition is not None, loaded.problems
        return loaded.definition

    def drop(self, name: str, content: bytes) -> Path:
        """A whole file, last changed on 2024-01-02."""
        path = self.logs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}")
        hidden.write_bytes(content)
        os.utime(hidden, (DAY, DAY))
        return hidden.rename(path)

    def run(self, policy: str = "move", **more: Any) -> None:
        """Start with this cleanup, files in directories below included."""
        cleanup = {"policy": policy, **({} if policy == "delete" else {"to": str(self.finished)}), **more}
        self.start(source={"recursive": True, "cleanup": cleanup})

    @property
    def finished(self) -> Path:
        return self._root / "finished"

    def wait_for(self, *names: str) -> None:
        """These files are in `finished`, and no others."""
        wait_until(lambda: files(self.finished) == sorted(names), message=lambda: f"{files(self.finished)}; {self.status}")


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))


@pytest.fixture
def spool(tmp_path: Path, broker: DevBroker, executor: Executor, watcher: Watcher, topic: str) -> Any:
    """A connector, not started."""
    spool = Spool(tmp_path, "spool", broker.bootstrap, topic, executor, watcher)
    yield spool
    spool.close()


@pytest.mark.parametrize("keep", [True, False])
def test_files_are_filed_by_date_with_their_subdirectories(spool: Spool, keep: bool) -> None:
    spool.drop("a/b/f.csv", b"deep\n")
    spool.drop("flat.csv", b"flat\n")
    spool.run("move_by_date", keep_directories=keep)
    spool.wait_for("2024-01-02/a/b/f.csv", "2024-01-02/flat.csv")
    assert sorted(spool.lines(2)) == ["deep", "flat"]
    assert files(spool.logs) == []
    wait_until(lambda: (spool.logs / "a").exists() == keep)
    assert spool.logs.is_dir()


def test_a_name_that_is_taken_gets_a_number(spool: Spool) -> None:
    spool.finished.mkdir()
    (spool.finished / "x.csv.gz").write_text("theirs")
    spool.drop("x.csv.gz", gzip.compress(b"one\n"))
    spool.run()
    spool.wait_for("x-1.csv.gz", "x.csv.gz")
    spool.drop("x.csv.gz", gzip.compress(b"two\n"))
    spool.wait_for("x-1.csv.gz", "x-2.csv.gz", "x.csv.gz")
    assert spool.lines(2) == ["one", "two"]
    assert (spool.finished / "x.csv.gz").read_text() == "theirs"


def test_a_target_that_is_a_link_keeps_files_unread_twice_until_it_is_repaired(spool: Spool, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    spool.finished.symlink_to(tmp_path / "victim")
    spool.drop("x.csv", b"once\n")
    spool.run()
    assert spool.lines(1) == ["once"]
    wait_until(lambda: spool.status.lag.troubled_files or spool.status.lag.blocked_files, message=lambda: f"{spool.status}")
    spool.stop()
    spool.run()
    spool.wait_caught_up()
    assert (files(spool.logs), files(tmp_path / "victim")) == (["x.csv"], [])
    spool.stop()
    spool.finished.unlink()
    spool.run()
    spool.wait_for("x.csv")
    spool.drop("y.csv", b"next\n")
    assert spool.lines(2) == ["once", "next"], "cleaned up after a restart, and not sent again"


def test_another_device_needs_leave(spool: Spool, tmp_path: Path) -> None:
    with mounted(tmp_path, "1m") as small:
        spool.drop("x.csv", b"once\n")
        spool.run(to=str(small / "fin"))
        assert spool.lines(1) == ["once"]
        wait_until(lambda: spool.status.lag.troubled_files or spool.status.lag.blocked_files, message=lambda: f"{spool.status}")
        assert files(spool.logs) == ["x.csv"]
        spool.stop()
        spool.run(to=str(small / "fin"), across_devices="copy")
        wait_until(lambda: files(small) == ["fin/x.csv"], message=lambda: f"{files(small)}")
        wait_until(lambda: files(spool.logs) == [])
        spool.stop()
    assert spool.lines() == ["once"]


def test_a_bad_file_is_set_aside_with_its_reason_and_the_others_go_on(spool: Spool, tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b"%d\n" % number for number in range(2000)))
    spool.drop("bad.gz", whole[:-200])
    spool.drop("good.csv", b"good\n")
    spool.run("delete", failed_to=str(tmp_path / "failed"))
    wait_until(lambda: files(spool.logs) == [] and files(tmp_path / "failed") == ["bad.gz", "bad.gz.error.json"])
    said = json.loads((tmp_path / "failed/bad.gz.error.json").read_text())
    lines = spool.lines()
    assert "good" in lines
    assert said["record_reached"] == len(lines) - 1 < 2000
    assert said["reason"]
    assert sorted(lines) == sorted([*map(str, range(len(lines) - 1)), "good"]), "what stands before the damage, whole"
    assert (tmp_path / "failed/bad.gz").read_bytes() == whole[:-200]
