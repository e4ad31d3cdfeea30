"""Which names are files to read, and which are somebody's unfinished work or the word that a file is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from copycat_agent.options import SourceOptions
    from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions

_UNFINISHED = (".tmp", ".part", ".partial", ".filepart", ".crdownload", ".swp", ".processing", "~")
"""Ends of names, in lower case, that programs give to what they have not finished (browsers, WinSCP, editors, Connect's spooldir).
rsync, scp of OpenSSH's sftp-server and most others begin such names with a dot."""
_NAME = "{name}"


def unfinished(name: str) -> str:
    """Why a file of this name is never read, for people; "" when it may be."""
    if name.startswith("."):
        return "has a name that begins with a dot: such files are never read"
    if not name.lower().endswith(_UNFINISHED):
        return ""
    end = next(one for one in _UNFINISHED if name.lower().endswith(one))
    return f"has a name that ends with {end}: so programs name what is not finished"


def never_read(options: SourceOptions, path: str) -> str:
    """Why a connector with these options reads no file of this name, for people; "" when it may, or is no spool directory's."""
    ready = getattr(options, "ready", None)
    if ready is None:
        return ""
    name = path.rpartition("/")[2]
    is_done_file = DoneFiles(cast("SpoolDirOptions", options)).is_one(name)
    return "is a done file: it says that another one is complete" if is_done_file else unfinished(name)


class DoneFiles:
    """Names of the files that say that others are complete, by `ready.done_file`; none when it is not given."""

    def __init__(self, options: SpoolDirOptions) -> None:
        self._template = options.ready.done_file or ""
        self._before, _, self._behind = self._template.partition(_NAME)

    def __bool__(self) -> bool:
        """Whether files have to wait for one."""
        return bool(self._template)

    @property
    def is_shared(self) -> bool:
        """Whether one file speaks for all of its directory, as `_SUCCESS` does."""
        return _NAME not in self._template

    def is_one(self, name: str) -> bool:
        """Whether a file of this name is a done file, whosever."""
        if not self._template:
            return False
        if self.is_shared:
            return name == self._template
        size = len(self._before) + len(self._behind)
        return len(name) > size and name.startswith(self._before) and name.endswith(self._behind)

    def of(self, path: str) -> str:
        """Path of the done file that `path` waits for, "" when it waits for none."""
        directory, _, name = path.rpartition("/")
        return f"{directory}/{self._template.replace(_NAME, name)}" if self._template else ""

    def own(self, path: str) -> str:
        """The same, when it is nobody else's: then it is cleaned up with its file."""
        return "" if self.is_shared else self.of(path)
