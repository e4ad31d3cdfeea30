"""Who may ask at the port: the names and hashed passwords of `api.users`.

A line is `name:$pbkdf2-sha256$ROUNDS$SALT$HASH`, the form of passlib's `pbkdf2_sha256`; `copycat passwd NAME` makes one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent import logs
from copycat_agent.api.renewed import Renewed
from copycat_agent.errors import FatalError
from copycat_agent.small_files import read_small_file

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 600_000
ROUNDS_MIN, ROUNDS_MAX = 1_000, 5_000_000
WRONG_SECONDS = 1.0
"""A wrong password holds up the next that has to be looked at for so long: guessing costs the host little, and the guesser time."""
_WAIT_SECONDS = 10.0
_FILE_BYTES_MAX = 2**20
_REMEMBERED_MAX = 100
_SALT_BYTES = 16
_NAME = re.compile(r"[^\s:#$][^\s:]{0,63}")
_LINE = re.compile(r"([^\s:]+):\$pbkdf2-sha256\$([0-9]{1,8})\$([A-Za-z0-9./]{1,100})\$([A-Za-z0-9./]{43})")

_log = logs.get("api")


class _Hashed(NamedTuple):
    rounds: int
    salt: bytes
    digest: bytes


_NOBODY = _Hashed(ROUNDS, bytes(_SALT_BYTES), bytes(32))
"""What a name that is not there is compared with: it takes as long, and never fits."""


def line_of(name: str, password: str, rounds: int = ROUNDS) -> str:
    """A line of the file. FatalError for a name that cannot stand there."""
    if not _NAME.fullmatch(name):
        raise FatalError("a user's name has 1 to 64 characters without blanks and colons, and begins with neither # nor $")
    salt = os.urandom(_SALT_BYTES)
    return f"{name}:$pbkdf2-sha256${rounds}${_encoded(salt)}${_encoded(_digest(password, salt, rounds))}"


def logins(path: str) -> Callable[[], Logins]:
    """Call it for the logins as they stand in the file now. Raises FatalError when it is no good."""
    return Renewed((path,), lambda: Logins(_users(path)))


class Logins:
    """Names and hashed passwords. Thread-safe."""

    def __init__(self, users: dict[str, _Hashed]) -> None:
        self._users = users
        self._slow = threading.Lock()
        self._key = os.urandom(32)
        self._remembered: set[bytes] = set()

    def allow(self, authorization: str | None) -> bool:
        """Whether this header names a user with the right password. One that was right is known again without hashing for long."""
        if authorization is None:
            return False
        mark = hmac.digest(self._key, authorization.encode("utf-8", "surrogatepass"), "sha256")
        if mark in self._remembered:
            return True
        login = _login(authorization)
        if login is None or not self._slow.acquire(timeout=_WAIT_SECONDS):
            return False
        try:
            if not _fits(self._users.get(login[0]), login[1]):
                _log.warning("a login at the API's port was refused: user or password is wrong")
                time.sleep(WRONG_SECONDS)
                return False
        finally:
            self._slow.release()
        if len(self._remembered) < _REMEMBERED_MAX:
            self._remembered.add(mark)
        return True


def _fits(user: _Hashed | None, password: str) -> bool:
    known = user or _NOBODY
    return hmac.compare_digest(_digest(password, known.salt, known.rounds), known.digest) and user is not None


def _login(authorization: str) -> tuple[str, str] | None:
    """Name and password of basic authentication, None when it is none."""
    scheme, _, encoded = authorization.partition(" ")
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if scheme.lower() == "basic" and colon else None


def _users(path: str) -> dict[str, _Hashed]:
    try:
        lines = read_small_file(path, _FILE_BYTES_MAX).decode("utf-8").splitlines()
    except OSError as error:
        raise FatalError(f"api.users: {path} cannot be read: {error.strerror}", "the agent's user has to be able to read it") from None
    except UnicodeDecodeError:
        raise FatalError(f"api.users: {path} is no text in UTF-8", "see: copycat passwd --help") from None
    users: dict[str, _Hashed] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, hashed = _parsed(line.strip())
        if hashed is None or name in users:
            words = "is not name:$pbkdf2-sha256$ROUNDS$SALT$HASH" if hashed is None else "names a user again"
            raise FatalError(f"api.users: line {number} of {path} {words}", "make a line with: copycat passwd NAME")
        users[name] = hashed
    if not users:
        raise FatalError(f"api.users: {path} names nobody", "make a line with: copycat passwd NAME")
    return users


def _parsed(line: str) -> tuple[str, _Hashed | None]:
    match = _LINE.fullmatch(line)
    if match is None or not ROUNDS_MIN <= int(match[2]) <= ROUNDS_MAX:
        return "", None
    try:
        return match[1], _Hashed(int(match[2]), _decoded(match[3]), _decoded(match[4]))
    except binascii.Error:
        return "", None


def _digest(password: str, salt: bytes, rounds: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", password.encode("utf-8", "surrogateescape"), salt, rounds)


def _encoded(data: bytes) -> str:
    """Base 64 as passlib writes it: `.` for `+`, nothing at the end."""
    return base64.b64encode(data, b"./").decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), b"./")
