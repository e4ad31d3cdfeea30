"""A redacted archive for a report: the state of the agent and its host, without records and secrets, part by part.

A manifest lists the parts that are missing, each with its reason: one missing part does not stop the others.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from copycat_agent import __version__
from copycat_agent.api import AgentClient
from copycat_agent.bundle.redacting import known_secrets, redacted
from copycat_agent.definitions import load_directory
from copycat_agent.definitions.yaml_tree import FILE_BYTES_MAX
from copycat_agent.errors import CopycatError
from copycat_agent.offsets.store_reader import store_outline
from copycat_agent.options import AgentOptions
from copycat_agent.small_files import is_directory, read_small_file
from copycat_agent.spark.java import find_java
from copycat_agent.workbench.doctor import DoctorTarget, examine, find_user

__all__ = ["BundlePart", "BundledAgent", "known_secrets", "line_of", "packed", "parts"]


PART_BYTES_MAX = 8 * 2**20
"""The most bytes of one part; of a longer one the end is kept."""


class BundlePart(NamedTuple):
    """A file of the archive. If it is missing, `content` is empty, and `why` has the reason."""

    name: str
    about: str
    content: str = ""
    why: str = ""


def line_of(part: BundlePart) -> str:
    """Returns the part's line of the manifest."""
    return f"{part.name:<34} {part.about}{f': MISSING, {part.why}' if part.why else ''}"


def packed(parts: Sequence[BundlePart], mask: Callable[[str], str], head: str) -> bytes:
    """Returns a .tar.gz of the parts and a manifest, all of it through `mask`. `head` is the beginning of the manifest."""
    stream, folder = io.BytesIO(), f"copycat-bundle-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    manifest = BundlePart("MANIFEST.txt", "", f"{head}\n" + "".join(f"{line_of(part)}\n" for part in parts))
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for part in (manifest, *parts):
            if part.content:
                _add(archive, f"{folder}/{part.name}", mask(part.content).encode("utf-8", "backslashreplace")[-PART_BYTES_MAX:])
    return stream.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
    archive.addfile(entry, io.BytesIO(content))


_PROCESS_FIELDS = re.compile(r"^(Name|State|PPid|VmRSS|VmHWM|VmSwap|Threads|FDSize):\s*(.*)$", re.MULTILINE)


