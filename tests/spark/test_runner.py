"""`runner.serve` at the end of a socket, without Spark."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing import AuthenticationError, Pipe
from multiprocessing.connection import Connection, Listener
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent import runner
from copycat_agent.errors import BlockedError, FatalError, RetriableError
from copycat_agent.model import Head, LaneId, LanePlan, OffsetsPartition, TaskId
from copycat_agent.runner import THREADS, Answer, Hello, Settle, Work, _Runner, key_path, run_safely, serve
from tests.rig.waiting import wait_until
from tests.spark import batches
from tests.spark.batches import batch, done

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

SECONDS = 60


class Served:
    """A runner on a thread of this process, and the driver's end of its connection."""

    def __init__(self, address: str) -> None:
        key_path(address).write_bytes(b"key")
        with Listener(address, "AF_UNIX", authkey=b"key") as listener:
            self._pool = ThreadPoolExecutor(1)
            self.ended: Future[bool] = self._pool.submit(serve, address, 3, batches.run)
            self.connection: Connection[Any, Any] = listener.accept()

    def send(self, message: Work | Settle) -> None:
        self.connection.send_bytes(pickle.dumps(message))

    def receive(self) -> Any:
        assert self.connection.poll(SECONDS)
        message = pickle.loads(self.connection.recv_bytes())
        return message._replace(results=pickle.loads(message.results)) if isinstance(message, Answer) else message

    def close(self) -> None:
        self.connection.close()
        self._pool.shutdown()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches settle when the machine lets them: none of these is to be given up."""
    monkeypatch.setattr(runner, "HANG_UP_SECONDS", float(SECONDS))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    root, ours = logging.getLogger(), logging.getLogger("copycat_agent")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    served = Served(str(tmp_path / "socket"))
    yield served
    served.close()
    root.handlers = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def test_it_says_who_it_is_first(served: Served) -> None:
    hello = served.receive()
    assert isinstance(hello, Hello)
    assert hello.runner == 3


def test_answers_carry_the_number_of_their_batch(served: Served) -> None:
    served.receive()
    for number in (7, 8):
        served.send(Work(number, batch("echo", task=number)))
    assert {served.receive().number, served.receive().number} == {7, 8}


def test_as_many_batches_as_threads_run_side_by_side(served: Served, tmp_path: Path) -> None:
    served.receive()
    flags = [tmp_path / str(number) for number in range(THREADS)]
    for number, flag in enumerate(flags):
        served.send(Work(number, batch("until-told", str(flag), task=number)))
    wait_until(lambda: all(flag.exists() for flag in flags), SECONDS, "all run")
    for number in range(THREADS):
        served.send(Settle(TaskId("app", number)))
    assert {served.receive().number for _ in flags} == set(range(THREADS))


def test_settle_of_an_unknown_task_is_ignored(served: Served) -> None:
    served.receive()
    served.send(Settle(TaskId("nobody", 1)))
    served.send(Work(1, batch("echo")))
    assert served.receive().results == done(batch("echo"))


def test_it_returns_when_the_driver_hangs_up_and_its_batches_settle(served: Served, tmp_path: Path) -> None:
    served.receive()
    served.send(Work(1, batch("until-told", str(tmp_path / "began"))))
    wait_until((tmp_path / "began").exists, SECONDS, "it runs")
    served.connection.close()
    assert served.ended.result(SECONDS) is True


def test_a_batch_for_which_there_is_no_thread_is_not_begun_and_the_others_go_on(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.receive()
    served.send(Work(1, batch("until-told", str(tmp_path / "began"))))
    wait_until((tmp_path / "began").exists, SECONDS, "it runs")
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("batch-"):
            raise RuntimeError("can't start new thread")
        start(thread)

    in_lane = replace(batch("echo", task=2), delivery=LanePlan(LaneId("u", "app", 2), Head(4, "n", 0), OffsetsPartition("offsets", 0)))
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        served.send(Work(2, in_lane))
        number, (result,) = served.receive()
    assert (number, type(result.error), result.offset) == (2, RetriableError, result.split.offset)
    assert "raise the limit of threads" in result.error.hint
    assert (result.outcome.state, result.outcome.head) == ("undone", Head(4, "n", 0))
    served.send(Work(3, batch("echo", task=2)))
    assert served.receive().results == done(batch("echo", task=2))
    served.send(Settle(TaskId("app", 0)))
    assert served.receive().number == 1
    served.connection.close()
    assert served.ended.result(SECONDS) is True


def test_a_process_that_cannot_read_what_comes_ends_and_its_batches_are_answered(served: Served, tmp_path: Path) -> None:
    served.receive()
    served.send(Work(1, batch("until-told", str(tmp_path / "began"))))
    wait_until((tmp_path / "began").exists, SECONDS, "it runs")
    served.connection.send_bytes(b"cnone.such\nClass\n.")
    said, answer = served.receive(), served.receive()
    assert "cannot be read" in said.record.getMessage()
    assert answer.number == 1
    assert served.ended.result(SECONDS) is False  # Spark must not use this process again


def test_nothing_is_kept_of_batches_that_were_answered() -> None:
    near, far = Pipe()
    one = _Runner(near, batches.run)
    for number in range(5):
        one._take(Work(number, batch("echo", task=number)))
        assert far.poll(SECONDS)
        far.recv_bytes()
    assert not one._stops
    assert one._end()


def test_it_returns_when_there_is_no_driver(tmp_path: Path) -> None:
    assert serve(str(tmp_path / "nobody"), 0, batches.run) is True


def test_it_returns_when_the_key_is_wrong(tmp_path: Path) -> None:
    address = str(tmp_path / "socket")
    key_path(address).write_bytes(b"wrong")
    with Listener(address, "AF_UNIX", authkey=b"key") as listener:

        def refuse() -> None:
            with suppress(AuthenticationError):
                listener.accept()

        thread = threading.Thread(target=refuse)
        thread.start()
        assert serve(address, 0, batches.run) is True
        thread.join(SECONDS)


def test_an_error_that_run_batch_raises_on_purpose_is_kept_as_it_is() -> None:
    def blocked(*_: object) -> Any:
        raise BlockedError("topic missing", "create it")

    (result,) = run_safely(batch("echo"), None, bool, blocked)  # type: ignore[arg-type]
    assert isinstance(result.error, BlockedError)
    assert result.error.hint == "create it"


def test_the_text_of_an_unexpected_error_stays_inside() -> None:
    def faulty(*_: object) -> Any:
        raise ValueError("the record was: secret-text")

    (result,) = run_safely(batch("echo"), None, bool, faulty)  # type: ignore[arg-type]
    assert isinstance(result.error, FatalError)
    assert "secret-text" not in str(result.error)
    assert "ValueError at test_runner.py" in str(result.error)


def test_nothing_that_the_daemon_imports_starts_a_thread() -> None:
    code = "import sys, threading, copycat_agent.spark.daemon; sys.exit(threading.active_count() - 1)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
