"""Secrets in a definition: references to files and credentials, and what is hidden in all output for people.

References are `${env:NAME}`, `${env:NAME:-default}`, `${file:/path}` and `${cred:name}` inside one scalar. They are resolved after parsing,
so that a value can never become YAML. `$${` stands for `${`. Values from a file or a credential are secret. Masking works on text and names
alone, so that it also serves a file that is no YAML: in doubt it hides too much.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from copycat_agent.definitions.yaml_tree import MappingNode, Mark, Node, Scalar, SyntaxProblem, decode, parse_mapping
from copycat_agent.display import SHORTEST, SecretMask, is_secret_name
from copycat_agent.options import HIDDEN, without_login
from copycat_agent.small_files import read_small_file

_KEY = re.compile(r"""(?:^|[\s{,?\[-])(["']?)([A-Za-z_][\w.-]{2,60})\1\s*:(?=\s|$)|(?:^|[{,?\[-])\s*(["'])([A-Za-z_][\w.-]{2,60})\3\s*:""")
_REFERENCES_ONLY = re.compile(r"""(["']?)(?:\$\{(?:env:\w+|file:[^}]*|cred:[^}]*)\})+\1\s*[,}\]]*\s*(?:#.*)?""")
_SERVER_LOGIN = re.compile(r"""[^\s,:/'"\[{@]*:[^\s,]*@(?=[\w.-]+:\d|\[[\da-fA-F:]+\])""")
"""User and password before HOST:PORT, where no login belongs (`bootstrap_servers: [u:secret@k1:9092]`)."""
_COMMENT = re.compile(r"(^|\s)#(.*)")
LINES_MAX = 2_000
LINE_CHARACTERS_MAX = 400


def masked_lines(text: str) -> tuple[str, ...]:
    """Returns the lines of a file with the value of every password-like key hidden, whether or not the file can be parsed.

    Only the first `LINES_MAX` lines; lines of more than `LINE_CHARACTERS_MAX` are hidden as a whole, as if they held a secret. A value that
    only refers to a secret (`${cred:name}`) is shown. Hides from the value to the end of its line, every following line that belongs to it
    by indentation, and an open quote up to its end.
    """
    out: list[str] = []
    anchors: set[str] = set()
    indent, quote = -1, ""
    for line in text.split("\n", LINES_MAX)[:LINES_MAX]:
        if quote or (indent >= 0 and (not line.strip() or _indent(line) > indent)):
            out.append(HIDDEN if line.strip() else "")
            quote = "" if quote and quote in line else quote
            continue
        shown, indent, quote = _mask_line(line)
        out.append(shown)
        if shown != line:
            anchors.update(re.findall(r"\*([^\s,\]}]+)", line))
    return tuple(_mask_anchors(line, anchors) for line in out)


def behind_secret_name(line: str) -> str | None:
    """Returns the text after the first key of this line whose name is a secret's, None if there is no such key."""
    found = (match for match in _KEY.finditer(line) if is_secret_name(match[2] or match[4]))
    return next((line[match.end() :] for match in found), None)


def _mask_anchors(line: str, anchors: set[str]) -> str:
    """Hides what comes after `&name` if `*name` stands for a secret elsewhere."""
    found = [match.end() for match in re.finditer(r"&([^\s,\]}]+)", line) if match[1] in anchors]
    return f"{line[: found[0]]} {HIDDEN}" if found else line


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _mask_line(line: str) -> tuple[str, int, str]:
    """Masks one line that does not continue a secret. Returns it, the indent beyond which the secret goes on (-1: not), the open quote."""
    if len(line) > LINE_CHARACTERS_MAX:
        return HIDDEN, _indent(line), ""
    for match in _KEY.finditer(line):
        name = match[2] or match[4]
        value = line[match.end() :].lstrip()
        if not is_secret_name(name) or _REFERENCES_ONLY.fullmatch(value):
            continue
        before = line[: match.start(2) if match[2] else match.start(4)]
        in_block = not before.strip(" -?\"'")
        indent = len(before.rstrip("\"'")) if in_block else _indent(line)
        quote = value[0] if value[:1] in {'"', "'"} and value[0] not in value[1:] else ""
        space = line[match.end() : len(line) - len(value)] or " "
        return line[: match.end()] + (space + HIDDEN if value else ""), indent, quote
    return line, -1, ""


class Masker:
    """Replaces known secrets in one file's lines and messages. `known` grows while references are resolved."""

    def __init__(self) -> None:
        self.known: set[str] = set()

    def add(self, secret: str) -> None:
        """Hides `secret`, and each of its lines, wherever it would appear."""
        self.known.update(part for part in (secret, *secret.splitlines()) if len(part.strip()) >= SHORTEST)

    def __call__(self, text: str) -> str:
        """Returns `text` with every known secret, and logins in addresses, hidden."""
        return _SERVER_LOGIN.sub(f"{HIDDEN}@", without_login(SecretMask(self.known).text(text)))


def without_secret_values(text: str) -> str:
    """Returns a definition's text with every value below a password-like name, and every login in an address, hidden: still a definition.

    Values are found by their place in the parsed file, so in brackets and over several lines, too; in comments, and in a file that cannot
    be parsed, by line.
    """
    mask = Masker()
    try:
        text = decode(text.encode("utf-8", "replace"))
        shown = sorted(_shown_otherwise(parse_mapping(text), mask, secret=False), key=lambda one: one[1] == HIDDEN)
    except SyntaxProblem:
        return "\n".join(mask(line) for line in masked_lines(text))
    lines = text.split("\n")
    for (start, end), instead in sorted(dict(shown).items(), reverse=True):
        head, tail = lines[start.line - 1][: start.column - 1] + json.dumps(instead), lines[end.line - 1][end.column - 1 :]
        is_block = end.line > start.line and end.column == 1  # it ends where the next line begins
        lines[start.line - 1 : end.line] = [head, tail] if is_block else [head + tail]
    return "\n".join(_COMMENT.sub(lambda found: f"{found[1]}#{mask(masked_lines(found[2])[0])}", line) for line in lines)


def _shown_otherwise(node: Node, mask: Masker, *, secret: bool) -> Iterator[tuple[tuple[Mark, Mark], str]]:
    """Yields begin and end of each scalar that is not shown as it is, and the text in its place. An alias has the place of its anchor."""
    if isinstance(node, MappingNode):
        for key, value in node.items.items():
            yield from _shown_otherwise(value, mask, secret=secret or is_secret_name(key))
    elif not isinstance(node, Scalar):
        for item in node.items:
            yield from _shown_otherwise(item, mask, secret=secret)
    elif node.text and (shown := HIDDEN if secret else mask(node.text)) != node.text:
        yield (node.start, node.end), shown


SECRET_BYTES_MAX = 64 * 1024

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<closed>\}?)")
_ENV = re.compile(r"env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<with_default>:-(?P<default>.*))?", re.DOTALL)
_NAMED = re.compile(r"\$\$\{|\$\{(?:env:(?P<env>[A-Za-z_][A-Za-z0-9_]*)|(?:cred:|file:(?=/))(?P<secret>[^}]+))\}")


class ReferenceProblem(Exception):  # noqa: N818  a text and a hint for the loader, never shown as a traceback
    """A reference that cannot be resolved. `text` never holds a resolved value."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(text, hint)
        self.text, self.hint = text, hint


class ResolvedScalar(NamedTuple):
    """A scalar's text after resolving, and its secret parts."""

    text: str
    secrets: tuple[str, ...]


def has_reference(text: str) -> bool:
    """Returns whether `text` needs `resolve`; an escaped `$${` counts."""
    return "${" in text


def refers_to_secret(text: str) -> bool:
    """Returns whether `text` holds a reference to a file or a credential, resolvable or not."""
    return any((match["body"] or "").startswith(("file:", "cred:")) for match in _REFERENCE.finditer(text))


def stood_in(text: str, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Returns `text` with the bare name in place of each secret, and of each variable that is not set; and those references.

    For trying samples: the same on every machine, and nothing secret is read. The other references are left for `resolve`.
    """
    assumed: list[str] = []

    def named(match: re.Match[str]) -> str:
        name = match["secret"] or match["env"]
        if name is None or (match["env"] and name in environ):
            return match[0]
        assumed.append(match[0])
        return name

    return _NAMED.sub(named, text), tuple(assumed)


def resolve(text: str, environ: Mapping[str, str]) -> ResolvedScalar:
    """Replaces every reference in `text`. Raises `ReferenceProblem` for the first that cannot be resolved.

    The value of a reference is not searched for references again.
    """
    secrets: list[str] = []

    def value(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        if not match["closed"]:
            raise ReferenceProblem("a reference that does not end with }", "write $${ for a literal ${")
        kind, _, rest = match["body"].partition(":")
        if kind == "env":
            return _env(match["body"], environ)
        if kind not in {"file", "cred"}:
            hint = "known are ${env:NAME}, ${file:/path} and ${cred:name}; write $${ for a literal ${"
            raise ReferenceProblem("an unknown kind of reference", hint)
        secrets.append(_file(rest) if kind == "file" else _cred(rest, environ))
        return secrets[-1]

    return ResolvedScalar(_REFERENCE.sub(value, text), tuple(secrets))


def _env(body: str, environ: Mapping[str, str]) -> str:
    match = _ENV.fullmatch(body)
    if match is None:
        raise ReferenceProblem("${env:...} needs the name of a variable", "as in ${env:NAME} or ${env:NAME:-default}")
    value = environ.get(match["name"], "")
    if match["with_default"] is not None:
        return value or match["default"]
    if match["name"] not in environ:
        hint = f"set it, or write ${{env:{match['name']}:-default}}"
        raise ReferenceProblem(f"the environment variable {match['name']} is not set", hint)
    return value


def _file(path: str) -> str:
    if not path.startswith("/"):
        raise ReferenceProblem("${file:...} needs an absolute path", "as in ${file:/etc/copycat/password}")
    return _read(path)


def _cred(name: str, environ: Mapping[str, str]) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name) or name in {".", ".."}:
        raise ReferenceProblem("${cred:...} needs the name of a credential", "a name without /, as in ${cred:kafka_password}")
    directory = environ.get("CREDENTIALS_DIRECTORY")
    if not directory:
        hint = f"in the systemd unit write LoadCredential={name}:PATH; outside systemd set CREDENTIALS_DIRECTORY"
        raise ReferenceProblem(f"no credential {name}: CREDENTIALS_DIRECTORY is not set", hint)
    return _read(os.path.join(directory, name))  # noqa: PTH118  joined, never normalised


def _read(path: str) -> str:
    """Returns a small regular file's text without its last newline."""
    hint = "name a file that holds only the secret, readable for the agent's user"
    try:
        return read_small_file(path, SECRET_BYTES_MAX).decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ReferenceProblem(f"cannot read {path}: {error.strerror}", hint) from None
    except UnicodeDecodeError:
        raise ReferenceProblem(f"{path} is not UTF-8 text", hint) from None
