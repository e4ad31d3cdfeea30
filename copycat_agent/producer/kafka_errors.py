"""Classifies Kafka's error codes by what the caller has to do. A test checks that the table names every code of the library.

Broker codes: https://kafka.apache.org/protocol#protocol_error_codes. Names that begin with `_` are librdkafka's own.
`KafkaError.retriable()` is not used: it was False for a real message time-out.
"""

from __future__ import annotations

import re

from confluent_kafka import KafkaError

from copycat_agent.errors import BlockedError, CopycatError, DataError, FatalError, FencedError, RetriableError, TimestampError
from copycat_agent.model import OFFSETS_TOPIC

# fmt: off
RECORD = frozenset({
    "INVALID_MSG", "INVALID_MSG_SIZE", "INVALID_RECORD", "INVALID_TIMESTAMP", "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE",
    "TOPIC_EXCEPTION", "_BAD_MSG", "_INVALID_ARG", "_INVALID_DIFFERENT_RECORD", "_INVALID_TYPE", "_KEY_SERIALIZATION",
    "_VALUE_SERIALIZATION",
})
"""The record itself is refused; its neighbours may be accepted. `_INVALID_DIFFERENT_RECORD` is reported for these neighbours."""

BLOCKED = frozenset({
    "CLUSTER_AUTHORIZATION_FAILED", "DELEGATION_TOKEN_AUTHORIZATION_FAILED", "DELEGATION_TOKEN_AUTH_DISABLED", "DELEGATION_TOKEN_EXPIRED",
    "DELEGATION_TOKEN_NOT_FOUND", "DELEGATION_TOKEN_OWNER_MISMATCH", "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", "GROUP_AUTHORIZATION_FAILED",
    "ILLEGAL_SASL_STATE", "INVALID_CONFIG", "INVALID_PARTITIONS", "INVALID_PRINCIPAL_TYPE", "INVALID_REPLICATION_FACTOR",
    "INVALID_TRANSACTION_TIMEOUT", "POLICY_VIOLATION", "SASL_AUTHENTICATION_FAILED", "SECURITY_DISABLED", "TOPIC_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "UNACCEPTABLE_CREDENTIAL", "UNKNOWN_TOPIC_OR_PART", "UNSUPPORTED_SASL_MECHANISM",
    "_AUTHENTICATION", "_SSL", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC",
})
"""Someone has to create, permit or repair something outside the agent."""

FATAL = frozenset({
    "INVALID_REQUIRED_ACKS", "UNSUPPORTED_COMPRESSION_TYPE", "UNSUPPORTED_FOR_MESSAGE_FORMAT", "UNSUPPORTED_VERSION",
    "_NOT_CONFIGURED", "_NOT_IMPLEMENTED", "_UNSUPPORTED_FEATURE",
})
"""This client does not work with this cluster or configuration: no retry helps."""

RETRIABLE = frozenset({
    "BROKER_NOT_AVAILABLE", "CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE",
    "DUPLICATE_SEQUENCE_NUMBER", "ELIGIBLE_LEADERS_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "INCONSISTENT_TOPIC_ID",
    "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "INVALID_REQUEST", "INVALID_TXN_STATE", "KAFKA_STORAGE_ERROR",
    "LEADER_NOT_AVAILABLE", "LISTENER_NOT_FOUND", "LOG_DIR_NOT_FOUND", "NETWORK_EXCEPTION", "NOT_CONTROLLER", "NOT_COORDINATOR",
    "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_LEADER_FOR_PARTITION", "OFFSET_NOT_AVAILABLE",
    "OPERATION_NOT_ATTEMPTED", "OUT_OF_ORDER_SEQUENCE_NUMBER", "PREFERRED_LEADER_NOT_AVAILABLE", "PRODUCER_FENCED",
    "REASSIGNMENT_IN_PROGRESS", "REBOOTSTRAP_REQUIRED", "REPLICA_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "STALE_BROKER_EPOCH",
    "STALE_CTRL_EPOCH", "THROTTLING_QUOTA_EXCEEDED", "TOPIC_ALREADY_EXISTS", "TRANSACTION_ABORTABLE",
    "TRANSACTION_COORDINATOR_FENCED", "UNKNOWN", "UNKNOWN_LEADER_EPOCH", "UNKNOWN_PRODUCER_ID", "UNKNOWN_TOPIC_ID",
    "_ALL_BROKERS_DOWN", "_APPLICATION", "_BAD_COMPRESSION", "_CONFLICT", "_CRIT_SYS_RESOURCE", "_DESTROY", "_DESTROY_BROKER",
    "_FAIL", "_FATAL", "_FENCED", "_FS", "_GAPLESS_GUARANTEE", "_INCONSISTENT", "_INTR", "_IN_PROGRESS", "_ISR_INSUFF",
    "_MSG_TIMED_OUT", "_NODE_UPDATE", "_NOENT", "_NOOP", "_OUTDATED", "_PARTIAL", "_PREV_IN_PROGRESS", "_PURGE_INFLIGHT",
    "_PURGE_QUEUE", "_QUEUE_FULL", "_READ_ONLY", "_RESOLVE", "_RETRY", "_STATE", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_TRANSPORT",
    "_UNDERFLOW", "_UNKNOWN_BROKER", "_UNKNOWN_PROTOCOL", "_WAIT_CACHE", "_WAIT_COORD",
})
"""The cluster, the network or this producer is unwell. `_FATAL` too: it ends the producer, not the connector."""

