"""Converts simple statements of Vector's remap language to transforms. Others are listed verbatim for a person.

This is no interpreter: a statement has one of a few known forms, or is not mapped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from copycat_agent.display import is_secret_name
from copycat_agent.workbench.importing.common_settings import Matcher, joined, pattern_of

_PATH = r"\.([A-Za-z_@][\w@]*(?:\.[A-Za-z_@][\w@]*)*)"
_FIELD = rf'(?:(?:string|to_string|object|int|float)!?\()?\s*{_PATH}\s*\)?(?:\s*\?\?\s*"")?'
_RAW = r"(?:r'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")"
_TEXTS = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_CONVERSIONS = {"to_int": "int", "int": "int", "to_float": "double", "float": "double", "to_bool": "bool", "to_string": "string"}
_PARSERS = (
    "parse_json",
    "parse_regex",
    "parse_key_value",
    "parse_logfmt",
    "parse_syslog",
    "parse_grok",
    "parse_nginx_log",
    "parse_apache_log",
    "parse_common_log",
)
ACCESS_LINE = (
    r'^(?P<client>\S+) \S+ (?P<user>\S+) \[(?P<timestamp>[^\]]+)\] "(?P<method>\S+) (?P<path>\S+)(?: (?P<protocol>[^"]*))?" '
    r'(?P<status>\d{3}) (?P<size>\d+|-)(?: "(?P<referer>[^"]*)" "(?P<agent>[^"]*)")?'
)
Step = dict[str, Any]


def statements(source: str) -> Iterator[tuple[int, str]]:
    """Yields statements with their line in `source`, from 0. Lines are joined while a bracket is open, or after an operator."""
    text, begin, depth = "", 0, 0
    for number, line in enumerate(source.split("\n")):
        bare = _without_comment(line).strip()
        if not text:
            begin = number
        text = f"{text} {bare}".strip()
        depth = _depth(text)
        if text and depth <= 0 and not text.endswith(("=", "??", "|", "&&", "||", ",")):
            yield from ((begin, one.strip()) for one in _split(text, ";") if one.strip())
            text = ""
    if text:
        yield begin, text


def shown(statement: str) -> str:
    """Returns a statement for the report, with its texts hidden if one may be a secret."""
    if any(is_secret_name(word) for word in re.findall(r"[A-Za-z_]\w+", statement)) or re.search(r"crypt|hmac|sha\d|md5", statement):
        return re.sub(_TEXTS, '"********"', statement)
    return statement


def steps_of(statement: str) -> list[Step] | None:
    """Returns a statement's transforms; None if its form is unknown."""
    for shape in (_parsing, _deletion, _renaming, _conversion, _moment, _assignment, _abort):
        made = shape(statement)
        if made is not None:
            return made
    return None


def matcher_of(condition: str) -> Matcher | None:
    """Returns a condition as a matcher; None if it is more than fields that all must match."""
    condition = condition.strip()
    while condition.startswith("(") and condition.endswith(")") and _depth(condition[1:-1]) == 0 and _closes_last(condition):
        condition = condition[1:-1].strip()
    return joined(_comparison(part.strip()) for part in _split(condition, "&&")) or None


def alternatives(condition: str) -> list[Matcher] | None:
    """Returns the matchers of which one must match for the condition; None if one cannot be expressed."""
    found = [matcher_of(part) for part in _split(condition, "||")]
    return None if None in found else [one for one in found if one is not None]


