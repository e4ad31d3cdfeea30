"""Files of every format, plain and packed, in tiny batches, with memory lost between them and records that Kafka refuses.

Each record arrives once and in order, the bad ones as dead letters: as they do in a single batch.
"""

from __future__ import annotations

import io
import json
import pickle
import random
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from copycat_agent.errors import DataError
from copycat_agent.executor import run_batch
from copycat_agent.model import Batch, Split, SplitResult, TaskId
from copycat_agent.options import Definition
from copycat_agent.producer import Message, RefusedRecordError
from copycat_agent.sources.files.packing.unpacking import Unpackers
from copycat_agent.sources.spool_dir.spool_stream import ReadMemos
from tests.unit.sources.packing import PACK
from tests.unit.sources.spool.rig import Keeper, Spool, _Keepers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

COUNT = 90
ROWS: list[dict[str, Any]] = [
    {"id": number, "text": ("REFUSED " if number % 23 == 7 else "") + "x" * (number * 7 % 60), "amount": number / 4}
    for number in range(COUNT)
]
"""Every 23rd is one that Kafka refuses."""
BAD = {31, 32, 61}
"""What no format can read: rows of text that are none."""


class Picky(Keeper):
    """Refuses records with REFUSED in them, on the spot or in `flush`; then nothing of the run arrives."""

    def __init__(self, arrived: list[bytes], *, at_once: bool) -> None:
        super().__init__(arrived)
        self._at_once = at_once
        self._sent: list[tuple[str, bytes]] = []
        self.letters = 0

    def begin(self, stopping: Callable[[], bool]) -> None:
        del stopping
        self._sent.clear()

    def send(self, topic: str, values: list[bytes], tail: Message) -> None:
        del tail
        for number, value in enumerate(values):
            self._take(topic, value, number)

    def send_each(self, messages: Iterable[Message]) -> None:
        for number, message in enumerate(messages):
            self._take(message[0], message[1], number)

    def _take(self, topic: str, value: bytes, number: int) -> None:
        if self._at_once and topic == "t" and b"REFUSED" in value:
            raise RefusedRecordError(number, DataError("too large"))
        self._sent.append((topic, value))

    def flush(self) -> None:
        sent, self._sent = self._sent, []
        if any(topic == "t" and b"REFUSED" in value for topic, value in sent):
            raise DataError("refused")
        self._arrived += [value for topic, value in sent if topic == "t"]
        self.letters += sum(topic == "dlq" for topic, _ in sent)

    @property
    def run_bytes(self) -> int:
        return 1500


class Tiny(Spool):
    """Batches of so many bytes and records; `errors.dlq` is on, and each batch has a tap."""

    max_records = 0

    def __init__(self, root: Path, *, at_once: bool, **options: Any) -> None:
        super().__init__(root, **options)
        self.picky = Picky(self.arrived, at_once=at_once)
        self._producers = _Keepers(self.picky)
        self.counted = 0
        errors = {"tolerance": "all", "dlq": {"topic": "dlq"}}
        self._pickled = pickle.dumps(
            Definition.model_validate({"name": "drops", "source": self.options, "record": {"topic": "t"}, "errors": errors})
        )

    def read(self, splits: tuple[Split, ...], number: int = 0) -> tuple[SplitResult, ...]:
        batch = Batch(TaskId("drops", number), self._pickled, splits, self.max_bytes, 60.0, self.max_records, samples=2)
        results = run_batch(batch, self._producers, lambda: False) if splits else ()
        self.counted += sum(result.counts.acknowledged + result.counts.dead_lettered for result in results)
        return results


def _lines(number: int, row: dict[str, Any]) -> str:
    return f"{row['text']}{number}\n"


def _csv(number: int, row: dict[str, Any]) -> str:
    text = f'"{row["text"]}\nmore"' if number % 5 == 0 else row["text"]
    blank = "\n" if number % 11 == 0 else ""
    return f"{number},{text},{'none' if number in BAD else row['amount']}\n{blank}"


def _jsonl(number: int, row: dict[str, Any]) -> str:
    return ('{"id":' if number in BAD else json.dumps(row)) + "\n" + (" \n" if number % 11 == 0 else "")


def _xml(number: int, row: dict[str, Any]) -> str:
    amount = "none" if number in BAD else row["amount"]
    return f"<r id='{number}'><text>{row['text']}</text><amount>{amount}</amount></r>\n" + ("<other/>" if number % 11 == 0 else "")


def _avro() -> bytes:
    fields = [{"name": "id", "type": "int"}, {"name": "text", "type": "string"}, {"name": "amount", "type": "double"}]
    out = io.BytesIO()
    fastavro.writer(out, {"type": "record", "name": "r", "fields": fields}, ROWS, codec="deflate", sync_interval=500)
    return out.getvalue()


