"""What Kafka's error codes mean to us."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from copycat_agent.errors import BlockedError, CopycatError, DataError, FatalError, RetriableError, TimestampError
from copycat_agent.producer import kafka_errors
from copycat_agent.producer.client import ClientReports
from copycat_agent.producer.kafka_errors import classify, translate, with_trouble

TABLES = {name: getattr(kafka_errors, name) for name in ("RECORD", "BLOCKED", "FATAL", "RETRIABLE", "NOT_PRODUCING")}
CODES = {name for name in dir(KafkaError) if name.lstrip("_").isupper() and isinstance(getattr(KafkaError, name), int)}
"""Every code that the library has; `__` names and methods are left out by their case."""


def test_every_code_of_the_library_is_in_the_table() -> None:
    known = set().union(*TABLES.values())
    assert CODES - known - {"NO_ERROR"} == set()


def test_no_code_is_in_two_tables() -> None:
    names = [name for table in TABLES.values() for name in table]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("code", "kind"), [
    ("MSG_SIZE_TOO_LARGE", DataError), ("INVALID_RECORD", DataError), ("INVALID_TIMESTAMP", TimestampError),
    ("UNKNOWN_TOPIC_OR_PART", BlockedError), ("_UNKNOWN_TOPIC", BlockedError), ("_UNKNOWN_PARTITION", BlockedError),
    ("TOPIC_AUTHORIZATION_FAILED", BlockedError), ("_AUTHENTICATION", BlockedError), ("_SSL", BlockedError),
    ("UNSUPPORTED_VERSION", FatalError), ("INVALID_REQUIRED_ACKS", FatalError),
    ("_MSG_TIMED_OUT", RetriableError), ("_TRANSPORT", RetriableError), ("_PURGE_QUEUE", RetriableError), ("_FATAL", RetriableError),
    ("NOT_ENOUGH_REPLICAS", RetriableError), ("OUT_OF_ORDER_SEQUENCE_NUMBER", RetriableError), ("KAFKA_STORAGE_ERROR", RetriableError),
    ("GROUP_ID_NOT_FOUND", RetriableError), ("_STATE", RetriableError),
])  # fmt: skip
def test_codes_are_what_the_caller_has_to_do(code: str, kind: type[CopycatError]) -> None:
    assert classify(KafkaError(getattr(KafkaError, code))) is kind


def test_a_code_that_nobody_has_heard_of_is_retried() -> None:
    assert classify(KafkaError(9999)) is RetriableError


def test_a_translated_error_says_what_was_done_what_went_wrong_and_the_next_step() -> None:
    error = translate(KafkaError(KafkaError._SSL, "handshake failed"), "sending to k1:9093")
    assert str(error) == "sending to k1:9093: handshake failed; check ca_file, cert_file and key_file under kafka.security"


def test_a_refusal_in_a_transaction_has_the_brokers_words_alone() -> None:
    words = "ProduceRequest for a.b [0] with 1 message(s) failed: Broker: Message size too large (broker 1 PID{Id:184,Epoch:2}, base seq 0)"
    for end in ("", ": current transaction must be aborted"):
        error = translate(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, words + end), "Kafka refused a record")
        assert error.message == "Kafka refused a record: Broker: Message size too large"


@pytest.mark.parametrize("order", [1, -1])
def test_trouble_of_the_cluster_counts_more_than_a_refused_record_and_that_more_than_its_neighbours(order: int) -> None:
    codes = [KafkaError._MSG_TIMED_OUT, KafkaError.INVALID_TIMESTAMP, KafkaError._INVALID_DIFFERENT_RECORD]
    while codes:
        reports = ClientReports()
        reports.failures = {code: KafkaError(code) for code in codes[::order]}
        worst = reports.worst()
        assert worst is not None
        assert worst.code() == codes.pop(0)
    assert ClientReports().worst() is None


def test_a_refused_login_makes_a_time_out_a_matter_for_a_person() -> None:
    words = "SASL authentication error (after 12ms in state AUTH_REQ, 3 identical error(s) suppressed)"
    trouble = KafkaError(KafkaError._AUTHENTICATION, words)
    error = with_trouble(RetriableError("no broker answers"), trouble)
    assert isinstance(error, BlockedError)
    assert error.message == "no broker answers (SASL authentication error)"
    assert "password" in error.hint


def test_trouble_with_the_connection_explains_an_error_without_changing_its_kind() -> None:
    trouble = KafkaError(KafkaError._TRANSPORT, "Connection refused (after 0ms in state CONNECT)")
    for kind in (RetriableError, BlockedError, FatalError):
        error = with_trouble(kind("no answer", "wait"), trouble)
        assert (type(error), error.message, error.hint) == (kind, "no answer (Connection refused)", "wait")
    assert with_trouble(RetriableError("no answer"), None).message == "no answer"


def test_that_all_brokers_are_down_is_not_repeated() -> None:
    trouble = KafkaError(KafkaError._ALL_BROKERS_DOWN, "0/2 brokers are down")
    assert with_trouble(RetriableError("no broker answers"), trouble).message == "no broker answers"
