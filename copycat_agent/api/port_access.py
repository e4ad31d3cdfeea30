"""Logins and certificates of the API's ports: the files of `api.users` and `api.tls`, which are read again when they change.

A line of `api.users` is `name:$pbkdf2-sha256$ROUNDS$SALT$HASH`, as passlib's `pbkdf2_sha256` writes it; `copycat passwd NAME` makes one.
With `:operate` at its end the user may make changes; other users may only read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar, cast

from copycat_agent import logs
from copycat_agent.errors import FatalError
from copycat_agent.small_files import read_small_file

AGAIN_SECONDS = 5.0
"""Wait before files that were invalid are tried again: a new certificate may be there a moment before its key."""

Made = TypeVar("Made")
_log = logs.get("api")


class FileBacked(Generic[Made]):
    """A value that `make` creates from `files`, again whenever they change. Call it to get the value. Thread-safe."""

    def __init__(self, files: Sequence[str], make: Callable[[], Made]) -> None:
        """`make` raises FatalError for invalid files, and so does this: there is no earlier value yet."""
        self._files, self._make = files, make
        self._lock = threading.Lock()
        self._seen = self._look()
        self._made = make()
        self._failed_at = float("-inf")

    def __call__(self) -> Made:
        """Returns the value of the present files, or of the last valid ones."""
        seen = self._look()
        with self._lock:
            if seen != self._seen and time.monotonic() - self._failed_at > AGAIN_SECONDS:
                try:
                    self._made, self._seen = self._make(), seen
                    _log.info("files of the API are new", files=self._files)
                except FatalError as error:
                    self._failed_at = time.monotonic()
                    _log.warning("files of the API cannot be used; what they held before goes on", error=error)
            return self._made

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_state(path) for path in self._files]


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        info = os.stat(path)  # noqa: PTH116 - follows links, as renewal tools make them
    except OSError:
        return None
    return info.st_ino, info.st_size, info.st_mtime_ns


ROUNDS = 600_000
ROUNDS_MIN, ROUNDS_MAX = 1_000, 5_000_000
WRONG_SECONDS = 1.0
"""Pause after a wrong password, during which no other password is checked: guessing costs the guesser time, and the host little."""
_WAIT_SECONDS = 10.0
_FILE_BYTES_MAX = 2**20
_REMEMBERED_MAX = 100
_SALT_BYTES = 16
_NAME = re.compile(r"[^\s:#$][^\s:]{0,63}")
_LINE = re.compile(r"([^\s:]+):\$pbkdf2-sha256\$([0-9]{1,8})\$([A-Za-z0-9./]{1,100})\$([A-Za-z0-9./]{43})(?::(view|operate))?")

Role = Literal["view", "operate"]
"""The rights of a user; `operate` includes `view`."""


class _HashedPassword(NamedTuple):
    rounds: int
    salt: bytes
    digest: bytes
    role: Role = "view"


_NOBODY = _HashedPassword(ROUNDS, bytes(_SALT_BYTES), bytes(32))
"""Checked for unknown names: this takes as long as for others and never succeeds, so that timing does not reveal which names exist."""


def line_of(name: str, password: str, rounds: int = ROUNDS, role: Role = "view") -> str:
    """Returns a line of the file. Raises FatalError for an invalid name."""
    if not _NAME.fullmatch(name):
        raise FatalError("a user's name has 1 to 64 characters without blanks and colons, and begins with neither # nor $")
    salt = os.urandom(_SALT_BYTES)
    end = "" if role == "view" else f":{role}"
    return f"{name}:$pbkdf2-sha256${rounds}${_encoded(salt)}${_encoded(digest(password, salt, rounds))}{end}"


def logins(path: str) -> Callable[[], Logins]:
    """Returns a callable that returns the logins of the present file. Raises FatalError if the file is invalid."""
    return FileBacked((path,), lambda: Logins(_users(path)))


class Logins:
    """Names and hashed passwords. Thread-safe."""

    def __init__(self, users: dict[str, _HashedPassword]) -> None:
        self._users = users
        self._slow = threading.Lock()
        self._key = os.urandom(32)
        self._remembered: dict[bytes, Role] = {}

    def role_of(self, authorization: str | None) -> Role | None:
        """Returns the role of the user that this header names with the right password, None otherwise.

        Valid headers are remembered, so that they are not hashed again.
        """
        if authorization is None:
            return None
        mark = hmac.digest(self._key, authorization.encode("utf-8", "surrogatepass"), "sha256")
        if mark in self._remembered:
            return self._remembered[mark]
        login = _login(authorization)
        if login is None or not self._slow.acquire(timeout=_WAIT_SECONDS):
            return None
        user = self._users.get(login[0])
        try:
            if not _fits(user, login[1]) or user is None:
                _log.warning("a login at the API's port was refused: user or password is wrong")
                time.sleep(WRONG_SECONDS)
                return None
        finally:
            self._slow.release()
        if len(self._remembered) < _REMEMBERED_MAX:
            self._remembered[mark] = user.role
        return user.role


def _fits(user: _HashedPassword | None, password: str) -> bool:
    known = user or _NOBODY
    return hmac.compare_digest(digest(password, known.salt, known.rounds), known.digest) and user is not None


def _login(authorization: str) -> tuple[str, str] | None:
    """Returns name and password of basic authentication, None for any other header."""
    scheme, _, encoded = authorization.partition(" ")
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if scheme.lower() == "basic" and colon else None


def _users(path: str) -> dict[str, _HashedPassword]:
    try:
        lines = read_small_file(path, _FILE_BYTES_MAX).decode("utf-8").splitlines()
    except OSError as error:
        raise FatalError(f"api.users: {path} cannot be read: {error.strerror}", "the agent's user has to be able to read it") from None
    except UnicodeDecodeError:
        raise FatalError(f"api.users: {path} is no text in UTF-8", "see: copycat passwd --help") from None
    users: dict[str, _HashedPassword] = {}
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


def _parsed(line: str) -> tuple[str, _HashedPassword | None]:
    match = _LINE.fullmatch(line)
    if match is None or not ROUNDS_MIN <= int(match[2]) <= ROUNDS_MAX:
        return "", None
    try:
        return match[1], _HashedPassword(int(match[2]), _decoded(match[3]), _decoded(match[4]), cast("Role", match[5] or "view"))
    except binascii.Error:
        return "", None


def digest(password: str, salt: bytes, rounds: int) -> bytes:
    """Returns the hash of a password; the time it takes grows with `rounds`."""
    return hashlib.pbkdf2_hmac("sha256", password.encode("utf-8", "surrogateescape"), salt, rounds)


def _encoded(data: bytes) -> str:
    """Returns base64 as passlib writes it: `.` for `+`, without padding."""
    return base64.b64encode(data, b"./").decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), b"./")


def contexts(cert_file: str, key_file: str) -> Callable[[], ssl.SSLContext]:
    """Returns a callable that returns the TLS context for a new connection. Raises FatalError if the files cannot be used."""
    return FileBacked((cert_file, key_file), lambda: _context(cert_file, key_file))


def _context(cert_file: str, key_file: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert_file, key_file, password=_no_password)
    except (OSError, ValueError) as error:
        why = (error.reason if isinstance(error, ssl.SSLError) else getattr(error, "strerror", None)) or "it cannot be read"
        words = f"api.tls: the certificate {cert_file} with the key {key_file} cannot be used: {why}"
        hint = "both are PEM files that the agent's user may read, the key without a password; the certificate first, then its chain"
        raise FatalError(words, hint) from None
    return context


def _no_password() -> str:
    """Raises ValueError; without it OpenSSL would prompt for a password."""
    raise ValueError("the key is encrypted")
