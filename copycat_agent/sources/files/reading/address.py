"""Parses URIs of remote files, and refuses secrets in them: these would end up in shells' histories, offsets and logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

from copycat_agent.errors import FatalError

SCHEMES = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss", "file")
"""The schemes of pyarrow's file systems."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SECRET = re.compile(r"key|secret|token|passw|credential|signature|\bsas\b|\bsig\b", re.IGNORECASE)
_BUCKETS = ("s3", "gs", "gcs", "abfs", "abfss")
_CREDENTIALS = "give credentials where the SDK looks for them: its environment variables, its files, or the host's role"


def is_remote(path: str) -> bool:
    """Returns whether a path is a URI: opened through pyarrow, not by the kernel."""
    return _SCHEME.match(path) is not None


class Info(NamedTuple):
    """The stat of a file, with the field names of `os.stat_result`. A size of -1: it is no longer the version that was opened."""

    st_size: int
    st_mtime_ns: int
    st_ino: int = 0


class Address(NamedTuple):
    """A file, or a pattern of files. `path` comes after the host or bucket, with its slash, or is ""; it is never decoded.

    `query` are options of the file system, such as `region=eu-central-1`.
    """

    scheme: str
    authority: str
    path: str
    query: str

    @property
    def root(self) -> str:
        """The URI of the file system alone."""
        return f"{self.scheme}://{self.authority}" + ("/" if self.scheme not in _BUCKETS else "") + (f"?{self.query}" if self.query else "")

    @property
    def uri(self) -> str:
        """The whole URI, which a task opens."""
        return self.shown + (f"?{self.query}" if self.query else "")

    @property
    def shown(self) -> str:
        """The URI without options: the name of the file, for people and templates."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def inside(self) -> str:
        """Its path within the file system, as pyarrow writes it."""
        if self.scheme in ("abfs", "abfss"):
            return self.authority.partition("@")[0] + self.path
        return self.authority + self.path if self.scheme in _BUCKETS else self.path

    def at(self, inside: str) -> Address:
        """Returns the address of another file of the same file system."""
        prefix = len(self.inside) - len(self.path)
        return self._replace(path=inside[prefix:])


def parse_address(text: str, schemes: Sequence[str] = SCHEMES) -> Address:
    """Parses an address. The part before the first `?` is the name, unescaped. Raises FatalError, which never shows a secret."""
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else ""
    if match is None or scheme not in schemes:
        msg = f"addresses that begin with {scheme}:// are not known" if scheme else "this is not an address of remote files"
        raise FatalError(msg, "known are " + ", ".join(f"{one}://" for one in schemes))
    place, _, query = text[match.end() :].partition("?")
    authority, slash, path = place.partition("/")
    _refuse_secrets(scheme, authority, place, query)
    if not authority and scheme in _BUCKETS:
        raise FatalError(f"{scheme}:// needs the name of a bucket", f"as in {scheme}://bucket/logs/*.gz")
    return Address(scheme, authority, slash + path, query)


def _refuse_secrets(scheme: str, authority: str, place: str, query: str) -> None:
    user, at, _ = authority.rpartition("@")
    has_login = bool(at) and (":" in user or scheme in ("s3", "gs", "gcs"))
    if scheme in ("s3", "gs", "gcs") and not at and ":" in authority:  # a secret may hold slashes: key:sec/ret@bucket
        has_login = "@" in place
    if has_login:
        raise FatalError(f"an address with {scheme}:// must not hold a key or a password", _CREDENTIALS)
    for option in query.split("&"):
        name, _, value = option.partition("=")
        if _SECRET.search(unquote(name)) or "@" in unquote(value):
            raise FatalError(f"the options of an address with {scheme}:// must not hold a key, a token or a password", _CREDENTIALS)
