"""All metrics: name, kind, labels, meaning, and the source of their samples.

`docs/metrics.md` repeats the table, and a test compares the two. Labels have few values (connectors, states, reasons, error classes,
brokers), never paths. Counters begin at 0 with the process.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from copycat_agent.control import AgentView
from copycat_agent.metrics.processes import Process
from copycat_agent.model import ClientView, LossReason, LossTotal
from copycat_agent.worker import State, Status
from copycat_agent.worker.status import Timing

FRESH_SECONDS = 60.0
"""Longest age of a producer's view of its brokers: a connector without work has no fresh one."""

Sample = tuple[tuple[str, ...], float | Timing]


class Snapshot(NamedTuple):
    """The agent at one moment. `stalled_seconds` is that of `Health.stalled`; `now` is in epoch seconds."""

    view: AgentView
    statuses: tuple[Status, ...]
    losses: Mapping[tuple[str, LossReason], LossTotal]
    stalled_seconds: Mapping[str, float]
    now: float
    processes: tuple[Process, ...] = ()


def each(read: Callable[[Status], float | Timing]) -> Callable[[Snapshot], Iterator[Sample]]:
    """Returns a source of one sample per connector."""
    return lambda snapshot: (((status.name,), read(status)) for status in snapshot.statuses)


def each_known(read: Callable[[Status], float | None]) -> Callable[[Snapshot], Iterator[Sample]]:
    """Returns a source of one sample per connector for which `read` does not return None."""
    return lambda snapshot: (((status.name,), found) for status in snapshot.statuses if (found := read(status)) is not None)


def agent(read: Callable[[Snapshot], float]) -> Callable[[Snapshot], Iterator[Sample]]:
    """Returns a source of one sample."""
    return lambda snapshot: iter([((), read(snapshot))])


def labelled(read: Callable[[Status], Iterable[tuple[str, float]]]) -> Callable[[Snapshot], Iterator[Sample]]:
    """Returns a source of one sample per connector and second label."""
    return lambda snapshot: (((status.name, label), value) for status in snapshot.statuses for label, value in read(status))


def _transactions(status: Status) -> Iterator[tuple[str, float]]:
    """Returns counts by outcome, from 0 on, for connectors with exactly_once."""
    outcomes = ("committed", "undone", "unknown") if status.has_lanes else ()
    return ((outcome, status.delivery_outcomes.get(outcome, 0)) for outcome in outcomes)


def errors(snapshot: Snapshot) -> Iterator[Sample]:
    """Yields errors by connector, stage and class."""
    for status in snapshot.statuses:
        for (stage, kind), count in status.errors.items():
            yield (status.name, stage, kind), count


def lanes_opened(snapshot: Snapshot) -> Iterator[Sample]:
    """Yields openings of lanes of each connector with exactly_once."""
    for status in snapshot.statuses:
        if status.has_lanes:
            yield (status.name,), status.delivery_outcomes.get("openings", 0)


def gaps(snapshot: Snapshot) -> Iterator[Sample]:
    """Returns losses by connector and reason, from 0 on: if a series began with its first loss, `increase` would miss that."""
    none = {(status.name, reason): 0 for status in snapshot.statuses for reason in get_args(LossReason)}
    return iter((none | {key: total.size_bytes for key, total in snapshot.losses.items()}).items())


def oldest_unread(snapshot: Snapshot) -> Iterator[Sample]:
    """Yields ages by the wall clock; after a step back of the clock they are 0, not negative."""
    for status in snapshot.statuses:
        since_ms = status.lag.oldest_unread_ms
        yield (status.name,), max(0.0, snapshot.now - since_ms / 1000) if since_ms else 0.0


def stalled(snapshot: Snapshot) -> Iterator[Sample]:
    """Returns `Health.stalled` by connector."""
    return (((name,), seconds) for name, seconds in snapshot.stalled_seconds.items())


def _fresh(snapshot: Snapshot) -> Iterator[tuple[Status, tuple[ClientView, ...]]]:
    """Yields connectors with fresh views of their producers."""
    for status in snapshot.statuses:
        views = tuple(view for view in status.clients if snapshot.now - view.at <= FRESH_SECONDS)
        if views:
            yield status, views


def broker_up(snapshot: Snapshot) -> Iterator[Sample]:
    """Yields 1 for each broker that at least one of the connector's producers is connected to, else 0."""
    for status, views in _fresh(snapshot):
        brokers = [broker for view in views for broker in view.brokers]
        for name in sorted({broker.name for broker in brokers}):
            yield (status.name, name), float(any(broker.name == name and broker.state == "UP" for broker in brokers))


def round_trip(snapshot: Snapshot) -> Iterator[Sample]:
    """Yields the round trip to each broker of the slowest of the connector's producers."""
    for status, views in _fresh(snapshot):
        times = [(broker.name, broker.rtt_ms) for view in views for broker in view.brokers if broker.rtt_ms is not None]
        slowest = {name: ms / 1000 for name, ms in sorted(times, key=lambda one: one[1])}
        yield from (((status.name, name), seconds) for name, seconds in slowest.items())


