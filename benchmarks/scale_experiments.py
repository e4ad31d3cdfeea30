"""The experiments of `benchmarks/scale`. Each takes a work directory, a broker and the options; figures have units in their names."""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.lines import access_line
from benchmarks.scale_rig import NAME, Reader, Setup, setup, stamped
from copycat_agent.sources.files.identity import identify

Figures = dict[str, Any]
_DIRECTORIES = 100
_CYCLE_FILES = 100
_SETTLE_SECONDS = 70.0
"""What was written to within the last minute is looked at more often: that is not idle yet."""


def files(work: Path, bootstrap: str, options: argparse.Namespace) -> Figures:
    """Many files at rest: how long the first start and a second one take, what they cost in memory and when idle."""
    with setup(work, bootstrap, "scale-files") as it, Reader(bootstrap, it.topic) as reader:
        paths = _small_files(it.logs, options.files)
        it.define("*/*.log")
        it.agent.start()
        first = reader.wait_for(lambda: reader.count >= len(paths))
        delays = _single_lines(reader, paths)
        time.sleep(_SETTLE_SECONDS)
        idle = it.cpu_share(options.idle_seconds)
        now = it.look()
        it.agent.stop(120)
        stamped(paths[0])
        before = len(reader.seconds)
        it.agent.start()
        again = reader.wait_for(lambda: len(reader.seconds) > before)
        repeated = reader.count - len(paths) - len(reader.seconds)
        return {
            "files": len(paths), "first_start_seconds": first, "restart_to_first_line_seconds": again, "repeated": repeated,
            **{f"one_line_{name}": value for name, value in delays.items()},
            "idle_cpu_share": idle, "pss_mib": now.pss_bytes / 2**20, "after_restart_pss_mib": it.look().pss_bytes / 2**20,
            "driver_descriptors": now.descriptors,
        }  # fmt: skip


def idle(work: Path, bootstrap: str, options: argparse.Namespace) -> Figures:
    """A thousand files of 1 KB that nobody writes to, and ten thousand."""
    figures: Figures = {}
    for count in (1000, 10_000):
        with setup(work, bootstrap, f"scale-idle-{count}") as it, Reader(bootstrap, it.topic) as reader:
            _small_files(it.logs, count, lines=16)
            it.define("*/*.log")
            it.agent.start()
            reader.wait_for(lambda wanted=count * 16: reader.count >= wanted)
            time.sleep(_SETTLE_SECONDS)
            figures[f"{count}_files_idle_cpu_share"] = it.cpu_share(options.idle_seconds)
            figures[f"{count}_files_pss_mib"] = it.look().pss_bytes / 2**20
    return figures


def active(work: Path, bootstrap: str, options: argparse.Namespace) -> Figures:
    """A thousand files, each of which gets a line every second."""
    with setup(work, bootstrap, "scale-active") as it, Reader(bootstrap, it.topic) as reader:
        paths = _small_files(it.logs, options.active)
        it.define("*/*.log")
        it.agent.start()
        reader.wait_for(lambda: reader.count >= len(paths))
        _take_turns(paths, 5)
        reader.wait_for(lambda: len(reader.seconds) >= 5 * len(paths))
        reader.seconds.clear()
        share: list[float] = []
        watch = threading.Thread(target=lambda: share.append(it.cpu_share(options.seconds)))
        watch.start()
        _take_turns(paths, options.seconds)
        watch.join()
        reader.wait_for(lambda: len(reader.seconds) >= int(options.seconds) * len(paths))
        now = it.look()
        return {"files": len(paths), **reader.percentiles(), "cpu_share": share[0], "pss_mib": now.pss_bytes / 2**20,
                "driver_descriptors": now.descriptors}  # fmt: skip


def backlog(work: Path, bootstrap: str, options: argparse.Namespace) -> Figures:
    """Large files that are behind, one for each task, and a line now and then to a quiet file beside them."""
    with setup(work, bootstrap, "scale-backlog", partitions=8) as it:
        quiet = it.logs / "quiet.log"
        quiet.touch()
        large = _elsewhere(it.logs, _partition(quiet, 8), 2)
        block = _block()
        for path in large:
            _fill(path, int(options.gb * 1e9 / len(large)), block)
        total = sum(path.stat().st_size for path in large)
        with Reader(bootstrap, it.topic, _partition(quiet, 8)) as reader:
            it.define("*.log")
            it.agent.start()
            stamped(quiet)
            reader.wait_for(lambda: bool(reader.seconds))
            begin, peak = time.monotonic(), 0
            reader.seconds.clear()
            sent = 0
            while (left := _left(it)) > 0 and time.monotonic() - begin < options.most_seconds:
                peak = max(peak, it.look().pss_bytes)
                for _ in range(8):
                    stamped(quiet)
                    sent += 1
                    time.sleep(0.25)
            seconds = time.monotonic() - begin
            reader.wait_for(lambda: len(reader.seconds) >= sent)
            return {"bytes": total, "left_bytes": left, "seconds": seconds, "mb_per_second": (total - left) / seconds / 1e6,
                    **{f"quiet_{name}": value for name, value in reader.percentiles().items()}, "peak_pss_mib": peak / 2**20}  # fmt: skip


