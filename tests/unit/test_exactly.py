"""What exactly once costs: transactions are counted by the offsets they leave, and shares are to the same run's at_least_once."""

from __future__ import annotations

import pytest

from benchmarks import exactly_measure, exactly_report
from benchmarks.exactly_measure import Trickle
from benchmarks.exactly_report import Volume
from benchmarks.latency import Latency
from benchmarks.rate import Rate
from tests.rig.kafka import Consumed

PLAIN = Trickle(Latency(29.0, 54.0, 60.0, 0.07, 0.004), 0.05, 0.01, 0.0)
EXACTLY = Trickle(Latency(60.0, 120.0, 140.0, 0.13, 0.005), 0.15, 0.01, 12.0)


def record(offset: int, milliseconds: int) -> Consumed:
    return Consumed(0, offset, None, b"", (), milliseconds)


def test_transactions_are_the_offsets_without_a_record_per_second_between_the_first_and_the_last() -> None:
    records = [record(0, 0), record(1, 100), record(3, 1000), record(5, 2000)]
    assert exactly_measure.transactions_per_second(records) == pytest.approx(1.0)


@pytest.mark.parametrize("records", [[], [record(0, 5)], [record(0, 5), record(1, 5)]])
def test_no_time_or_no_records_is_no_rate_of_transactions(records: list[Consumed]) -> None:
    assert exactly_measure.transactions_per_second(records) == 0.0


def test_a_transaction_costs_what_the_agent_uses_more_than_without() -> None:
    assert exactly_measure.ms_per_transaction(EXACTLY, PLAIN) == pytest.approx(5.0)
    assert exactly_measure.ms_per_transaction(PLAIN, PLAIN) is None


def test_medians_are_taken_column_by_column() -> None:
    other = Trickle(Latency(1.0, 500.0, 60.0, 0.09, 0.001), 0.15, 0.0, 12.0)
    middle = exactly_measure.median([PLAIN, EXACTLY, other])
    assert (middle.latency.p50_ms, middle.latency.p99_ms, middle.broker_idle_share) == (29.0, 120.0, 0.01)


def test_rates_are_shares_of_at_least_once() -> None:
    slow, fast = Rate(900.0, 1.0, 2.0, 3.0, 2**20), Rate(1000.0, 1.0, 2.0, 3.0, 2**20)
    table = exactly_report.volumes({"at_least_once": Volume(fast, 0.5), "exactly_once": Volume(slow, 0.6)})
    assert table.splitlines()[-1] == "| exactly_once | 900 | 0.90 | 1.00 | 0.60 | 2.0 s | 1 MiB |"


def test_a_guarantee_measured_alone_has_nothing_to_be_a_share_of() -> None:
    table = exactly_report.trickles({"exactly_once": EXACTLY})
    assert table.splitlines()[-1] == "| exactly_once | 60 ms | 120 ms | 140 ms | 13.0% | 0.50% | 15.0% | 1.0% | 12.0 | - |"
