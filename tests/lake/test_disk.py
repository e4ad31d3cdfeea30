"""A file system of files that is full or read-only: it is told in words, and once it is not, every record is there once."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.lake.conftest import Lake, as_json
from tests.rig.disk import mounted
from tests.rig.shipping import running_here
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker

SOON: dict[str, Any] = {"roll": {"records": 5_000, "age": "300ms"}}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB, below which the files are."""
    with mounted(tmp_path, "24m") as mount:
        yield mount


@pytest.fixture
def lake(disk: Path, tmp_path: Path, broker: DevBroker, make_topic: Callable[..., str]) -> Iterator[Lake]:
    """A connector that writes there."""
    (disk / "lake").mkdir()
    (tmp_path / "lake").symlink_to(disk / "lake")
    with running_here(Lake, tmp_path, "lake", broker.bootstrap, make_topic(1)) as made:
        yield made


def more(lake: Lake, begin: int, end: int) -> None:
    lake.send(as_json({"n": number, "text": f"{number:0400d}"} for number in range(begin, end)))


@pytest.mark.parametrize("format_", ["jsonl", pytest.param("parquet", marks=pytest.mark.long)])
def test_once_there_is_room_or_it_may_be_written_again_each_record_is_there_once(lake: Lake, disk: Path, format_: str) -> None:
    def trouble(words: str) -> None:
        wait_until(lambda: lake.status.state in ("retrying", "blocked") and words in lake.status.reason, 60, lambda: f"{lake.status}")

    more(lake, 0, 1000)
    lake.start(sink={**SOON, "format": format_}, errors={"retry_max_delay": "500ms"})
    lake.wait_written(1000)
    with pytest.raises(OSError), (disk / "ballast").open("wb", buffering=0) as stream:  # noqa: PT011, PT012 - ENOSPC, at some write
        while True:
            stream.write(b"x" * 4096)
    more(lake, 1000, 6_000)
    trouble("No space left")
    (disk / "ballast").unlink()
    lake.wait_written(6_000)

    def remount(how: str) -> bool:
        return subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=False, capture_output=True).returncode == 0

    more(lake, 6_000, 9_000)
    wait_until(lambda: remount("ro"), 30, "busy")
    more(lake, 9_000, 9_500)
    trouble("Read-only file system")
    assert remount("rw")
    lake.wait_written(9_500)
    lake.stop()
    lake.assert_each_once()
