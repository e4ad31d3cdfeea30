"""Imports rsyslog.conf in RainerScript: inputs of imfile, and the omkafka action of their ruleset. Everything else is listed."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from copycat_agent.workbench.importing import common_settings
from copycat_agent.workbench.importing.common_settings import name_of, pattern_of
from copycat_agent.workbench.importing.imported import ConfigNode, ImportedDefinition, ImportReport, ImportResult

_STATEMENT = re.compile(
    r"\b(input|action|module|global|ruleset|template|main_queue|parser|timezone|include|lookup_table)\s*\(", re.IGNORECASE
)
_PARAMETER = re.compile(r'\s*([\w.]+)\s*=\s*("(?:\\.|[^"\\])*"|\[[^\]]*\])\s*,?', re.DOTALL)
_TEXT = re.compile(r'"((?:\\.|[^"\\])*)"|\'((?:\\.|[^\'\\])*)\'', re.DOTALL)
_PLAIN = re.compile(r'"(?:\\.|[^"\\])*"|#[^\n]*|/\*.*?\*/', re.DOTALL)
_BLOCK = re.compile(r"\s*\{")
_BRACE = re.compile(r'"(?:\\.|[^"\\])*"|[{}]', re.DOTALL)
_OF_IMFILE = re.compile(
    r"(severity|facility|persiststateinterval|persiststateaftersubmission|maxlinesatonce|maxlinesperminute|maxbytesperminute|addmetadata|"
    r"addceetag|reopenontruncate|trimlineoverbytes|deletestateonfiledelete|deletestateonfilemove|statefile|maxsubmitatonce|sortfiles|"
    r"ruleset|escapelf|escapelf\.replacement|readtimeout|discardtruncatedmsg|msgdiscardingerror|needparse)"
)
_OF_OMKAFKA = re.compile(
    r"(type|name|queue\.|action\.|partitions\.|errorfile|statsfile|statsname|resubmitonfailure|keepfailedmessages|failedmsgfile|"
    r"closetimeout|template|dynatopic\.cachesize)"
)
_SECURITY = {
    "username": "sasl.username", "password": "sasl.password", "mechanism": "sasl.mechanism", "ca": "ssl.ca.location",
    "cert": "ssl.certificate.location", "key": "ssl.key.location", "key_password": "ssl.key.password",
}  # fmt: skip


class Statement(NamedTuple):
    """A statement `kind(name="value" ...)`, with names in lower case, in a `ruleset`, "" for none."""

    kind: str
    parameters: ConfigNode
    ruleset: str

    @property
    def type(self) -> str:
        """The type of an input or action; it is not marked as taken."""
        found = self.parameters.get("type")
        return "" if found is None else str(found.value).lower()


def read(text: str, extra: Sequence[str] = ()) -> ImportResult:
    """Returns the definitions of an rsyslog.conf, one for each input of imfile; `extra` are the texts of included files."""
    report = ImportReport()
    statements = [one for part in (text, *extra) for one in _statements(part, report)]
    actions = [one for one in statements if one.kind == "action" and one.type == "omkafka"]
    inputs = [one for one in statements if one.kind == "input" and one.type == "imfile"]
    made = [_definition(one, number, _action_of(one, actions), report) for number, one in enumerate(inputs, 1)]
    for one in statements:
        if one in inputs:
            report.rest(one.parameters.left(), _OF_IMFILE, "of rsyslog itself: not needed")
        elif one in actions:
            report.rest(one.parameters.left(), _OF_OMKAFKA, "of rsyslog itself: not needed")
        elif one.kind in ("input", "action"):
            report.cannot(one.parameters, f"{one.kind} {one.type}", "inputs of imfile and actions of omkafka are mapped")
        elif one.kind == "include":
            report.cannot(one.parameters, "include", "give the file with --with")
        else:
            report.note(one.parameters, one.kind, "of rsyslog itself: not needed")
    return ImportResult(tuple(made), report)


def _definition(given: Statement, number: int, action: Statement | None, report: ImportReport) -> ImportedDefinition:
    conf = given.parameters
    conf.text("type")
    made = ImportedDefinition(name_of(conf.text("tag"), f"rsyslog-{number}"))
    made.document["name"] = made.name
    source = made.section("source")
    source |= {"type": "log_file", "include": [conf.text("file") or "/var/log/*.log"]}
    if conf.flag("freshstarttail"):
        source["start_at"] = "end"
    for key, ours in (("startmsg.regex", "start"), ("endmsg.regex", "ends")):
        part, pattern = conf.get(key), pattern_of(conf.text(key))
        if part is not None and pattern is None:
            report.cannot(part, key, f"no regular expression of Python's: write source.multiline.{ours}")
        elif part is not None:
            made.section("source", "multiline")[ours] = pattern
    if conf.text("readmode") not in ("", "0"):
        report.cannot(conf.get("readmode"), "readMode", "write source.multiline: a preset, or start, continues or ends")
    if action is None:
        report.cannot(None, f"input {made.name}", "no action omkafka is in its ruleset: write kafka.bootstrap_servers and record.topic")
        common_settings.set_topic(made, common_settings.DEFAULT_TOPIC, None, report)
        return made
    _kafka(action.parameters, made, report)
    return made


def _kafka(conf: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    topic, brokers = conf.get("topic"), conf.texts("broker")
    if conf.flag("dynatopic"):
        report.cannot(topic, "dynaTopic", "a topic that a template chooses: write record.topic")
    common_settings.set_topic(made, conf.text("topic") if not conf.flag("dynatopic") else common_settings.DEFAULT_TOPIC, topic, report)
    common_settings.set_brokers(made, brokers or ["127.0.0.1:9092"])
    if (key := conf.get("key")) is not None:
        report.cannot(key, "key", "write record.key")
    settings = ConfigNode(dict(_settings(conf)), conf.line)
    common_settings.set_security(made, settings, _SECURITY | {"tls": "copycat.tls"}, report)
    if protocol := settings.text("security.protocol").upper():
        made.section("kafka", "security")["protocol"] = protocol
    common_settings.set_acks(settings.get("acks"), report)
    common_settings.set_client(made, {name: part for name, part in settings.items() if not part.taken}, report)
    report.note(conf.get("template"), "template", "the value is the line, without what a template of rsyslog puts around it")


def _settings(conf: ConfigNode) -> Iterator[tuple[str, ConfigNode]]:
    """Yields the settings in `confParam`, a list of `name=value`."""
    part = conf.get("confparam")
    for one in conf.texts("confparam"):
        name, sign, value = one.partition("=")
        if sign and part is not None:
            yield name.strip(), ConfigNode(value.strip(), part.line)


def _action_of(given: Statement, actions: Sequence[Statement]) -> Statement | None:
    """Returns the action of an input, the first one in its ruleset; None without one."""
    wanted = given.parameters.get("ruleset")
    ruleset = "" if wanted is None else str(wanted.value)
    return next((one for one in actions if one.ruleset == ruleset), None)


def _statements(text: str, report: ImportReport) -> Iterator[Statement]:
    """Yields the statements of RainerScript, and reports everything else, line by line."""
    plain = _PLAIN.sub(lambda match: match[0] if match[0][0] == '"' else _blank(match[0]), text)
    left, blocks, at = [], list[tuple[int, str]](), 0
    lines = [match.start() for match in re.finditer("\n", plain)]
    while (match := _STATEMENT.search(plain, at)) is not None:
        while blocks and blocks[-1][0] < match.start():
            blocks.pop()
        values, end = _parameters(plain, match.end(), lines)
        kind = match[1].lower()
        if kind == "ruleset" and (begun := _BLOCK.match(plain, end)):
            end = begun.end()
            blocks.append((_end_of_block(plain, end), str(values["name"].value) if "name" in values else ""))
        left += [plain[at : match.start()], _blank(plain[match.start() : end])]
        at = end
        line = bisect.bisect(lines, match.start()) + 1
        yield Statement(kind, ConfigNode(values, line), blocks[-1][1] if blocks and kind != "ruleset" else "")
    for number, rest in enumerate("".join([*left, plain[at:]]).split("\n"), 1):
        if rest.strip(" \t\r{}"):
            report.cannot(ConfigNode(rest, number), rest.strip()[:60], "not known to this import")


def _parameters(text: str, at: int, lines: Sequence[int]) -> tuple[dict[str, ConfigNode], int]:
    """Returns the parameters between parentheses, and where they end. `lines` are the positions of line ends."""
    values: dict[str, ConfigNode] = {}
    while (match := _PARAMETER.match(text, at)) is not None:
        number = bisect.bisect(lines, match.start(1)) + 1
        inner = [ConfigNode(re.sub(r"\\(.)", r"\1", one[1] or one[2] or ""), number) for one in _TEXT.finditer(match[2])]
        values[match[1].lower()] = ConfigNode(inner, number) if match[2][0] == "[" else (inner or [ConfigNode("", number)])[0]
        at = match.end()
    closing = text.find(")", at)
    return values, len(text) if closing < 0 else closing + 1


def _blank(text: str) -> str:
    """Returns blanks of the same length, with the same line ends."""
    return re.sub(r"[^\n]", " ", text)


def _end_of_block(text: str, at: int) -> int:
    """Returns the position of the brace that closes a block, or the end of the text."""
    depth = 1
    for match in _BRACE.finditer(text, at):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if not depth:
            return match.start()
    return len(text)