NOT_PRODUCING = frozenset({
    "DUPLICATE_RESOURCE", "DUPLICATE_VOTER", "ELECTION_NOT_NEEDED", "FEATURE_UPDATE_FAILED", "FENCED_INSTANCE_ID",
    "FENCED_MEMBER_EPOCH", "FENCED_STATE_EPOCH", "FETCH_SESSION_ID_NOT_FOUND", "GROUP_ID_NOT_FOUND",
    "GROUP_MAX_SIZE_REACHED", "GROUP_SUBSCRIBED_TO_TOPIC", "ILLEGAL_GENERATION", "INCONSISTENT_GROUP_PROTOCOL",
    "INCONSISTENT_VOTER_SET", "INVALID_COMMIT_OFFSET_SIZE", "INVALID_FETCH_SESSION_EPOCH", "INVALID_GROUP_ID",
    "INVALID_RECORD_STATE", "INVALID_REGISTRATION", "INVALID_REGULAR_EXPRESSION", "INVALID_REPLICA_ASSIGNMENT",
    "INVALID_SESSION_TIMEOUT", "INVALID_SHARE_SESSION_EPOCH", "INVALID_UPDATE_VERSION",
    "INVALID_VOTER_KEY", "MEMBER_ID_REQUIRED", "MISMATCHED_ENDPOINT_TYPE", "NON_EMPTY_GROUP", "NO_REASSIGNMENT_IN_PROGRESS",
    "OFFSET_METADATA_TOO_LARGE", "OFFSET_OUT_OF_RANGE", "PRINCIPAL_DESERIALIZATION_FAILURE", "REBALANCE_IN_PROGRESS",
    "RESOURCE_NOT_FOUND", "SHARE_SESSION_LIMIT_REACHED", "SHARE_SESSION_NOT_FOUND", "STALE_MEMBER_EPOCH",
    "STREAMS_INVALID_TOPOLOGY", "STREAMS_INVALID_TOPOLOGY_EPOCH", "STREAMS_TOPOLOGY_FENCED", "TELEMETRY_TOO_LARGE",
    "TOPIC_DELETION_DISABLED", "UNKNOWN_CONTROLLER_ID", "UNKNOWN_MEMBER_ID", "UNKNOWN_SUBSCRIPTION_ID", "UNRELEASED_INSTANCE_ID",
    "UNSTABLE_OFFSET_COMMIT", "UNSUPPORTED_ASSIGNOR", "UNSUPPORTED_ENDPOINT_TYPE", "VOTER_NOT_FOUND", "_ASSIGNMENT_LOST",
    "_ASSIGN_PARTITIONS", "_AUTO_OFFSET_RESET", "_EXISTING_SUBSCRIPTION", "_KEY_DESERIALIZATION", "_LOG_TRUNCATION",
    "_MAX_POLL_EXCEEDED", "_NO_OFFSET", "_PARTITION_EOF", "_REVOKE_PARTITIONS", "_UNKNOWN_GROUP", "_VALUE_DESERIALIZATION",
})
"""Codes of consumers, groups and administration. Should one reach a producer, it is retried."""
# fmt: on

