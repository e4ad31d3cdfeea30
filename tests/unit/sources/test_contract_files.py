"""Sources whose partitions are whole files: their author lists and opens them, the agent unpacks, parses and remembers."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

from copycat_agent import logs
from copycat_agent.errors import FatalError, FileError
from copycat_agent.formats import Chunk
from copycat_agent.model import SourceOffset, SourcePartition, Split, SplitResult, Stretch
from copycat_agent.options import DeliveryOptions
from copycat_agent.sources import contract_source
from copycat_agent.sources.contract import Finding, Found, Gone, Remembered, Troubled
from copycat_agent.sources.contract_files import FilesOptions, file_source_kind
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from copycat_agent.sources import Source
    from copycat_agent.sources.planner import Changes


class Options(FilesOptions):
    """Made up."""

    type: Literal["made_up"] = "made_up"


class _File:
    def __init__(self, data: bytes, shelf: Shelf) -> None:
        self._data, self._shelf = data, shelf

    def read_at(self, position: int, size: int) -> bytes:
        if self._shelf.failure is not None:
            raise self._shelf.failure
        return self._data[position : position + size]

    def is_unchanged(self) -> bool:
        return not self._shelf.changed

    def close(self) -> None:
        self._shelf.closed += 1


class Shelf:
    """Files in memory."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.tells: list[Finding] = []
        self.saved: dict[str, Any] = {}
        self.told: dict[str, Any] = {}
        self.failure: Exception | None = None
        self.changed = False
        self.closed = 0

    def look(self, saved: Mapping[str, Any], *, to_the_end: bool) -> Iterable[Finding]:
        del to_the_end
        self.saved = dict(saved)
        files = (Found(key, name=f"shelf/{key}", work=key.encode(), size=len(one), mtime_ms=7000) for key, one in self.data.items())
        return [*files, *self.tells]

    def open(self, stretch: Stretch) -> _File:
        if isinstance(self.failure, OSError):
            raise self.failure
        return _File(self.data[stretch.work.decode()], self)

    def committed(self, positions: Mapping[str, Any]) -> None:
        self.told.update(positions)

    def close(self) -> None:
        pass


class Rig:
    """A connector's source, and a task for its splits."""

    def __init__(self, shelf: Shelf, saved: dict[SourcePartition, SourceOffset] | None = None, **options: Any) -> None:
        self.options = Options(**options)
        self.kind = file_source_kind(Options, lambda _: shelf)
        self.saved = dict(saved or {})
        self.source: Source = self.kind.make("app", self.options, DeliveryOptions(), self.saved, logs.get("test"))

    def look(self, *, to_the_end: bool = False) -> Changes:
        """One look, whose changes are saved."""
        self.source.scan()
        wait_until(lambda: self.source.end_timed_out(at_once=to_the_end) and self.source.needs_scan, 30)
        return self.save((), self.source.scan())

    def save(self, results: tuple[SplitResult, ...], changes: Changes) -> Changes:
        self.saved.update(changes.offsets)
        for partition in changes.forget:
            self.saved.pop(partition, None)
        self.source.finish(results, changes)
        return changes

    def read(self, split: Split) -> tuple[list[bytes], SplitResult]:
        """All values of the split, and what its task would bring back when all of them are settled."""
        form = self.kind.framing(self.options, raw=False)
        stream = self.kind.open(split, form)
        try:
            assert stream.is_what_was_read()
            values: list[bytes] = []
            position, passed = split.offset.position, None
            while passed != (bounds := stream.bounds(split.end)):  # of a packed file they are known once its end was met
                passed = bounds
                for frame in stream.frames(form, position, bounds[0], final=bounds[1]):
                    assert isinstance(frame, Chunk), frame
                    values += [bytes(one) for one in frame.values]
                    position = frame.end
                at_end = stream.is_exhausted(bounds[0])
            offset = replace(stream.offset, position=position, records=len(values), fingerprint=stream.fingerprint(position, b""))
            return values, stream.complete(SplitResult(split, offset, at_end=at_end, changed=not stream.is_still(position)))
        finally:
            stream.close()


def test_a_file_is_read_once_and_what_is_told_of_it_is_its_position() -> None:
    shelf = Shelf()
    shelf.data = {"a": b"one\ntwo\n", "empty": b""}
    rig = Rig(shelf)
    changes = rig.look()
    assert {one.key: (row.path, row.size, row.mtime_ns, row.done) for one, row in changes.offsets.items()} == {
        "a": ("shelf/a", 8, 7_000_000_000, False),
        "empty": ("shelf/empty", 0, 7_000_000_000, True),
    }
    (split,) = rig.source.plan(1).splits
    values, result = rig.read(split)
    assert values == [b"one", b"two"]
    changes = rig.save((result,), rig.source.changes_of((result,)))
    assert changes.offsets[SourcePartition("app", "a")].done
    assert rig.kind.saved(result, rig.options) == (changes.offsets[SourcePartition("app", "a")], ())
    assert rig.source.plan(1).splits == ()
    rig.look()
    done = {"a": {"position": 8, "done": True, "damaged": False}, "empty": {"position": 0, "done": True, "damaged": False}}
    assert shelf.told == done
    assert shelf.saved == {key: {**one, "name": f"shelf/{key}", "failed": False} for key, one in done.items()}
    assert rig.source.plan(1).splits == (), "it was found again, and is read"
    assert {view.path: view.state for view in rig.source.files()} == {"shelf/a": "done", "shelf/empty": "done"}
    assert Rig(shelf, rig.saved).look().offsets == {}, "another process knows it"


