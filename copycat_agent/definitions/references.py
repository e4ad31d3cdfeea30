"""`${env:NAME}`, `${env:NAME:-default}`, `${file:/path}` and `${cred:name}` inside one scalar.

Resolved after parsing, so that a value can never become YAML. `$${` stands for `${`. What comes from a file or a
credential is secret.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.small_files import read_small_file

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET_BYTES_MAX = 64 * 1024

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<closed>\}?)")
_ENV = re.compile(r"env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<with_default>:-(?P<default>.*))?", re.DOTALL)
_NAMED = re.compile(r"\$\$\{|\$\{(?:env:(?P<env>[A-Za-z_][A-Za-z0-9_]*)|(?:cred:|file:(?=/))(?P<secret>[^}]+))\}")


class ReferenceProblem(Exception):  # noqa: N818  a text and a hint for the loader, never shown as a traceback
    """A reference that cannot be resolved. `text` never holds a resolved value."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(text, hint)
        self.text, self.hint = text, hint


class Resolved(NamedTuple):
    """A scalar's text after resolving, and what of it is secret."""

    text: str
    secrets: tuple[str, ...]


def has_reference(text: str) -> bool:
    """Whether `text` needs `resolve`; an escaped `$${` counts."""
    return "${" in text


def refers_to_secret(text: str) -> bool:
    """Whether `text` holds a reference to a file or a credential, resolvable or not."""
    return any((match["body"] or "").startswith(("file:", "cred:")) for match in _REFERENCE.finditer(text))


def stood_in(text: str, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """`text` with the bare name in place of each secret, and of each variable that is not set; and which references those were.

    For looking at samples: the same on every machine, and nothing secret is read. What is left is for `resolve`.
    """
    assumed: list[str] = []

    def named(match: re.Match[str]) -> str:
        name = match["secret"] or match["env"]
        if name is None or (match["env"] and name in environ):
            return match[0]
        assumed.append(match[0])
        return name

    return _NAMED.sub(named, text), tuple(assumed)


def resolve(text: str, environ: Mapping[str, str]) -> Resolved:
    """Replace every reference in `text`. Raises `ReferenceProblem` for the first that cannot be.

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

    return Resolved(_REFERENCE.sub(value, text), tuple(secrets))


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
    """A small regular file's text without its last newline."""
    hint = "name a file that holds only the secret, readable for the agent's user"
    try:
        return read_small_file(path, SECRET_BYTES_MAX).decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ReferenceProblem(f"cannot read {path}: {error.strerror}", hint) from None
    except UnicodeDecodeError:
        raise ReferenceProblem(f"{path} is not UTF-8 text", hint) from None