def _comparison(text: str) -> Matcher | None:  # noqa: PLR0911 - one form after the other
    if match := re.fullmatch(rf"{_FIELD}\s*(==|!=|>=|<=|>|<)\s*(.+)", text):
        field, sign, value = match[1], match[2], _literal(match[3])
        if value is None or isinstance(value, dict):
            return None
        if sign == "==":
            return {field: value[0]}
        if sign == "!=":
            return {field: {"not": value[0]}}
        number = value[0]
        return {field: {{">": "gt", ">=": "ge", "<": "lt", "<=": "le"}[sign]: number}} if isinstance(number, int | float) else None
    if match := re.fullmatch(rf"exists\(\s*{_PATH}\s*\)", text):
        return {match[1]: {"exists": True}}
    if match := re.fullmatch(rf"match!?\(\s*{_FIELD}\s*,\s*{_RAW}\s*\)", text):
        pattern = pattern_of(_raw(match[2], match[3]))
        return {match[1]: {"matches": pattern}} if pattern else None
    if match := re.fullmatch(rf'(contains|starts_with|ends_with)!?\(\s*{_FIELD}\s*,\s*"((?:[^"\\]|\\.)*)"\s*\)', text):
        literal = re.escape(json.loads(f'"{match[3]}"'))
        return {match[2]: {"matches": {"contains": literal, "starts_with": f"^{literal}", "ends_with": f"{literal}$"}[match[1]]}}
    if text.startswith("!"):
        inner = matcher_of(text[1:])
        return {field: {"not": value} for field, value in inner.items()} if inner and len(inner) == 1 else None
    return None


def _parsing(text: str) -> list[Step] | None:
    match = re.fullmatch(
        rf"(\.|{_PATH})(?:\s*,\s*\w+)?\s*(\|?=)\s*(?:object!\(|merge!?\(\s*\.\s*,\s*)?\s*(\w+)!?\((.*?)\)(?:\s*\?\?.*)?\)?", text
    )
    if match is None or match[4] not in _PARSERS:
        return None
    arguments = re.fullmatch(
        rf"\s*{_FIELD}\s*(?:,\s*(.*))?", match[5].rstrip(")").rstrip() + (")" * match[5].count("(") if "(" in match[5] else "")
    )
    arguments = arguments or re.fullmatch(rf"\s*{_FIELD}\s*(?:,\s*(.*))?", match[5])
    if arguments is None:
        return None
    field, rest, into = arguments[1], (arguments[2] or "").strip(), match[2]
    options: Step = {}
    if field != "message":
        options["field"] = field
    if into:
        options["into"] = into
    if (into and into != field) or match[3] == "|=" or "merge" in text:
        options["keep_source"] = True
    return _parser(match[4], options, rest)


def _parser(name: str, options: Step, rest: str) -> list[Step] | None:
    if name in ("parse_json", "parse_logfmt", "parse_syslog"):
        return [{name.removeprefix("parse_"): options}] if not rest or name == "parse_json" else None
    if name == "parse_key_value":
        for key, ours in (("field_delimiter", "field_split"), ("key_value_delimiter", "value_split")):
            if found := re.search(rf'{key}:\s*"((?:[^"\\]|\\.)*)"', rest):
                options[ours] = json.loads(f'"{found[1]}"')
        return [{"key_value": options}]
    if name in ("parse_nginx_log", "parse_apache_log", "parse_common_log"):
        steps: list[Step] = [{"regex": {"pattern": ACCESS_LINE, **options}}]
        at = f"{options['into']}." if "into" in options else ""
        return [*steps, {"timestamp": {"field": f"{at}timestamp", "format": "%d/%b/%Y:%H:%M:%S %z"}, "on_error": "keep"},
                {"convert": {f"{at}status": "int", f"{at}size": "int"}, "null": "-", "on_error": "keep"}]  # fmt: skip
    found = re.match(_RAW, rest)
    if found is None:
        return None
    text = _raw(found[1], found[2])
    if name == "parse_grok":
        return [{"grok": {"pattern": text, **options}}]
    pattern = pattern_of(text)
    return [{"regex": {"pattern": pattern, **options} if options else pattern}] if pattern else None


def _deletion(text: str) -> list[Step] | None:
    match = re.fullmatch(rf"del\(\s*{_PATH}\s*\)", text)
    return [{"drop_fields": [match[1]]}] if match else None


def _renaming(text: str) -> list[Step] | None:
    match = re.fullmatch(rf"{_PATH}\s*=\s*del\(\s*{_PATH}\s*\)", text)
    return [{"rename": {match[2]: match[1]}}] if match else None


