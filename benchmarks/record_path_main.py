"""`benchmarks/run record_path`: what one appended line passes in our code, from the file-system event to the saved offset.

The agent's parts run in this process (`InlineExecutor` instead of a Spark task: the same `run_batch`), on a real broker. Every call of a
function in `copycat_agent` is counted, on all threads, from the first one after the append until the store has saved the line's offset.
A newcomer who wants to follow a record has to read these functions, and to find them in these files.
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
    """A profile function for all threads. It records while `on`."""

    on: bool = False
    calls: list[CodeType] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Called by the interpreter."""
        if self.on and event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            self.calls.append(frame.f_code)

    def record(self, append: Callable[[], None], is_saved: Callable[[], bool]) -> Passed:
        """What happens from `append` until `is_saved`."""
        self.calls.clear()
        self.on = True
        append()
        deadline = time.monotonic() + 30
        while not is_saved():
            if time.monotonic() > deadline:
                raise TimeoutError("the line's offset was not saved within 30 s")
            time.sleep(0.0005)
        self.on = False
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
    with _shipping(options.guarantee) as (log, position):
        found = [recorder.record(*_line(log, position)) for _ in range(_WARM_LINES + options.rounds)][_WARM_LINES:]
    rows: tuple[tuple[str, Callable[[Passed], int]], ...] = (
        ("calls", lambda one: one.calls),
        ("functions", lambda one: len(one.functions)),
        ("files", lambda one: len(one.files)),
        ("changes of file", lambda one: one.changes),
        ("lines of these functions", lambda one: one.function_lines),
        ("lines of these files", lambda one: one.file_lines),
    )
    print(
        table(("one appended line passes", options.guarantee), ([name, f"{statistics.median(map(of, found)):,.0f}"] for name, of in rows))
    )
    if options.list:
        _list(found[-1])


def _list(path: Passed) -> None:
    for name in sorted(path.files):
        functions = sorted(code.co_qualname for code in path.functions if code.co_filename == name)
        print(f"{Path(name).relative_to(_PACKAGE)}: {', '.join(functions)}")


def _line(log: Path, position: Callable[[], int]) -> tuple[Callable[[], None], Callable[[], bool]]:
    end = log.stat().st_size + len(_LINE)

    def append() -> None:
        with log.open("ab", buffering=0) as file:
            file.write(_LINE)

    time.sleep(0.5)  # what the line before it left to do is done
    return append, lambda: position() >= end


_LINE = b"2026-11-23T05:00:00Z INFO one appended line\n"


@contextmanager
def _shipping(guarantee: str) -> Iterator[tuple[Path, Callable[[], int]]]:
    """One log file under way to a real broker; and a function that tells the position that is saved of it."""
    with tempfile.TemporaryDirectory(prefix="copycat-path-") as name:
        work = Path(name)
        log = work / "app.log"
        log.write_bytes(_LINE)
        with DevBroker(work / "broker") as broker:
            text = _DEFINITION.format(log=log, guarantee=guarantee, broker=broker.bootstrap)
            definition = load_content(work / "path.yaml", text.encode(), AgentOptions()).definition
            assert definition is not None
            saved: dict[str, int] = {"position": 0}
            with OffsetStore.open(work / "state") as store:
                _watch_commits(store, saved)
                watcher, executor = Watcher(), InlineExecutor()
                worker = Worker(store, executor, watcher)
                worker.apply([definition])
                _await(lambda: saved["position"] >= len(_LINE))
                yield log, lambda: saved["position"]
                worker.stop()
                executor.close()
                watcher.close()


def _watch_commits(store: OffsetStore, saved: dict[str, int]) -> None:
    """Note the furthest position that a commit has returned for: to ask the store would add calls to those that are counted."""
    commit = store.commit

    def noted(offsets: Mapping[SourcePartition, SavedRow], *arguments: Any, **more: Any) -> None:  # noqa: ANN401 - commit's own
        commit(offsets, *arguments, **more)
        saved["position"] = max(
            [saved["position"], *(one.position for one in offsets.values() if isinstance(one, SourceOffset) and one.path)]
        )

    store.commit = noted  # type: ignore[method-assign]


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("nothing was saved within two minutes")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