def queued(read: Callable[[ClientView], int]) -> Callable[[Snapshot], Iterator[Sample]]:
    """Returns a source of sums over each connector's producers."""
    return lambda snapshot: (((status.name,), sum(map(read, views))) for status, views in _fresh(snapshot))


def process(read: Callable[[Process], float | None]) -> Callable[[Snapshot], Iterator[Sample]]:
    """Returns a source of one sample per process of the agent for which `read` does not return None."""
    return lambda snapshot: (((one.name,), value) for one in snapshot.processes if (value := read(one)) is not None)


def reloads(snapshot: Snapshot) -> Iterator[Sample]:
    """Returns reloads by result, from 0 on."""
    return (((result,), snapshot.view.reloads.get(result, 0)) for result in ("ok", "problems"))


def build(snapshot: Snapshot) -> Iterator[Sample]:
    """Yields one sample that is always 1."""
    yield (snapshot.view.version, platform.python_version()), 1.0


def broken(snapshot: Snapshot) -> float:
    """Returns the number of definitions that do not load."""
    return len(snapshot.view.last_reload.kept) if snapshot.view.last_reload else 0


def differing(snapshot: Snapshot) -> float:
    """Returns the number of options that need a restart."""
    return len(snapshot.view.last_reload.restart) if snapshot.view.last_reload else 0


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric. `name` lacks the prefix `copycat_`; a counter's ends in `_total`. `samples` yields (label values, value)."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    samples: Callable[[Snapshot], Iterator[Sample]]
    meaning: str


_C = ("connector",)
_P = ("process",)

