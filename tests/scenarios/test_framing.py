"""F. Where a line begins and ends, and what its offset is."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.rig.shipping import origin
from tests.rig.waiting import wait_until
from tests.scenarios.test_errors import wait_counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.model import SourceOffset
    from tests.rig.kafka import Consumed
    from tests.rig.shipping import Shipping

MIB = 2**20


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def offset_of(shipping: Shipping, path: Path) -> SourceOffset:
    """The committed offset of the file at `path`."""
    return next(offset for offset in shipping.offsets.values() if offset.path == str(path))


def wait_settled(shipping: Shipping, path: Path, position: int, deadline: float = 30.0) -> None:
    wait_until(
        lambda: any(one.path == str(path) and one.position == position for one in shipping.offsets.values()),
        deadline, lambda: f"offset {position}: {shipping.offsets} {shipping.status}",
    )  # fmt: skip


def pass_by(shipping: Shipping, logs_dir: Path, count: int) -> None:
    """Hold until the connector has read once more round: a line of another file, written now, has arrived as the `count`-th record."""
    append(logs_dir / "other", b"marker\n")
    shipping.records(until=count)


def header(record: Consumed, name: str) -> bytes | None:
    return dict(record.headers).get(name)


def test_a_line_written_in_two_pieces_is_one_record(shipping: Shipping, logs_dir: Path) -> None:
    shipping.start()
    append(logs_dir / "app", b"hello wor")
    pass_by(shipping, logs_dir, 1)
    append(logs_dir / "app", b"ld\n")
    assert sorted(shipping.lines(until=2)) == ["hello world", "marker"]


def test_a_line_finished_after_a_restart_is_one_record(shipping: Shipping, logs_dir: Path) -> None:
    shipping.start()
    append(logs_dir / "app", b"first\nhello wor")
    shipping.records(until=1)
    shipping.stop()
    shipping.start()
    append(logs_dir / "app", b"ld\n")
    shipping.records(until=2)
    shipping.stop()
    assert shipping.lines() == ["first", "hello world"]


def test_a_line_finished_after_its_file_was_closed_for_others_is_one_record(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app", b"hello wor")
    shipping.start(source={"max_open_files": 1})
    for number in range(3):
        append(logs_dir / f"busy-{number}", b"x\n")
    shipping.records(until=3)
    wait_until(lambda: shipping.status.lag.open_files <= 1, message="files over the limit are closed")
    append(logs_dir / "app", b"ld\n")
    shipping.records(until=4)
    shipping.stop()
    assert sorted(shipping.lines()) == ["hello world", "x", "x", "x"]


@pytest.mark.parametrize(("skip_empty", "lines", "dropped"), [(False, ["a", "", "b", ""], 0), (True, ["a", "b"], 2)])
def test_empty_lines_go_by_the_option_and_the_offset_passes_them(
    shipping: Shipping, logs_dir: Path, skip_empty: bool, lines: list[str], dropped: int
) -> None:
    path = logs_dir / "app"
    append(path, b"a\n\nb\n\n")
    shipping.start(source={"line": {"skip_empty": skip_empty}})
    wait_settled(shipping, path, 6)
    assert shipping.lines() == lines
    wait_counts(shipping, dropped=dropped, read=4)


def test_a_file_of_empty_lines_only_is_read_to_its_end_and_goes_on(shipping: Shipping, logs_dir: Path) -> None:
    path = logs_dir / "app"
    append(path, b"\n\n\n")
    shipping.start(source={"line": {"skip_empty": True}})
    wait_settled(shipping, path, 3)
    append(path, b"x\n")
    assert shipping.lines(until=1) == ["x"]


def test_a_cr_is_stripped_before_the_newline_only(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app", b"l1\nl2\rl2\nl3\r\nl4\n")
    shipping.start()
    assert shipping.lines(until=4) == ["l1", "l2\rl2", "l3", "l4"]


def test_a_long_line_is_cut_and_flagged_and_its_neighbours_are_whole(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app", b"before\n" + b"x" * 10_240 + b"\nafter\n")
    shipping.start(source={"line": {"max_bytes": "4KiB", "on_too_long": "truncate"}})
    before, cut, after = shipping.records(until=3)
    assert (before.value, cut.value, after.value) == (b"before", b"x" * 4096, b"after")
    assert [header(record, "copycat.truncated") for record in (before, cut, after)] == [None, b"true", None]
    wait_until(lambda: shipping.status.counts.too_long == 1, message="the counter")


def test_a_long_line_goes_in_parts_that_are_the_line_also_around_a_restart(shipping: Shipping, logs_dir: Path) -> None:
    path, source = logs_dir / "app", {"line": {"max_bytes": "16B", "on_too_long": "split"}}
    text = "grüße aus dem Süden, und es hört nicht auf"
    append(path, b"before\n" + text.encode())
    shipping.start(source=source)
    shipping.records(until=3)
    shipping.stop()
    append(path, b" - bis jetzt\nafter\n")
    shipping.start(source=source)
    records = shipping.records(until=6)
    values = [(record.value or b"").decode() for record in records]
    assert (values[0], "".join(values[1:-1]), values[-1]) == ("before", text + " - bis jetzt", "after")
    count = len(values) - 2
    assert [header(record, "copycat.part") for record in records[1:-1]] == [b"%d" % number for number in range(1, count + 1)]
    assert header(records[-2], "copycat.parts") == b"%d" % count


@pytest.mark.parametrize("policy", ["dlq", "truncate", "drop"])
def test_a_long_line_that_grows_on_is_still_the_same_line(
    shipping: Shipping, logs_dir: Path, make_topic: Callable[..., str], policy: str
) -> None:
    path, dlq = logs_dir / "app", make_topic()
    append(path, b"0123456789\n" + b"x" * 30)
    shipping.start(
        source={"line": {"max_bytes": "10B", "on_too_long": policy}},
        errors={"tolerance": "all", "dlq": {"topic": dlq}},
    )
    wait_settled(shipping, path, 41)
    assert offset_of(shipping, path).skipping
    append(path, b"y" * 30)
    wait_settled(shipping, path, 71)
    append(path, b"z\nnext\n")
    wait_settled(shipping, path, 78)
    cut = ["x" * 10] if policy == "truncate" else []
    assert shipping.lines() == ["0123456789", *cut, "next"]
    wait_counts(shipping, read=3, too_long=1, acknowledged=2 + len(cut), dead_lettered=int(policy == "dlq"), dropped=int(policy == "drop"))
    assert offset_of(shipping, path).records == 3


def test_the_rest_of_a_long_line_is_passed_over_after_a_restart_too(shipping: Shipping, logs_dir: Path) -> None:
    path, line = logs_dir / "app", {"max_bytes": "10B", "on_too_long": "truncate"}
    append(path, b"x" * 30)
    shipping.start(source={"line": line})
    wait_settled(shipping, path, 30)
    shipping.stop()
    append(path, b"y" * 30 + b"\nnext\n")
    shipping.start(source={"line": line})
    shipping.records(until=2)
    shipping.stop()
    assert shipping.lines() == ["x" * 10, "next"]


def peak_bytes() -> int:
    """The largest memory that this process and all Spark workers under it have ever had, added up."""
    process = psutil.Process()
    return sum(_peak(one) for one in [process, *process.children(recursive=True)])


def _peak(process: psutil.Process) -> int:
    """Nothing of one that has ended meanwhile."""
    with suppress(psutil.NoSuchProcess, OSError):
        if "python" in process.name():
            status = Path(f"/proc/{process.pid}/status").read_text()
            return sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    return 0


def test_memory_does_not_grow_with_a_line_that_never_ends(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "other", b"warm\n")
    shipping.start(source={"line": {"max_bytes": "64KiB", "on_too_long": "drop"}})
    shipping.records(until=1)
    before = peak_bytes()
    path = logs_dir / "app"
    for _ in range(200):
        append(path, b"x" * MIB)
    wait_settled(shipping, path, 200 * MIB, 90.0)
    append(path, b"\nnext\n")
    assert shipping.lines(until=2) == ["warm", "next"]
    assert peak_bytes() - before < 50 * MIB


def test_offset_headers_count_bytes_also_for_multi_byte_text_and_after_a_restart(shipping: Shipping, logs_dir: Path) -> None:
    path = logs_dir / "app"
    texts = ["grüße", "日本語", "plain", "après", "последний"]
    lines = [f"{text}\n".encode() for text in texts]
    starts = [sum(map(len, lines[:index])) for index in range(len(lines) + 1)]
    append(path, b"".join(lines[:3]))
    shipping.start()
    shipping.records(until=3)
    shipping.stop()
    append(path, b"".join(lines[3:]))
    shipping.start()
    records = shipping.records(until=5)
    assert [(record.value or b"").decode() for record in records] == texts
    assert [origin(record) for record in records] == [("app", start) for start in starts[:-1]]
    assert [int(header(record, "copycat.end") or b"0") for record in records] == starts[1:]


def test_record_numbers_go_on_after_a_restart(shipping: Shipping, logs_dir: Path) -> None:
    path, record = logs_dir / "app", {"headers": {"number": "{@record.number}"}}
    append(path, b"a\nb\n")
    shipping.start(record=record)
    shipping.records(until=2)
    shipping.stop()
    append(path, b"c\nd\n")
    shipping.start(record=record)
    assert [header(one, "number") for one in shipping.records(until=4)] == [b"1", b"2", b"3", b"4"]
