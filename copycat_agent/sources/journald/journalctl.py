"""Runs journalctl: builds its command line, reads its output and messages, and ends it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import shutil
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from copycat_agent.extending import BlockedError, RetriableError
from copycat_agent.sources.journald.export_format import CURSOR, ExportReader, LargeEntry
from copycat_agent.sources.journald.journald_options import JournaldOptions

COMMAND = "journalctl"
ROOTS = ("/var/log/journal", "/run/log/journal")
"""Directories of this host's own journals."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PIPE_BYTES = 2**20
"""How far journalctl may be ahead of the reader."""
_READ_BYTES = 2**18
_LINE_MOST = 300
"""Most characters of a message that are kept."""
_DAMAGE_MOST = 16
"""Most messages about damage that are kept."""
_DAMAGE = re.compile(r"corrupt|is bad|ignoring|skipping over|truncated", re.IGNORECASE)
"""Messages about journals that it cannot read completely. It prints them at log level debug only."""
_NOISE = re.compile(r"Considering |Root directory |Directory |File .* (added|removed)|Journal (effective|filter)|mmap cache|$")
_NO_RIGHT = re.compile(r"insufficient permissions|Permission denied|Operation not permitted")


def journal_directories(options: JournaldOptions) -> Iterator[Path]:
    """Yields the directories whose journals journalctl reads, as far as they can be listed."""
    for root in map(Path, ROOTS if options.directory is None else (options.directory,)):
        with contextlib.suppress(OSError):
            yield root
            yield from (one for one in sorted(root.iterdir()) if one.is_dir())


def journal_files(options: JournaldOptions) -> dict[str, tuple[int, int]]:
    """Returns the size and modification time (ns) of every journal, by path. journald updates both with each append."""
    found: dict[str, tuple[int, int]] = {}
    for directory in journal_directories(options):
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if ".journal" in entry.name:
                    with contextlib.suppress(OSError):
                        info = entry.stat()
                        found[entry.path] = info.st_size, info.st_mtime_ns
    return found


class Journalctl:
    """Calls journalctl as the options say."""

    def __init__(self, options: JournaldOptions) -> None:
        self._options = options

    @property
    def is_filtered(self) -> bool:
        """Whether the options exclude entries."""
        options = self._options
        return bool(options.units or options.priority or options.match or options.boot != "all")

    def run(self, *arguments: str, filtered: bool = True) -> JournalRun:
        """Starts journalctl. `filtered`: without the entries that the options exclude. Raises as `JournalRun`."""
        binds = ["--pdeathsig", "KILL", "--"]
        bound = [setpriv, *binds] if (setpriv := shutil.which("setpriv")) else []
        what = [*self._place(), "--output=export", "--no-pager", *arguments, *self._filters(filtered=filtered)]
        return JournalRun([*bound, COMMAND, *what], self._options.max_bytes)

    def version(self) -> str:
        """Returns the first line of `--version`. Raises as `run` and `check` do."""
        with JournalRun([COMMAND, "--version"], self._options.max_bytes) as run:
            text = run.text()
            run.check()
        return text.partition("\n")[0]

    def cursors(self, *arguments: str, filtered: bool = True) -> list[str]:
        """Returns the cursors of all entries that it prints. `arguments` must limit their number."""
        with self.run("--output-fields=_BOOT_ID", *arguments, filtered=filtered) as run:
            found = [entry.cursor if isinstance(entry, LargeEntry) else str(entry[CURSOR]) for entry in run.entries]
            run.check()
        return found

    def tail(self) -> str:
        """Returns the cursor of the newest entry, excluded or not; "" for an empty journal."""
        return next(iter(self.cursors("--lines=1", filtered=False)), "")

    def _place(self) -> Iterator[str]:
        if self._options.directory is not None:
            yield f"--directory={self._options.directory}"
        if self._options.namespace is not None:
            yield f"--namespace={self._options.namespace}"

    def _filters(self, *, filtered: bool) -> Iterator[str]:
        options = self._options
        if not filtered:
            return
        yield from (f"--unit={unit}" for unit in options.units)
        if options.priority is not None:
            yield f"--priority={options.priority}"
        if matches := _of_boot(options.match, options.boot):
            yield "--"
            yield from matches


