"""Imports Flume's properties: sources TAILDIR and spooldir, and the KafkaSink at their channel."""

from __future__ import annotations

from collections.abc import Sequence

from copycat_agent.workbench.importing import common_settings
from copycat_agent.workbench.importing.common_settings import globs_of, name_of, references
from copycat_agent.workbench.importing.connect import of_properties
from copycat_agent.workbench.importing.imported import ConfigNode, ImportedDefinition, ImportReport, ImportResult

_SINKS = ("org.apache.flume.sink.kafka.kafkasink", "kafka")
_OF_SOURCE = (
    "channels", "positionfile", "batchsize", "maxbatchcount", "writeposinterval", "backoffsleepincrement", "maxbackoffsleep",
    "cachepatternmatching", "idletimeout", "skiptoend", "selector.type", "pollDelay", "bufferMaxLines", "consumeorder", "trackerdir",
    "trackingpolicy",
)  # fmt: skip
_OF_SINK = ("type", "channel", "flumebatchsize", "useflumeeventformat", "allowtopicoverride", "defaultpartitionid")
_SECURITY = {
    "ca": "ssl.ca.location", "cert": "ssl.certificate.location", "key": "ssl.key.location", "key_password": "ssl.key.password",
    "username": "sasl.username", "password": "sasl.password", "mechanism": "sasl.mechanism", "tls": "copycat.tls",
}  # fmt: skip
Parts = dict[str, ConfigNode]


def read(text: str, extra: Sequence[str] = ()) -> ImportResult:
    """Returns the definitions of a properties file, one for each source of its agents."""
    del extra
    report, properties = ImportReport(), of_properties(text).value
    agents = [key.removesuffix(".sources") for key in properties if key.endswith(".sources") and key.count(".") == 1]
    made = [one for agent in agents for one in _agent(agent, properties, report)]
    for key, part in properties.items():
        if part.taken or key.endswith((".sources", ".sinks", ".channels", ".sinkgroups")):
            continue
        kind = key.split(".")[1:2]
        if kind == ["channels"]:
            report.note(part, key, "a channel is not needed: positions move over what Kafka has")
        else:
            report.cannot(part, key, "not known to this import")
    return ImportResult(tuple(made), report)


def _agent(agent: str, properties: Parts, report: ImportReport) -> list[ImportedDefinition]:
    made = []
    for source in properties[f"{agent}.sources"].value.split():
        conf = _below(f"{agent}.sources.{source}.", properties)
        kind = conf.text("type").lower()
        if kind not in ("taildir", "spooldir"):
            report.cannot(properties.get(f"{agent}.sources.{source}.type"), f"source {source} ({kind})", "known are TAILDIR and spooldir")
            conf.plain()
            continue
        definition = ImportedDefinition(name_of(source, "flume"))
        definition.document["name"] = definition.name
        (_tail if kind == "taildir" else _spool)(conf, definition, report)
        _sink(agent, conf.text("channels").split(), properties, definition, report)
        for key, part in conf.items():
            if not part.taken and key.lower() in {one.lower() for one in _OF_SOURCE}:
                report.note(part, key, "of Flume itself: not needed")
        made.append(definition)
    return made


def _below(prefix: str, properties: Parts) -> ConfigNode:
    """Returns the keys below a prefix. The nodes are shared, so that they count as used in `properties`, too."""
    return ConfigNode({key.removeprefix(prefix): part for key, part in properties.items() if key.startswith(prefix)}, 1)


def _tail(conf: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    include = []
    for group in conf.text("filegroups").split():
        part, path = conf.get(f"filegroups.{group}"), references(conf.text(f"filegroups.{group}"))
        directory, _, name = path.rpartition("/")
        globs, is_same = globs_of(name)
        if part is not None and not is_same:
            why = f"source.include takes *, ? and [...]: {' and '.join(globs)} for now, which means other names"
            report.cannot(part, f"filegroups.{group}", why)
        include += [f"{directory}/{glob}" for glob in globs]
    source = made.section("source")
    source |= {"type": "log_file", "include": include or ["/var/log/*.log"]}
    if conf.flag("skipToEnd"):
        source["start_at"] = "end"
    if conf.flag("fileHeader"):
        report.note(conf.get("fileHeader"), "fileHeader", "write record.headers: {file: '{@file.path}'}")


def _spool(conf: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    source = made.section("source")
    source |= {"type": "spool_dir", "dir": references(conf.text("spoolDir")) or "/var/spool/flume", "format": "lines"}
    policy = conf.text("deletePolicy", "never").lower()
    source["cleanup"] = {"policy": "delete" if policy == "immediate" else "none"}
    if conf.flag("recursiveDirectorySearch"):
        source["recursive"] = True
    if (part := conf.get("trackingPolicy")) is not None and str(part.value).lower() == "tracker_dir":
        report.note(part, "trackingPolicy", "the files that Flume has finished keep their names: --positions with the spoolDir knows them")
    if policy == "never":
        report.note(conf.get("fileSuffix"), "fileSuffix", "a file that is read stays as it is, and is known again: it gets no suffix")
        source["exclude"] = [f"*{conf.text('fileSuffix', '.COMPLETED')}"]
    if (part := conf.get("includePattern")) is not None:
        source["pattern"], is_same = globs_of(conf.text("includePattern"))
        if not is_same:
            why = f"source.pattern takes *, ? and [...]: {' and '.join(source['pattern'])} for now, which means other names"
            report.cannot(part, "includePattern", why)


def _sink(agent: str, channels: list[str], properties: Parts, made: ImportedDefinition, report: ImportReport) -> None:
    """Adds the first KafkaSink of one of the channels."""
    sinks = properties.get(f"{agent}.sinks")
    for name in sinks.value.split() if sinks is not None else []:
        conf = _below(f"{agent}.sinks.{name}.", properties)
        kind, channel = conf.get("type"), conf.get("channel")
        if kind is None or channel is None or str(kind.value).lower() not in _SINKS or channel.value not in channels:
            continue
        common_settings.set_topic(made, conf.text("kafka.topic") or "default-flume-topic", conf.get("kafka.topic"), report)
        common_settings.set_brokers(made, conf.texts("kafka.bootstrap.servers"))
        producer = _below("kafka.producer.", dict(conf.items()))
        common_settings.set_acks(producer.get("acks"), report)
        common_settings.set_security(made, producer, _SECURITY, report)
        if protocol := producer.text("security.protocol").upper():
            made.section("kafka", "security")["protocol"] = protocol
        common_settings.set_client(made, {key: part for key, part in producer.items() if not part.taken}, report)
        for key, part in conf.items():
            if not part.taken and key.lower() in _OF_SINK:
                report.note(part, key, "of Flume itself: not needed")
        return
    report.cannot(None, f"source {made.name}", "no KafkaSink takes from its channel: write kafka.bootstrap_servers and record.topic")
    common_settings.set_topic(made, common_settings.DEFAULT_TOPIC, None, report)
