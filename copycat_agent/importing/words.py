"""Small things that several products say alike: patterns, durations, names, references, secrets, fields in templates."""

from __future__ import annotations

import re

from copycat_agent.importing.model import Report
from copycat_agent.importing.parts import Part

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


def pattern_of(text: str) -> str | None:
    """A regular expression of Go, Rust, Java or Ruby in Python's spelling; None when it is none of Python's."""
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
    """`pattern_of` for Fluent Bit, whose patterns may stand between slashes; its `m` lets a dot match line ends, our `s`."""
    match = re.fullmatch(r"/(.*)/([imx]*)", text.strip(), re.DOTALL)
    if match:
        text = (f"(?{match[2].replace('m', 's')})" if match[2] else "") + match[1]
    return pattern_of(text)


def duration_of(text: str) -> str | None:
    """A duration such as `10s`, `1h30m`, `24h` or `5` (seconds) as we write it; None when it is none."""
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
    """A layout of Go's `time` as directives; None when something in it has none."""
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


def name_of(text: str, default: str) -> str:
    """A connector's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].rstrip("-") or default


def references(text: str) -> str:
    """`${VAR}`, `${VAR:default}` and `${VAR:-default}` as our references."""

    def ours(match: re.Match[str]) -> str:
        body = match[1] if match[1] is not None else match[2]
        if body.startswith("file:"):  # Kafka Connect's: a file of properties and a key in it
            return "${cred:" + (body.rpartition(":")[2] or "secret") + "}"
        name, sign, default = body.removeprefix("env:").partition(":")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            return "$" + match[0]
        return f"${{env:{name}{':-' + default.removeprefix('-') if sign else ''}}}"

    return _REFERENCE.sub(ours, text)


def secret(part: Part | None, name: str, report: Report, what: str) -> str | None:
    """A reference in place of a secret, which is shown nowhere. None when there is none."""
    if part is None:
        return None
    text = str(part.plain())
    if "${" in text or re.fullmatch(r"\$[A-Z_]+", text):
        return references(text)
    report.note(part, what, f"a secret does not belong into a file: put it into the credential {name}, which the definition refers to")
    return f"${{cred:{name}}}"


def template_of(text: str, sign: re.Pattern[str]) -> str:
    """A template with fields written our way. `sign` has one group: a field's path."""
    escaped = text.replace("{", "\0").replace("}", "\1") if not sign.search(text) else text
    made = sign.sub(lambda match: "{" + match[1].strip().lstrip(".") + "}", escaped)
    return made.replace("\0", "{{").replace("\1", "}}")
