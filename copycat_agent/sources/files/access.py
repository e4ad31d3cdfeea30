"""Owner, group and mode of a file, for `@file.owner`, `@file.group` and `@file.mode`."""

from __future__ import annotations

import grp
import pwd
import stat
import time
from functools import lru_cache
from typing import TYPE_CHECKING

from copycat_agent.templates import Access

if TYPE_CHECKING:
    import os

_KEPT_SECONDS = 60.0
"""How long names are cached: a look-up may ask a directory server. A changed name is seen after this time."""


def access_of(info: os.stat_result) -> Access:
    """Returns owner and group by name, or by number if they have no name, and the mode as four octal digits."""
    now = int(time.monotonic() / _KEPT_SECONDS)
    return Access(_user(info.st_uid, now), _group(info.st_gid, now), f"{stat.S_IMODE(info.st_mode):04o}")


@lru_cache(maxsize=256)
def _user(number: int, _: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except (KeyError, OSError):
        return str(number)


@lru_cache(maxsize=256)
def _group(number: int, _: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except (KeyError, OSError):
        return str(number)
