"""Files that are written to, taken away, or cut into ranges while they are read; and what is cleaned up when."""

from __future__ import annotations

import io
import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from copycat_agent.sources.spool_dir import admission, rows
from tests.unit.sources.spool.rig import Spool, lines, touch_later

if TYPE_CHECKING:
    from pathlib import Path

MANY = [f"{number:06}" for number in range(30_000)]


def _begun(root: Path, **options: Any) -> Spool:
    """An agent that has read a part of `a`."""
    spool = Spool(root, **options)
    spool.drop("a", lines(*MANY))
    spool.max_bytes = 65536
    spool.scan()
    spool.work()
    assert 0 < len(spool.arrived) < len(MANY)
    return spool


def test_a_file_that_changes_while_it_is_read_is_set_aside_and_others_go_on(tmp_path: Path) -> None:
    spool = _begun(tmp_path, cleanup={"policy": "delete"})
    sent = len(spool.arrived)
    with (tmp_path / "a").open("ab") as file:
        file.write(lines("more"))
    spool.drop("b", lines("b"))
    spool.drain()
    assert spool.arrived[sent:] == [b"b"]
    assert spool.states() == {"a": "failing"}
    assert "changed" in spool.why("a")
    assert (tmp_path / "a").exists()
    assert spool.source.lag().troubled_files == 1
    assert spool.source.drained()
    spool.restart()
    spool.drain()
    assert spool.arrived[sent:] == [b"b"]
    assert "changed" in spool.why("a")


def test_it_is_set_aside_when_it_changes_under_the_reader(tmp_path: Path) -> None:
    spool = _begun(tmp_path)
    sent = len(spool.arrived)
    splits = spool.source.plan(1).splits
    with (tmp_path / "a").open("ab") as file:
        file.write(lines("more"))
    spool.bring(spool.read(splits))
    spool.drain()
    assert len(spool.arrived) == sent
    assert spool.states() == {"a": "failing"}
    assert not spool.rows()["a"].done


def test_before_anything_of_it_is_sent_it_only_waits_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.drop("a", lines("one"))
    spool.scan()
    splits = spool.source.plan(1).splits
    with (tmp_path / "a").open("ab") as file:
        file.write(lines("two"))
    spool.bring(spool.read(splits))
    spool.drain()
    assert spool.arrived == [b"one", b"two"]


def test_continue_goes_on_behind_what_was_read(tmp_path: Path) -> None:
    spool = _begun(tmp_path, on_changed_file="continue")
    with (tmp_path / "a").open("ab") as file:
        file.write(lines("more"))
    spool.drain()
    assert spool.arrived == [text.encode() for text in [*MANY, "more"]]
    with (tmp_path / "a").open("ab") as file:  # it was done already
        file.write(lines("and more"))
    spool.drain()
    spool.restart()
    with (tmp_path / "a").open("ab") as file:
        file.write(lines("last"))
    spool.drain()
    assert spool.arrived[len(MANY) :] == [b"more", b"and more", b"last"]


def test_continue_begins_anew_when_what_was_read_is_not_there_any_more(tmp_path: Path) -> None:
    spool = _begun(tmp_path, on_changed_file="continue")
    sent = len(spool.arrived)
    (tmp_path / "a").write_bytes(lines(*(f"x{text}" for text in MANY)))
    spool.drain()
    assert spool.arrived[sent:] == [f"x{text}".encode() for text in MANY]
    assert len(spool.store) == 1


def test_an_old_set_aside_file_goes_on_once_the_definition_says_so(tmp_path: Path) -> None:
    spool = _begun(tmp_path)
    with (tmp_path / "a").open("ab") as file:
        file.write(lines("more"))
    spool.drain()
    spool.options = spool.options.model_copy(update={"on_changed_file": "continue"})
    spool.restart()
    spool.drain()
    assert spool.arrived == [text.encode() for text in [*MANY, "more"]]


