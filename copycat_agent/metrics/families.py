"""Every metric: name, kind, labels, meaning, and where its samples come from. One table; `docs/metrics.md` repeats it, a test compares.

Labels have few values: connectors, states, reasons, error classes, brokers; never a path. Counters grow while the process lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from copycat_agent.metrics import samples
from copycat_agent.metrics.samples import Sample, Snapshot


@dataclass(frozen=True, slots=True)
class Family:
    """A metric without the prefix `copycat_`; a counter's name ends in `_total`. `samples` gives label values and a value each."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    samples: Callable[[Snapshot], Iterator[Sample]]
    meaning: str


_C = ("connector",)
_P = ("process",)

# fmt: off
FAMILIES: tuple[Family, ...] = (
    Family("records_read_total", "counter", _C, samples.each(lambda s: s.counts.read),
        "Records that were read and are settled: acknowledged, dead-lettered or dropped."),
    Family("read_bytes_total", "counter", _C, samples.each(lambda s: s.counts.read_bytes),
        "Bytes of input that were read and are settled, delimiters included."),
    Family("records_acknowledged_total", "counter", _C, samples.each(lambda s: s.counts.acknowledged),
        "Records that Kafka has acknowledged, dead letters not counted."),
    Family("records_dropped_total", "counter", (*_C, "reason"), samples.dropped,
        "Records that were not sent. filtered: by a transform or an option. rejected: bad ones, passed over because there is no "
        "dead-letter topic."),
    Family("records_kept_total", "counter", _C, samples.each(lambda s: s.counts.kept),
        "Acknowledged records that went on as they were though a step failed, because its on_error is keep."),
    Family("records_too_long_total", "counter", _C, samples.each(lambda s: s.counts.too_long),
        "Records over line.max_bytes or the limits of multiline, whatever became of them. One in parts counts once."),
    Family("dlq_records_total", "counter", _C, samples.each(lambda s: s.counts.dead_lettered),
        "Records that the dead-letter topic has acknowledged."),
    Family("errors_total", "counter", (*_C, "stage", "type"), samples.errors,
        "Errors by class and stage. Bad records: their stage, see errors.md; beyond ten per file and batch, that of the tenth. "
        "read: a file. send: whatever else ended a batch, FAILED included. save: offsets. open: lanes. connector: its own loop."),
    Family("retries_total", "counter", _C, samples.each(lambda s: s.retries),
        "Times a batch had to be tried again."),
    Family("transactions_total", "counter", (*_C, "outcome"), samples.transactions,
        "Transactions of exactly_once connectors. committed. undone: given up, no reader sees any of it. "
        "unknown: Kafka had to be asked what became of it, and it counts as one of the others as well by then."),
    Family("lanes_opened_total", "counter", _C, samples.lanes_opened,
        "Times an exactly_once connector took over its lanes in Kafka and read its positions there: at a start, after an unknown outcome."),
    Family("lag_bytes", "gauge", _C, samples.each(lambda s: s.lag.bytes),
        "Bytes that are there and not yet settled."),
    Family("lag_files", "gauge", _C, samples.each(lambda s: s.lag.files),
        "Files with such bytes."),
    Family("oldest_unread_seconds", "gauge", _C, samples.oldest_unread,
        "For how long the longest waiting bytes have been waiting; 0 when nothing waits."),
    Family("stalled_seconds", "gauge", _C, samples.stalled,
        "For how long nothing has been acknowledged although something waits; 0 when all is well. What /healthz judges."),
    Family("delivery_seconds", "histogram", _C, samples.each(lambda s: s.delivery_seconds),
        "From handing a batch to a task to having its end acknowledged: an upper bound for each of its records."),
    Family("commit_seconds", "histogram", _C, samples.each(lambda s: s.commit_seconds),
        "How long saving offsets took."),
    Family("last_acknowledged_timestamp_seconds", "gauge", _C, samples.each(lambda s: s.acknowledged_at),
        "When something was last acknowledged, in epoch seconds; 0 for never."),
    Family("in_flight", "gauge", _C, samples.each(lambda s: s.tasks),
        "Batches under way."),
    Family("files_known", "gauge", _C, samples.each(lambda s: s.lag.known_files),
        "Files that are followed."),
    Family("files_open", "gauge", _C, samples.each(lambda s: s.lag.open_files),
        "Files that are held open."),
    Family("files_troubled", "gauge", _C, samples.each(lambda s: s.lag.troubled_files),
        "Files and directories that match and cannot be read now."),
    Family("files_blocked", "gauge", _C, samples.each(lambda s: s.lag.blocked_files),
        "Files that wait because their topic is missing or closed to the agent."),
    Family("files_rotated_total", "counter", _C, samples.each(lambda s: s.lag.rotated_files),
        "Files renamed out of their patterns or away."),
    Family("files_truncated_total", "counter", _C, samples.each(lambda s: s.lag.truncated_files),
        "Files cut or rewritten in place."),
    Family("gap_bytes_total", "counter", (*_C, "reason"), samples.gaps,
        "Bytes given up for good, over all runs of the agent. destroyed: gone before they were read. too_long: beyond line.max_bytes. "
        "rejected: bad records, passed over. damaged: the rest of packed files that cannot be unpacked. "
        "hole: NUL bytes that nobody wrote."),
    Family("connector_state", "gauge", (*_C, "state"), samples.states,
        "1 for the state that the connector is in, 0 for the others."),
    Family("kafka_broker_up", "gauge", (*_C, "broker"), samples.broker_up,
        "Whether a producer of the connector is connected to the broker. Absent when the connector has sent nothing for a minute, "
        "and until it has sent for some seconds."),
    Family("kafka_rtt_seconds", "gauge", (*_C, "broker"), samples.round_trip,
        "Mean round trip to the broker in the last seconds, the slowest producer's. Absent like kafka_broker_up."),
    Family("kafka_queue_records", "gauge", _C, samples.queued(lambda v: v.queue_records),
        "Records in the producers' queues, not yet acknowledged. Absent like kafka_broker_up."),
    Family("kafka_queue_bytes", "gauge", _C, samples.queued(lambda v: v.queue_bytes),
        "Bytes in the producers' queues, not yet acknowledged. Absent like kafka_broker_up."),
    Family("reloads_total", "counter", ("result",), samples.reloads,
        "Reloads of the definitions. ok: every file loads. problems: some do not."),
    Family("definitions_broken", "gauge", (), samples.agent(samples.broken),
        "Definitions that do not load as of the last reload; the last good version of each goes on, where there is one."),
    Family("restart_needed", "gauge", (), samples.agent(samples.differing),
        "Options of agent.yaml that differ from those that hold and need a restart."),
    Family("offsets_unsaved", "gauge", (), samples.agent(lambda s: float(bool(s.view.offsets_unsaved))),
        "1 while offsets cannot be saved: what is sent now would be sent again after a crash."),
    Family("spark_up", "gauge", (), samples.agent(lambda s: float(s.view.spark == "running")),
        "1 while the Spark session is up."),
    Family("process_cpu_seconds_total", "counter", _P, samples.process(lambda p: p.cpu_seconds),
        "CPU time of each process of the agent: driver, jvm, daemon (Spark's, for its Python workers), worker-1 and so on."),
    Family("process_resident_memory_bytes", "gauge", _P, samples.process(lambda p: p.resident_bytes),
        "Memory of each process. Pages that several share count in each: workers share most of theirs."),
    Family("process_proportional_memory_bytes", "gauge", _P, samples.process(lambda p: p.proportional_bytes),
        "Memory of each process, where a page that several share counts in parts: the sum is what the agent takes. "
        "Absent where the kernel does not tell."),
    Family("process_open_fds", "gauge", _P, samples.process(lambda p: p.open_fds),
        "Open descriptors of each process."),
    Family("process_max_fds", "gauge", _P, samples.process(lambda p: p.max_fds),
        "Descriptors that each process may have."),
    Family("process_threads", "gauge", _P, samples.process(lambda p: p.threads),
        "Threads of each process."),
    Family("start_time_seconds", "gauge", (), samples.agent(lambda s: s.view.started),
        "When the agent was started, in epoch seconds."),
    Family("build_info", "gauge", ("version", "python"), samples.build,
        "Always 1; the labels say what runs."),
)
