"""What a range may hold and have open, and what is left of it on disk."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from copycat_agent.errors import DataError, RetriableError
from copycat_agent.sinks.files_options import COMPRESSIONS
from copycat_agent.sinks.formats import RangeFiles
from copycat_agent.sinks.formats.range_files import RangeLimits
from tests.rig.disk import mounted
from tests.unit.sinks.formats.rig import options, read, read_all, schema_of

SHARED = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where two thousand files are synced at once."""
FORMATS = list(COMPRESSIONS)
MANY = """
import resource, sys
from pathlib import Path
from copycat_agent.sinks.files_options import FilesSinkOptions
from copycat_agent.sinks.formats import RangeFiles
import pyarrow.parquet, fastavro
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
format_, scratch, directories, rounds, size = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])
files = RangeFiles(FilesSinkOptions(uri="file:///lake", format=format_), scratch)
before, rows, descriptors = peak(), 0, 0
for turn in range(rounds):
    for number in range(directories):
        values = [{"n": rows + index, "text": f"{rows + index:0{size}d}", "x": rows / 7} for index in range(20)]
        if format_ in ("lines", "binary"):
            values = [value["text"].encode() for value in values]
        assert files.add_all(f"d{number}", values) == len(values)
        rows += len(values)
    descriptors = max(descriptors, len(list(Path("/proc/self/fd").iterdir())))
written = files.close()
assert sum(file.records for file in written) == rows
print(peak() - before, rows * size >> 20, descriptors)
"""


def row(number: int) -> Any:
    return {"n": number, "text": "x" * 100}


def value_for(format_: str, number: int) -> Any:
    return b"%d" % number if format_ in ("lines", "binary", "jsonl") else row(number)


@pytest.mark.parametrize("format_", ["jsonl", pytest.param("avro", marks=pytest.mark.long), "parquet"])
def test_two_thousand_directories_take_bounded_memory_and_few_descriptors(format_: str) -> None:
    with tempfile.TemporaryDirectory(dir=SHARED) as directory:
        command = [sys.executable, "-c", MANY, format_, directory, "2000", "2", "1500"]
        done = subprocess.run(command, check=True, timeout=110, capture_output=True, text=True)
    more_mib, given_mib, descriptors = map(int, done.stdout.split())
    assert given_mib > 110
    assert more_mib < 190
    assert descriptors < RangeLimits().open_files + 20


def test_a_range_is_full_of_directories(tmp_path: Path) -> None:
    files = RangeFiles(options("jsonl"), tmp_path, RangeLimits(directories=9))
    full = []
    for number in range(10):
        files.add(f"d{number}", b"1")
        full.append(files.is_full)
    assert full == [False] * 9 + [True]
    assert len(files.close()) == 10


def open_below(directory: Path) -> int:
    """How many files below it this process has open."""
    found = 0
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the listing's own descriptor is gone by then
        with contextlib.suppress(FileNotFoundError):
            found += str(directory) in os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115 - as above
    return found


def test_a_range_is_full_when_row_groups_would_be_small_and_goes_on_where_it_has_to(tmp_path: Path) -> None:
    files = RangeFiles(options("parquet"), tmp_path, RangeLimits(held_bytes=2**20, left_bytes=2**19, open_files=5))
    count = full_at = 0
    for number in range(600):
        files.add_all(f"d{number % 20}", [{"n": count + index, "text": f"{count + index:09d}" * 400} for index in range(4)])
        count += 4
        if files.is_full and not full_at:
            full_at = count
        assert open_below(tmp_path) <= 5
    assert 100 < full_at < 1000
    written = files.close()
    assert sorted(record["n"] for file in written for record in read(file)) == list(range(count))
    assert len(written) > 20, "some were completed before the end"


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("is_closed", [False, True])
def test_nothing_is_left_of_what_is_abandoned(tmp_path: Path, format_: str, is_closed: bool) -> None:
    files = RangeFiles(options(format_), tmp_path / "range", RangeLimits(held_bytes=2**20, left_bytes=0))
    assert not (tmp_path / "range").exists(), "nothing is made before there is a record"
    for number in range(4):
        large = [{"n": 1, "t": "x" * 2**19}] if format_ in ("parquet", "csv", "avro") else [json.dumps("x" * 2**19).encode()]
        files.add_all(f"d{number}", large * 9)
    assert list((tmp_path / "range").iterdir())
    if is_closed:
        files.close()[0].path.unlink()  # as one that was moved to its place
    files.abandon()
    assert list((tmp_path / "range").iterdir()) == []
    files.abandon()