def test_a_file_that_is_taken_away_before_it_is_read_is_forgotten(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    path = spool.drop("a", lines("one"))
    spool.scan()
    path.unlink()
    spool.drain()
    assert spool.arrived == []
    assert spool.losses == []
    assert spool.states() == {}
    assert spool.source.drained()


def test_a_file_that_is_deleted_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    spool = _begun(tmp_path)
    (tmp_path / "a").unlink()
    spool.drain()
    assert len(spool.arrived) == len(MANY)
    assert spool.losses == []
    assert spool.states() == {}


def test_what_was_not_read_of_a_file_that_went_away_is_lost_and_counted_once(tmp_path: Path) -> None:
    spool = _begun(tmp_path)
    position = spool.rows()["a"].position
    spool.restart()
    (tmp_path / "a").unlink()
    spool.drain()
    spool.restart()
    spool.drain()
    assert [(loss.start, loss.end, loss.reason) for loss in spool.losses] == [(position, 7 * len(MANY), "destroyed")]
    assert spool.rows()["a"].gone_ms


def test_nothing_is_lost_while_the_directory_is_away(tmp_path: Path) -> None:
    root = tmp_path / "in"
    root.mkdir()
    spool = _begun(root)
    spool.restart()
    root.rename(tmp_path / "elsewhere")
    spool.drain()
    assert spool.losses == []
    (tmp_path / "elsewhere").rename(root)
    spool.drain()
    assert spool.arrived == [text.encode() for text in MANY]


def test_rows_of_files_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    spool = Spool(tmp_path, forget_after=1000.0)
    spool.drop("a", lines("one"))
    spool.drain()
    (tmp_path / "a").unlink()
    spool.drain()
    assert spool.rows()["a"].gone_ms
    partition, row = next(iter(spool.store.items()))
    spool.store[partition] = row.__class__(row.position, row.records, row.done, path=row.path, gone_ms=row.gone_ms - 2_000_000)
    spool.restart()
    spool.drain()
    assert spool.store == {}


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """From now on it is so much later for who forgets."""
    monkeypatch.setattr("copycat_agent.sources.spool_dir.rows.time.time", lambda: time.time_ns() / 1e9 + seconds)


def test_files_that_are_excluded_for_a_while_are_neither_forgotten_nor_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path, forget_after=1000.0)
    spool.drop("a", lines("one", "two"))
    spool.drain()
    included, spool.options = spool.options, spool.options.model_copy(update={"exclude": ("a",)})
    spool.stop()
    for seconds in (0, 1500, 3000, 9000):
        later(monkeypatch, seconds)
        spool.drain()
        spool.restart()
    assert not any(row.gone_ms for row in spool.store.values())
    spool.options = included
    spool.restart()
    spool.drain()
    assert spool.arrived == [b"one", b"two"]
    assert spool.losses == []


def test_one_that_is_half_read_and_excluded_for_a_while_is_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = _begun(tmp_path, forget_after=1000.0)
    included, spool.options = spool.options, spool.options.model_copy(update={"exclude": ("a",)})
    spool.stop()
    for seconds in (0, 1500, 3000):
        later(monkeypatch, seconds)
        spool.drain()
    spool.options = included
    spool.restart()
    spool.drain()
    assert spool.arrived == [text.encode() for text in MANY]
    assert spool.losses == []


def test_rows_of_files_that_came_back_under_another_name_or_cannot_be_looked_for_are_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, forget_after=1000.0, exclude=("*.hold",))
    for name in ("a", "b", "c"):
        spool.drop(name, lines(f"one of {name}"))
    spool.drain()
    (tmp_path / "a").rename(tmp_path / "a.hold")
    (tmp_path / "b").unlink()
    (tmp_path / "c").unlink()
    spool.drain()
    elsewhere = next(one for one, row in spool.store.items() if row.path.endswith("/c"))
    device, rest = elsewhere.key.split(":", 1)
    spool.store[elsewhere._replace(key=f"{int(device, 16) + 1:x}:{rest}")] = spool.store.pop(elsewhere)
    spool.restart()
    later(monkeypatch, 1500)
    spool.drain()
    assert {row.path.rpartition("/")[2] for row in spool.store.values()} == {"a", "c"}
    (tmp_path / "a.hold").rename(tmp_path / "a")
    spool.drain()
    assert spool.arrived == [b"one of a", b"one of b", b"one of c"]


