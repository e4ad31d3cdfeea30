"""Turns the `kafka` section into librdkafka's configuration: what is fixed, and what the definition may override.

Names and meanings: https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError

from copycat_agent.errors import FatalError
from copycat_agent.oauth import KAFKA_OAUTH, Tokens, tokens_of
from copycat_agent.options import KafkaOptions, SecurityOptions

INTERVAL_SECONDS = 5.0
"""Time between two statistics reports of a producer: each costs 0.4 ms of CPU, with a dozen partitions."""
MESSAGE_TIMEOUT_MS = 30_000
"""A record that is not acknowledged within this time makes its batch retriable (message.timeout.ms)."""

_DEFAULTS = {
    "compression.type": "lz4",  # text shrinks to a fifth for a tenth of the CPU that sending it would take
    "linger.ms": "5",  # fills a batch under load; a flush does not wait for it
    "batch.size": "1000000",  # bytes before compression; below the broker's default limit of 1,048,588 for a batch
    # Counts before compression, the topic's limit after it: the broker decides what is too large. A record larger than a batch
    # is sent in one of its own.
    "message.max.bytes": "10485760",
    "queue.buffering.max.messages": "100000",  # bounds memory, and wakes the reader often enough under back-pressure
    "queue.buffering.max.kbytes": "65536",
    "message.timeout.ms": str(MESSAGE_TIMEOUT_MS),
    "partitioner": "murmur2_random",  # the Java client's placement, so that consumers can join on keys
    "topic.metadata.propagation.max.ms": "5000",  # a topic deleted meanwhile is an error after this time, not after 30 s
    "socket.timeout.ms": "10000",
    "reconnect.backoff.ms": "100",
    "reconnect.backoff.max.ms": "2000",  # a broker that is back is used within two seconds, not ten
    "log_level": "2",  # relevant errors come through callbacks; librdkafka's own log goes to the JVM's pipe
}
OURS: dict[str, str | bool] = {
    "statistics.interval.ms": f"{INTERVAL_SECONDS * 1000:.0f}",
    "enable.idempotence": "true",
    "acks": "all",
    "delivery.report.only.error": True,  # successes cost no call into Python: a flush with nothing left acknowledges them
}

TRANSACTION_TIMEOUT_MS = 60_000
"""Time after which the broker aborts an open transaction; until then it keeps readers waiting (transaction.timeout.ms)."""
_LOGIN_REFUSED = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})  # noqa: SLF001 - its spelling
_LANE_DEFAULTS = {
    "retry.backoff.ms": "10",  # an init that finds the previous transaction not quite ended asks again soon
    "reconnect.backoff.ms": "20",  # the library also waits half as long before its second connection
}

SILENT = logging.getLogger("librdkafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
"""Logger for producers: the library writes about a fenced one on stderr, whatever its log level; relevant errors come through callbacks."""


def _security(options: SecurityOptions) -> dict[str, str]:
    named = {
        "security.protocol": options.protocol,
        "sasl.mechanism": options.mechanism,
        "sasl.username": options.username,
        "sasl.password": options.password and options.password.get_secret_value(),
        "ssl.ca.location": options.ca_file,
        "ssl.certificate.location": options.cert_file,
        "ssl.key.location": options.key_file,
        "ssl.key.password": options.key_password and options.key_password.get_secret_value(),
    }
    return {name: value for name, value in named.items() if value}


def _tokens(options: KafkaOptions) -> Tokens | None:
    oauth = options.security.oauth
    if oauth is None:
        return None
    authorities = options.client.get("https.ca.location")  # librdkafka would use it if it fetched tokens
    return tokens_of(oauth, None if authorities == "probe" else authorities, KAFKA_OAUTH)


def invalidate_token(options: KafkaOptions, error: KafkaError) -> None:
    """Called with an error of a client: after a refused login, the next client does not try the same token."""
    if error.code() in _LOGIN_REFUSED and (tokens := _tokens(options)) is not None:
        tokens.invalidate()


def connection_settings(options: KafkaOptions) -> dict[str, Any]:
    """Returns the settings that every client of this cluster needs. They contain secrets: never log or print them.

    Raises FatalError when no broker address is known; RetriableError or BlockedError where the login needs a token and gets none.
    """
    if not options.bootstrap_servers:
        raise FatalError(
            "no Kafka address is known",
            "set kafka.bootstrap_servers in agent.yaml or --bootstrap-servers; for a trial, start one with: copycat dev-broker",
        )
    settings: dict[str, Any] = {"bootstrap.servers": ",".join(options.bootstrap_servers), **_security(options.security)}
    if (tokens := _tokens(options)) is not None:
        # librdkafka's own OIDC fetches one per client, and exactly once has one client per transaction: tokens are fetched here and shared
        tokens.token()  # a client that is made without one waits ten seconds for it, and does not report why it does not come
        settings["oauth_cb"] = tokens.give
    return settings


def client_settings(options: KafkaOptions) -> dict[str, Any]:
    """Returns the configuration of an admin client: `kafka.client` and `connection_settings`. Raises as the latter does."""
    return {"log_level": "0", **options.client, **connection_settings(options)}


def producer_settings(options: KafkaOptions, client_id: str, batch_bytes: int = 0, *, tracked: bool = False) -> dict[str, Any]:
    """Returns the configuration of an idempotent, acks=all producer. `kafka.client` overrides defaults, but never `OURS`.

    `batch_bytes`, the most that a topic was found to take at once, overrides both; 0 where no topic was found to take less.
    `tracked`: successes are reported, too. Raises as `connection_settings` does.
    """
    return _settings(options, _DEFAULTS, client_id, batch_bytes, tracked=tracked)


def _settings(options: KafkaOptions, defaults: Mapping[str, str], client_id: str, batch_bytes: int, *, tracked: bool) -> dict[str, Any]:
    found = {"batch.size": str(batch_bytes)} if batch_bytes else {}
    ours = {**OURS, "delivery.report.only.error": not tracked}
    return {"client.id": client_id, **defaults, **options.client, **found, **connection_settings(options), **ours}


def transactional_settings(
    options: KafkaOptions,
    client_id: str,
    transactional_id: str,
    timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    batch_bytes: int = 0,
    *,
    tracked: bool = False,
) -> dict[str, Any]:
    """Returns the configuration of a producer for one transaction, which the broker aborts after `timeout_ms`; else as `producer_settings`.

    Records and requests time out after half of that at most.
    """
    settings = _settings(options, {**_DEFAULTS, **_LANE_DEFAULTS}, client_id, batch_bytes, tracked=tracked)
    settings.pop("delivery.timeout.ms", None)  # an alias of message.timeout.ms
    waits = {"message.timeout.ms": message_timeout_ms(options), "socket.timeout.ms": int(settings["socket.timeout.ms"])}
    within = {name: str(min(wait, timeout_ms // 2)) for name, wait in waits.items()}
    return {**settings, **within, "transactional.id": transactional_id, "transaction.timeout.ms": str(timeout_ms)}


def message_timeout_ms(options: KafkaOptions) -> int:
    """Returns how long to wait for a record's acknowledgement: as `kafka.client` says; the default also for 0 (no limit)."""
    limit = options.client.get("message.timeout.ms") or options.client.get("delivery.timeout.ms") or 0
    return int(limit) or MESSAGE_TIMEOUT_MS
