"""A producer for one transaction: it fences others in the background while the previous batch is sent, and is never used again.

So requests of it that the network delivers late do no harm: the next producer with its id has a newer epoch.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from itertools import starmap

from confluent_kafka import KafkaError, KafkaException

from copycat_agent import failpoints
from copycat_agent.errors import BlockedError, CopycatError, DataError, RefusedError, RetriableError
from copycat_agent.model import OffsetsPartition
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.client import Message
from copycat_agent.producer.kafka_errors import RefusedRecordError, classify, code_name, no_more_threads, transaction_refused
from copycat_agent.producer.settings import transactional_settings
from copycat_agent.producer.task_memory import SLICE_SECONDS, StopRequest, TransactionalState
from copycat_agent.producer.task_producer import ReplacementGuard, TaskProducer
from copycat_agent.transactions.protocol import Entry

INIT_SECONDS = 20.0
"""How long a new producer may take to fence others with its id, from its creation."""
COMMIT_SECONDS = 25.0
"""How long a commit may take, well below the transaction's own time-out."""
_LAST_SECONDS = 8.0
"""How long a commit may take after a stop request."""
_LOOK_SECONDS = 0.1
_SENT_SECONDS = 0.001
"""Enough for the commit request to leave, and hardly for its answer: the failpoint `committing` fires then."""
LEAST_TIMEOUT_MS = 5_000
"""The shortest transaction time-out that is tried: a shorter one would need shorter batches than the agent makes."""

_TIMED_OUT = KafkaError._TIMED_OUT  # noqa: SLF001 - its spelling
_PURGED = frozenset({"_PURGE_INFLIGHT", "_PURGE_QUEUE"})
"""The errors of all other records when a transaction fails: a consequence, not the cause of it."""


