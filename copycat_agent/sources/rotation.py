"""Which files are generations of one log, by their names: `app.log`, `app.log.1`, `app.log-20261121`, `app.log.2026-11-21`."""

from __future__ import annotations

import re

_SUFFIX = re.compile(
    r"""
    (?P<base>.*?[^.\-_])
    [.\-_]
    (?: \d{1,5}                                             # logrotate, log4j: app.log.1
      | \d{4}-?\d{2}-?\d{2} (?: [T_.\-]? [\d:.\-]{1,12} )?  # dateext: app.log-20261121, app.log-20261121-1795302180, 0.log.20261121-050000
      | \d{9,13}                                            # epoch seconds or milliseconds
      | old | bak
    )
    """,
    re.VERBOSE,
)


def is_newest(path: str) -> bool:
    """Whether the name is the one that a log is written under: `app.log`, not `app.log.1`."""
    return family(path)[1] == path.rpartition("/")[2]


def family(path: str) -> tuple[str, str]:
    """Directory and base name that all generations of a log share: `/d/app.log.2` -> (`/d`, `app.log`)."""
    directory, _, name = path.rpartition("/")  # called for every file of a scan: pathlib would be most of it
    match = _SUFFIX.fullmatch(name)
    return directory, match["base"] if match else name
