"""What `copycat demo` shows: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from copycat_agent.demo import Proof
from copycat_agent.worker import State, Status

_RATE_SECONDS = 2.0
"""Rates are over so long."""
_LINE_SECONDS = 2.0
"""Between two lines where there is no terminal."""
_COLORS = {State.RUNNING: "green", State.FAILED: "red", State.RETRYING: "yellow", State.BLOCKED: "yellow"}


class View(Protocol):
    """All methods are called from one thread, in the order `begin`, `show`..., `end`, `verdict`; `say` and `end` at any time."""

    def say(self, text: str) -> None:
        """A line of words."""

    def begin(self, bootstrap: str) -> None:
        """The broker is up at `bootstrap`."""

    def show(self, statuses: Sequence[Status], written: int, rotations: int) -> None:
        """How things are now: the connectors, lines written to the logs and rotations of them so far."""

    def end(self) -> None:
        """Nothing more is shown live. Safe to call twice."""

    def verdict(self, proofs: Sequence[Proof]) -> None:
        """The comparison and what it means."""


def make_view(*, no_color: bool) -> View:
    """A live view when stdout is a terminal, else a plain one."""
    console = Console(no_color=no_color or None, highlight=False)
    return LiveView(console) if console.is_terminal else PlainView()


class Rates:
    """Records per second over the last moments, by connector."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def of(self, name: str, count: int, now: float) -> float:
        """`count` records since the beginning, at `now` (monotonic seconds)."""
        seen = self._seen.setdefault(name, deque())
        seen.append((now, count))
        while len(seen) > 2 and seen[1][0] <= now - _RATE_SECONDS:  # noqa: PLR2004 - the window's both ends
            seen.popleft()
        (then, before), (_, after) = seen[0], seen[-1]
        return (after - before) / (now - then) if now > then else 0.0


class PlainView:
    """Lines, for logs and pipes."""

    def __init__(self) -> None:
        self._rates = Rates()
        self._began = self._next = 0.0

    def say(self, text: str) -> None:
        """See `View.say`."""
        typer.echo(text)

    def begin(self, bootstrap: str) -> None:
        """See `View.begin`."""
        self._began = time.monotonic()
        self.say(f"broker: {bootstrap}")

    def show(self, statuses: Sequence[Status], written: int, rotations: int) -> None:
        """See `View.show`."""
        now = time.monotonic()
        rates = {status.name: self._rates.of(status.name, status.counts.acknowledged, now) for status in statuses}
        if now < self._next:
            return
        self._next = now + _LINE_SECONDS
        self.say(f"{now - self._began:5.1f} s  {written:,} lines written, {rotations} rotations")
        for status in statuses:
            counts, lag = status.counts, status.lag
            why = f" ({status.reason})" if status.reason else ""
            self.say(
                f"         {status.name}: {status.state.upper()}{why}, read {counts.read:,}, acknowledged {counts.acknowledged:,}, "
                f"behind {lag.bytes:,} bytes in {lag.files} files, {rates[status.name]:,.0f} records/s"
            )

    def end(self) -> None:
        """See `View.end`."""

    def verdict(self, proofs: Sequence[Proof]) -> None:
        """See `View.verdict`."""
        for proof in proofs:
            self.say(
                f"{proof.log}: written {proof.written:,}, arrived {proof.arrived:,}, lost {proof.lost:,}, "
                f"duplicated {proof.duplicated:,}, out of order {proof.out_of_order:,}, unknown {proof.unknown:,}"
            )
        self.say(words_of(proofs))


class LiveView:
    """A table that changes in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rates = Rates()
        self._live: Live | None = None
        self._bootstrap = ""
        self._began = 0.0

    def say(self, text: str) -> None:
        """See `View.say`."""
        self._console.print(text, markup=False, soft_wrap=True)

    def begin(self, bootstrap: str) -> None:
        """See `View.begin`."""
        self._bootstrap, self._began = bootstrap, time.monotonic()
        self._live = Live(console=self._console, auto_refresh=False)
        self._live.start()

    def show(self, statuses: Sequence[Status], written: int, rotations: int) -> None:
        """See `View.show`."""
        if self._live:
            now = time.monotonic()
            head = f"broker {self._bootstrap}   {now - self._began:.0f} s   {written:,} lines written   {rotations} rotations"
            self._live.update(Group(Text(head), self._table(statuses, now)), refresh=True)

    def end(self) -> None:
        """See `View.end`."""
        if self._live:
            self._live.stop()
            self._live = None

    def verdict(self, proofs: Sequence[Proof]) -> None:
        """See `View.verdict`."""
        table = _empty_table("log", "written", "arrived", "lost", "duplicated", "out of order", "unknown")
        for proof in proofs:
            numbers = (proof.written, proof.arrived, proof.lost, proof.duplicated, proof.out_of_order, proof.unknown)
            table.add_row(proof.log, *(f"{number:,}" for number in numbers), style="" if proof.exact else "red")
        self._console.print(table)
        exact = all(proof.exact for proof in proofs)
        self._console.print(words_of(proofs), style="bold green" if exact else "bold red", markup=False)

    def _table(self, statuses: Sequence[Status], now: float) -> Table:
        table = _empty_table("connector", "state", "read", "acknowledged", "behind", "files", "records/s")
        for status in statuses:
            state = Text(status.state.upper(), _COLORS.get(status.state, ""))
            acknowledged = status.counts.acknowledged
            rate = self._rates.of(status.name, acknowledged, now)
            table.add_row(
                status.name, state, f"{status.counts.read:,}", f"{acknowledged:,}", f"{status.lag.bytes:,} B", str(status.lag.files),
                f"{rate:,.0f}",
            )  # fmt: skip
            if status.reason:
                table.add_row("", Text(status.reason, "yellow"))
        return table


def words_of(proofs: Sequence[Proof]) -> str:
    """The verdict in a sentence."""
    written = sum(proof.written for proof in proofs)
    if all(proof.exact for proof in proofs):
        return f"EXACT: all {written:,} lines of {len(proofs)} logs arrived once, in order, byte by byte."
    wrong = ", ".join(proof.log for proof in proofs if not proof.exact)
    altered = "; bytes were altered" if any(proof.altered for proof in proofs) else ""
    return f"NOT EXACT: of {written:,} lines, something is wrong with: {wrong}{altered}."


def _empty_table(first: str, *others: str) -> Table:
    table = Table(first, expand=False)
    for other in others:
        table.add_column(other, justify="left" if other == "state" else "right")
    return table
