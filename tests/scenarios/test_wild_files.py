"""A, E, F, H, fault 49 and spool-dir 59, 64: files as they are found in the wild, one by one."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.rig.shipping import origin
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import append, settled, wait_read
from tests.scenarios.test_losses import entered

if TYPE_CHECKING:
    from tests.rig.kafka import Consumed
    from tests.rig.shipping import Shipping

MIB, GIB = 2**20, 2**30


def held_by_anyone(directory: Path) -> list[str]:
    """What this process and everything below it, Spark's workers too, has open below `directory`."""
    links = []
    for process in (me := psutil.Process(), *me.children(recursive=True)):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for link in Path(f"/proc/{process.pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    links.append(str(link.readlink()))
    return [link for link in links if link.startswith(f"{directory}/")]


def test_nobody_holds_a_deleted_file_that_was_read(shipping: Shipping, logs_dir: Path) -> None:
    """E2: neither the driver nor a worker, so that its space is free; nothing else happens that might wake them."""
    log = logs_dir / "app.log"
    append(log, *map(str, range(100)))
    shipping.start(source={"rotate_wait": "0s"})
    wait_read(shipping, 100)
    assert held_by_anyone(logs_dir), "it was open: this sees it"
    log.unlink()
    wait_until(lambda: not held_by_anyone(logs_dir), 60, lambda: f"{held_by_anyone(logs_dir)}")


def test_a_large_deleted_file_is_delivered_or_counted_byte_by_byte(shipping: Shipping, logs_dir: Path) -> None:
    """E5: 100 MB that would take a minute and a half are held for two seconds."""
    log, lines = logs_dir / "app.log", 100_000
    log.write_bytes(b"".join(b"%01023d\n" % number for number in range(lines)))
    shipping.start(source={"hold_deleted": "1s"}, limits={"bytes_per_second": "1MiB"}, delivery={"max_batch_bytes": "256KiB"})
    wait_read(shipping, 1)
    log.unlink()
    wait_until(lambda: not held_by_anyone(logs_dir) and shipping.status.lag.lost_bytes, 60, lambda: f"{shipping.status}")
    (loss,) = entered(shipping)
    assert (loss.path, loss.reason) == (str(log), "destroyed")
    delivered = len(settled(shipping, range(1)))
    assert 0 < delivered < lines
    assert (loss.start, loss.end) == (delivered * 1024, lines * 1024), "all that was not delivered, and no byte more"


@pytest.mark.parametrize("boundary", [2 * GIB, 4 * GIB])
def test_lines_across_a_power_of_two_are_contiguous(shipping: Shipping, logs_dir: Path, boundary: int) -> None:
    """F12. What is before is never written nor read: only places count."""
    log, expected = logs_dir / "app.log", [f"{number:014d}" for number in range(8)]
    with log.open("wb") as file:
        file.truncate(boundary - 64)
        file.seek(boundary - 64 - 4)
        file.write(b"old\n")
    for part in (expected[:5], expected[5:]):
        shipping.start(source={"start_at": "end"})
        append(log, *part)
        wait_read(shipping, len(part))
        shipping.stop()
    records = shipping.records()
    assert [(record.value or b"").decode() for record in records] == expected
    assert [origin(record)[1] for record in records] == [boundary - 64 + 15 * number for number in range(8)]


def test_any_bytes_arrive_as_they_are(shipping: Shipping, logs_dir: Path, rng: random.Random) -> None:
    """Fault 49: lines of random bytes, of text in every alphabet, of CR and single NUL bytes; spool-dir 64: over a restart."""
    texts = ["é世🙂", "naïve\rcr", "\ufeffmark", "nul\0\0nul", "e\u0301", "\x85 \u2028 \v \f", "ÿþ", ""]
    lines = [text.encode() for text in texts] + [text.encode("latin-1", "ignore") for text in texts]
    lines += [rng.randbytes(rng.randrange(200)).translate(None, b"\n").rstrip(b"\r\0") for _ in range(2000)]
    rng.shuffle(lines)
    lines = [b"first", *lines]
    data, log = b"".join(line + b"\n" for line in lines), logs_dir / "app.log"
    cuts = sorted(rng.sample(range(len(data)), 2))
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        with log.open("ab") as file:
            file.write(data[begin:end])
        shipping.start(converters={"value": "bytes"})
        shipping.records(until=data[:end].count(b"\n"))
        shipping.stop()
    assert [record.value for record in shipping.records()] == lines


def test_a_line_is_none_before_its_end_and_one_with_it(shipping: Shipping, logs_dir: Path) -> None:
    """Spool-dir 59."""
    log, other = logs_dir / "app.log", logs_dir / "other.log"
    log.write_bytes(b"abc")
    shipping.start()
    append(other, "read later")
    assert shipping.lines(until=1) == ["read later"]
    with log.open("ab") as file:
        file.write(b"\r\n")
    assert settled(shipping, range(2)) == ["read later", "abc"]


def test_runs_to_the_end_with_one_open_file_read_what_is_there_and_then_what_is_new(shipping: Shipping, logs_dir: Path) -> None:
    """H6, H7."""
    source, expected = {"max_open_files": 1}, Counter[str]()
    for name in ("a", "b", "c"):
        lines = [f"{name} {number}" for number in range(500)]
        (logs_dir / name).write_text("\n".join(lines))  # without an end: it is the last line all the same
        expected.update(lines)
    for more in ((), (), ("a", "d")):
        for name in more:  # one file grows, one is new
            append(logs_dir / name, *(["", "more"] if name == "a" else ["more"]))
        expected.update("more" for _ in more)
        shipping.start(until_idle=True, source=source)
        shipping.wait_idle()
        status = shipping.stop()
        assert status.state == "stopped"
        assert Counter(_values(shipping.records())) - Counter([""]) == expected
    assert status.counts.read == 3, "the end of the line that was sent, and two lines"


def _values(records: list[Consumed]) -> list[str]:
    return [(record.value or b"").decode() for record in records]
