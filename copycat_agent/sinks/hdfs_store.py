"""A store in HDFS, through hdfs-native.

A rename is atomic and, as it is requested here, fails if the new name exists, so it serves as put-if-absent and to publish. The NameNode
answers after its edit log is synced. Others may see a change a moment before. But after a crash the log ends at one point: whatever they
did later is lost with it. A file is one block, which is synced (hsync) before the file gets its name.
"""

from __future__ import annotations

import contextlib
import errno
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hdfs_native import Client, WriteOptions

from copycat_agent.errors import BlockedError, CopycatError, FatalError, RetriableError
from copycat_agent.sinks.file_names import CONTROL, tree_parts
from copycat_agent.sinks.scratch import own_scratch
from copycat_agent.sources.files.reading.address import Address
from copycat_agent.sources.files.reading.hadoop import client_of, plain_errors, statuses_below

SCRATCH = f"{CONTROL}/scratch"
"""Directory of objects that are written before `put_if_absent` renames them."""
ABANDONED_SECONDS = 86400.0
"""Age at which an object in `SCRATCH` is deleted. If its writer is still alive, its `put_if_absent` returns False, and it puts again."""
SENT_AT_ONCE, PART_BYTES = 4, 4 * 2**20
"""Concurrent files of an upload, and bytes of each that are read at a time."""
BLOCK_BYTES = 2**20
"""Sizes of blocks are multiples of it: NameNodes take no smaller ones."""

_UNCHANGED = 2**64 - 1
"""The access time that Hadoop takes for -1: none. Clusters that keep no access times refuse others."""
_RIGHTS = "give this user (HADOOP_USER_NAME, or that of the Kerberos ticket) the right to read, write and delete there"
_TICKET = "look at the Kerberos ticket: klist"
_FOR_PEOPLE: tuple[tuple[str, type[CopycatError], str], ...] = (
    (r"\w*QuotaExceededException", BlockedError, "make room there, or raise the quota"),
    (r"(SASLError|NoSASLMechanism|GSSAPIError)\b.*", BlockedError, _TICKET),
    (r"(ParentNotDirectory|PathIsNotDirectory|PathComponentTooLong|InvalidPath)Exception", FatalError, "look at sink.uri and sink.path"),
)
"""Patterns of `strerror` that a person has to act on."""