_FENCED = frozenset(
    {"INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "PRODUCER_FENCED", "TRANSACTION_COORDINATOR_FENCED", "_FENCED"}
)
_UNKNOWN_REQUEST = frozenset({"UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE"})
_NO_TRANSACTIONS = "delivery.guarantee: exactly_once needs brokers that know transactions, Kafka 2.5 or later; set at_least_once"

_HINTS = {
    "GROUP_AUTHORIZATION_FAILED": "grant this user Read on the group",
    "INVALID_TIMESTAMP": "set the clock of this host right, or raise the topic's message.timestamp.after.max.ms",
    "INVALID_TRANSACTION_TIMEOUT": "raise transaction.max.timeout.ms of the brokers to 60000 or more",
    "MSG_SIZE_TOO_LARGE": "raise the topic's max.message.bytes, over 10 MiB kafka.client message.max.bytes too, or lower line.max_bytes",
    "UNKNOWN_TOPIC_OR_PART": "create the topic, or set kafka.create_topics",
    "_UNKNOWN_PARTITION": "add partitions to the topic, or change record.partition",
    "_UNKNOWN_TOPIC": "create the topic, or set kafka.create_topics",
    "TOPIC_AUTHORIZATION_FAILED": "grant this user Write and Describe on the topic",
    "CLUSTER_AUTHORIZATION_FAILED": "grant this user IdempotentWrite (brokers before 2.8) or Create on the cluster",
    "SASL_AUTHENTICATION_FAILED": "check username, password and mechanism under kafka.security, or oauth there",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "grant this user Write and Describe on transactional ids that begin with copycat.",
    "_AUTHENTICATION": "check username, password and mechanism under kafka.security, or oauth there",
    "_SSL": "check ca_file, cert_file and key_file under kafka.security",
}

_VARYING = re.compile(r" \(after \d+ ?ms( in state [A-Z_]+(, \d+ identical error\(s\) suppressed)?)?\)")
"""The part of librdkafka's messages that varies: the same error should read the same, in logs and as a reason."""
_REQUEST = re.compile(r"ProduceRequest for .* failed: (?P<words>Broker: .*?) \(broker \d+ PID\{.*", re.DOTALL)
"""How librdkafka words the refusal of a record in a transaction: the broker's words, with ids that vary."""

_CODES: dict[int, str] = {
    getattr(KafkaError, name): name for name in RECORD | BLOCKED | FATAL | RETRIABLE | NOT_PRODUCING if hasattr(KafkaError, name)
}


class RefusedRecordError(CopycatError):
    """A record that the client refused at once. `sent` counts the records of the same call before it, which are in flight."""

    def __init__(self, sent: int, reason: DataError) -> None:
        super().__init__(reason.message, reason.hint)
        self.sent = sent
        self.reason = reason


def code_name(error: KafkaError) -> str:
    """Returns the name of the error's code; librdkafka's own begin with `_`."""
    return _CODES.get(error.code(), f"code {error.code()}")


def classify(error: KafkaError) -> type[CopycatError]:
    """Returns the `CopycatError` class of `error`. Unknown codes are retriable: in doubt, repeat rather than lose."""
    name = code_name(error)
    if name in RECORD:
        return TimestampError if name == "INVALID_TIMESTAMP" else DataError
    if name in BLOCKED:
        return BlockedError
    return FatalError if name in FATAL else RetriableError


def translate(error: KafkaError, what: str) -> CopycatError:
    """Returns `error` as a `CopycatError`: `what` was being done, to which topic or broker, the broker's words, and the next step."""
    request = _REQUEST.match(error.str())
    words = request["words"] if request else _VARYING.sub("", error.str())
    return classify(error)(f"{what}: {words}", _HINTS.get(code_name(error), ""))


def creation_error(error: KafkaError) -> CopycatError:
    """Returns the error for a client that could not be created."""
    if code_name(error) == "_CRIT_SYS_RESOURCE":
        return no_more_threads(error.str())
    if error.code() == KafkaError.SASL_AUTHENTICATION_FAILED:  # its token expired just then
        return RetriableError(f"no Kafka client could be made: {error.str()}", "the agent tries again by itself")
    return FatalError(f"librdkafka refuses the kafka settings: {error.str()}", "correct the kafka section")


def no_more_threads(words: str) -> RetriableError:
    """Returns the error for a client that could not be created for lack of threads: each needs a few."""
    return RetriableError(f"no Kafka client could be made: {words}", "raise the limit of threads (ulimit -u, TasksMax), or run fewer tasks")


def telling_trouble(known: KafkaError | None, error: KafkaError) -> KafkaError:
    """Returns the connection error of a client to keep. "All brokers down" is a consequence of the error that is known already."""
    return error if known is None or code_name(error) != "_ALL_BROKERS_DOWN" else known


def with_trouble(error: CopycatError, trouble: KafkaError | None) -> CopycatError:
    """Returns `error` with the client's latest connection error, which mostly is the cause; None: it had none.

    A refused login is reported only as a connection error: a retriable `error` then becomes a `BlockedError`. "All brokers down"
    is left out: it adds nothing to `error`, and the library miscounts brokers at times.
    """
    if trouble is None or code_name(trouble) == "_ALL_BROKERS_DOWN":
        return error
    cause = translate(trouble, "")
    words = _VARYING.sub("", trouble.str())
    kind = BlockedError if isinstance(error, RetriableError) and isinstance(cause, BlockedError) else type(error)
    return kind(f"{error.message} ({words})", error.hint or cause.hint)


def transaction_refused(error: KafkaError, what: str, transactional_id: str) -> CopycatError | None:
    """Returns what an error means for a transactional producer with this id; None where it does not concern transactions."""
    name = code_name(error)
    if name in _FENCED:
        return FencedError(f"{what}: another producer has taken this id ({error.str()})")
    if name == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED":
        begin = ".".join(transactional_id.split(".")[:2])
        words = f"{what}: {_VARYING.sub('', error.str())}"
        return BlockedError(words, f"grant this user Write and Describe on transactional ids that begin with {begin}.")
    if name == "TOPIC_AUTHORIZATION_FAILED":  # the library does not say which
        return BlockedError(f"{what}: {_VARYING.sub('', error.str())}", _HINTS[name] + f", and on {OFFSETS_TOPIC}")
    return FatalError(f"{what}: {error.str()}", _NO_TRANSACTIONS) if name in _UNKNOWN_REQUEST else None
