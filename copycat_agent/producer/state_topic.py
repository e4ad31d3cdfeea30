"""An agent's state in a compacted topic of one partition: written in transactions by one process at a time, read by the next.

Each write is a transaction with the same transactional id, so Kafka fences the process that had the id before. The outcome of a failed
write is unknown: a new producer ends its transaction, then the topic is compared with the wanted state.

Whatever is decided by what the topic holds is decided once it also shows what this process has just written: a broker that is cut off from
the others may show an older state.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException, Producer

from copycat_agent import logs
from copycat_agent.errors import BlockedError, CopycatError, FencedError, RetriableError, TimestampError
from copycat_agent.model import OffsetsPartition
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.kafka_errors import creation_error, transaction_refused, translate
from copycat_agent.producer.settings import SILENT, transactional_settings
from copycat_agent.producer.transactional import KafkaSteps

ANSWER_SECONDS = 20.0
"""How long a producer may take to be fenced, and a transaction to be committed."""
_ROOM_SECONDS = 0.1
_LEADER_KEY = b'["leader"]'
_SEEN_KEY = b'["seen"]'
MANY_PARTITIONS = "has more than one partition: a process that joins may depose the one that runs"

_log = logs.get("kafka")


def topic_of(agent_id: str) -> str:
    """Returns the name of the topic with an agent's state."""
    return f"__copycat_state.{agent_id}"


def transactional_id_of(agent_id: str) -> str:
    """By which it is written."""
    return f"copycat.state.{agent_id}"


def single_partition_hint(options: KafkaOptions, topic: str) -> str:
    """Returns the next step for a state topic with more than one partition."""
    delete = f"kafka-topics.sh --bootstrap-server {','.join(options.bootstrap_servers)} --delete --topic {topic}"
    return f"stop all processes of this agent; {delete}; start first the one that led last: it writes its copy of the state to a new topic"


class _ForgottenError(RetriableError):
    """Kafka does not know the producer any more, after a week without a transaction (`transactional.id.expiration.ms`).

    Nothing of its transaction is written. Whether another process leads now is not known by that.
    """