def _conversion(text: str) -> list[Step] | None:
    match = re.fullmatch(rf"{_PATH}(?:\s*,\s*\w+)?\s*=\s*(\w+)!?\(\s*{_PATH}\s*\)(?:\s*\?\?\s*\S+)?", text)
    if match is None or match[2] not in _CONVERSIONS:
        return None
    steps: list[Step] = [] if match[1] == match[3] else [{"set": {match[1]: f"{{{match[3]}}}"}}]
    return [*steps, {"convert": {match[1]: _CONVERSIONS[match[2]]}, "on_error": "keep"}]


def _moment(text: str) -> list[Step] | None:
    match = re.fullmatch(
        rf"{_PATH}\s*=\s*(?:parse_timestamp|to_timestamp)!?\(\s*{_FIELD}\s*(?:,\s*(?:format:\s*)?\"([^\"]*)\")?\s*\)(?:\s*\?\?\s*now\(\))?",
        text,
    )
    if match is None:
        return None
    form = {"%+": "rfc3339", "": "iso8601", "%s": "unix"}.get(match[3] or "", match[3] or "")
    form = form.replace("%.f", ".%f").replace("%.3f", ".%f").replace("%T", "%H:%M:%S").replace("%F", "%Y-%m-%d")
    return [{"timestamp": {"field": match[2], "format": form, "into": match[1]}, "on_error": "keep"}]


def _assignment(text: str) -> list[Step] | None:
    match = re.fullmatch(rf"{_PATH}\s*=\s*(.+)", text, re.DOTALL)
    if match is None:
        return None
    field, value = match[1], match[2].strip()
    if copied := re.fullmatch(_PATH, value):
        return [{"set": {field: f"{{{copied[1]}}}"}}]
    known: dict[str, Callable[[re.Match[str]], str]] = {
        r"now\(\)": lambda _: "{@read_time}",
        r"get_hostname!?\(\)": lambda _: "{@host}",
        r'get_env_var!?\("(\w+)"\)': lambda found: f"${{env:{found[1]}}}",
    }
    for shape, make in known.items():
        if found := re.fullmatch(shape, value):
            return [{"set": {field: make(found)}}]
    literal = _literal(value)
    if literal is None:
        return None
    plain = literal[0]
    if isinstance(plain, str):
        if "{{" in plain:
            return None
        plain = plain.replace("{", "{{").replace("}", "}}").replace("${", "$${")
    return [{"set": {field: plain}}]


def _abort(text: str) -> list[Step] | None:
    match = re.fullmatch(r"if\s+(.*?)\s*\{\s*abort\s*\}", text, re.DOTALL)
    found = alternatives(match[1]) if match else None
    return None if found is None else [{"drop_if": one} for one in found]


def _literal(text: str) -> tuple[Any] | None:
    """Returns a text, number, boolean or null in a tuple; None for anything else."""
    text = text.strip()
    if text.startswith(("r'", "s'")) and text.endswith("'"):
        return (text[2:-1],)
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return (value,) if value is None or isinstance(value, str | int | float) else None


def _raw(raw: str | None, escaped: str | None) -> str:
    return raw if raw is not None else str(json.loads(f'"{escaped}"'))


def _without_comment(line: str) -> str:
    match = re.match(r"""(?:[^#'"]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")*""", line)
    return match[0] if match else line


def _depth(text: str) -> int:
    bare = re.sub(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", "", text)
    return sum(bare.count(sign) for sign in "([{") - sum(bare.count(sign) for sign in ")]}")


def _closes_last(text: str) -> bool:
    return all(_depth(text[:end]) > 0 for end in range(1, len(text)))


def _split(text: str, sign: str) -> list[str]:
    """Splits a text at signs that are not within brackets or quotes."""
    parts = [""]
    for piece in re.split(rf"({re.escape(sign)})", text):
        if piece == sign and _depth(parts[-1]) == 0 and parts[-1].count('"') % 2 == 0 and parts[-1].count("'") % 2 == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return parts
