"""Whether a user may begin transactions on a cluster, found by beginning to: `copycat doctor` asks."""

from __future__ import annotations

import logging
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from copycat_agent.errors import BlockedError, CopycatError, RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer.outcomes import not_made, translate, with_trouble
from copycat_agent.producer.settings import transactional_settings

_LEAST_SECONDS = 1.0
_silent = logging.Logger("silent")  # noqa: LOG001 - it is nobody's: a refused producer writes to stderr at any level, and its error tells it
_silent.addHandler(logging.NullHandler())


def probe_transactions(options: KafkaOptions, transactional_id: str, timeout_ms: int, deadline: float) -> None:
    """Ask for the id, as a lane does for its own, and let it go. The broker forgets it after a week (transactional.id.expiration.ms).

    `timeout_ms` is the transactions' time-out; `deadline` is `time.monotonic()`'s. Raises BlockedError when this user may not, or a
    transaction may not last so long; RetriableError when no coordinator answers in time; FatalError when the cluster has no transactions.
    """
    trouble: list[KafkaError] = []
    settings: dict[str, Any] = {
        **transactional_settings(options, "copycat-doctor", transactional_id, timeout_ms),
        "error_cb": trouble.append,
    }
    try:
        producer = Producer(settings, logger=_silent)
    except KafkaException as exception:
        raise not_made(exception.args[0]) from None
    try:
        producer.init_transactions(max(_LEAST_SECONDS, deadline - time.monotonic()))
    except KafkaException as exception:
        raise _refusal(exception.args[0], trouble, timeout_ms) from None


def _refusal(error: KafkaError, trouble: list[KafkaError], timeout_ms: int) -> CopycatError:
    what = "transactions"
    if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        words = f"{what}: the brokers allow none that lasts {timeout_ms // 1000} s"
        return BlockedError(words, f"raise transaction.max.timeout.ms of the brokers to {timeout_ms} or more")
    if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return BlockedError(f"{what}: {error.str()}")  # who asks has the command
    found = translate(error, what)
    return with_trouble(found, trouble[-1]) if trouble and isinstance(found, RetriableError) else found
