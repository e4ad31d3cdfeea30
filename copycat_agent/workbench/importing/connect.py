"""Imports a Kafka Connect connector from properties or JSON, with converters, errors and producer settings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from copycat_agent.workbench.importing import common_settings
from copycat_agent.workbench.importing.common_settings import name_of, references, secret
from copycat_agent.workbench.importing.connect_sources import add_source
from copycat_agent.workbench.importing.connect_steps import transforms
from copycat_agent.workbench.importing.imported import ConfigNode, ImportedDefinition, ImportReport, ImportResult, as_text, of_yaml

_NEEDLESS = re.compile(
    r"(offset\.|config\.storage|status\.storage|group\.id|plugin\.path|rest\.|listeners|internal\.|task\.shutdown|batch\.size|empty\.poll|file\.buffer|"
    r"errors\.(log|retry|deadletterqueue\.context)|schema\.generation|tasks\.file\.status|fs\.listing\.(class|interval)|value\.schema|key\.schema|connector\.client)"
)
_LOGIN = re.compile(r"(https?://)((?:\$\{[^}]*\}|[^/])*)@", re.IGNORECASE)
"""User and password in the address of a schema registry."""
_SECURITY = {
    "mechanism": "sasl.mechanism", "ca": "ssl.ca.location", "cert": "ssl.certificate.location", "key": "ssl.key.location",
    "key_password": "ssl.key.password",
}  # fmt: skip


def read(text: str, extra: Sequence[str] = ()) -> ImportResult:
    """Returns the definition of a connector's configuration; `extra` are texts of a worker's properties."""
    report = ImportReport()
    root = _parsed(text)
    for other in extra:
        for key, part in _parsed(other).items():
            root.value.setdefault(key, part)
    config = root.get("config")
    if config is None or not isinstance(config.value, dict):
        config = root
    made = ImportedDefinition(name_of(as_text(root.take("name") or config.take("name") or ""), "connect"))
    made.document["name"] = made.name
    config.text("name")
    if not add_source(config, made, report):
        return ImportResult((), report)
    _record(config, made, report)
    _errors(config, made)
    _kafka(config, made, report)
    transforms(config, made, report)
    _adapt_to_chain(config, made, report)
    left = ((path.removeprefix("config."), part) for path, part in root.left())
    report.rest(left, _NEEDLESS, "of Connect itself: not needed")
    return ImportResult((made,), report)


def _adapt_to_chain(config: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    """Sets what depends on the whole chain: whether records have fields, and the final topic."""
    converters, topic = made.document.get("converters", {}), made.section("record")["topic"]
    if made.document.get("transforms") and converters.get("value") == "string":
        report.note(config.get("value.converter"), "value.converter", "fields are written as JSON; Connect would have written Struct{...}")
        del converters["value"]
    for side in ("key", "value"):
        if isinstance(converters.get(side), dict) and "{" not in topic:
            converters[side]["subject"] = f"{topic}-{side}"


def _parsed(text: str) -> ConfigNode:
    return of_yaml(text) if text.lstrip().startswith("{") else of_properties(text)


def of_properties(text: str) -> ConfigNode:
    """Parses Java properties."""
    found: dict[str, ConfigNode] = {}
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        begin, line = number, lines[number].strip()
        while line.endswith("\\") and not line.endswith("\\\\") and number + 1 < len(lines):
            number += 1
            line = line[:-1] + lines[number].strip()
        number += 1
        if not line or line[0] in "#!":
            continue
        match = re.match(r"((?:\\.|[^=:\s\\])+)\s*[=:\s]?\s*(.*)", line)
        if match:
            found[_unescaped(match[1])] = ConfigNode(_unescaped(match[2]), begin + 1)
    return ConfigNode(found, 1)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"t": "\t", "n": "\n", "r": "\r"}.get(match[1], match[1]), text)


def _record(config: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    topic = config.text("topic") or common_settings.DEFAULT_TOPIC
    common_settings.set_topic(made, topic, config.get("topic"), report)
    for side in ("key", "value"):
        converter = config.text(f"{side}.converter").rpartition(".")[2]
        part = config.get(f"{side}.converter")
        if converter in ("AvroConverter", "JsonSchemaConverter", "ProtobufConverter"):
            _registry(config, side, converter, made, report)
        elif converter == "JsonConverter":
            if config.text(f"{side}.converter.schemas.enable", "true").lower() == "true":
                report.note(part, f"{side}.converter", "plain JSON is written, without Connect's envelope of schema and payload")
            if side == "value" and "format" not in made.section("source"):
                report.note(
                    part, "value.converter", "a line without transforms is sent as its bytes; Connect would have quoted it as a JSON text"
                )
        elif converter == "StringConverter" and side == "value" and made.section("source").get("format", "lines") == "lines":
            made.section("converters")[side] = "string"
        elif converter in ("ByteArrayConverter", "SimpleByteArrayConverter"):
            made.section("converters")[side] = "bytes"
        elif converter and converter != "StringConverter":
            report.cannot(part, f"{side}.converter {converter}", "known are string, bytes, json, avro, json_schema, protobuf")


def _registry(config: ConfigNode, side: str, converter: str, made: ImportedDefinition, report: ImportReport) -> None:
    prefix = f"{side}.converter"
    kind = {"AvroConverter": "avro", "JsonSchemaConverter": "json_schema", "ProtobufConverter": "protobuf"}[converter]
    options: dict[str, object] = {"type": kind, "subject": f"{made.section('record')['topic']}-{side}"}
    if config.text(f"{prefix}.auto.register.schemas", "true").lower() == "true":
        options["auto_register"] = True
    made.section("converters")[side] = options
    registry = made.section("converters", "schema_registry")
    address = config.text(f"{prefix}.schema.registry.url")
    in_url = _LOGIN.match(address)
    registry["url"] = references(_LOGIN.sub(r"\1", address).split(",")[0]) or "http://127.0.0.1:8081"
    part = config.get(f"{prefix}.basic.auth.user.info") or config.get(f"{prefix}.schema.registry.basic.auth.user.info")
    login = as_text(part.plain()) if part is not None else in_url[2] if in_url is not None else ""
    source = config.text(f"{prefix}.basic.auth.credentials.source")
    if login:
        user, _, password = login.partition(":")
        place = part or config.get(f"{prefix}.schema.registry.url")
        registry["basic_auth"] = {
            "username": references(user),
            "password": secret(
                ConfigNode(password, place.line if place else 0), "registry_password", report, "login of the schema registry"
            ),
        }
    elif source:
        report.note(
            config.get(f"{prefix}.basic.auth.credentials.source"),
            "credentials of the schema registry",
            "write converters.schema_registry.basic_auth",
        )


def _errors(config: ConfigNode, made: ImportedDefinition) -> None:
    if config.text("errors.tolerance").lower() == "all":
        made.section("errors")["tolerance"] = "all"
    if topic := config.text("errors.deadletterqueue.topic.name"):
        made.section("errors")["dlq"] = {"topic": topic}


def _kafka(config: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    common_settings.set_brokers(made, config.texts("producer.override.bootstrap.servers") or config.texts("bootstrap.servers"))
    overrides = {
        key.removeprefix("producer.override.").removeprefix("producer."): part
        for key, part in config.items()
        if key.startswith("producer.") and not part.taken
    }
    producer = ConfigNode(overrides, 1)
    _jaas(producer, report)
    common_settings.set_security(
        made, producer, _SECURITY | {"username": "copycat.username", "password": "copycat.password", "tls": "copycat.tls"}, report
    )
    protocol = producer.text("security.protocol").upper()
    if protocol:
        made.section("kafka", "security")["protocol"] = protocol
    for name in list(overrides):
        if name in ("acks", "enable.idempotence", "key.serializer", "value.serializer", "retries", "max.in.flight.requests.per.connection"):
            report.note(overrides[name], f"producer {name}", "always idempotent and acks=all")
        elif name.startswith(("ssl.truststore", "ssl.keystore")):
            report.cannot(overrides[name], f"producer {name}", "write kafka.security.ca_file, cert_file and key_file (PEM)")
    common_settings.set_client(made, {name: part for name, part in overrides.items() if not part.taken}, report)
    if (creation := config.text("topic.creation.default.partitions")).isdigit():
        replicas = config.text("topic.creation.default.replication.factor", "-1")
        made.section("kafka")["create_topics"] = {
            "partitions": int(creation),
            "replication_factor": int(replicas) if replicas.lstrip("-").isdigit() else -1,
        }


def _jaas(producer: ConfigNode, report: ImportReport) -> None:
    """Moves user and password from a JAAS line to settings."""
    part = producer.value.pop("sasl.jaas.config", None)
    if part is None:
        return
    text = as_text(part.plain())
    user, password = re.search(r'username="?([^"\s;]+)', text), re.search(r'password="?([^"\s;]+)', text)
    if user:
        producer.value["copycat.username"] = ConfigNode(user[1], part.line)
    if password:
        producer.value["copycat.password"] = ConfigNode(password[1], part.line)
    if user is None or password is None:
        report.cannot(part, "sasl.jaas.config", "write kafka.security: mechanism, username, password or oauth")
