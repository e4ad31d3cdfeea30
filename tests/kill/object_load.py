"""The load of a kill loop of source `objects`: objects of all sizes, with numbered lines, that are put into a bucket of an S3 server.

Objects of the connector `kept` stay where they are, and some are replaced, or deleted once they have arrived. Those of `swept` are
deleted by the agent. What is put is written down first, and its bytes follow from that: a server that holds all in its memory is
given it again.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import random
import sqlite3
import string
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple, Self

from botocore.exceptions import ClientError

from copycat_agent.offsets import ledger
from copycat_agent.offsets.state_dir import DATABASE
from copycat_agent.sources.objects.stores import ListedObject, key_of
from tests.rig.ledger import make_line
from tests.rig.object_store import ObjectStore

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.model import Loss
    from tests.rig.verifier import Verifier

CONNECTORS = ("kept", "swept")
_TICK_SECONDS = 0.05
_LINES_PER_OBJECT = 75
_DIRECTORIES = ("host-a", "host-b", "host-c")
_LATE_SHARE = 0.05
_BLOCK = "".join(random.Random(1).choices(string.ascii_letters + string.digits + " .,:=", k=8192)).encode()
_LARGE_WIDTH = 4096
_SHAPES = ("empty", "one", "some", "packed", "1 MB", "5 MB")
_WEIGHTS = (4, 40, 33, 18, 4, 1)
_FATES = ("", "replace", "replace arrived", "delete arrived")
_FATE_WEIGHTS = (82, 8, 5, 5)
_MOST_KEPT = 2500
"""With more in `kept` the oldest that has arrived is deleted: the server takes longer to list many, and the agent to find what is new."""
_MOST_LATER = 10
"""What is to become of an object becomes of it within so many others."""


class Version(NamedTuple):
    """One version of an object: `length` lines with a payload of `width` bytes."""

    name: str
    number: int
    length: int
    width: int
    is_packed: bool

    @property
    def file(self) -> str:
        """What its lines are called."""
        return f"{self.name}#{self.number}"

    def lines(self, run: str) -> list[bytes]:
        """Always the same."""
        dice = random.Random(f"{run}/{self.file}")
        starts = (dice.randrange(len(_BLOCK) - self.width) for _ in range(self.length))
        return [make_line(run, self.file, number, _BLOCK[start : start + self.width]) for number, start in enumerate(starts)]

    def data(self, run: str) -> bytes:
        """As it is put."""
        data = b"".join(self.lines(run))
        return gzip.compress(data, 1, mtime=0) if self.is_packed else data


class ObjectLoad:
    """As `both.Load`, with about `per_second` lines in all; 0: it writes where `step` is called. Use it as a context manager."""

    has_spool = has_planner = False

    def __init__(self, root: Path, run: str, per_second: int, *, first: int = 0, seed: int | None = None) -> None:
        """`first`: so many objects of one line are in `kept` before anything else."""
        root.mkdir(parents=True, exist_ok=True)
        self.store = ObjectStore(root)
        self.done: Counter[str] = Counter()
        """How many were put, late, replaced, deleted."""
        self.written_bytes = 0
        self.rotations = 0
        self._run_name = run
        self._first = first
        self._pause_seconds = _LINES_PER_OBJECT / per_second if per_second else 0.0
        self._dice = random.Random(seed)
        self._journal = root / "objects.jsonl"
        self._versions: dict[str, Version] = {}
        self._kept: dict[str, Version] = {}
        self._number = 0
        self._later: list[tuple[int, str, Version]] = []
        self._verifier: Verifier | None = None
        self._writing = threading.Lock()
        self._stop = threading.Event()
        self._is_paused = False
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._error: BaseException | None = None

    def watch(self, verifier: Verifier) -> None:
        """It knows what has arrived, and is told what need not. To be called first."""
        self._verifier = verifier

    def counts(self) -> dict[str, int]:
        """Version of an object -> its lines, once it is put."""
        if self._error:
            raise self._error
        return {one.file: one.length for one in list(self._versions.values())}

    def pause(self) -> None:
        """Write nothing until `resume`."""
        with self._writing:
            self._is_paused = True

    def resume(self) -> None:
        """Go on."""
        self._is_paused = False

    def __enter__(self) -> Self:
        self.store.start()
        self._client = self.store.client
        try:
            self._restore()
            if not self._versions:
                first = [self._version("kept", "one") for _ in range(self._first)]
                with ThreadPoolExecutor(8) as threads:
                    list(threads.map(self._put, first))
        except BaseException:
            self.store.stop()
            raise
        if self._pause_seconds:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self.store.stop()
        if self._error:
            raise self._error

    def step(self) -> None:
        """Put one more object, and do what is due with others."""
        connector = self._dice.choice(CONNECTORS)
        one = self._version(connector, self._dice.choices(_SHAPES, _WEIGHTS)[0])
        self._put(one)
        fate = self._dice.choices(_FATES, _FATE_WEIGHTS)[0]
        if connector == "kept" and fate and one.length and not one.is_packed:
            self._later.append((self._number + self._dice.randint(0, _MOST_LATER), fate, one))
        self._later = [each for each in self._later if self._kept.get(each[2].name) == each[2]]
        due = [each for each in self._later if each[0] <= self._number and ("arrived" not in each[1] or self._has(each[2]))]
        for each in due:
            self._later.remove(each)
            self._meet(each[1], each[2])
        oldest = next(iter(self._kept.values()), None)
        if oldest is not None and len(self._kept) > _MOST_KEPT and self._has(oldest):
            self._meet("delete arrived", oldest)

    def is_cleaned_up(self) -> bool:
        """Whether nothing is left that the agent should have deleted. The server fails now and then while something is deleted."""
        with suppress(ClientError):
            return not self._client.list_objects_v2(Bucket=self.store.bucket, Prefix="swept/", MaxKeys=1).get("Contents")
        return False

    def broken(self, state: Path, guarantee: str) -> list[str]:
        """What the ledger of losses does not account for, or should not hold. The agent does not run."""
        assert self._verifier is not None
        with closing(sqlite3.connect(state / DATABASE)) as connection:
            losses: dict[str, list[Loss]] = {}
            for loss in ledger.entries(connection, None, 10**6):
                losses.setdefault(loss.partition.key, []).append(loss)
        self.done["in the ledger"] = sum(map(len, losses.values()))
        told = []
        for file in self._verifier.committed.excused:
            told += self._unaccounted(self._versions[file], losses, is_exact=guarantee == "exactly_once")
        told += [f"lost, and never replaced: {loss}" for each in losses.values() for loss in each if guarantee == "exactly_once"]
        return told

    def _unaccounted(self, one: Version, losses: dict[str, list[Loss]], *, is_exact: bool) -> list[str]:
        """Of one that was replaced: a line has arrived, or is in the ledger, or no listing ever had this version."""
        assert self._verifier is not None
        missing = set(self._verifier.committed.files[one.file].missing(one.length))
        entries = losses.pop(self._key(one), [])
        if not entries:
            return [f"{one.file}: {len(missing)} lines are missing, not all and not in the ledger"] if 0 < len(missing) < one.length else []
        starts = list(itertools.accumulate(map(len, one.lines(self._run_name)), initial=0))[:-1]
        lost = {number for number, start in enumerate(starts) if any(entry.start <= start < entry.end for entry in entries)}
        told = [f"{one.file}: missing, not in the ledger: {sorted(missing - lost)[:10]}"] if missing - lost else []
        return [*told, f"{one.file}: in the ledger, and arrived: {sorted(lost - missing)[:10]}"] if is_exact and lost - missing else told

    def _key(self, one: Version) -> str:
        data = one.data(self._run_name)
        return key_of(ListedObject(one.name, len(data), 0, f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'))

    def _run(self) -> None:
        try:
            while not self._stop.wait(max(_TICK_SECONDS, self._pause_seconds)):
                with self._writing:
                    if not self._is_paused:
                        self.step()
        except BaseException as error:  # noqa: BLE001 - raised where it is seen
            self._error = error

    def _version(self, connector: str, shape: str) -> Version:
        """A new object. One that is late has a name between those of earlier ones."""
        number, self._number = self._number, self._number + 1
        name = f"{number:08}"
        if number and self._dice.random() < _LATE_SHARE:
            name = f"{self._dice.randrange(number):08}-late-{number}"
            self.done["late"] += 1
        counts = {"empty": (0, 0), "one": (1, 1), "some": (20, 200), "packed": (20, 400), "1 MB": (256, 256), "5 MB": (1280, 1280)}
        width = _LARGE_WIDTH if "MB" in shape else self._dice.randint(10, 120)
        is_packed = shape == "packed"
        name = f"{connector}/{self._dice.choice(_DIRECTORIES)}/{name}.log{'.gz' if is_packed else ''}"
        one = Version(name, 1, self._dice.randint(*counts[shape]), width, is_packed)
        self._write_down(one)
        return one

    def _write_down(self, one: Version, *, is_gone: bool = False) -> None:
        with self._journal.open("a") as out:
            out.write(json.dumps([*one, is_gone]) + "\n")

    def _restore(self) -> None:
        """Put what an earlier run has left there again: the last version of each object, unless it was swept."""
        assert self._verifier is not None
        if not self._journal.exists():
            return
        self._verifier.catch_up()
        last: dict[str, Version] = {}
        for line in self._journal.read_text().splitlines():
            self._number += 1
            *values, is_gone = json.loads(line)
            one = Version(*values)
            if one.name in last and not is_gone:
                self._verifier.excuse(last[one.name].file)
            last[one.name] = one
            self._versions[one.file] = one
            if is_gone:
                del last[one.name]
        for one in last.values():
            if one.name.startswith("kept") or not self._has(one):
                self._put(one)

    def _put(self, one: Version) -> None:
        data = one.data(self._run_name)
        self._client.put_object(Bucket=self.store.bucket, Key=one.name, Body=data)
        self._versions[one.file] = one
        if one.name.startswith("kept"):
            self._kept[one.name] = one
        self.written_bytes += len(data)
        self.done["put"] += 1

    def _has(self, one: Version) -> bool:
        assert self._verifier is not None
        return self._verifier.committed.has_all({one.file: one.length})

    def _meet(self, fate: str, one: Version) -> None:
        if "replace" in fate:
            following = one._replace(number=2, length=self._dice.randint(1, 300))
            self._verifier_told(one)
            self._write_down(following)
            self._put(following)
            self.done["replaced"] += 1
        else:
            self._write_down(one, is_gone=True)
            self._client.delete_object(Bucket=self.store.bucket, Key=one.name)
            del self._kept[one.name]
            self.done["deleted"] += 1

    def _verifier_told(self, one: Version) -> None:
        """Not all of this version has to arrive, unless it has."""
        assert self._verifier is not None
        if not self._has(one):
            self._verifier.excuse(one.file)


def object_definitions(load: ObjectLoad, topics: dict[str, str], guarantee: str) -> dict[str, dict[str, object]]:
    """Name -> connector."""
    sweeping = {"kept": {"policy": "none"}, "swept": {"policy": "delete"}}
    return {
        name: {
            "source": {
                "type": "objects",
                "uri": load.store.uri(f"{name}/"),
                "poll_interval": "500ms",
                "look_back": "5s",
                "relist": "15s",
                "cleanup": sweeping[name],
            },
            "record": {"topic": topics[name], "partition": "file"},
            "delivery": {"tasks_max": 2, "max_batch_bytes": "256KiB", "guarantee": guarantee},
        }
        for name in CONNECTORS
    }
