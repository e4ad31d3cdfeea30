"""What scenarios of log files do again and again."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    import pytest

    from tests.rig.shipping import Shipping


def append(path: Path, *lines: str) -> None:
    """Append whole lines."""
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def numbers(start: int, stop: int) -> list[str]:
    """Lines that count."""
    return [str(number) for number in range(start, stop)]


def descriptors(directory: Path) -> list[str]:
    """What this process, which is the driver, has open below `directory`; deleted files end in ` (deleted)`."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(link.readlink()))
    return [name for name in found if name.startswith(f"{directory}/")]


def settled(shipping: Shipping, expected: Sized, deadline: float = 60.0) -> list[str]:
    """Wait for as many lines as `expected`, let the connector settle and end, and return all that ever arrived."""
    shipping.lines(until=len(expected), deadline=deadline)
    shipping.stop()
    return shipping.lines()


def wait_read(shipping: Shipping, count: int, deadline: float = 60.0) -> None:
    """Wait until `count` lines are acknowledged and saved since the connector was started."""
    wait_until(lambda: shipping.status.counts.acknowledged >= count, deadline, lambda: f"{count} lines: {shipping.status}")


def try_inode(path: Path, inode: int, make: Callable[[Path], object]) -> bool:
    """Make `path` anew until the file system gives it `inode`. False where inodes are not used again, or somebody else was faster."""
    spares = []
    for number in range(1000):
        make(path)
        if path.stat().st_ino == inode:
            break
        spares.append(path.rename(path.with_name(f".spare{number}")))
    for spare in spares:
        spare.unlink()
    return path.exists()


def told(caplog: pytest.LogCaptureFixture, event: str, **fields: object) -> int:
    """How often the agent has said `event` with these fields."""
    return sum(record.getMessage() == event and fields.items() <= getattr(record, "fields", {}).items() for record in caplog.records)