def processes(pid: int) -> str:
    """Returns `pid` and all its descendants, one line each, and the limits of the first."""
    children: dict[int, list[int]] = {}
    found: dict[int, dict[str, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = dict(_PROCESS_FIELDS.findall((entry / "status").read_text("utf-8", "replace")))
            except OSError:  # it has ended
                continue
            found[int(entry.name)] = fields
            children.setdefault(int(fields["PPid"]), []).append(int(entry.name))
    lines, waiting = [], [(pid, 0)]
    while waiting:
        one, depth = waiting.pop()
        lines.append(f"{'  ' * depth}{one} {_line(one, found.get(one, {}))}")
        waiting += [(child, depth + 1) for child in sorted(children.get(one, ()), reverse=True)]
    return "\n".join([*lines, "", Path(f"/proc/{pid}/limits").read_text("utf-8")])


def _line(pid: int, fields: dict[str, str]) -> str:
    try:
        opened = str(sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        opened = "?"
    return ", ".join(f"{name} {value}" for name, value in fields.items() if name != "PPid") + f", descriptors {opened}"


PART_SECONDS = 60.0
"""How long one part may take: a file system or a broker that hangs must not stop the others."""
_THREAD = "bundle-"
_FILES = 1000
_LOSSES = 1000
_LOG_LINES = 5000
_UNIT = "copycat.service"
_UNIT_PROPERTIES = (
    "ActiveState,SubState,Result,ExecMainStatus,ExecMainStartTimestamp,NRestarts,MainPID,MemoryCurrent,MemoryPeak,CPUUsageNSec,TasksCurrent,"
    "NFileDescriptorStore,LimitNOFILE,FragmentPath,DropInPaths,User"
)
"""Not the environment, and not the files themselves: drop-ins may hold secrets."""
_PACKAGES = ("copycat-agent", "pyspark", "confluent-kafka", "pyarrow", "pandas", "pydantic", "fastavro", "h11", "werkzeug", "watchdog")
Make = Callable[[], str]


@dataclass(frozen=True, slots=True)
class BundledAgent:
    """The agent that the archive is about. `agent` are its options as far as they load; `why_not` says why they do not."""

    client: AgentClient
    state_dir: Path
    directory: Path | None
    agent_file: Path | None
    agent: AgentOptions
    why_not: str = ""


def parts(bundled: BundledAgent) -> Iterator[BundlePart]:
    """Yields all parts as they are made. Raises nothing."""
    yield make_part("versions.json", "versions of copycat-agent and what it stands on, the host", _versions)
    yield from _definitions(bundled)
    yield from _asked(bundled.client)
    yield make_part("doctor.json", "what copycat doctor says", lambda: _doctor(bundled))
    yield make_part("store.json", "the offset store: tables, counts of rows; no rows", lambda: _store(bundled.state_dir))
    yield make_part(
        "service.txt", "the service as systemd sees it", partial(_said, "systemctl", "show", _UNIT, f"--property={_UNIT_PROPERTIES}")
    )
    yield make_part("log.txt", f"the last {_LOG_LINES:,} lines of the service's log", _log)
    yield make_part(
        "processes.txt", "processes of the agent: state, memory, threads", lambda: processes(int(bundled.client.get("/v1")["pid"]))
    )


def is_hanging() -> bool:
    """Returns whether a part was left behind on its thread, which would block the end of the process."""
    return any(thread.name.startswith(_THREAD) for thread in threading.enumerate())


def make_part(name: str, about: str, make: Make) -> BundlePart:
    """Makes a part on a thread, which is left behind if it hangs."""
    made: list[str] = []
    why: list[str] = []

    def work() -> None:
        try:
            made.append(make())
        except CopycatError as error:
            why.append(str(error))
        except OSError as error:
            why.append(f"{error.filename or 'it'}: {error.strerror}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the other parts are needed all the more
            why.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=work, name=f"{_THREAD}{name}", daemon=True)
    thread.start()
    thread.join(PART_SECONDS)
    if made:
        return BundlePart(name, about, made[0], "" if made[0] else "there is nothing")
    return BundlePart(name, about, "", " ".join(why[0].split()) if why else f"it was not had within {PART_SECONDS:.0f} s")


def _json(value: object) -> str:
    return json.dumps(value, indent=2, default=str, ensure_ascii=False)


def _versions() -> str:
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = "not installed"
    try:
        found = find_java(os.environ)
        java = f"{found.version} ({found.path})"
    except CopycatError as error:
        java = str(error)
    system = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    return _json(
        {
            "copycat": __version__, "python": sys.version, "executable": sys.executable, "packages": packages, "java": java,
            "kernel": platform.release(), "machine": platform.machine(), "libc": "-".join(platform.libc_ver()),
            "distribution": system.get("PRETTY_NAME", ""), "cores": os.cpu_count(), "uid": os.geteuid(),
        }
    )  # fmt: skip


def _definitions(bundled: BundledAgent) -> Iterator[BundlePart]:
    about = "without secrets, comments and tests"
    if bundled.agent_file is not None:
        path = bundled.agent_file
        yield make_part("agent.yaml", f"the agent's file, {about}", lambda: _redacted(path))
    if bundled.why_not:
        yield BundlePart("agent.yaml", "the agent's options", "", f"they do not load: {bundled.why_not}")
    directory = bundled.directory
    if directory is None:
        yield BundlePart("connectors.d/", "definitions", "", "no directory of definitions was found; name it: copycat bundle DIR")
        return
    try:
        files = sorted(path for path in directory.iterdir() if path.suffix in {".yaml", ".yml"} and not is_directory(path))
    except OSError as error:
        yield BundlePart("connectors.d/", "definitions", "", f"{directory} cannot be read: {error.strerror}")
        return
    for path in files:
        yield make_part(f"connectors.d/{path.name}", f"a definition, {about}", partial(_redacted, path))


def _redacted(path: Path) -> str:
    return redacted(read_small_file(path, FILE_BYTES_MAX).decode("utf-8", "backslashreplace"))


def _asked(client: AgentClient) -> Iterator[BundlePart]:
    """Yields the running agent's answers. An agent that does not answer the first request gets no others."""
    first = make_part("agent.json", "the running agent", lambda: _json(client.get("/v1")))
    yield first
    if first.why:
        yield BundlePart("connectors.json", "connectors of the running agent, health, metrics", "", "no agent answered")
        return
    names: list[str] = []

    def connectors() -> str:
        found = client.get("/v1/connectors")
        names.extend(str(one["name"]) for one in found["connectors"])
        return _json(found)

    yield make_part("connectors.json", "states, counts, lag", connectors)
    for name in names:
        yield make_part(f"connectors/{name}.json", "its definition as it runs, its files", partial(_described, client, name))
    yield make_part(
        "losses.json", f"the newest {_LOSSES:,} entries of the loss ledger", lambda: _json(client.get(f"/v1/losses?limit={_LOSSES}"))
    )
    yield make_part("agent-log.txt", "the latest lines of the running agent's log", lambda: "\n".join(client.get("/v1/log")["lines"]))
    for path in ("/livez", "/readyz", "/metrics"):
        yield make_part(f"{path[1:]}.txt", f"what {path} answers", partial(client.text, path))


def _described(client: AgentClient, name: str) -> str:
    base = f"/v1/connectors/{name}"
    return _json({"definition": client.get(f"{base}/definition"), **client.get(f"{base}/files?limit={_FILES}")})


def _doctor(bundled: BundledAgent) -> str:
    if bundled.directory is None:
        raise CopycatError("no directory of definitions was found")
    loaded = load_directory(bundled.directory, bundled.agent)
    steps = examine(DoctorTarget(bundled.agent, loaded, bundled.state_dir, bundled.client.socket_path, find_user(None)))
    return _json([{"section": one.section, "verdict": one.verdict, "name": one.name, "text": one.text, "fix": one.fix} for one in steps])


def _store(state_dir: Path) -> str:
    there = [f"{path.name}: {path.lstat().st_size} bytes" for path in sorted(state_dir.iterdir())]
    try:
        return _json({"directory": str(state_dir), "files": there, "store": store_outline(state_dir)})
    except CopycatError as error:
        return _json({"directory": str(state_dir), "files": there, "store": str(error)})


def _log() -> str:
    text = _said("journalctl", f"--unit={_UNIT}", f"--lines={_LOG_LINES}", "--no-pager", "--output=short-iso-precise", "--quiet")
    if not text.strip():
        raise CopycatError(
            "the journal has no lines of it, or this user may not read them", "outside systemd, add what the agent wrote to stderr"
        )
    return text


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PART_SECONDS / 2, check=False)
    except FileNotFoundError:
        raise CopycatError(f"there is no {command[0]} here") from None
    if done.returncode:
        raise CopycatError(f"{command[0]} failed: {done.stderr.decode('utf-8', 'replace').strip()[:300]}")
    return done.stdout.decode("utf-8", "replace")