class HdfsStore:
    """A `SinkStore` of files below a directory. Files are written below `scratch`, on this host, before they are uploaded."""

    def __init__(self, address: Address, scratch: Path) -> None:
        self._address = address
        self._root = address.path.rstrip("/")
        self._base = scratch
        self._kept: Client | None = None
        self._is_swept = False

    def shown(self, key: str = "") -> str:
        return f"hdfs://{self._address.authority}{self._root}/{'/'.join(tree_parts(key))}"

    def scratch(self) -> Path:
        return own_scratch(self._base)

    def has_conditional_put(self) -> bool:
        """Returns True: a rename that overwrites nothing is part of the protocol."""
        return True

    def put_if_absent(self, key: str, data: bytes) -> bool:
        beside = f"{SCRATCH}/{uuid.uuid4().hex}"
        with self._translating("write", key):
            self._sweep()
            self._make_parents([key])
            self._write(beside, [data], len(data))
            try:
                self._client().rename(self._at(beside), self._at(key))
            except (FileExistsError, FileNotFoundError):  # the latter: the request was sent twice, or the directory was deleted
                self._client().delete(self._at(beside))
                return False
            return True

    def get(self, key: str) -> bytes | None:
        with self._translating("read", key):
            try:
                data = self._client().read(self._at(key)).read()
                found = self._client().get_file_info(self._at(key))
                # an edit that changes nothing: once it is answered, what was read is synced
                self._client().set_times(self._at(key), found.modification_time, _UNCHANGED)
            except FileNotFoundError:
                return None
            return data

    def upload(self, files: Mapping[str, Path]) -> None:
        with ThreadPoolExecutor(SENT_AT_ONCE) as pool:
            done = [pool.submit(self._send, key, path) for key, path in files.items()]
        for one in done:
            one.result()

    def _send(self, key: str, path: Path) -> None:
        with self._translating("write", key), path.open("rb") as file:
            self._write(key, iter(lambda: file.read(PART_BYTES), b""), path.stat().st_size)

    def publish(self, moves: Mapping[str, str]) -> None:
        with self._translating("publish", ""):
            self._make_parents(moves.values())
            for temporary, final in moves.items():
                self._publish(temporary, final)
            self._remove_empty(moves)

    def _publish(self, temporary: str, final: str) -> None:
        try:
            self._client().rename(self._at(temporary), self._at(final))
        except FileNotFoundError:
            if self._has(temporary):
                raise RetriableError(f"the directory of {self.shown(final)} was deleted", "look at who deletes there") from None
        except FileExistsError:
            if self._has(temporary):
                hint = "let no two connectors write a topic to one directory"
                raise FatalError(f"{self.shown(final)} is not this connector's file", hint) from None

    def list(self, directory: str, after: str = "") -> Iterator[str]:
        found: list[str] = []
        with self._translating("list", directory), contextlib.suppress(FileNotFoundError):
            found = sorted(one.path for one in statuses_below(self._client(), self._at(directory)) if not one.isdir)
        skipped = len(self._root) + 1
        yield from (path[skipped:] for path in found if path[skipped:] > after)

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes files, and directories below `CONTROL` that become empty."""
        every = list(keys)
        for key in every:
            with self._translating("delete", key):
                self._client().delete(self._at(key))
        self._remove_empty(every)

    def _remove_empty(self, keys: Iterable[str]) -> None:
        """Deletes the directories of keys below `CONTROL` that have become empty: HDFS itself refuses to delete others."""
        for parent in {self._at(key).rpartition("/")[0] for key in keys if key.startswith(f"{CONTROL}/")}:
            with contextlib.suppress(OSError, RuntimeError):
                self._client().delete(parent)

    def _client(self) -> Client:
        if self._kept is None:
            self._kept = client_of("hdfs", self._address.authority)
        return self._kept

    def _sweep(self) -> None:
        """Deletes, once, what killed processes have left in `SCRATCH`."""
        if self._is_swept:
            return
        self._is_swept = True
        with contextlib.suppress(FileNotFoundError):
            for one in self._client().list_status(self._at(SCRATCH)):
                if one.modification_time < (time.time() - ABANDONED_SECONDS) * 1000:
                    self._client().delete(one.path)

    def _write(self, key: str, parts: Iterable[bytes], size: int) -> None:
        """Writes a file of one block, since a block that is full is closed without being synced."""
        block = max(-(-size // BLOCK_BYTES), 1) * BLOCK_BYTES
        with self._client().create(self._at(key), WriteOptions(block_size=block, overwrite=True, create_parent=True)) as file:
            for part in parts:
                file.write(part)
            file.hsync()

    def _make_parents(self, keys: Iterable[str]) -> None:
        for parent in {self._at(one).rpartition("/")[0] for one in keys}:
            self._client().mkdirs(parent, create_parent=True)

    def _has(self, key: str) -> bool:
        try:
            self._client().get_file_info(self._at(key))
        except FileNotFoundError:
            return False
        return True

    def _at(self, key: str) -> str:
        return "/".join([self._root, *tree_parts(key)]) or "/"

    @contextlib.contextmanager
    def _translating(self, what: str, key: str) -> Iterator[None]:
        """Translates errors into those that tell the caller what to do."""
        try:
            with plain_errors():
                yield
        except CopycatError:
            raise
        except OSError as error:
            raise _as_ours(error, f"cannot {what} {self.shown(key)}: {error.strerror}") from None


def _as_ours(error: OSError, msg: str) -> CopycatError:
    if isinstance(error, PermissionError):
        return BlockedError(msg, _RIGHTS)
    if isinstance(error, FileExistsError):
        return FatalError(msg, "look at sink.uri and sink.path")
    if error.errno == errno.EINVAL:
        return FatalError(msg, "write hdfs://HOST:PORT/, or set HADOOP_CONF_DIR to the directory of core-site.xml and hdfs-site.xml")
    if error.errno == errno.EOPNOTSUPP:
        return FatalError(msg, "use another directory")
    for pattern, kind, hint in _FOR_PEOPLE:
        if re.fullmatch(pattern, error.strerror or ""):
            return kind(msg, hint)
    return RetriableError(msg, "look at the network, the NameNode and the DataNodes")
