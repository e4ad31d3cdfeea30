"""Converts what several products share: patterns, durations, secrets, conditions, and settings of Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from copycat_agent.definitions.client_settings import check_name
from copycat_agent.workbench.importing.imported import ConfigNode, ImportedDefinition, ImportReport, as_text

_CLASSES = {
    "[:space:]": r"\s", "[:digit:]": r"\d", "[:word:]": r"\w", "[:alpha:]": "a-zA-Z", "[:alnum:]": "a-zA-Z0-9", "[:upper:]": "A-Z",
    "[:lower:]": "a-z", "[:xdigit:]": "0-9a-fA-F", "[:blank:]": r" \t", "[:punct:]": r"!-/:-@\[-`{-~", "[:cntrl:]": r"\x00-\x1f\x7f",
}  # fmt: skip
_GO = (
    ("2006", "%Y"), ("January", "%B"), ("Monday", "%A"), ("Jan", "%b"), ("Mon", "%a"), ("-07:00", "%z"), ("-0700", "%z"), ("Z07:00", "%z"),
    ("Z0700", "%z"), ("MST", "%Z"), ("PM", "%p"), ("01", "%m"), ("02", "%d"), ("_2", "%d"), ("03", "%I"), ("04", "%M"), ("05", "%S"),
    ("06", "%y"),
    ("15", "%H"),
)  # fmt: skip
_REFERENCE = re.compile(r"\$\{([^}]*)\}|\$([A-Z_][A-Z0-9_]*)\b")
Matcher = dict[str, Any]
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
DEFAULT_TOPIC = "logs.imported"


def pattern_of(text: str) -> str | None:
    """Returns a regular expression of Go, Rust, Java or Ruby in Python's syntax; None if Python cannot compile it."""
    for name, characters in _CLASSES.items():
        text = text.replace(name, characters)
    text = re.sub(r"\(\?<([A-Za-z_]\w*)>", r"(?P<\1>", text)
    text = text.replace(r"\z", r"\Z").replace(r"\h", "[0-9a-fA-F]")
    text = re.sub(r"\\p\{(?:L|Alpha)\}", "[^\\\\W\\\\d_]", text)
    flags = re.match(r"\(\?([a-zU]+)\)", text)
    if flags and set(flags[1]) - set("imsx"):
        return None
    try:
        re.compile(text)
    except re.error:
        return None
    return text


def ruby_pattern(text: str) -> str | None:
    """As `pattern_of`, for Fluent Bit, whose patterns may be between slashes; its flag `m` is Python's `s`."""
    match = re.fullmatch(r"/(.*)/([imx]*)", text.strip(), re.DOTALL)
    if match:
        text = (f"(?{match[2].replace('m', 's')})" if match[2] else "") + match[1]
    return pattern_of(text)


def duration_of(text: str) -> str | None:
    """Returns a duration such as `10s`, `1h30m`, `24h` or `5` (seconds) in our form; None for any other text."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return f"{text}s"
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    if len(parts) == 1:
        return text
    seconds = sum(float(number) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}[unit] for number, unit in parts)
    return f"{seconds:g}s"


def go_layout(text: str) -> str | None:
    """Returns a layout of Go's `time` as directives; None if a part of it has none."""
    if text in ("UNIX", "UNIX_MS"):
        return text.lower()
    out, rest = "", text
    while rest:
        if fraction := re.match(r"([.,])(0+|9+)", rest):
            out, rest = f"{out}{fraction[1]}%f", rest[fraction.end() :]
            continue
        found = next(((old, new) for old, new in _GO if rest.startswith(old)), None)
        if found:
            out, rest = out + found[1], rest[len(found[0]) :]
        elif rest[0].isdigit():
            return None
        else:
            out, rest = out + ("%%" if rest[0] == "%" else rest[0]), rest[1:]
    return (
        "rfc3339" if text in ("2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05.999999999Z07:00", "2006-01-02T15:04:05.999Z07:00") else out
    )


def globs_of(pattern: str) -> tuple[list[str], bool]:
    """Returns a regular expression for file names as patterns with *, ? and [...], and whether they mean the same; "*" if none is near."""
    stands_apart = re.search(r"\\d\+|(?<!\.)\*", pattern)  # [0-9]* is a digit and anything, and [a-z]* one letter and anything
    bare = re.sub(r"\.\*|\.\+", "*", pattern.removeprefix("^").removesuffix("$")).replace("\\.", ".").replace("\\d+", "[0-9]*")
    either = re.fullmatch(r"([^(]*)\((?:\?:)?([^()]*)\)([^()]*)", bare)
    globs = [f"{either[1]}{one}{either[3]}" for one in either[2].split("|")] if either else [bare]
    if any(re.search(r"[\\(){}|+?]", glob) or not glob for glob in globs):
        return ["*"], False
    return globs, not stands_apart


