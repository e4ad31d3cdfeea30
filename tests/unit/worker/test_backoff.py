"""How long the same work is waited for."""

from __future__ import annotations

import pytest

from copycat_agent.backoff import BLOCKED_SECONDS, FIRST_SECONDS, Backoff
from copycat_agent.errors import BlockedError, FatalError, RetriableError
from copycat_agent.options import ErrorsOptions
from copycat_agent.worker.retry_policy import BUGS_MAX, Restarts

UNWELL, BLOCKED = RetriableError("unwell", "wait"), BlockedError("no topic", "create it")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands until a test moves it."""
    now = [1000.0]
    monkeypatch.setattr("copycat_agent.backoff.time.monotonic", lambda: now[0])
    monkeypatch.setattr("copycat_agent.backoff.random.uniform", lambda low, high: (low + high) / 2)
    return now


def test_waits_double_up_to_the_bound(clock: list[float]) -> None:
    wait = Backoff(ErrorsOptions(retry_max_delay=1.0))
    assert [wait.failed(UNWELL) for _ in range(5)] == [FIRST_SECONDS, 0.4, 0.8, 1.0, 1.0]


def test_what_a_person_has_to_repair_is_tried_more_slowly(clock: list[float]) -> None:
    wait = Backoff(ErrorsOptions(retry_max_delay=1.0))
    assert [wait.failed(BLOCKED) for _ in range(20)][-1] == BLOCKED_SECONDS


def test_many_failures_do_not_overflow(clock: list[float]) -> None:
    wait = Backoff(ErrorsOptions())
    assert [wait.failed(UNWELL) for _ in range(3000)][-1] == 5.0


@pytest.mark.parametrize("error", [MemoryError(), OSError(), RuntimeError("can't start new thread")])
def test_what_the_host_lacks_is_no_bug_unless_something_is_sent_each_time(error: Exception) -> None:
    restarts = Restarts()
    assert not any(restarts.should_give_up(error, has_sent=False) for _ in range(BUGS_MAX))
    assert [restarts.should_give_up(error, has_sent=True) for _ in range(BUGS_MAX)][-1]


def test_jitter_stays_within_a_fifth() -> None:
    waits = [Backoff(ErrorsOptions()).failed(UNWELL) for _ in range(200)]
    assert FIRST_SECONDS * 0.8 <= min(waits) < max(waits) <= FIRST_SECONDS * 1.2


def test_success_begins_anew(clock: list[float]) -> None:
    wait = Backoff(ErrorsOptions())
    wait.failed(UNWELL)
    wait.failed(UNWELL)
    assert wait.active
    assert wait.retry_at == 1000.4
    wait.succeeded()
    assert (wait.active, wait.retry_at) == (False, 0.0)
    assert wait.failed(UNWELL) == FIRST_SECONDS


def test_retry_timeout_ends_in_fatal_with_the_last_cause(clock: list[float]) -> None:
    wait = Backoff(ErrorsOptions(retry_timeout=10.0))
    wait.failed(UNWELL)
    clock[0] += 9.9
    wait.failed(UNWELL)
    clock[0] += 0.1
    with pytest.raises(FatalError, match="no topic") as caught:
        wait.failed(BLOCKED)
    assert caught.value.hint == "create it"


def test_retry_timeout_counts_from_the_first_failure_after_a_success(clock: list[float]) -> None:
    wait = Backoff(ErrorsOptions(retry_timeout=10.0))
    wait.failed(UNWELL)
    wait.succeeded()
    clock[0] += 100
    wait.failed(UNWELL)


def test_retry_timeout_of_zero_means_one_try(clock: list[float]) -> None:
    with pytest.raises(FatalError):
        Backoff(ErrorsOptions(retry_timeout=0.0)).failed(UNWELL)