@pytest.mark.parametrize("format_", FORMATS)
def test_a_disk_that_takes_nothing_is_no_fault_of_the_record_and_leaves_nothing(tmp_path: Path, format_: str) -> None:
    files = RangeFiles(options(format_), tmp_path / "range")
    files.add("d", value_for(format_, 1))
    (tmp_path / "range").rmdir()
    with pytest.raises(RetriableError, match="cannot be written to: No such file"):
        files.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format_", ["jsonl", "csv", "avro"])
def test_a_file_system_that_turns_read_only_is_told_though_nothing_can_be_removed(tmp_path: Path, format_: str) -> None:
    with mounted(tmp_path, "16m") as disk:
        files = RangeFiles(options(format_), disk / "range", RangeLimits(held_bytes=2**20, left_bytes=0))
        large = [{"n": 1, "t": "x" * 2**19}] * 9
        files.add_all("d", large)
        assert list((disk / "range").iterdir())
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(RetriableError, match="cannot be written to: Read-only file system"):
            files.add_all("d", large)
        files.abandon()


def test_a_disk_that_is_full_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import resource, sys, signal; from pathlib import Path; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from copycat_agent.sinks.files_options import FilesSinkOptions; from copycat_agent.sinks.formats import RangeFiles\n"
        "from copycat_agent.errors import RetriableError\n"
        "for format_ in ('jsonl', 'csv', 'avro', 'parquet'):\n"
        "    files = RangeFiles(FilesSinkOptions(uri='file:///lake', format=format_), Path(sys.argv[1]))\n"
        "    files.add_all('d', [{'n': str(n) * 20} for n in range(20000)])\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, resource.RLIM_INFINITY))\n"
        "    try: files.close()\n"
        "    except RetriableError: print('told', len(list(Path(sys.argv[1]).iterdir())))\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60, capture_output=True, text=True)
    assert (done.stdout.splitlines(), done.stderr) == (["told 0"] * 4, "")


@pytest.mark.parametrize("format_", FORMATS)
def test_files_say_what_they_are(tmp_path: Path, format_: str) -> None:
    endings = {"gzip": ".gz", "zstd": ".zst"}
    own = {"jsonl": "jsonl", "lines": "txt", "csv": "csv", "binary": "bin", "parquet": "parquet", "avro": "avro"}[format_]
    for compression in COMPRESSIONS[format_]:  # type: ignore[index]
        files = RangeFiles(options(format_, compression), tmp_path / compression)
        for number in range(3):
            files.add("a", value_for(format_, number))
            files.add("b/c=1", value_for(format_, -number))
        written = files.close()
        extension = own if format_ in ("parquet", "avro") else own + endings.get(compression, "")
        assert [(file.directory, file.extension, file.records) for file in written] == [("a", extension, 3), ("b/c=1", extension, 3)]
        assert [file.size_bytes for file in written] == [file.path.stat().st_size for file in written]
        assert read_all(written[:1])


def test_records_of_two_schemas_go_to_two_files(tmp_path: Path) -> None:
    files = RangeFiles(options("parquet"), tmp_path)
    for number in range(4):
        files.add("d", {"n": number}, schema_of(n="bigint"))
        files.add("d", {"n": str(number)}, schema_of(n="string"))
    assert [read(file) for file in files.close()] == [[{"n": n} for n in range(4)], [{"n": str(n)} for n in range(4)]]


def test_after_a_bad_record_the_next_ones_are_looked_at_a_few_at_a_time(tmp_path: Path) -> None:
    """Else each of many bad records would cost a look at thousands."""
    files = RangeFiles(options("parquet"), tmp_path)
    records = [{"n": "text" if index % 10 == 9 else index} for index in range(20_000)]
    done = calls = 0
    before = os.times().user
    while done < len(records):
        done += files.add_all("d", records[done : done + 20_000])
        if done < len(records):
            with pytest.raises(DataError, match="field 'n': a whole number is needed, not text"):
                files.add("d", records[done])
            done += 1
            calls += 1
    assert calls == 2000
    assert os.times().user - before < 5
    assert sum(file.records for file in files.close()) == 18_000