class LaneProducer(TaskProducer):
    """A producer for one transaction of one lane. Open transactions of earlier producers with its id are aborted first.

    Records are sent as by a `TaskProducer`, in the open transaction, and count once it is committed. After any error it is `broken`.
    Used from one thread at a time, `poll_idle` from any.

    Where the login is a token the client is created in the background as well: the binding takes a second for it, since it waits in
    whole seconds for the token to be set (`wait_for_oauth_token_set`).
    """

    _least_batch_bytes = 1  # finding out costs a whole transaction here
    _flush_step_seconds = 0.05  # the library waits for an abort once something was refused

    def __init__(self, options: KafkaOptions, client_id: str, transactional_id: str, shared: TransactionalState) -> None:
        """Begins to fence others with this id, in the background."""
        self.sent = 0
        """Messages handed over so far, without entries of the offsets topic."""
        self._shared = shared
        self._lock = threading.Lock()
        self._made_at = time.monotonic()
        self._is_closed = False
        self._fenced: Future[CopycatError | None] = Future()
        super().__init__(options, client_id, shared.batch_bytes, shared.pace, tracked=shared.tracked, transactional_id=transactional_id)
        self._stop = StopRequest(shared.stopping)
        try:
            threading.Thread(target=self._initialize, name="fencing", daemon=True).start()
        except RuntimeError as error:
            self.close()
            raise no_more_threads(str(error)) from None

    def _start(self) -> None:
        if self.spec.options.security.oauth is None:
            self._make()

    def _make(self) -> None:
        shared, spec = self._shared, self.spec
        settings = transactional_settings(
            spec.options, spec.client_id, spec.transactional_id, shared.timeout_ms, spec.batch_bytes, tracked=spec.tracked
        )
        settings |= shared.statistics()
        self._connect(settings, int(settings["message.timeout.ms"]), shared.partitions, shared.missing)

    def on_statistics(self, text: str) -> None:
        """Called with the client's statistics, as JSON."""
        self._shared.heard_at = time.monotonic()
        super().on_statistics(text)

    @property
    def is_flushed(self) -> bool:
        """Returns whether nothing was handed over since the last `flush` that returned."""
        return not self.has_unflushed

    @property
    def has_sent(self) -> bool:
        """Returns whether any message was handed over."""
        return self.sent > 0

    def ready(self) -> None:
        """Waits until others with this id are fenced and their transactions have ended. Raises why that fails."""
        while not wait((self._fenced,), _LOOK_SECONDS).done:
            if self._stop.asked():
                raise RetriableError(f"{self._fencing()}: stopped before Kafka had answered")
        if (error := self._fenced.result()) is not None:
            raise error

    def begin_transaction(self) -> None:
        """Begins the transaction, without a request. Raises FencedError when it is known that another producer has taken the id."""
        try:
            self._connection.client.begin_transaction()
        except KafkaException as exception:
            self.broken = True
            raise self._translated(exception.args[0], f"beginning transaction {self.spec.transactional_id}") from None

    def send(self, topic: str, values: list[bytes], tail: Message) -> None:
        """Sends values as `TaskProducer.send` does. Raises RefusedError when Kafka has refused a record of this transaction meanwhile."""
        self._count(len(values), lambda: super(LaneProducer, self).send(topic, values, tail))

    def send_each(self, messages: Iterable[Message]) -> None:
        """Sends messages that differ in more than their value. Otherwise like `send`."""
        going = list(messages)
        self._count(len(going), lambda: super(LaneProducer, self).send_each(going))

    def _count(self, number: int, send: Callable[[], None]) -> None:
        try:
            send()
        except RefusedRecordError as refused:
            self.sent += refused.sent
            raise
        except BaseException:
            self.sent += number
            raise
        self.sent += number

    def send_entries(self, place: OffsetsPartition, entries: Sequence[Entry]) -> None:
        """Sends entries to the offsets topic. Raises RefusedError for one that the client refuses at once."""
        messages: list[Message] = [(place.topic, one.value, one.key, place.partition) for one in entries]
        try:
            self._drive(messages, lambda rest: starmap(self._connection.client.produce, rest))
        except RefusedRecordError as refused:
            self.broken = True
            raise RefusedError(refused.reason) from None

    def flush(self) -> None:
        """Returns once everything sent is acknowledged, and only the commit is missing.

        Raises RefusedError when Kafka refused a record, FencedError, and what `TaskProducer.flush` raises.
        """
        self.flush_entries()
        failpoints.hit("sending")

    def flush_entries(self) -> None:
        """Does what `flush` does after entries of the offsets topic were sent, but does not hit the failpoint `sending`."""
        try:
            super().flush()
        except BaseException:
            self.has_unflushed = True  # nothing of it may be committed
            raise

    def may_send(self, source: ReplacementGuard, end: int) -> bool:
        """Returns whether what was read is the file's own: records sent from another file would have the transaction aborted."""
        return source.is_whole or source.was_still(end)

    def partly_sent(self, reason: DataError) -> None:
        """Raises RefusedError: the first messages of a record must not be committed along with its dead letter."""
        raise RefusedError(reason)

    def commit(self) -> None:
        """Commits. After an error the outcome is unknown: the transaction may have been committed, or may still be."""
        self.broken = True
        seconds = COMMIT_SECONDS if not self._stop.asked() else _LAST_SECONDS
        deadline = time.monotonic() + min(seconds, self._connection.transaction_ms / 2000)
        error = self._ask_to_commit(deadline)
        while error is not None:
            if not error.retriable() or error.code() == _TIMED_OUT or time.monotonic() > deadline:
                raise self._translated(error, f"committing transaction {self.spec.transactional_id}")
            time.sleep(_LOOK_SECONDS)
            error = self._ask_to_commit(deadline)

    def _ask_to_commit(self, deadline: float) -> KafkaError | None:
        """Returns the error of one commit request, None when it succeeded. The request gets all the time until `deadline`.

        It is not cut into shorter ones: the library takes the answer to a request that timed out for that of the next one, and three
        of those in a row for a commit.
        """
        if not failpoints.is_armed("committing"):
            return self._commit_once(deadline)
        answers: list[KafkaError | None] = []
        asking = threading.Thread(target=lambda: answers.append(self._commit_once(deadline)), name="committing", daemon=True)
        asking.start()
        asking.join(_SENT_SECONDS)
        failpoints.hit("committing")
        asking.join()
        return answers[0]

    def _commit_once(self, deadline: float) -> KafkaError | None:
        try:
            self._connection.client.commit_transaction(max(deadline - time.monotonic(), _LOOK_SECONDS))
        except KafkaException as exception:
            self._poll(0)
            return exception.args[0]  # type: ignore[no-any-return]
        return None

    def poll_idle(self) -> None:
        """Serves the client's callbacks, from any thread. Does nothing once it is closed."""
        if (client := getattr(getattr(self, "_connection", None), "client", None)) is not None:
            self._poll(0, client)

    def close(self) -> None:
        """Drops what is queued and frees the client. Further calls have no effect."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = self.broken = True
            if self.has_sent:
                self._shared.lived(time.monotonic() - self._made_at)
            if not hasattr(self, "_connection"):
                return  # `_make_late` frees the client
            last = [self._connection.client]
            super().close()
        # Freeing waits for the library's threads, and one of those may wait for a name server.
        with contextlib.suppress(RuntimeError):  # the interpreter ends
            threading.Thread(target=last.clear, name="freeing", daemon=True).start()

    def _initialize(self) -> None:
        begun, seconds = time.monotonic(), self._shared.first_wait_seconds()
        deadline, refusal = begun + INIT_SECONDS, None
        try:
            if not hasattr(self, "_connection"):
                self._make_late()
            error = self._ask_to_init(min(seconds, INIT_SECONDS))
            while error is not None and self._is_worth_asking(error) and (left_seconds := deadline - time.monotonic()) > 0:
                seconds = min(2 * seconds, SLICE_SECONDS)
                error = self._ask_to_init(min(seconds, left_seconds))
            if error is not None:
                self._shared.is_unanswered = time.monotonic() >= deadline
                refusal = self._translated(error, self._fencing())
            else:
                self._shared.took(time.monotonic() - begun)
        except CopycatError as refused:
            refusal = refused
        except BaseException as bug:
            refusal = RetriableError(f"{self._fencing()}: {type(bug).__name__}")  # nobody may take this id for fenced
            raise
        finally:
            self._fenced.set_result(refusal)

    def _make_late(self) -> None:
        self._make()
        with self._lock:
            if self._is_closed and hasattr(self, "_connection"):
                super().close()

    def _ask_to_init(self, seconds: float) -> KafkaError | None:
        with self._lock:
            if self._is_closed:
                return KafkaError(KafkaError._DESTROY)  # noqa: SLF001 - its spelling
            connection, client = self._connection, self._connection.client
        try:
            client.init_transactions(seconds)
        except KafkaException as exception:
            self._poll(0, client)
            error: KafkaError = exception.args[0]
            if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT and connection.transaction_ms > LEAST_TIMEOUT_MS:
                self._shorten(connection.transaction_ms // 2)
                return self._ask_to_init(seconds)
            return error
        return None

    def _shorten(self, timeout_ms: int) -> None:
        """Makes the client again with this time-out, at least `LEAST_TIMEOUT_MS`: the brokers do not allow the longer one."""
        self._shared.timeout_ms = min(self._shared.timeout_ms, max(LEAST_TIMEOUT_MS, timeout_ms))
        with self._lock:
            if not self._is_closed:
                self._make()

    def _is_worth_asking(self, error: KafkaError) -> bool:
        trouble = self.reports.trouble.error
        is_refused = trouble is not None and classify(trouble) is BlockedError
        return error.retriable() and classify(error) is RetriableError and not is_refused and not self._is_closed

    def _failure(self) -> KafkaError | None:
        """Returns what made the transaction fail; for its records the library reports only that it did."""
        if not self.reports.failures:
            return None
        own = (error for error in self.reports.failures.values() if code_name(error) not in _PURGED)
        return self._state() or next(own, None) or super()._failure()

    def _state(self) -> KafkaError | None:
        """Returns what made the transaction fail, None while it is in order. An invalid second `begin_transaction` has it reported."""
        try:
            self._connection.client.begin_transaction()
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            return None if error.code() == KafkaError._STATE else error  # noqa: SLF001 - its spelling
        return None

    def _check(self) -> None:
        """Raises what was reported so far: after any error nothing of this transaction can be committed."""
        super()._check()
        refused = self._failure()
        if refused is not None:
            self.broken = True
            raise self._as_refused(refused)

    def _refusal(self, exception: KafkaException, sent: int) -> Exception:
        cause = self._state()
        if cause is None:
            return super()._refusal(exception, sent)
        self.broken = True
        return self._as_refused(cause)

    def _as_refused(self, cause: KafkaError) -> CopycatError:
        return RefusedError(error) if isinstance(error := self._translated(cause, "Kafka refused a record"), DataError) else error

    def _translated(self, error: KafkaError, what: str) -> CopycatError:
        self._shared.partitions.clear()  # they may have changed
        return transaction_refused(error, what, self.spec.transactional_id) or super()._translated(error, what)

    def _fencing(self) -> str:
        return f"taking over transactional id {self.spec.transactional_id} at {','.join(self.spec.options.bootstrap_servers)}"