def name_of(text: str, default: str) -> str:
    """Returns a valid name of a connector made from a text."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].rstrip("-") or default


def references(text: str) -> str:
    """Returns a text with `${VAR}`, `${VAR:default}` and `${VAR:-default}` replaced by our references."""

    def ours(match: re.Match[str]) -> str:
        body = match[1] if match[1] is not None else match[2]
        if body.startswith("file:"):  # Kafka Connect's: a file of properties and a key in it
            return "${cred:" + (body.rpartition(":")[2] or "secret") + "}"
        name, sign, default = body.removeprefix("env:").partition(":")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            return "$" + match[0]
        return f"${{env:{name}{':-' + default.removeprefix('-') if sign else ''}}}"

    return _REFERENCE.sub(ours, text)


def constant(value: Any) -> Any:  # noqa: ANN401 - any value in a file
    """Returns what `set` and `headers` need to make this value: its texts as templates, in which only references are not literal."""
    if isinstance(value, str):
        parts = re.split(r"((?<!\$)\$\{[^}]*\})", value)
        return "".join(part if number % 2 else part.replace("{", "{{").replace("}", "}}") for number, part in enumerate(parts))
    if isinstance(value, dict):
        return {key: constant(inner) for key, inner in value.items()}
    return [constant(inner) for inner in value] if isinstance(value, list) else value


def secret(part: ConfigNode | None, name: str, report: ImportReport, what: str) -> str | None:
    """Returns a reference in place of a secret, which is never shown; None if there is no secret."""
    if part is None:
        return None
    text = str(part.plain())
    if "${" in text or re.fullmatch(r"\$[A-Z_]+", text):
        return references(text)
    report.note(part, what, f"a secret does not belong into a file: put it into the credential {name}, which the definition refers to")
    return f"${{cred:{name}}}"


def template_of(text: str, sign: re.Pattern[str]) -> str:
    """Returns a template with fields in our form. `sign` matches a field, and has one group, its path."""
    escaped = text.replace("{", "\0").replace("}", "\1") if not sign.search(text) else text
    made = sign.sub(lambda match: "{" + match[1].strip().lstrip(".") + "}", escaped)
    return made.replace("\0", "{{").replace("\1", "}}")


def joined(matchers: Iterable[Matcher | None]) -> Matcher | None:
    """Returns all matchers as one; None if one of them is None, or two conditions on one field cannot be combined."""
    out: Matcher = {}
    for matcher in matchers:
        if matcher is None:
            return None
        for field, condition in matcher.items():
            if field not in out:
                out[field] = condition
            elif isinstance(out[field], dict) and isinstance(condition, dict) and not out[field].keys() & condition.keys():
                out[field] = {**out[field], **condition}
            else:
                return None
    return out


def any_pattern(patterns: Sequence[str]) -> str | None:
    """Returns one pattern that matches if any of several does; None if Python cannot compile one of them."""
    found = [pattern_of(text) for text in patterns]
    if not found or None in found:
        return None
    return str(found[0]) if len(found) == 1 else "|".join(f"(?:{one})" for one in found)


def keep_lines(
    made: ImportedDefinition, action: str, patterns: Sequence[str], part: ConfigNode | None, report: ImportReport, what: str
) -> None:
    """Adds `keep_if` or `drop_if` by the text of the line."""
    if not patterns:
        return
    pattern = any_pattern(patterns)
    if pattern is None:
        report.cannot(part, what, "no regular expression of Python's: write keep_if or drop_if with matches")
        return
    made.step(**{action: {"message": {"matches": pattern}}})


def dissect(tokenizer: str) -> str | None:
    """Returns a dissect pattern as a regular expression, in which `%{name}` matches up to the next text; None if it has no counterpart."""
    out, position = "^", 0
    names: set[str] = set()
    for match in re.finditer(r"%\{([^}]*)\}", tokenizer):
        out += re.escape(tokenizer[position : match.start()])
        name = match[1]
        if re.search(r"[+*&|#]", name.removesuffix("->")) or (match.end() < len(tokenizer) and tokenizer.startswith("%{", match.end())):
            return None
        padded, name = name.endswith("->"), name.removesuffix("->").lstrip("?")
        is_last = match.end() == len(tokenizer)
        within = "(?s:.*)" if is_last else ".*?"
        if match[1].startswith("?") or not name:
            out += within
        elif re.fullmatch(r"[A-Za-z_]\w*", name) and name not in names:
            names.add(name)
            out += f"(?P<{name}>{within})"
        else:
            return None
        position = match.end()
        if padded and not is_last:
            following = tokenizer[position]
            out += f"{re.escape(following)}+"
            position += 1
    return (out + re.escape(tokenizer[position:])).replace(r"\ ", " ").replace(r"\-", "-") if names else None


def set_brokers(made: ImportedDefinition, servers: Sequence[str]) -> None:
    """Sets the brokers' addresses."""
    if servers:
        made.section("kafka")["bootstrap_servers"] = [references(server) for server in servers]


def set_topic(made: ImportedDefinition, topic: str, part: ConfigNode | None, report: ImportReport) -> None:
    """Sets the topic. A topic from a record's content needs a literal beginning, which a person must choose."""
    topic = references(topic)
    if topic.startswith("{") and not topic.startswith("{{"):
        report.cannot(
            part, "topic", "a topic that records choose freely: record.topic begins with imported. now; or name record.allowed_topics"
        )
        topic = f"imported.{topic}"
    made.section("record")["topic"] = topic


def set_security(made: ImportedDefinition, conf: ConfigNode, names: Mapping[str, str], report: ImportReport) -> None:
    """Sets TLS and SASL. `names` are the product's paths for username, password, mechanism, ca, cert, key, key_password."""
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


def set_client(made: ImportedDefinition, settings: Mapping[str, ConfigNode], report: ImportReport) -> None:
    """Sets settings of librdkafka, or of Java's producer with the same names."""
    for name, part in settings.items():
        wrong = check_name(name)
        if wrong is None:
            made.section("kafka", "client")[name] = references(as_text(part.plain()))
        else:
            report.cannot(part, name, f"{wrong[0]}: {wrong[1]}" if wrong[1] else wrong[0])


def set_acks(part: ConfigNode | None, report: ImportReport) -> None:
    """Reports a choice of acknowledgements, which are always all."""
    if part is not None and not re.fullmatch(r"-1|all", as_text(part.plain())):
        report.note(part, "acks", "always all: a record counts as delivered when all in-sync replicas have it")
