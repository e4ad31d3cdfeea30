"""Which files PATHs mean: names, patterns that no shell expanded, directories."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from copycat_agent.sources.files.paths.matching import excluded_by
from copycat_agent.sources.files.reading.address import is_remote, parse

_WILD = "*?["


class Chosen(NamedTuple):
    """The files, absolute, each once, in the order they were named; a pattern's or a directory's by name.

    `remote` are addresses, which their own source lists. `nothing` are PATHs that mean no file, each with the reason. `excluded` are
    files that the definition leaves out, however they were named.
    """

    files: tuple[str, ...]
    remote: tuple[str, ...]
    nothing: tuple[str, ...]
    excluded: tuple[str, ...] = ()


def choose(paths: Iterable[str], exclude: Sequence[str] = ()) -> Chosen:
    """The files that `paths` mean now, without those that `exclude` names.

    A directory means the regular files in it that are not hidden, and none of those below: for these there is `DIR/**/*`. A pattern
    means regular files. What is named in full is taken as it is: that it cannot be read is for the account to say. Raises FatalError for
    an address that cannot be used.
    """
    files: dict[str, None] = {}
    excluded: dict[str, None] = {}
    remote, nothing = [], []
    for path in paths:
        if is_remote(path):
            remote.append(parse(path).uri)  # before anything of it is written down: it must hold no secret
            continue
        found, why = _expand(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links, and their names are told
        left_out = {one for one in found if excluded_by(exclude, one)}
        files.update(dict.fromkeys(one for one in found if one not in left_out))
        excluded.update(dict.fromkeys(sorted(left_out)))
        if why:
            nothing.append(f"{path}: {why}")
    return Chosen(tuple(files), tuple(remote), tuple(nothing), tuple(excluded))


def _expand(path: str) -> tuple[list[str], str]:
    """The files of one PATH, or why there are none."""
    try:
        info = os.stat(path)  # noqa: PTH116 - names are text with escapes
    except OSError as error:
        if any(sign in path for sign in _WILD):
            found = sorted(one for one in glob.iglob(path, recursive=True) if _is_file(one))  # noqa: PTH207 - as above
            return found, "" if found else "no file matches"
        return [], f"it cannot be found: {error.strerror}"
    if not stat.S_ISDIR(info.st_mode):
        return [path], ""
    try:
        found = sorted(_inside(path))
    except OSError as error:
        return [], f"the directory cannot be listed: {error.strerror}"
    return found, "" if found else "there is no file in this directory (for those below it: DIR/**/*)"


def _inside(directory: str) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_file():
                yield entry.path


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116 - as above
    except OSError:
        return False
