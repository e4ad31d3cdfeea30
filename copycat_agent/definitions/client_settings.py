"""The properties allowed under `kafka.client` and `source.kafka.client`: librdkafka's for tuning, never those that guarantees rely on.

Three kinds of names are refused, each with the option to use instead, or the reason: what the agent decides itself, what carries a secret,
and what loads code or runs a command. The table of properties is the library's own (`rd_kafka_conf_properties_show`), as
`tests/unit/definitions/test_client_settings.py` checks, which also prints it anew.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

VERSION = "2.16.0"

_CONSUMERS = """
    auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs consume.callback.max.messages
    coordinator.query.interval.ms enable.auto.commit enable.auto.offset.store enable.partition.eof fetch.error.backoff.ms
    fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id group.instance.id
    group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms isolation.level max.partition.fetch.bytes
    max.poll.interval.ms max.poll.records offset.store.method offset.store.path offset.store.sync.interval.ms
    partition.assignment.strategy queued.max.messages.kbytes queued.min.messages session.timeout.ms share.acknowledgement.mode
"""
_CALLBACKS = """
    background_event_cb closesocket_cb connect_cb consume_cb default_topic_conf dr_cb dr_msg_cb error_cb interceptors log_cb
    msg_order_cmp oauthbearer_token_refresh_cb offset_commit_cb opaque open_cb partitioner_cb rebalance_cb resolve_cb socket_cb
    ssl.certificate.verify_cb ssl_ca ssl_certificate ssl_engine_callback_data ssl_key stats_cb throttle_cb
"""
_TEXTS = """
    bootstrap.servers broker.version.fallback builtin.features client.id client.rack https.ca.location https.ca.pem metadata.broker.list
    partitioner plugin.library.paths sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.principal sasl.kerberos.service.name
    sasl.mechanism sasl.mechanisms sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config
    sasl.oauthbearer.extensions sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password
    sasl.username ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites
    ssl.crl.location ssl.curves.list ssl.engine.id ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location
    ssl.keystore.password ssl.providers ssl.sigalgs.list topic.blacklist transactional.id
"""
_SWITCHES = """
    allow.auto.create.topics api.version.request delivery.report.only.error enable.gapless.guarantee enable.idempotence
    enable.metrics.push enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification log.connection.close
    log.queue log.thread.name produce.offset.report sasl.oauthbearer.assertion.claim.jti.include socket.keepalive.enable
    socket.nagle.disable topic.metadata.refresh.sparse
