"""Where records go: what every product says about Kafka, under its own names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from copycat_agent.definitions.client_settings import check_name
from copycat_agent.importing.model import Made, Report
from copycat_agent.importing.parts import Part, as_text
from copycat_agent.importing.words import references, secret

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
DEFAULT_TOPIC = "logs.imported"


def set_brokers(made: Made, servers: Sequence[str]) -> None:
    """Broker addresses."""
    if servers:
        made.section("kafka")["bootstrap_servers"] = [references(server) for server in servers]


def set_topic(made: Made, topic: str, part: Part | None, report: Report) -> None:
    """The topic. One that a log's content chooses needs a literal beginning, which is for a person to decide."""
    topic = references(topic)
    if topic.startswith("{") and not topic.startswith("{{"):
        report.cannot(
            part, "topic", "a topic that records choose freely: record.topic begins with imported. now; or name record.allowed_topics"
        )
        topic = f"imported.{topic}"
    made.section("record")["topic"] = topic


def set_security(made: Made, conf: Part, names: Mapping[str, str], report: Report) -> None:
    """TLS and SASL. `names` are the product's paths for username, password, mechanism, ca, cert, key, key_password."""
    found = {ours: conf.get(theirs) for ours, theirs in names.items()}
    security: dict[str, str] = {}
    username, password = found.get("username"), found.get("password")
    if username is not None or password is not None:
        mechanism = as_text(wanted.plain()).upper() if (wanted := found.get("mechanism")) is not None else "PLAIN"
        if mechanism not in _MECHANISMS:
            report.cannot(found["mechanism"], "SASL mechanism", f"known are {', '.join(_MECHANISMS)}")
            mechanism = "PLAIN"
        security["mechanism"] = mechanism
        if username is not None:
            security["username"] = references(as_text(username.plain()))
        if given := secret(password, "kafka_password", report, "password of Kafka"):
            security["password"] = given
    for ours, key in (("ca", "ca_file"), ("cert", "cert_file"), ("key", "key_file")):
        part = found.get(ours)
        if part is not None:
            value = part.plain()
            text = as_text(value[0] if isinstance(value, list) and value else value)
            if "-----BEGIN" in text:
                report.note(part, key, "a certificate or key within the file: write it into one of its own")
                text = f"/etc/copycat/{key.removesuffix('_file')}.pem"
            security[key] = references(text)
    if given := secret(found.get("key_password"), "kafka_key_password", report, "password of the client key"):
        security["key_password"] = given
    has_tls = any(name in security for name in ("ca_file", "cert_file")) or bool(found.get("tls") and conf.flag(names["tls"], default=True))
    if has_tls or "mechanism" in security:
        security["protocol"] = {(True, True): "SASL_SSL", (True, False): "SSL", (False, True): "SASL_PLAINTEXT"}[
            has_tls, "mechanism" in security
        ]
        made.section("kafka")["security"] = security


def set_client(made: Made, settings: Mapping[str, Part], report: Report) -> None:
    """Settings of librdkafka, or of Java's producer under the same names."""
    for name, part in settings.items():
        wrong = check_name(name)
        if wrong is None:
            made.section("kafka", "client")[name] = references(as_text(part.plain()))
        else:
            report.cannot(part, name, f"{wrong[0]}: {wrong[1]}" if wrong[1] else wrong[0])


def set_acks(part: Part | None, report: Report) -> None:
    """Acknowledgements are not for choosing: nothing may be lost."""
    if part is not None and not re.fullmatch(r"-1|all", as_text(part.plain())):
        report.note(part, "acks", "always all: a record counts as delivered when all in-sync replicas have it")
