"""The agent's numbers as Prometheus asks for them: gathered when asked, from values that are there anyway."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from copycat_agent.errors import CopycatError
from copycat_agent.metrics.families import FAMILIES, Family
from copycat_agent.metrics.processes import Processes
from copycat_agent.metrics.samples import Snapshot
from copycat_agent.worker.status import BOUNDS_SECONDS, Timing

if TYPE_CHECKING:
    from copycat_agent.control import Control
    from copycat_agent.metrics.health import Health
    from copycat_agent.model import LossReason, LossTotal

PREFIX = "copycat_"

_BOUNDS = [*(f"{bound:g}" for bound in BOUNDS_SECONDS), "+Inf"]


class AgentCollector:
    """What prometheus_client calls a custom collector. Thread-safe; never waits for a connector."""

    def __init__(self, control: Control, health: Health) -> None:
        self._control = control
        self._health = health
        self._processes = Processes()
        self._looking = threading.Lock()
        self._losses: Mapping[tuple[str, LossReason], LossTotal] = {}

    def describe(self) -> Iterator[Metric]:
        """Every family, without samples."""
        return (_metric(family) for family in FAMILIES)

    def collect(self) -> Iterator[Metric]:
        """Every family with its samples as they are now."""
        snapshot = self._snapshot()
        for family in FAMILIES:
            metric = _metric(family)
            for labels, value in family.samples(snapshot):
                _add(metric, labels, value)
            yield metric

    def _snapshot(self) -> Snapshot:
        statuses, view = self._control.statuses(), self._control.view()
        with self._looking:
            processes = self._processes.look(view.java_pid)
        return Snapshot(view, statuses, self._loss_totals(), self._health.stalled(statuses), time.time(), processes)

    def _loss_totals(self) -> Mapping[tuple[str, LossReason], LossTotal]:
        """A store that cannot be read now gives its last answer: the other families are worth having all the more."""
        with contextlib.suppress(CopycatError):
            self._losses = self._control.loss_totals()
        return self._losses


def _metric(family: Family) -> Metric:
    make = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}[family.kind]
    metric: Metric = make(PREFIX + family.name, family.meaning, labels=family.labels)
    return metric


def _add(metric: Metric, labels: tuple[str, ...], value: float | Timing) -> None:
    if isinstance(value, Timing):
        assert isinstance(metric, HistogramMetricFamily)
        counts = accumulate(value.buckets)
        metric.add_metric(labels, list(zip(_BOUNDS, counts, strict=True)), value.total_seconds)
    else:
        assert isinstance(metric, CounterMetricFamily | GaugeMetricFamily)
        metric.add_metric(labels, value)