@pytest.mark.parametrize("compression", ["auto", "gzip"])
def test_a_packed_file_is_unpacked_and_read_on_in_the_middle(compression: str) -> None:
    shelf = Shelf()
    lines = [b"line %d" % number for number in range(1000)]
    shelf.data = {"a": gzip.compress(b"\n".join(lines))}
    rig = Rig(shelf, compression=compression)
    rig.look()
    (split,) = rig.source.plan(1).splits
    values, result = rig.read(split)
    assert values == lines
    assert (result.offset.compression, result.at_end) == ("gzip", True)
    position = sum(len(one) + 1 for one in lines[:600])
    offset = replace(result.offset, position=position, records=600, fingerprint=split.offset.fingerprint)
    part = replace(result, offset=offset, at_end=False)
    rig.save((part,), rig.source.changes_of((part,)))
    (split,) = rig.source.plan(1).splits
    assert rig.read(split)[0] == lines[600:]


def test_compression_none_takes_packed_bytes_as_they_are() -> None:
    shelf = Shelf()
    shelf.data = {"a": gzip.compress(b"x")}
    rig = Rig(shelf, compression="none")
    rig.look()
    (split,) = rig.source.plan(1).splits
    form = rig.kind.framing(rig.options, raw=False)
    assert rig.kind.open(split, form).read(0, 100) == shelf.data["a"]


def test_the_rest_of_a_damaged_file_is_lost_and_the_file_is_done() -> None:
    shelf = Shelf()
    packed = bytearray(gzip.compress(b"one\n") + gzip.compress(random.Random(7).randbytes(10_000)))
    packed[40:60] = bytes(20)
    shelf.data = {"a": bytes(packed)}
    rig = Rig(shelf)
    rig.look()
    (split,) = rig.source.plan(1).splits
    _, result = rig.read(split)
    assert result.damage
    changes = rig.source.changes_of((result,))
    (offset,) = changes.offsets.values()
    (loss,) = changes.losses
    assert (offset.done, offset.trouble, loss.reason) == (True, result.damage, "damaged")
    saved, (same_loss,) = rig.kind.saved(result, rig.options)
    assert (saved, same_loss._replace(at_ms=loss.at_ms)) == (offset, loss)
    rig.save((result,), changes)
    (view,) = rig.source.files()
    assert (view.state, view.why) == ("failing", result.damage)
    Rig(shelf, rig.saved).look()
    assert shelf.told["a"] == {"position": offset.position, "done": True, "damaged": True}, "also by another process"


def test_what_is_gone_before_it_is_read_is_lost_and_what_is_done_is_only_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    shelf = Shelf()
    shelf.data = {"a": b"one\n", "b": b"two\n"}
    rig = Rig(shelf)
    rig.look()
    first, second = rig.source.plan(1).splits
    _, result = rig.read(first)
    rig.save((result,), rig.source.changes_of((result,)))
    shelf.data = {}
    shelf.tells = [Gone("a", "it was deleted"), Gone("b", "it was deleted"), Gone("nobody", "knows it")]
    changes = rig.look()
    assert (changes.forget, changes.losses) == ({SourcePartition("app", "a")}, []), "a task reads the other one"
    unread = SplitResult(second, second.offset, error=FileError("it cannot be read"))
    rig.save((unread,), rig.source.changes_of((unread,)))
    changes = rig.look()
    (loss,) = changes.losses
    assert (loss.path, loss.start, loss.end, loss.reason, loss.detail) == ("shelf/b", 0, 4, "destroyed", "it was deleted")
    assert [vars(one)["fields"]["path"] for one in caplog.records if one.levelname == "ERROR"] == ["shelf/b"]
    assert rig.saved == {}
    assert rig.source.files() == ()


def test_what_a_source_remembers_is_saved_given_back_and_nobody_s_file() -> None:
    shelf = Shelf()
    shelf.tells = [Remembered("m", {"names": [1, 2]})]
    rig = Rig(shelf)
    changes = rig.look()
    assert [json.loads(row.cursor) for row in changes.offsets.values()] == [{"names": [1, 2]}]
    shelf.tells = [Remembered("m", 3)]
    rig.look()
    assert shelf.saved == {"m": {"names": [1, 2]}}
    shelf.tells = []
    later = Rig(shelf, rig.saved)
    later.look()
    assert shelf.saved == {"m": 3}
    assert (later.source.files(), later.source.lag().known_files, shelf.told) == ((), 0, {})
    shelf.tells = [Gone("m")]
    later.look()
    assert later.saved == {}