def _parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), out, row_group_size=40)
    return out.getvalue()


def _joined(write: Callable[[int, dict[str, Any]], str], head: str = "", foot: str = "") -> bytes:
    return (head + "".join(write(number, row) for number, row in enumerate(ROWS)) + foot).encode()


TYPED = {"types": {"amount": "decimal"}}
FILES: dict[str, tuple[dict[str, Any], bytes]] = {
    "lines": ({"type": "lines"}, _joined(_lines)),
    "csv": ({"type": "csv", **TYPED}, _joined(_csv, "id,text,amount\n")),
    "jsonl": ({"type": "jsonl"}, _joined(_jsonl)),
    "json": ({"type": "json", "path": "rows"}, json.dumps({"made": 1, "rows": ROWS}, indent=1).encode()),
    "xml": ({"type": "xml", "record": "all/r", **TYPED}, _joined(_xml, "<?xml version='1.0'?><all>\n", "</all>\n")),
    "binary": ({"type": "binary", "chunk": 70}, b"".join(_lines(*pair).encode().ljust(70, b".") for pair in enumerate(ROWS))),
    "avro": ({"type": "avro"}, _avro()),
    "parquet": ({"type": "parquet"}, _parquet()),
}


def forget(patch: pytest.MonkeyPatch) -> None:
    """As after a kill."""
    patch.setattr("copycat_agent.sources.files.packing.unpacking.PROCESS", Unpackers())
    patch.setattr("copycat_agent.sources.spool_dir.spool_stream.MEMOS", ReadMemos())


def work_with_kills(tiny: Tiny, chance: random.Random, patch: pytest.MonkeyPatch) -> None:
    """Batch after batch until nothing is left; now and then the process forgets, or the driver begins anew."""
    for _ in range(1000):
        tiny.scan()
        if not tiny.work():
            break
        if chance.random() < 0.2:
            forget(patch)
        if chance.random() < 0.1:
            tiny.restart()


@pytest.mark.parametrize("codec", [None, "gzip"], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", FILES)
def test_tiny_batches_send_what_one_batch_sends(name: str, codec: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    form, data = FILES[name]
    data = PACK[codec](data) if codec else data
    whole = Tiny(tmp_path / "whole", at_once=True, format=form)
    whole.drop("f", data)
    whole.drain()
    assert whole.counted == COUNT
    assert whole.picky.letters == sum(number % 23 == 7 for number in range(COUNT)) + (len(BAD) if name in {"csv", "jsonl", "xml"} else 0)

    chance = random.Random(f"{name}{codec}")
    for max_bytes, max_records, at_once in ((1, 0, True), (700, 0, False), (2**26, 3, False), (2**26, 7, True)):
        tiny = Tiny(tmp_path / f"{max_bytes}-{max_records}", at_once=at_once, format=form)
        tiny.max_bytes, tiny.max_records = max_bytes, max_records
        tiny.drop("f", data)
        work_with_kills(tiny, chance, monkeypatch)
        assert tiny.arrived == whole.arrived
        assert (tiny.counted, tiny.picky.letters) == (COUNT, whole.picky.letters)
        assert [(row.position, row.records, row.done) for row in tiny.store.values()] == [
            (row.position, row.records, row.done) for row in whole.store.values()
        ]


@pytest.mark.parametrize("name", [name for name in FILES if name != "parquet"])
def test_all_records_before_an_archives_damage_arrive_however_much_is_read_at_a_time(name: str, tmp_path: Path) -> None:
    form, data = FILES[name]
    cut = PACK["gzip"](data)[:-40]
    found = []
    for max_bytes in (1, 2**26):
        spool = Tiny(tmp_path / str(max_bytes), at_once=True, format=form)
        spool.max_bytes = max_bytes
        spool.drop("f", cut)
        spool.drain(300)
        found.append((spool.arrived, spool.picky.letters, spool.why("f")))
    assert found[0] == found[1]
    assert found[0][0]
    assert "it ends before its end marker" in found[0][2]


@pytest.mark.parametrize("name", FILES)
def test_a_packed_file_whose_last_record_ended_a_batch_is_over_with_the_next(name: str, tmp_path: Path) -> None:
    form, data = FILES[name]
    spool = Tiny(tmp_path, at_once=True, format=form)
    spool.max_records = COUNT
    spool.drop("f", PACK["gzip"](data))
    batches = 0
    while True:
        spool.scan()
        if not spool.work():
            break
        batches += 1
    assert spool.states() == {"f": "done"}
    assert batches <= 2
