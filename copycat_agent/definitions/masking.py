"""Which text of a definition file must not be shown, and the file's lines without it.

Works on text and names alone, so that it also serves a file that is no YAML: in doubt it hides too much.
"""

from __future__ import annotations

import difflib
import re
from functools import lru_cache

from copycat_agent.masks import SHORTEST, Mask
from copycat_agent.options import HIDDEN, without_login

_SECRET_WORDS = re.compile(
    r"passw|passphrase|secret|credential|jaas|(private|api|access)[._-]?key|(^|[._-])(token|pem|pwd|auth)$|oauthbearer\.config$",
    re.IGNORECASE,
)
_LOOKS_LIKE = ("password", "passwd", "passphrase", "key_password", "client_secret", "secret", "credentials")
_KEY = re.compile(r"""(?:^|[\s{,?\[-])(["']?)([A-Za-z_][\w.-]{2,60})\1\s*:(?=\s|$)|[{,]\s*(["'])([A-Za-z_][\w.-]{2,60})\3\s*:""")
_REFERENCES_ONLY = re.compile(r"""(["']?)(?:\$\{(?:env:\w+|file:[^}]*|cred:[^}]*)\})+\1\s*[,}\]]*\s*(?:#.*)?""")
_SERVER_LOGIN = re.compile(r"""[^\s,:/'"\[{@]*:[^\s,]*@(?=[\w.-]+:\d|\[[\da-fA-F:]+\])""")
"""User and password before HOST:PORT, where no login belongs (`bootstrap_servers: [u:secret@k1:9092]`)."""
LINES_MAX = 2_000
LINE_CHARACTERS_MAX = 400


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a key of this name holds a secret, or was probably meant to (`pasword`)."""
    if _SECRET_WORDS.search(name):
        return True
    last = re.split(r"[.\s]", name.lower())[-1]
    return bool(difflib.get_close_matches(last, _LOOKS_LIKE, n=1, cutoff=0.8))


def masked_lines(text: str) -> tuple[str, ...]:
    """The lines of a file with the value of every password-like key hidden, whether or not the file can be parsed.

    Only the first `LINES_MAX` lines; lines of more than `LINE_CHARACTERS_MAX` are hidden as a whole, as if they held a secret.
    A value that only refers to a secret (`${cred:name}`) is shown. Hides from the value to the end of its line, every
    following line that belongs to it by indentation, and an open quote up to where it closes.
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
    """What stands behind the first key of this line that is a secret's, None when there is no such key."""
    found = (match for match in _KEY.finditer(line) if is_secret_name(match[2] or match[4]))
    return next((line[match.end() :] for match in found), None)


def _mask_anchors(line: str, anchors: set[str]) -> str:
    """Hide what stands behind `&name` when `*name` stands for a secret elsewhere."""
    found = [match.end() for match in re.finditer(r"&([^\s,\]}]+)", line) if match[1] in anchors]
    return f"{line[: found[0]]} {HIDDEN}" if found else line


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _mask_line(line: str) -> tuple[str, int, str]:
    """One line that does not continue a secret: what to show, the indent beyond which it goes on (-1: not), the open quote."""
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
    """Replaces what is known to be secret in one file's lines and messages. `known` grows while references are resolved."""

    def __init__(self) -> None:
        self.known: set[str] = set()

    def add(self, secret: str) -> None:
        """Hide `secret`, and each of its lines, wherever it would appear."""
        self.known.update(part for part in (secret, *secret.splitlines()) if len(part.strip()) >= SHORTEST)

    def __call__(self, text: str) -> str:
        """`text` with every known secret hidden. Logins in addresses too."""
        return _SERVER_LOGIN.sub(f"{HIDDEN}@", without_login(Mask(self.known).text(text)))