def test_no_look_begins_before_what_the_last_one_told_is_saved() -> None:
    shelf = Shelf()
    shelf.tells = [Remembered("m", 1)]
    rig = Rig(shelf)
    rig.source.scan()
    wait_until(lambda: rig.source.end_timed_out(at_once=False) and rig.source.needs_scan, 30)
    changes = rig.source.scan()
    for _ in range(3):
        assert rig.source.scan().offsets == {}
        assert rig.source.end_timed_out(at_once=False) == math.inf, "it would be told once more at each poll"
    rig.save((), changes)
    shelf.tells = []
    rig.look()
    assert shelf.saved == {"m": 1}


def test_a_file_that_cannot_be_read_is_tried_again_once_it_is_found_again() -> None:
    shelf = Shelf()
    shelf.data = {"a": b"one\n"}
    rig = Rig(shelf)
    rig.look()
    (split,) = rig.source.plan(1).splits
    shelf.failure = OSError(5, "it is not allowed")
    with pytest.raises(FileError, match="'shelf/a' cannot be opened: it is not allowed"):
        rig.read(split)
    failed = SplitResult(split, split.offset, error=FileError("it cannot be opened"))
    rig.save((failed,), rig.source.changes_of((failed,)))
    assert rig.source.plan(1).splits == ()
    assert rig.source.files()[0].state == "failing"
    shelf.failure = None
    rig.look()
    wait_until(lambda: rig.source.plan(1).splits, 30)


def test_a_run_to_the_end_does_not_wait_for_a_file_that_cannot_be_read_and_accounts_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract_source, "HOPELESS", (3, 0.0))
    monkeypatch.setattr(contract_source, "RETRY_SECONDS", (0.01, 0.01))
    shelf = Shelf()
    shelf.data = {"a": b"one\n"}
    rig = Rig(shelf)
    rig.look(to_the_end=True)
    accounts = []
    for _ in range(3):
        assert not rig.source.drained()
        (split,) = wait_until(lambda: rig.source.plan(1).splits, 30)
        failed = SplitResult(split, split.offset, error=FileError("it is not allowed"))
        changes = rig.save((failed,), rig.source.changes_of((failed,)))
        accounts.append([(one.state, one.path, one.why) for one in changes.accounts.values()])
        rig.look(to_the_end=True)
    assert accounts == [[], [], [("failed", "shelf/a", "it is not allowed")]]
    assert rig.source.drained()
    assert rig.source.lag().troubled_files == 1
    (split,) = wait_until(lambda: rig.source.plan(1).splits, 30)
    _, result = rig.read(split)
    changes = rig.save((result,), rig.source.changes_of((result,)))
    assert [one.state for one in changes.accounts.values()] == ["read"], "it is tried again while others are read"


def test_trouble_of_a_source_is_logged_once_and_shown_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    shelf = Shelf()
    rig = Rig(shelf)
    for count in (1, 2):
        shelf.tells = [Troubled("a queue", f"it is gone, {count}")]
        rig.look()
    assert [(view.path, view.key, view.state, view.why) for view in rig.source.files()] == [("a queue", "", "failing", "it is gone, 2")]
    assert rig.source.lag().troubled_files == 1
    assert [vars(one)["fields"] for one in caplog.records if one.levelname == "WARNING"] == [{"what": "a queue", "why": "it is gone, 1"}]
    shelf.tells = []
    rig.look()
    assert (rig.source.files(), rig.source.lag().troubled_files) == ((), 0)


def test_an_author_s_mistake_is_told_by_its_place_and_never_by_its_text() -> None:
    shelf = Shelf()
    shelf.data = {"a": b"one\n"}
    rig = Rig(shelf)
    rig.look()
    (split,) = rig.source.plan(1).splits
    shelf.failure = ValueError("secret")
    with pytest.raises(FatalError) as caught:
        rig.read(split)
    assert "source made_up: ValueError" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert cast("Any", caught.value).__context__ is None or "secret" not in str(caught.value.hint)


def test_a_file_that_changed_while_it_was_read_is_not_done() -> None:
    shelf = Shelf()
    shelf.data = {"a": b"one\n"}
    rig = Rig(shelf)
    rig.look()
    (split,) = rig.source.plan(1).splits
    form = rig.kind.framing(rig.options, raw=False)
    stream = rig.kind.open(split, form)
    shelf.changed = True
    assert not stream.is_still(4)
    changed = SplitResult(split, split.offset, at_end=True, changed=True)
    rig.save((changed,), rig.source.changes_of((changed,)))
    assert rig.source.plan(1).splits == (), "a look finds out what is there now"
    assert not next(iter(rig.saved.values())).done
