"""A, E. Where reading begins: start_at, ignore_older, and how long deleted files are held."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from copycat_agent.offsets import OffsetStore
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import append, descriptors, settled, told, wait_read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from tests.rig.shipping import Shipping

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_start_at_a_time_begins_at_the_first_line_that_says_so(shipping: Shipping, logs_dir: Path) -> None:
    written = [f"{(NOON + timedelta(minutes=number)).isoformat()} line {number}" for number in range(-3000, 3000)]
    append(logs_dir / "app.log", *written)
    shipping.start(source={"start_at": NOON.isoformat()})
    append(logs_dir / "later.log", written[0])
    assert Counter(settled(shipping, range(3001))) == Counter([*written[3000:], written[0]])


def test_old_files_are_begun_at_their_end_also_behind_links_and_go_on_with_what_is_appended(
    shipping: Shipping, logs_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "copycat_agent")
    (tmp_path / "far").mkdir()
    paths = {"old": logs_dir / "old", "young": logs_dir / "young", "linked old": tmp_path / "far/o", "linked young": tmp_path / "far/y"}
    for name, path in paths.items():
        append(path, f"{name} before")
        os.utime(path, (time.time() - (2 if name.endswith("young") else 4000),) * 2)
    (logs_dir / "link").symlink_to(tmp_path / "far")
    os.utime(tmp_path / "far", (time.time() - 4000,) * 2)
    source = {"ignore_older": "1h", "include": [f"{logs_dir}/*", f"{logs_dir}/link/*"]}
    shipping.start(source={**source, "follow_symlinks": True, "symlink_roots": [str(tmp_path)]})
    wait_read(shipping, 2)
    assert told(caplog, "old files begun at their end, see ignore_older", files=2) == 1
    for name, path in paths.items():
        append(path, f"{name} after")
    expected = ["young before", "linked young before", *(f"{name} after" for name in paths)]
    assert Counter(settled(shipping, expected)) == Counter(expected)


def test_start_at_and_old_age_are_not_asked_again_after_a_restart_or_a_new_name(
    shipping: Shipping, make_shipping: Callable[..., Shipping], logs_dir: Path
) -> None:
    for name in ("old", "young"):
        append(logs_dir / name, f"{name} before")
    shipping.start(source={"start_at": "end"})
    shipping.stop()
    append(logs_dir / "old", "old while down")
    append(logs_dir / "made", "made while down")
    os.utime(logs_dir / "old", (time.time() - 4000,) * 2)
    renamed = make_shipping("renamed", topic=shipping.topic)
    renamed.state_dir = shipping.state_dir
    with OffsetStore.open(shipping.state_dir) as store:
        store.rename("app", "renamed")  # as renamed_from does
    renamed.start(source={"start_at": "end", "ignore_older": "1h"})
    assert Counter(settled(renamed, range(2))) == Counter(["old while down", "made while down"])


def test_a_deleted_file_that_cannot_be_sent_is_let_go_after_hold_deleted_and_counted(
    make_shipping: Callable[..., Shipping], logs_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shipping = make_shipping("held", topic="topic-that-is-not-there")
    append(logs_dir / "app.log", "x" * 1000)
    shipping.start(source={"hold_deleted": "500ms"})
    wait_until(lambda: descriptors(logs_dir), message="it is open")
    (logs_dir / "app.log").unlink()
    wait_until(lambda: shipping.status.lag.lost_bytes == 1001, message="it is given up")
    wait_until(lambda: not descriptors(logs_dir), message="it is closed")
    assert told(caplog, "bytes were destroyed before they could be read", path=str(logs_dir / "app.log"), end=1001) == 1
