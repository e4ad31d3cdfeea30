"""What may stand under `kafka.client`: librdkafka properties that tune, never those that carry the promises.

Three kinds of names are refused, each with the place where the same thing is said, or the reason: what the agent decides
itself, what carries a secret, and what loads code or runs a command.
"""

from __future__ import annotations

import difflib
import re

from copycat_agent.definitions.librdkafka import PROPERTIES

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
    "ssl.ca.certificate.stores": _NO_EFFECT,
    "plugin.library.paths": _CODE,
    "ssl.engine.location": _CODE,
    "ssl.engine.id": _CODE,
    "ssl.providers": _CODE,
    "sasl.kerberos.kinit.cmd": _CODE,
    "sasl.kerberos.service.name": _KERBEROS,
    "sasl.kerberos.principal": _KERBEROS,
    "sasl.kerberos.keytab": _KERBEROS,
    "sasl.kerberos.min.time.before.relogin": _KERBEROS,
    "sasl.oauthbearer.method": "use kafka.security.oauth.method",
    "sasl.oauthbearer.config": _OAUTH,
    "sasl.oauthbearer.client.id": "use kafka.security.oauth.client_id",
    "sasl.oauthbearer.client.credentials.client.id": "use kafka.security.oauth.client_id",
    "sasl.oauthbearer.client.secret": "use kafka.security.oauth.client_secret",
    "sasl.oauthbearer.client.credentials.client.secret": "use kafka.security.oauth.client_secret",
    "sasl.oauthbearer.scope": "use kafka.security.oauth.scope",
    "sasl.oauthbearer.token.endpoint.url": "use kafka.security.oauth.token_url",
    "sasl.oauthbearer.grant.type": "use kafka.security.oauth.method",
    "sasl.oauthbearer.metadata.authentication.type": "use kafka.security.oauth.method: azure_imds or msk_iam",
    "sasl.oauthbearer.sub.claim.name": _OAUTH,
    "sasl.oauthbearer.extensions": "use kafka.security.oauth.extensions",
    "enable.sasl.oauthbearer.unsecure.jwt": "it sends tokens that anyone can make; " + _OAUTH,
    "enable.idempotence": _PROMISE,
    "enable.gapless.guarantee": _PROMISE,
    "acks": _PROMISE,
    "request.required.acks": _PROMISE,
    "transactional.id": "delivery.guarantee: exactly_once makes them, one for each lane",
    "transaction.timeout.ms": "it is 60 s with delivery.guarantee: exactly_once; delivery.max_batch_time makes transactions shorter",
    "delivery.report.only.error": _PROMISE,
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
    "topic.metadata.refresh.fast.cnt": _NO_EFFECT,
    "socket.blocking.max.ms": _NO_EFFECT,
    "reconnect.backoff.jitter.ms": _NO_EFFECT,
    "produce.offset.report": _NO_EFFECT,
}
"""Names that librdkafka knows and a definition may not set, with the right place or the reason."""

_ASSERTION = "use kafka.security.oauth.assertion, with method: jwt_bearer"
REFUSED.update({name: _ASSERTION for name in PROPERTIES if name.startswith("sasl.oauthbearer.assertion.")})

_NARROWER = {
    "max.in.flight": "int 1..5",  # more than 5 could reorder: the library refuses them with idempotence
    "max.in.flight.requests.per.connection": "int 1..5",
    "retries": "int 1..2147483647",  # 0 is refused with idempotence
    "message.send.max.retries": "int 1..2147483647",
    "queue.buffering.max.messages": "int 1..10000000",  # 0 means without bound, and memory must have one
    "queue.buffering.max.kbytes": "int 1..2097151",
}

ACCEPTED: dict[str, str] = {
    name: _NARROWER.get(name, kind) for name, kind in PROPERTIES.items() if name not in REFUSED and kind not in {"callback", "consumer"}
}
"""Names that `kafka.client` may set, with the values they take, written as in `librdkafka.PROPERTIES`."""


def check_name(name: str) -> tuple[str, str] | None:
    """What is wrong with a name as (text, hint), or None when it may be set."""
    if name in ACCEPTED:
        return None
    if name in REFUSED:
        return f"{name} cannot be set here", REFUSED[name]
    if PROPERTIES.get(name) == "consumer":
        return f"{name} cannot be set here", "it is for consumers, and this agent only produces"
    if PROPERTIES.get(name) == "callback":
        return f"{name} cannot be set here", "it is for programs, not for files"
    near = difflib.get_close_matches(name.replace("_", "."), ACCEPTED, n=1, cutoff=0.7)
    hint = f"did you mean {near[0]}?" if near else "see CONFIGURATION.md of librdkafka for the names"
    return f"{name} is no property of librdkafka", hint


def check_value(name: str, text: str) -> str | None:
    """What values an accepted `name` takes, when `text` is none of them; else None. The text itself is never repeated."""
    kind, _, values = ACCEPTED[name].partition(" ")
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
