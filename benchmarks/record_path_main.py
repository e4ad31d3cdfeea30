"""`benchmarks/run record_path`: what one appended line passes in our code, from the file-system event to the saved offset.

The agent's parts run in this process (`InlineExecutor` instead of a Spark task: the same `run_batch`), on a real broker. Every call of a
function in `copycat_agent` is counted, on all threads, from the first one after the append until the store has saved the line's offset.
A newcomer who wants to follow a record has to read these functions, and to find them in these files.

Two lines are measured: one to a log at rest, for which a batch begins, and one to a log that was written to just before. With
at_least_once the batch of the line before still stays at its end.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import copycat_agent
from benchmarks.report import table
from copycat_agent.definitions import load_content
from copycat_agent.dev_broker import DevBroker
from copycat_agent.executor import InlineExecutor
from copycat_agent.model import SavedRow, SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import AgentOptions
from copycat_agent.watch import Watcher
from copycat_agent.worker import Worker

_PACKAGE = str(Path(copycat_agent.__file__).parent)
_WARM_LINES = 5
_REST_SECONDS = 1.0
"""After so long no batch stays, and what the line before left to do is done."""
_PAUSE_SECONDS = 0.1
"""Within so long a batch that stays still waits for more, and has passed on what it reported."""
_DEFINITION = """
name: path
source: {{type: log_file, include: ["{log}"]}}
record: {{topic: path-{guarantee}}}
delivery: {{guarantee: {guarantee}}}
kafka: {{bootstrap_servers: ["{broker}"], create_topics: {{partitions: 1}}}}
"""


@dataclass
class Passed:
    """What one line passed."""

    calls: int
    functions: set[CodeType]
    changes: int

    @property
    def files(self) -> set[str]:
        """The modules that hold the functions."""
        return {code.co_filename for code in self.functions}

    @property
    def function_lines(self) -> int:
        """Lines of source in all of the functions."""
        return sum(len(inspect.getsourcelines(code)[0]) for code in self.functions if code.co_name != "<module>")

    @property
    def file_lines(self) -> int:
        """Lines of source in all of the files."""
        return sum(Path(name).read_text().count("\n") for name in self.files)


@dataclass
class Recorder:
    """A profile function for all threads. It records while `on`: until `wanted` is saved."""

    on: bool = False
    calls: list[CodeType] = field(default_factory=list)
    wanted: int = 0
    saved: int = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Called by the interpreter."""
        if self.on and event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            self.calls.append(frame.f_code)

    def note(self, position: int) -> None:
        """The store has saved this position."""
        self.saved = max(self.saved, position)
        self.on = self.on and self.saved < self.wanted

    def record(self, log: Path, rest_seconds: float) -> Passed:
        """What happens from the append of a line to `log`, so long after the last offset was saved, until its own is saved."""
        time.sleep(rest_seconds)
        self.calls.clear()
        self.wanted = log.stat().st_size + len(_LINE)
        self.on = True
        with log.open("ab", buffering=0) as file:
            file.write(_LINE)
        _await(lambda: not self.on)
        calls = list(self.calls)
        changes = sum(one.co_filename != other.co_filename for one, other in itertools.pairwise(calls))
        return Passed(len(calls), set(calls), changes)


def main() -> None:
    """A table to standard output, with --list also every file and function."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="lines that are measured; medians count")
    parser.add_argument("--guarantee", default="at_least_once", choices=("at_least_once", "exactly_once"))
    parser.add_argument("--list", action="store_true", help="name the files and functions of the last line")
    options = parser.parse_args()
    recorder = Recorder()
    threading.setprofile(recorder)
    with _shipping(options.guarantee, recorder) as log:
        found = [
            [recorder.record(log, seconds) for _ in range(_WARM_LINES + options.rounds)][_WARM_LINES:]
            for seconds in (_REST_SECONDS, _PAUSE_SECONDS)
        ]
    rows: tuple[tuple[str, Callable[[Passed], int]], ...] = (
        ("calls", lambda one: one.calls),
        ("functions", lambda one: len(one.functions)),
        ("files", lambda one: len(one.files)),
        ("changes of file", lambda one: one.changes),
        ("lines of these functions", lambda one: one.function_lines),
        ("lines of these files", lambda one: one.file_lines),
    )
    heads = (f"one appended line passes, {options.guarantee}", "to a log at rest", "to one that grows")
    print(table(heads, ([name, *(f"{statistics.median(map(of, lines)):,.0f}" for lines in found)] for name, of in rows)))
    if options.list:
        for head, lines in zip(heads[1:], found, strict=True):
            _list(head, lines[-1])


def _list(head: str, path: Passed) -> None:
    print(f"\n{head}:")
    for name in sorted(path.files):
        functions = sorted(code.co_qualname for code in path.functions if code.co_filename == name)
        print(f"{Path(name).relative_to(_PACKAGE)}: {', '.join(functions)}")


_LINE = b"2026-11-23T05:00:00Z INFO one appended line\n"


@contextmanager
def _shipping(guarantee: str, recorder: Recorder) -> Iterator[Path]:
    """One log file under way to a real broker. `recorder` is told what is saved of it."""
    with tempfile.TemporaryDirectory(prefix="copycat-path-") as name:
        work = Path(name)
        log = work / "app.log"
        log.write_bytes(_LINE)
        with DevBroker(work / "broker") as broker:
            text = _DEFINITION.format(log=log, guarantee=guarantee, broker=broker.bootstrap)
            definition = load_content(work / "path.yaml", text.encode(), AgentOptions()).definition
            assert definition is not None
            with OffsetStore.open(work / "state") as store:
                _watch_commits(store, recorder)
                watcher, executor = Watcher(), InlineExecutor()
                worker = Worker(store, executor, watcher)
                worker.apply([definition])
                _await(lambda: recorder.saved >= len(_LINE))
                yield log
                worker.stop()
                executor.close()
                watcher.close()


def _watch_commits(store: OffsetStore, recorder: Recorder) -> None:
    """Note what commits have returned for: to ask the store would add calls to those that are counted."""
    commit = store.commit

    def noted(offsets: Mapping[SourcePartition, SavedRow], *arguments: Any, **more: Any) -> bool:  # noqa: ANN401 - commit's own
        done = commit(offsets, *arguments, **more)
        for offset in offsets.values():
            if isinstance(offset, SourceOffset) and offset.path:
                recorder.note(offset.position)
        return done

    store.commit = noted  # type: ignore[assignment, method-assign]


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("nothing was saved within two minutes")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