def cycles(work: Path, bootstrap: str, options: argparse.Namespace) -> Figures:
    """Files that are made, read and deleted, again and again, with `forget_after` of a second: what stays?"""
    with setup(work, bootstrap, "scale-cycles") as it, Reader(bootstrap, it.topic) as reader:
        it.define("*.log", source={"forget_after": "1s", "scan_interval": "200ms", "rotate_wait": "0s"})
        it.agent.start()
        looks, rows = [], []
        for turn in range(options.cycles // _CYCLE_FILES):
            paths = [it.logs / f"{turn}-{number}.log" for number in range(_CYCLE_FILES)]
            for path in paths:
                path.write_text(f"line of {path.name}\n")
            reader.wait_for(lambda wanted=(turn + 1) * _CYCLE_FILES: reader.count >= wanted)
            for path in paths:
                path.unlink()
            if turn % 10 == 9:
                looks.append(it.look())
                rows.append(_rows(it))
        end = time.monotonic() + 60
        while _rows(it) and time.monotonic() < end:
            time.sleep(0.5)
        state = sum(path.stat().st_size for path in it.agent.state_dir.glob("*.db*"))
        third = max(1, len(looks) // 3)
        return {
            "cycles": reader.count, "most_rows": max(rows, default=0), "rows_at_the_end": _rows(it), "state_kib": state / 1024,
            "first_third_pss_mib": max(one.pss_bytes for one in looks[:third]) / 2**20,
            "last_third_pss_mib": max(one.pss_bytes for one in looks[-third:]) / 2**20,
            "first_third_descriptors": max(one.descriptors for one in looks[:third]),
            "last_third_descriptors": max(one.descriptors for one in looks[-third:]),
        }  # fmt: skip


EXPERIMENTS: dict[str, Callable[[Path, str, argparse.Namespace], Figures]] = {
    "files": files,
    "idle": idle,
    "active": active,
    "backlog": backlog,
    "cycles": cycles,
}


def _small_files(directory: Path, count: int, lines: int = 1) -> list[Path]:
    paths = []
    for number in range(count):
        path = directory / f"{number % _DIRECTORIES:03d}" / f"{number}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"one of the lines of {number}".ljust(63, ".").join(["", "\n"]) * lines)
        paths.append(path)
    return paths


def _single_lines(reader: Reader, paths: list[Path]) -> dict[str, float]:
    """A line to one of many files, ten times."""
    for path in random.Random(1).sample(paths, 10):
        before = len(reader.seconds)
        stamped(path)
        reader.wait_for(lambda before=before: len(reader.seconds) > before)
    return reader.percentiles()


def _take_turns(paths: list[Path], seconds: float) -> None:
    """A line to each, every second, evenly spread."""
    begin = time.monotonic()
    for number in range(int(seconds) * len(paths)):
        time.sleep(max(0.0, begin + number / len(paths) - time.monotonic()))
        stamped(paths[number % len(paths)])


def _partition(path: Path, partitions: int) -> int:
    """Where `partition: file` sends the lines of a file."""
    with path.open("rb") as file:
        key = identify(file.fileno(), path.stat()).key(0)
    return zlib.crc32(key.encode()) % partitions


def _elsewhere(directory: Path, partition: int, count: int) -> list[Path]:
    """New files whose lines do not go to `partition`."""
    found: list[Path] = []
    number = 0
    while len(found) < count:
        path = directory / f"large-{number}.log"
        path.touch()
        number += 1
        if _partition(path, 8) == partition:
            path.rename(path.with_suffix(".other"))
        else:
            found.append(path)
    return found


def _block() -> bytes:
    chance = random.Random(1)
    return b"".join(access_line(number, chance).encode() + b"\n" for number in range(400_000))


def _fill(path: Path, size: int, block: bytes) -> None:
    with path.open("ab") as file:
        while file.tell() < size:
            file.write(block)


def _ask(it: Setup, *command: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """What a command of the running agent answers, as JSON; None while it does not answer."""
    words = [sys.executable, "-m", "copycat_agent", *command, "--format", "json", "--state-dir", str(it.agent.state_dir)]
    done = subprocess.run(words, capture_output=True, check=False)
    with suppress(json.JSONDecodeError):
        return json.loads(done.stdout)
    return None


def _left(it: Setup) -> int:
    """Bytes that the agent still has to read."""
    answer = _ask(it, "status", NAME)
    return int(answer["connectors"][0]["lag"]["bytes"]) if answer else 1


def _rows(it: Setup) -> int:
    """Files that the agent has saved an offset of."""
    answer = _ask(it, "offsets", "list", NAME)
    return int(answer[0]["files"]) if answer else 0