"""

PROPERTIES: dict[str, str] = {
    "acks": "int -1..1000",
    "api.version.fallback.ms": "int 0..604800000",
    "api.version.request.timeout.ms": "int 1..300000",
    "batch.num.messages": "int 1..1000000",
    "batch.size": "int 1..2147483647",
    "broker.address.family": "enum any|v4|v6",
    "broker.address.ttl": "int 0..86400000",
    "client.dns.lookup": "enum use_all_dns_ips|resolve_canonical_bootstrap_servers_only",
    "compression.codec": "enum none|gzip|snappy|lz4|zstd",
    "compression.level": "int -1..12",
    "compression.type": "enum none|gzip|snappy|lz4|zstd",
    "connections.max.idle.ms": "int 0..2147483647",
    "debug": "flags generic|broker|topic|metadata|feature|queue|msg|protocol|"
    "cgrp|security|fetch|interceptor|plugin|consumer|admin|eos|mock|assignor|conf|telemetry|all",
    "delivery.timeout.ms": "int 0..2147483647",
    "enabled_events": "int 0..2147483647",
    "internal.termination.signal": "int 0..128",
    "linger.ms": "float 0..900000",
    "log_level": "int 0..7",
    "max.in.flight": "int 1..1000000",
    "max.in.flight.requests.per.connection": "int 1..1000000",
    "message.copy.max.bytes": "int 0..1000000000",
    "message.max.bytes": "int 1000..1000000000",
    "message.send.max.retries": "int 0..2147483647",
    "message.timeout.ms": "int 0..2147483647",
    "metadata.max.age.ms": "int 1..86400000",
    "metadata.recovery.rebootstrap.trigger.ms": "int 0..2147483647",
    "metadata.recovery.strategy": "enum none|rebootstrap",
    "queue.buffering.backpressure.threshold": "int 1..1000000",
    "queue.buffering.max.kbytes": "int 1..2147483647",
    "queue.buffering.max.messages": "int 0..2147483647",
    "queue.buffering.max.ms": "float 0..900000",
    "queuing.strategy": "enum fifo|lifo",
    "receive.message.max.bytes": "int 1000..2147483647",
    "reconnect.backoff.jitter.ms": "int 0..3600000",
    "reconnect.backoff.max.ms": "int 0..3600000",
    "reconnect.backoff.ms": "int 0..3600000",
    "request.required.acks": "int -1..1000",
    "request.timeout.ms": "int 1..900000",
    "retries": "int 0..2147483647",
    "retry.backoff.max.ms": "int 1..300000",
    "retry.backoff.ms": "int 1..300000",
    "sasl.kerberos.min.time.before.relogin": "int 0..86400000",
    "sasl.oauthbearer.assertion.algorithm": "enum RS256|ES256",
    "sasl.oauthbearer.assertion.claim.exp.seconds": "int 1..2147483647",
    "sasl.oauthbearer.assertion.claim.nbf.seconds": "int 0..2147483647",
    "sasl.oauthbearer.grant.type": "enum client_credentials|urn:ietf:params:oauth:grant-type:jwt-bearer",
    "sasl.oauthbearer.metadata.authentication.type": "enum none|azure_imds|aws_iam",
    "sasl.oauthbearer.method": "enum default|oidc",
    "security.protocol": "enum plaintext|ssl|sasl_plaintext|sasl_ssl",
    "socket.blocking.max.ms": "int 1..60000",
    "socket.connection.setup.timeout.ms": "int 1000..2147483647",
    "socket.max.fails": "int 0..1000000",
    "socket.receive.buffer.bytes": "int 0..100000000",
    "socket.send.buffer.bytes": "int 0..100000000",
    "socket.timeout.ms": "int 10..300000",
    "ssl.endpoint.identification.algorithm": "enum none|https",
    "statistics.interval.ms": "int 0..86400000",
    "sticky.partitioning.linger.ms": "int 0..900000",
    "topic.metadata.propagation.max.ms": "int 0..3600000",
    "topic.metadata.refresh.fast.cnt": "int 0..1000",
    "topic.metadata.refresh.fast.interval.ms": "int 1..60000",
    "topic.metadata.refresh.interval.ms": "int -1..3600000",
    "transaction.timeout.ms": "int 1000..2147483647",
    **dict.fromkeys(_TEXTS.split(), "text"),
    **dict.fromkeys(_SWITCHES.split(), "bool"),
    **dict.fromkeys(_CONSUMERS.split(), "consumer"),
    **dict.fromkeys(_CALLBACKS.split(), "callback"),
}
"""Name -> `bool`, `text`, `int LEAST..MOST`, `float LEAST..MOST`, `enum A|B`, `flags A|B`, or `consumer` and `callback`, which a file
cannot set for a producer. If a name is both global and per topic, the global one."""

_CODE = "it loads code or runs a command in the agent's process"
_PROMISE = "delivery.guarantee decides this"
_OAUTH = "use kafka.security.oauth, whose method says how a token is got"
_KERBEROS = (
    "Kerberos is not supported, since the client library comes without it: "
    "kafka.security.mechanism knows PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER"
)
_NO_EFFECT = "it has no effect on this agent: leave it out"

REFUSED: dict[str, str] = {
    "bootstrap.servers": "use kafka.bootstrap_servers",
    "metadata.broker.list": "use kafka.bootstrap_servers",
    "security.protocol": "use kafka.security.protocol",
    "sasl.mechanism": "use kafka.security.mechanism",
    "sasl.mechanisms": "use kafka.security.mechanism",
    "sasl.username": "use kafka.security.username",
    "sasl.password": "use kafka.security.password",
    "ssl.ca.location": "use kafka.security.ca_file",
    "ssl.ca.pem": "put it into a file and use kafka.security.ca_file",
    "https.ca.pem": "put it into a file and use https.ca.location",
    "ssl.certificate.location": "use kafka.security.cert_file",
    "ssl.certificate.pem": "put it into a file and use kafka.security.cert_file",
    "ssl.key.location": "use kafka.security.key_file",
    "ssl.key.pem": "put it into a file and use kafka.security.key_file",
    "ssl.key.password": "use kafka.security.key_password",
    "ssl.keystore.location": "convert it to PEM and use kafka.security.cert_file and key_file",
    "ssl.keystore.password": "convert the keystore to PEM and use kafka.security.key_password",
    "sasl.oauthbearer.method": "use kafka.security.oauth.method",
    "sasl.oauthbearer.client.id": "use kafka.security.oauth.client_id",
    "sasl.oauthbearer.client.credentials.client.id": "use kafka.security.oauth.client_id",
    "sasl.oauthbearer.client.secret": "use kafka.security.oauth.client_secret",
    "sasl.oauthbearer.client.credentials.client.secret": "use kafka.security.oauth.client_secret",
    "sasl.oauthbearer.scope": "use kafka.security.oauth.scope",
    "sasl.oauthbearer.token.endpoint.url": "use kafka.security.oauth.token_url",
    "sasl.oauthbearer.grant.type": "use kafka.security.oauth.method",
    "sasl.oauthbearer.metadata.authentication.type": "use kafka.security.oauth.method: azure_imds or msk_iam",
    "sasl.oauthbearer.extensions": "use kafka.security.oauth.extensions",
    "enable.sasl.oauthbearer.unsecure.jwt": "it sends tokens that anyone can make; " + _OAUTH,
    "transactional.id": "delivery.guarantee: exactly_once makes them, one for each lane",
    "transaction.timeout.ms": "it is 60 s with delivery.guarantee: exactly_once; delivery.max_batch_time makes transactions shorter",
    "queuing.strategy": "delivery.ordering decides this",
    "partitioner": "record.partition decides this",
    "allow.auto.create.topics": "use kafka.create_topics",
    "api.version.request": "the promises need what it would turn off",
    "api.version.fallback.ms": "the promises need brokers that answer it",
    "broker.version.fallback": "the promises need brokers newer than it is for",
    "builtin.features": "it describes the library and sets nothing",
    "enabled_events": "the agent decides which events it handles",
    "log.queue": "the agent decides where the library logs",
    "statistics.interval.ms": "the agent has its own statistics; nobody would read these and they would pile up",
    "internal.termination.signal": "the agent decides how it ends",
    **dict.fromkeys(
        (
            "ssl.ca.certificate.stores",
            "topic.metadata.refresh.fast.cnt",
            "socket.blocking.max.ms",
            "reconnect.backoff.jitter.ms",
            "produce.offset.report",
        ),
        _NO_EFFECT,
    ),
    **dict.fromkeys(("plugin.library.paths", "ssl.engine.location", "ssl.engine.id", "ssl.providers", "sasl.kerberos.kinit.cmd"), _CODE),
    **dict.fromkeys(
        ("sasl.kerberos.service.name", "sasl.kerberos.principal", "sasl.kerberos.keytab", "sasl.kerberos.min.time.before.relogin"),
        _KERBEROS,
    ),
    **dict.fromkeys(("sasl.oauthbearer.config", "sasl.oauthbearer.sub.claim.name"), _OAUTH),
    **dict.fromkeys(
        ("enable.idempotence", "enable.gapless.guarantee", "acks", "request.required.acks", "delivery.report.only.error"), _PROMISE
    ),
}
"""Names that librdkafka has and a definition must not set, with the option to use or the reason."""

_ASSERTION = "use kafka.security.oauth.assertion, with method: jwt_bearer"
REFUSED.update({name: _ASSERTION for name in PROPERTIES if name.startswith("sasl.oauthbearer.assertion.")})

_NARROWER = {
    "max.in.flight": "int 1..5",  # more than 5 could reorder: the library refuses them with idempotence
    "max.in.flight.requests.per.connection": "int 1..5",
    "retries": "int 1..2147483647",  # 0 is refused with idempotence
    "message.send.max.retries": "int 1..2147483647",
    "queue.buffering.max.messages": "int 1..10000000",  # 0 means unlimited, and memory must be limited
    "queue.buffering.max.kbytes": "int 1..2097151",
}

ACCEPTED: dict[str, str] = {
    name: _NARROWER.get(name, kind) for name, kind in PROPERTIES.items() if name not in REFUSED and kind not in {"callback", "consumer"}
}
"""Names that `kafka.client` may set, with the allowed values, written as in `PROPERTIES`."""

READING: dict[str, str] = {
    **ACCEPTED,
    "check.crcs": "bool",
    "fetch.error.backoff.ms": "int 0..5000",
    "fetch.max.bytes": "int 1000000..2147483135",  # less than message.max.bytes is refused
    "fetch.message.max.bytes": "int 1..1000000000",
    "fetch.min.bytes": "int 1..100000000",
    "fetch.queue.backoff.ms": "int 0..5000",
    "fetch.wait.max.ms": "int 0..5000",
    "max.partition.fetch.bytes": "int 1..1000000000",
    "queued.max.messages.kbytes": "int 1..2097151",
    "queued.min.messages": "int 1..10000000",
}
"""As `ACCEPTED`, for `source.kafka.client`. Waits are shorter than the library allows: a read without data for 20 s is given up."""

_REFUSED_READING = {
    "isolation.level": "use source.isolation",
    "auto.offset.reset": "use source.start_at",
    "group.id": "use source.group",
}


def check_name(name: str, accepted: Mapping[str, str] = ACCEPTED) -> tuple[str, str] | None:
    """Returns what is wrong with a name as (text, hint), or None if it may be set. `accepted`: `ACCEPTED` or `READING`."""
    if name in accepted:
        return None
    if name in REFUSED:
        return f"{name} cannot be set here", REFUSED[name]
    if PROPERTIES.get(name) == "consumer":
        return f"{name} cannot be set here", _of_consumers(name, accepted)
    if PROPERTIES.get(name) == "callback":
        return f"{name} cannot be set here", "it is for programs, not for files"
    near = difflib.get_close_matches(name.replace("_", "."), accepted, n=1, cutoff=0.7)
    hint = f"did you mean {near[0]}?" if near else "see CONFIGURATION.md of librdkafka for the names"
    return f"{name} is no property of librdkafka", hint


def _of_consumers(name: str, accepted: Mapping[str, str]) -> str:
    if accepted is READING:
        return _REFUSED_READING.get(name, "the agent keeps positions itself, and joins no group: it decides this")
    return "it is for consumers: set it in source.kafka.client" if name in READING else "it is for consumers, and the agent decides this"


def check_value(name: str, text: str) -> str | None:
    """Returns None if `text` is a valid value of the accepted `name`, else the valid ones. The text is never repeated."""
    kind, _, values = READING[name].partition(" ")
    if kind == "bool":
        return None if text in {"true", "false"} else "takes true or false"
    if kind in {"int", "float"}:
        return _check_number(text, values, r"-?\d{1,12}" if kind == "int" else r"-?\d{1,12}(\.\d{1,9})?")
    if kind == "enum":
        return None if text in values.split("|") else f"takes one of {values.replace('|', ', ')}"
    if kind == "flags":
        unknown = {flag.strip() for flag in text.split(",")} - set(values.split("|"))
        return f"takes a comma-separated list of {values.replace('|', ', ')}" if unknown else None
    return None if text else "must not be empty"


def _check_number(text: str, values: str, pattern: str) -> str | None:
    least, most = map(int, values.split(".."))
    if re.fullmatch(pattern, text, re.ASCII) and least <= float(text) <= most:
        return None
    return f"takes a number from {least} to {most}"
