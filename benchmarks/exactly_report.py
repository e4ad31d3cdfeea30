"""What exactly once costs, as tables: each figure of exactly_once also as a share of at_least_once's in the same run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.exactly_measure import Trickle, ms_per_transaction
from benchmarks.rate import Rate
from benchmarks.report import table

BASE = "at_least_once"


@dataclass(frozen=True)
class Volume:
    """One guarantee's rate, and the broker's CPU seconds per million lines beside it."""

    rate: Rate
    broker_cpu_per_million: float


def volumes(found: Mapping[str, Volume]) -> str:
    """Large files in batches of one length."""
    head = ("guarantee", "lines/s", f"of {BASE}", "CPU s per million", "broker's CPU s per million", "first record after", "peak memory")
    base = found[BASE].rate.lines_per_second if BASE in found else 0.0
    rows = (
        [
            name,
            f"{one.rate.lines_per_second:,.0f}",
            f"{one.rate.lines_per_second / base:.2f}" if base else "-",
            f"{one.rate.cpu_seconds_per_million:.2f}",
            f"{one.broker_cpu_per_million:.2f}",
            f"{one.rate.first_record_seconds:.1f} s",
            f"{one.rate.peak_bytes / 2**20:.0f} MiB",
        ]
        for name, one in found.items()
    )
    return table(head, rows)


def trickles(found: Mapping[str, Trickle]) -> str:
    """A log that grows by a few lines at a time."""
    head = (
        "guarantee", "p50", "p99", "longest", "CPU of one core", "CPU when idle", "broker's CPU", "broker's when idle", "transactions/s",
        "CPU ms more per transaction",
    )  # fmt: skip
    return table(head, (_row(name, one, found.get(BASE)) for name, one in found.items()))


def _row(name: str, one: Trickle, base: Trickle | None) -> list[str]:
    latency = one.latency
    more = ms_per_transaction(one, base) if base is not None and one is not base else None
    return [
        name,
        *(f"{milliseconds:.0f} ms" for milliseconds in (latency.p50_ms, latency.p99_ms, latency.max_ms)),
        f"{latency.cpu_share:.1%}",
        f"{latency.idle_cpu_share:.2%}",
        f"{one.broker_share:.1%}",
        f"{one.broker_idle_share:.1%}",
        f"{one.transactions_per_second:.1f}",
        "-" if more is None else f"{more:.1f}",
    ]