def test_of_very_many_files_that_are_gone_the_oldest_rows_go_first_which_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rows, "KEPT_GONE", 5)
    spool = Spool(tmp_path)
    spool.drop("stays", lines("stays"))
    for number in range(12):
        spool.drop(f"{number}", lines(f"{number}"))
        spool.drain()
        (tmp_path / f"{number}").unlink()
        spool.drain()
    assert set(spool.rows()) == {"stays", *map(str, range(7, 12))}
    assert sum("forgotten before forget_after" in record.getMessage() for record in caplog.records) == 1


def test_delivered_files_are_cleaned_up_only_once_they_are_saved(tmp_path: Path) -> None:
    spool = Spool(tmp_path, cleanup={"policy": "delete"})
    spool.drop("a", lines("one"))
    spool.drop("empty", b"")
    spool.scan()
    results = spool.read(spool.source.plan(1).splits)
    changes = spool.source.changes_of(results)
    assert (tmp_path / "a").exists()
    spool.store.update(changes.offsets)
    spool.restart()  # killed between the commit and the cleanup
    spool.drain()
    assert spool.arrived == [b"one"]
    assert list(tmp_path.iterdir()) == []
    assert all(row.gone_ms for row in spool.store.values())


def test_a_repeat_is_cleaned_up_and_so_is_a_done_file(tmp_path: Path) -> None:
    spool = Spool(tmp_path, cleanup={"policy": "delete"}, ready={"done_file": "{name}.done"})
    for _ in range(2):
        spool.drop("a", lines("one"))
        spool.drop("a.done", b"")
        spool.drain()
        assert list(tmp_path.iterdir()) == []
    assert spool.arrived == [b"one"]