class StateTopic:
    """The `StateLog` of an agent on Kafka. Used from one thread at a time."""

    def __init__(self, options: KafkaOptions, agent_id: str, *, stopping: Callable[[], bool] = lambda: False) -> None:
        """Sends no request yet. `stopping` ends a wait."""
        self.place = OffsetsPartition(topic_of(agent_id), 0)
        self._options = options
        self._id = transactional_id_of(agent_id)
        self._steps = KafkaSteps(options, self._id, stopping=stopping)
        self._client: Producer | None = None
        self._is_doubtful = False
        self._refused_until, self._refusal = 0.0, ""
        self._leader = secrets.token_hex(8).encode()

    def ensure(self) -> None:
        """Creates the topic if it is missing. Raises RetriableError or BlockedError. Warns of more than one partition.

        With more, Kafka may give the leader's partition to a member that joins.
        """
        topic = self.place.topic
        if (count := self._steps.ensure_topic(topic, 1)) != 1:
            _log.warning(f"{topic} {MANY_PARTITIONS}", partitions=count, hint=single_partition_hint(self._options, topic))

    def take(self) -> dict[bytes, bytes]:
        """Fences every other process and returns the latest value of each key.

        Raises RetriableError or BlockedError; FatalError if the brokers do not support transactions.
        """
        self._fence()
        found = self._confirmed({_LEADER_KEY: self._leader})
        self._check_leader(found)
        self._is_doubtful = False
        del found[_LEADER_KEY]
        return found

    def publish(self, changes: Mapping[bytes, bytes | None], everything: Callable[[], Mapping[bytes, bytes]]) -> None:
        """See `offsets.state_log.StateLog`.

        After a failure it fails at once for as long as the failure took, since the caller holds a lock that others wait for.
        """
        began = time.monotonic()
        if began < self._refused_until:
            raise RetriableError(self._refusal)
        try:
            missing = self._missing(everything()) if self._is_doubtful else changes
            self._is_doubtful = True
            try:
                self._commit(missing)
            except _ForgottenError:
                self._commit(self._missing(everything()))
            self._is_doubtful = False
        except FencedError:
            raise
        except RetriableError as error:
            now = time.monotonic()
            self._refused_until, self._refusal = now + (now - began), error.message
            raise

    def doubt(self) -> None:
        """See `offsets.state_log.StateLog`."""
        self._is_doubtful = True

    def close(self) -> None:
        """Closes the clients."""
        self._client = None
        self._steps.close()

    def _missing(self, wanted: Mapping[bytes, bytes]) -> dict[bytes, bytes | None]:
        """Returns the changes that make the topic hold `wanted`, once earlier transactions are committed or aborted."""
        self._check_leader(self._read(decided=True))  # first, since a new producer would fence a process that has taken over meanwhile
        self._fence()
        found = self._confirmed({})
        self._check_leader(found)
        del found[_LEADER_KEY]
        gone = dict.fromkeys(found.keys() - wanted.keys())
        return {**gone, **{key: value for key, value in wanted.items() if found.get(key) != value}}

    def _check_leader(self, found: Mapping[bytes, bytes]) -> None:
        if found.get(_LEADER_KEY) != self._leader:
            raise FencedError(f"another process writes {self.place.topic} now")

    def _confirmed(self, changes: Mapping[bytes, bytes | None]) -> dict[bytes, bytes]:
        """Writes `changes`, and returns the state after that. Raises RetriableError if a broker shows an older one."""
        seen = {_SEEN_KEY: secrets.token_hex(8).encode()}
        self._commit({**changes, **seen})
        found = self._read()
        if found.pop(_SEEN_KEY, None) != seen[_SEEN_KEY]:
            self._commit(seen)  # FencedError, if it is a newer one
            raise RetriableError(f"reading topic {self.place.topic}: a broker shows an older state", "it is read again")
        return found

    def _read(self, *, decided: bool = False) -> dict[bytes, bytes]:
        """Returns the committed state; with `decided`, without waiting for an open transaction."""
        latest = {entry.key: entry.value for entry in self._steps.replay(self.place, 0, self._steps.end(self.place, decided=decided))}
        self._steps.free()
        return {key: value for key, value in latest.items() if value is not None}

    def _fence(self) -> None:
        settings = {**transactional_settings(self._options, self._id, self._id), "linger.ms": "0", "statistics.interval.ms": "0"}
        self._client = None
        try:
            client = Producer(settings, logger=SILENT)
        except KafkaException as exception:
            raise creation_error(exception.args[0]) from None
        try:
            client.init_transactions(ANSWER_SECONDS)
        except KafkaException as exception:
            raise self._translated(exception, "taking over") from None
        self._client = client

    def _commit(self, changes: Mapping[bytes, bytes | None]) -> None:
        client, self._client = self._client, None
        if client is None:
            raise RetriableError(f"what was written to {self.place.topic} before is not known to be there")
        try:
            client.begin_transaction()
            for key, value in changes.items():
                self._produce(client, key, value)
            client.commit_transaction(ANSWER_SECONDS)
        except KafkaException as exception:
            raise self._translated(exception, "writing") from None
        self._client = client

    def _produce(self, client: Producer, key: bytes, value: bytes | None) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                client.produce(self.place.topic, value, key, self.place.partition)
            except BufferError:
                if time.monotonic() > deadline:
                    raise RetriableError(f"writing {self.place.topic}: Kafka takes nothing") from None
                client.poll(_ROOM_SECONDS)
            else:
                return

    def _translated(self, exception: KafkaException, doing: str) -> CopycatError:
        what = f"{doing} topic {self.place.topic}"
        if exception.args[0].code() == KafkaError.INVALID_PRODUCER_ID_MAPPING:
            return _ForgottenError(f"{what}: Kafka has forgotten this producer")
        error = transaction_refused(exception.args[0], what, self._id) or translate(exception.args[0], what)
        return BlockedError(error.message, error.hint) if isinstance(error, TimestampError) else error  # of this host's clock