def _of_boot(match: Iterable[str], boot: str) -> list[str]:
    """Returns the matches, limited to a boot unless it is "all". `--boot` would fail for a boot without entries yet."""
    if boot == "all":
        return list(match)
    wanted = boot if boot != "current" else _BOOT_ID.read_text("ascii").strip().replace("-", "")
    groups: list[list[str]] = [[]]
    for one in match:
        if one == "+":
            groups.append([])
        else:
            groups[-1].append(one)
    joined: list[str] = []
    for group in groups:
        joined += [*(["+"] if joined else []), *group, f"_BOOT_ID={wanted}"]
    return joined


def _missing() -> BlockedError:
    return BlockedError(f"{COMMAND} is not there", "install systemd's package, or put journalctl into the agent's PATH")


class JournalRun:
    """One process. It ends when its pipe is closed, with the thread that started it, and at `close`."""

    def __init__(self, command: list[str], most_bytes: int) -> None:
        """`most_bytes` limits an entry. Raises BlockedError if journalctl is missing, RetriableError if it cannot be started."""
        kept = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
        environ = {**kept, "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0", "SYSTEMD_LOG_LEVEL": "debug", "SYSTEMD_LOG_TARGET": "console"}
        self.damage: list[str] = []
        """Its messages about journals that it cannot read, each once."""
        self._messages: deque[str] = deque(maxlen=3)
        self._partial_message = b""
        self.entries = ExportReader(self._chunks(), most_bytes)
        if shutil.which(COMMAND) is None:  # setpriv would start, and fail
            raise _missing()
        try:
            self._process = subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0
            )
        except FileNotFoundError:
            raise _missing() from None
        except OSError as error:
            raise RetriableError(f"{COMMAND} cannot be started: {error.strerror}", "it is tried again") from None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._out, self._err = self._process.stdout.fileno(), self._process.stderr.fileno()
        os.set_blocking(self._err, False)
        with contextlib.suppress(OSError):  # the user's limit on pipe buffers may be reached
            fcntl.fcntl(self._out, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _chunks(self) -> Iterator[bytes]:
        """Yields its output until the end, and collects its messages."""
        waiting = select.poll()
        waiting.register(self._out, select.POLLIN)
        waiting.register(self._err, select.POLLIN)
        while True:
            ready = dict(waiting.poll())
            if self._err in ready and not self._read_messages():
                waiting.unregister(self._err)
            if self._out in ready:
                if not (chunk := os.read(self._out, _READ_BYTES)):
                    return
                yield chunk

    def text(self) -> str:
        """Returns its whole output, for commands that print no entries."""
        return b"".join(self._chunks()).decode("utf-8", "replace")

    def _read_messages(self) -> bool:
        """Reads from stderr. Returns False at the end."""
        try:
            read = os.read(self._err, _READ_BYTES)
        except BlockingIOError:
            return True
        *lines, rest = (self._partial_message + read).split(b"\n")
        self._partial_message = rest[-_READ_BYTES:]
        for line in lines if read else [*lines, rest]:
            text = re.sub(r"\d+", "0", text) if "Entry item" in (text := line.decode("utf-8", "replace")[:_LINE_MOST]) else text
            if not _NOISE.match(text):
                self._messages.append(text)
            if (
                _DAMAGE.search(text)
                and not text.startswith("Failed to open")
                and text not in self.damage
                and len(self.damage) < _DAMAGE_MOST
            ):
                self.damage.append(text)
        return bool(read)

    def check(self) -> None:
        """Waits for its end. Raises BlockedError if it lacks permissions, RetriableError for any other failure."""
        os.set_blocking(self._err, True)
        while self._read_messages():
            pass
        code = self._process.wait()
        said = "; ".join(self._messages) or "without a word"
        if code and _NO_RIGHT.search(said):
            raise BlockedError(
                f"{COMMAND} may read no journal: {said}", "usermod --append --groups systemd-journal USER, then restart the agent"
            )
        if code:
            raise RetriableError(f"{COMMAND} ended with {code}: {said}", "it is started again")

    def close(self) -> None:
        """Kills it. Called once."""
        self._process.kill()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._process.wait()
