"""Redacts definition files: removes secrets, comments and sample records, whether or not the files can be parsed."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from copycat_agent.definitions.options_reader import Reader
from copycat_agent.definitions.secret_values import (
    LINES_MAX,
    Masker,
    ReferenceProblem,
    behind_secret_name,
    has_reference,
    masked_lines,
    resolve,
)
from copycat_agent.definitions.yaml_tree import FILE_BYTES_MAX, Node, SyntaxProblem, decode, parse_mapping
from copycat_agent.small_files import read_small_file

_COMMENT = re.compile(r"(^|\s)#.*")
_TESTS = re.compile(r"""(["']?)tests\1\s*:""")
_TESTS_INSIDE = re.compile(r"""[{,]\s*(["']?)tests\1\s*:.*""")
_SECRET_REFERENCE = re.compile(r"\$\{(?:file|cred):[^}]*\}")
_VARIABLE = re.compile(r"\$\{env:[^}]*\}")
_WORDS = frozenset({"true", "false", "null", "none"})
"""Values of secret-sounding keys (`auth: none`) that are no secrets: hiding these words everywhere would make texts meaningless."""


def redacted(text: str) -> str:
    """Returns the file without possible secrets, comments (which may hold anything), and `tests`, whose records are data."""
    return "\n".join(_COMMENT.sub(r"\1# (left out)", line) for line in masked_lines(_without_tests(text)))


def known_secrets(paths: Iterable[Path], environ: Mapping[str, str]) -> Masker:
    """Returns a masker for every secret that these files hold or refer to, if it can be read. Skips unreadable files."""
    masker = Masker()
    for path in paths:
        with contextlib.suppress(OSError):
            text = read_small_file(path, FILE_BYTES_MAX).decode("utf-8", "replace")
            with contextlib.suppress(SyntaxProblem):
                Reader(parse_mapping(decode(text.encode())), None, masker)  # which learns those that it holds
            for secret in _secrets_of(text, environ):
                masker.add(secret)
    masker.known -= _WORDS
    for secret in list(masker.known):
        masker.add(json.dumps(secret)[1:-1])
    return masker


def _secrets_of(text: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yields the values of all references to files and credentials, and the texts in places of secrets."""
    yield from _resolved(_SECRET_REFERENCE.findall(text), environ)
    for line, shown in zip(text.split("\n", LINES_MAX), masked_lines(text), strict=False):
        value = behind_secret_name(line)
        if value is None and shown == line:
            continue
        value = line if value is None else value
        yield from _resolved(_VARIABLE.findall(value), environ)
        if not has_reference(value):
            yield _COMMENT.sub("", value).strip(" \t\"',}]")


def _resolved(references: Iterable[str], environ: Mapping[str, str]) -> Iterator[str]:
    for reference in references:
        with contextlib.suppress(ReferenceProblem):
            yield resolve(reference, environ).text


def _without_tests(text: str) -> str:
    """Removes tests by their place if the file can be parsed, else by indentation."""
    try:
        root = parse_mapping(decode(text.encode()))
    except (SyntaxProblem, UnicodeEncodeError):
        return "\n".join(_lines_without_tests(text.split("\n")))
    if "tests" not in root.items:
        return text
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(_cut(lines, root.keys["tests"], root.items["tests"]))


def _cut(lines: list[str], key: Node, value: Node) -> list[str]:
    first, last = key.start.line - 1, value.end.line - 1
    left_out = f"{lines[first][: key.start.column - 1]}tests: null"
    if value.end.column == 1:  # a block ends where the next line begins
        return [*lines[:first], left_out, *lines[last:]]
    return [*lines[:first], left_out + lines[last][value.end.column - 1 :], *lines[last + 1 :]]


def _lines_without_tests(lines: Iterable[str]) -> Iterator[str]:
    hidden = -1
    for line in lines:
        bare = line.lstrip()
        indent = len(line) - len(bare)
        if hidden >= 0 and (not bare or indent > hidden or (indent == hidden and bare[0] in "-]}#")):
            continue
        hidden = indent if _TESTS.match(bare) else -1
        yield f"{line[:indent]}tests: null" if hidden >= 0 else _TESTS_INSIDE.sub("", line)