# fmt: off
FAMILIES: tuple[MetricFamily, ...] = (
    MetricFamily("records_read_total", "counter", _C, each(lambda s: s.counts.read),
        "Records that were read and are settled: acknowledged, dead-lettered or dropped."),
    MetricFamily("read_bytes_total", "counter", _C, each(lambda s: s.counts.read_bytes),
        "Bytes of input that were read and are settled, delimiters included."),
    MetricFamily("records_acknowledged_total", "counter", _C, each(lambda s: s.counts.acknowledged),
        "Records that Kafka has acknowledged, dead letters not counted."),
    MetricFamily("records_dropped_total", "counter", (*_C, "reason"),
        labelled(lambda s: (("filtered", s.counts.dropped), ("rejected", s.counts.rejected))),
        "Records that were not sent. filtered: by a transform or an option. rejected: bad ones, passed over because there is no "
        "dead-letter topic."),
    MetricFamily("records_kept_total", "counter", _C, each(lambda s: s.counts.kept),
        "Acknowledged records that went on as they were though a step failed, because its on_error is keep."),
    MetricFamily("records_too_long_total", "counter", _C, each(lambda s: s.counts.too_long),
        "Records over line.max_bytes or the limits of multiline, whatever became of them. One in parts counts once."),
    MetricFamily("dlq_records_total", "counter", _C, each(lambda s: s.counts.dead_lettered),
        "Records that the dead-letter topic has acknowledged."),
    MetricFamily("errors_total", "counter", (*_C, "stage", "type"), errors,
        "Errors by class and stage. Bad records: their stage, see errors.md; beyond ten per file and batch, that of the tenth. "
        "read: a file. send: whatever else ended a batch, FAILED included. save: offsets. open: lanes. connector: its own loop."),
    MetricFamily("retries_total", "counter", _C, each(lambda s: s.retries),
        "Times a batch had to be tried again."),
    MetricFamily("transactions_total", "counter", (*_C, "outcome"), labelled(_transactions),
        "Transactions of exactly_once connectors. committed. undone: given up, no reader sees any of it. "
        "unknown: Kafka had to be asked what became of it, and it counts as one of the others as well by then."),
    MetricFamily("lanes_opened_total", "counter", _C, lanes_opened,
        "Times an exactly_once connector took over its lanes in Kafka and read its positions there: at a start, after an unknown outcome."),
    MetricFamily("lag_bytes", "gauge", _C, each(lambda s: s.lag.bytes),
        "Bytes that are there and not yet settled: for a source kafka an estimate, for jdbc above 0 while rows wait."),
    MetricFamily("lag_records", "gauge", _C, each_known(lambda s: s.lag.records),
        "Records between what is settled and the ends of the partitions of a source kafka."),
    MetricFamily("lag_waiting_records", "gauge", _C, each_known(lambda s: None if s.lag.records is None else s.lag.waiting_records),
        "Those of them that wait until they make a file, see sink.roll."),
    MetricFamily("lag_files", "gauge", _C, each(lambda s: s.lag.files),
        "Files with such bytes."),
    MetricFamily("oldest_unread_seconds", "gauge", _C, oldest_unread,
        "For how long the longest waiting bytes have been waiting; 0 when nothing waits."),
    MetricFamily("stalled_seconds", "gauge", _C, stalled,
        "For how long nothing has been acknowledged although something waits; 0 when all is well. What /healthz judges."),
    MetricFamily("delivery_seconds", "histogram", _C, each(lambda s: s.delivery_seconds),
        "From handing a batch to a task, or the last report of one that stays at the end of its file, to having its end acknowledged: "
        "an upper bound for each of its records."),
    MetricFamily("commit_seconds", "histogram", _C, each(lambda s: s.commit_seconds),
        "How long saving offsets took."),
    MetricFamily("last_acknowledged_timestamp_seconds", "gauge", _C, each(lambda s: s.acknowledged_at),
        "When something was last acknowledged, in epoch seconds; 0 for never."),
    MetricFamily("in_flight", "gauge", _C, each(lambda s: s.tasks),
        "Batches under way."),
    MetricFamily("files_known", "gauge", _C, each(lambda s: s.lag.known_files),
        "Files that are followed."),
    MetricFamily("files_open", "gauge", _C, each(lambda s: s.lag.open_files),
        "Files that are held open."),
    MetricFamily("files_troubled", "gauge", _C, each(lambda s: s.lag.troubled_files),
        "Files and directories that match and cannot be read now."),
    MetricFamily("files_blocked", "gauge", _C, each(lambda s: s.lag.blocked_files),
        "Files that wait because their topic is missing or closed to the agent."),
    MetricFamily("files_rotated_total", "counter", _C, each(lambda s: s.lag.rotated_files),
        "Files renamed out of their patterns or away."),
    MetricFamily("files_truncated_total", "counter", _C, each(lambda s: s.lag.truncated_files),
        "Files cut or rewritten in place."),
    MetricFamily("gap_bytes_total", "counter", (*_C, "reason"), gaps,
        "Bytes given up for good, over all runs of the agent. destroyed: gone before they were read. too_long: beyond line.max_bytes. "
        "rejected: bad records, passed over. damaged: the rest of packed files that cannot be unpacked. "
        "hole: NUL bytes that nobody wrote."),
    MetricFamily("connector_state", "gauge", (*_C, "state"), labelled(lambda s: ((str(state), float(s.state is state)) for state in State)),
        "1 for the state that the connector is in, 0 for the others."),
    MetricFamily("kafka_broker_up", "gauge", (*_C, "broker"), broker_up,
        "Whether a producer of the connector is connected to the broker. Absent when the connector has sent nothing for a minute, "
        "and until it has sent for some seconds."),
    MetricFamily("kafka_rtt_seconds", "gauge", (*_C, "broker"), round_trip,
        "Mean round trip to the broker in the last seconds, the slowest producer's. Absent like kafka_broker_up."),
    MetricFamily("kafka_queue_records", "gauge", _C, queued(lambda v: v.queue_records),
        "Records in the producers' queues, not yet acknowledged. Absent like kafka_broker_up."),
    MetricFamily("kafka_queue_bytes", "gauge", _C, queued(lambda v: v.queue_bytes),
        "Bytes in the producers' queues, not yet acknowledged. Absent like kafka_broker_up."),
    MetricFamily("reloads_total", "counter", ("result",), reloads,
        "Reloads of the definitions. ok: every file loads. problems: some do not."),
    MetricFamily("definitions_broken", "gauge", (), agent(broken),
        "Definitions that do not load as of the last reload; the last good version of each goes on, where there is one."),
    MetricFamily("restart_needed", "gauge", (), agent(differing),
        "Options of agent.yaml that differ from those that hold and need a restart."),
    MetricFamily("offsets_unsaved", "gauge", (), agent(lambda s: float(bool(s.view.offsets_unsaved))),
        "1 while offsets cannot be saved: what is sent now would be sent again after a crash."),
    MetricFamily("spark_up", "gauge", (), agent(lambda s: float(s.view.spark == "running")),
        "1 while the Spark session is up."),
    MetricFamily("process_cpu_seconds_total", "counter", _P, process(lambda p: p.cpu_seconds),
        "CPU time of each process of the agent: driver, jvm, daemon (Spark's, for its Python workers), worker-1 and so on."),
    MetricFamily("process_resident_memory_bytes", "gauge", _P, process(lambda p: p.resident_bytes),
        "Memory of each process. Pages that several share count in each: workers share most of theirs."),
    MetricFamily("process_proportional_memory_bytes", "gauge", _P, process(lambda p: p.proportional_bytes),
        "Memory of each process, where a page that several share counts in parts: the sum is what the agent takes. "
        "Absent where the kernel does not tell."),
    MetricFamily("process_open_fds", "gauge", _P, process(lambda p: p.open_fds),
        "Open descriptors of each process."),
    MetricFamily("process_max_fds", "gauge", _P, process(lambda p: p.max_fds),
        "Descriptors that each process may have."),
    MetricFamily("process_threads", "gauge", _P, process(lambda p: p.threads),
        "Threads of each process."),
    MetricFamily("start_time_seconds", "gauge", (), agent(lambda s: s.view.started),
        "When the agent was started, in epoch seconds."),
    MetricFamily("build_info", "gauge", ("version", "python"), build,
        "Always 1; the labels say what runs."),
)