def test_without_cleanup_nothing_is_touched(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.drop("a", lines("one"))
    before = (tmp_path / "a").stat()
    spool.drain()
    after = (tmp_path / "a").stat()
    assert (before.st_mtime_ns, before.st_ctime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ctime_ns, after.st_ino)


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of a size that suits a test."""
    monkeypatch.setattr(admission, "LEAST_BYTES", 20_000)


@pytest.mark.usefixtures("small_ranges")
def test_settling_leaves_no_trace_until_it_is_saved(tmp_path: Path) -> None:
    spool = Spool(tmp_path, tasks=2, delivery={"ordering": "none"})
    content = [f"{number:06}" for number in range(10_000)]
    spool.drop("a", lines(*content))
    spool.scan()
    results = [spool.read(spool.source.plan(1).splits, number) for number in range(2)]
    together = results[0] + results[1]
    before = spool.source.files(), spool.source.lag()
    first = spool.source.changes_of(together)
    assert first.offsets
    assert spool.source.changes_of(together) == first
    assert (spool.source.files(), spool.source.lag()) == before
    spool.restart()
    spool.drain()
    assert set(spool.arrived) == {text.encode() for text in content}
    assert spool.rows()["a"].done


def test_a_file_that_is_read_in_ranges_is_no_repeat_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path, tasks=3, delivery={"ordering": "none"})
    spool.drop("a", lines(*MANY))
    spool.drain()
    monkeypatch.setattr(admission, "LEAST_BYTES", 20_000)
    spool.drop("a", lines(*MANY))
    spool.drain()
    assert sorted(spool.arrived) == sorted(2 * [line.encode() for line in MANY])


@pytest.mark.usefixtures("small_ranges")
def test_a_large_file_is_read_in_ranges_that_resume_on_their_own(tmp_path: Path) -> None:
    spool = Spool(tmp_path, tasks=3, delivery={"ordering": "none"}, cleanup={"policy": "delete"})
    spool.drop("a", lines(*MANY))
    spool.max_bytes = 65536
    spool.scan()
    cut = set(spool.store)
    assert len(cut) == 10
    assert spool.work() == 3
    assert (tmp_path / "a").exists()
    spool.restart()
    spool.scan()
    assert set(spool.store) == cut
    spool.drain()
    assert sorted(spool.arrived) == [text.encode() for text in MANY]
    assert list(tmp_path.iterdir()) == []
    (row,) = spool.store.values()
    assert row.done
    assert row.records == len(MANY)


ROWS = b"".join(b"%06d,x\n" % number for number in range(len(MANY)))
COLUMNS = ({"name": "a", "width": 6}, {"name": "b", "width": 2})


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize(
    ("form", "content"),
    [
        ({"type": "csv", "multiline": False}, b"a,b\n" + ROWS),
        ({"type": "csv", "header": False, "multiline": False}, ROWS),
        ({"type": "csv", "header": False, "multiline": False, "comment": "#"}, ROWS.replace(b"\n", b"\n\n#\n")),
        ({"type": "csv", "quote": "none", "skip_footer": 1}, b"a,b\n" + ROWS + b"footer\n"),
        ({"type": "csv", "quote": "none", "encoding": "utf-16-le"}, (b"a,b\n" + ROWS).decode().encode("utf-16-le")),
        ({"type": "fixed_width", "columns": COLUMNS}, ROWS),
        ({"type": "fixed_width", "columns": COLUMNS, "record_bytes": 9}, ROWS),
        ({"type": "jsonl"}, b"".join(b'{"a": %d}\n' % number for number in range(len(MANY)))),
        ({"type": "lines", "skip_lines": 1, "skip_footer": 1}, b"header\n" + ROWS + b"footer\n"),
        ({"type": "binary", "chunk": 9}, ROWS),
    ],
)
@pytest.mark.parametrize("killed", [False, True])
def test_each_record_is_in_one_range(tmp_path: Path, form: dict[str, Any], content: bytes, *, killed: bool) -> None:
    spool = Spool(tmp_path, tasks=3, delivery={"ordering": "none"}, format=form)
    spool.drop("a", content)
    spool.scan()
    assert len(spool.store) > 2
    if killed:
        spool.max_bytes = 15_000
        spool.work()
        assert spool.arrived
        spool.restart()
    spool.drain()
    assert len(set(spool.arrived)) == len(MANY)
    assert len(spool.arrived) == len(MANY)
    (row,) = spool.store.values()
    assert (row.done, row.records, row.position) == (True, len(MANY), len(content))
    assert not spool.losses


@pytest.mark.usefixtures("small_ranges")
def test_a_cut_file_that_changes_is_set_aside(tmp_path: Path) -> None:
    spool = Spool(tmp_path, tasks=2, delivery={"ordering": "none"})
    spool.drop("a", lines(*MANY))
    spool.scan()
    spool.bring(spool.read(spool.source.plan(2).splits))
    touch_later(tmp_path / "a")
    spool.drain()
    assert spool.states() == {"a": "failing"}
    spool.restart()
    spool.drain()
    assert spool.states() == {"a": "failing"}
    assert len(spool.arrived) < len(MANY)


@pytest.mark.usefixtures("small_ranges")
def test_a_large_parquet_file_is_read_by_its_row_groups(tmp_path: Path) -> None:
    rows = 20_000
    data = io.BytesIO()
    table = pa.table({"number": range(rows), "text": [f"text of row {number}" for number in range(rows)]})
    pq.write_table(table, data, row_group_size=2500, compression="none")
    spool = Spool(tmp_path, tasks=3, delivery={"ordering": "none"}, format={"type": "parquet"}, cleanup={"policy": "delete"})
    spool.drop("a", data.getvalue())
    spool.max_bytes = 40_000
    spool.scan()
    cut = set(spool.store)
    assert 2 < len(cut) <= 8
    assert spool.work() == 3
    assert (tmp_path / "a").exists()
    spool.restart()
    spool.scan()
    assert set(spool.store) == cut
    spool.drain()
    assert sorted(json.loads(value)["number"] for value in spool.arrived) == list(range(rows))
    assert list(tmp_path.iterdir()) == []
    (row,) = spool.store.values()
    assert (row.done, row.records, row.position) == (True, rows, rows)
