"""Which files are generations of one log, by their names: `app.log`, `app.log.1`, `app.log-20261121`, `app.log.2026-11-21.gz`."""

from __future__ import annotations

import re

_PACKED = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".sz")
_STAMP = r"""
    (?: \d{1,5}                                             # logrotate, log4j: app.log.1
      | \d{4}-?\d{2}-?\d{2} (?: [T_.\-]? [\d:.\-]{1,12} )?  # dateext: app.log-20261121, app.log-20261121-1795302180, 0.log.20261121-050000
      | \d{9,13}                                            # epoch seconds or milliseconds
      | old | bak
    )
"""
_SUFFIX = re.compile(rf"(?P<base>.*?[^.\-_])[.\-_]{_STAMP}", re.VERBOSE)
_INSIDE = re.compile(rf"(?P<base>.*?[^.\-_])(?:[.\-_]{_STAMP})+(?P<extension>\.[A-Za-z]\w{{0,9}})", re.VERBOSE)


def unpacked_name(path: str) -> str:
    """The path without the suffix of a packed file: `/d/app.log.1.gz` -> `/d/app.log.1`."""
    for suffix in _PACKED:
        if path.endswith(suffix):
            return path[: -len(suffix)]
    return path


def is_newest(path: str) -> bool:
    """Whether the name is the one that a log is written under: `app.log`, not `app.log.1`."""
    return family(path)[1] == path.rpartition("/")[2]


def family(path: str) -> tuple[str, str]:
    """Directory and base name that all generations of a log share: `/d/app.log.2` -> (`/d`, `app.log`)."""
    directory, _, name = unpacked_name(path).rpartition("/")  # called for every file of a scan: pathlib would be most of it
    match = _SUFFIX.fullmatch(name)
    return directory, match["base"] if match else name


def kin(path: str) -> str:
    """A base name that every name of a log leads to, and perhaps names of other logs: `/d/app-2026-11-22.0.log.gz` -> `app.log`.

    Looser than `family`: a date or number may stand before the extension, where other logs have theirs. So it relates files whose
    bytes prove the rest, and orders nothing.
    """
    base = family(path)[1]
    match = _INSIDE.fullmatch(base)
    return match["base"] + match["extension"] if match else base


def is_rotated(path: str) -> bool:
    """Whether the name may be one that rotation gave: `app.log.1`, `app-2026-11-22.log`, `app.log.gz`. A live log may have such a name."""
    return kin(path) != path.rpartition("/")[2]
