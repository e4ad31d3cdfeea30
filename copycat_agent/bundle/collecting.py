"""What is in the archive, part by part. Whatever keeps one part from being had is said in its place, and stops no other."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from copycat_agent import __version__
from copycat_agent.api import AgentClient
from copycat_agent.bundle.archive import Part
from copycat_agent.bundle.processes import processes
from copycat_agent.bundle.redacting import redacted
from copycat_agent.definitions import load_directory
from copycat_agent.definitions.document import FILE_BYTES_MAX
from copycat_agent.errors import CopycatError
from copycat_agent.offsets.looking import store_outline
from copycat_agent.options import AgentOptions
from copycat_agent.small_files import read_small_file
from copycat_agent.spark.java import find_java
from copycat_agent.workbench.doctor import Examined, examine, find_user

PART_SECONDS = 60.0
"""How long one part may take: a file system or a broker that hangs must not keep the others."""
_THREAD = "bundle-"
_FILES = 1000
_LOSSES = 1000
_LOG_LINES = 5000
_UNIT = "copycat.service"
_SHOWN = (
    "ActiveState,SubState,Result,ExecMainStatus,ExecMainStartTimestamp,NRestarts,MainPID,MemoryCurrent,MemoryPeak,CPUUsageNSec,TasksCurrent,"
    "NFileDescriptorStore,LimitNOFILE,FragmentPath,DropInPaths,User"
)
"""Not the environment, and not the files themselves: drop-ins may hold secrets."""
_PACKAGES = ("copycat-agent", "pyspark", "confluent-kafka", "pyarrow", "pandas", "pydantic", "fastavro", "h11", "werkzeug", "watchdog")
Make = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Sought:
    """Whose archive it is. `agent` are the options as far as they load; `why_not` says why they do not."""

    client: AgentClient
    state_dir: Path
    directory: Path | None
    agent_file: Path | None
    agent: AgentOptions
    why_not: str = ""


def parts(sought: Sought) -> Iterator[Part]:
    """All parts, as they come. Raises nothing."""
    yield _part("versions.json", "versions of copycat-agent and what it stands on, the host", _versions)
    yield from _definitions(sought)
    yield from _asked(sought.client)
    yield _part("doctor.json", "what copycat doctor says", lambda: _doctor(sought))
    yield _part("store.json", "the offset store: tables, counts of rows; no rows", lambda: _store(sought.state_dir))
    yield _part("service.txt", "the service as systemd sees it", _service)
    yield _part("log.txt", f"the last {_LOG_LINES:,} lines of the service's log", _log)
    yield _part("processes.txt", "processes of the agent: state, memory, threads", lambda: processes(_pid(sought.client)))


def is_hanging() -> bool:
    """Whether a part has been left behind, which would hold up the end of the process."""
    return any(thread.name.startswith(_THREAD) for thread in threading.enumerate())


def _part(name: str, about: str, make: Make) -> Part:
    """Made in a thread, which is left behind when it hangs."""
    made: list[str] = []
    why: list[str] = []

    def work() -> None:
        try:
            made.append(make())
        except CopycatError as error:
            why.append(str(error))
        except OSError as error:
            why.append(f"{error.filename or 'it'}: {error.strerror}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the other parts are wanted all the more
            why.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=work, name=f"{_THREAD}{name}", daemon=True)
    thread.start()
    thread.join(PART_SECONDS)
    if made:
        return Part(name, about, made[0], "" if made[0] else "there is nothing")
    return Part(name, about, "", " ".join(why[0].split()) if why else f"it was not had within {PART_SECONDS:.0f} s")


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


def _definitions(sought: Sought) -> Iterator[Part]:
    about = "without secrets, comments and tests"
    if sought.agent_file is not None:
        path = sought.agent_file
        yield _part("agent.yaml", f"the agent's file, {about}", lambda: _redacted(path))
    if sought.why_not:
        yield Part("agent.yaml", "the agent's options", "", f"they do not load: {sought.why_not}")
    directory = sought.directory
    if directory is None:
        yield Part("connectors.d/", "definitions", "", "no directory of definitions was found; name it: copycat bundle DIR")
        return
    try:
        files = sorted(path for path in directory.iterdir() if path.suffix in {".yaml", ".yml"} and not path.is_dir())
    except OSError as error:
        yield Part("connectors.d/", "definitions", "", f"{directory} cannot be read: {error.strerror}")
        return
    for path in files:
        yield _part(f"connectors.d/{path.name}", f"a definition, {about}", partial(_redacted, path))


def _redacted(path: Path) -> str:
    return redacted(read_small_file(path, FILE_BYTES_MAX).decode("utf-8", "backslashreplace"))


def _asked(client: AgentClient) -> Iterator[Part]:
    """What the running agent says. When it does not answer once, it is asked no more."""
    first = _part("agent.json", "the running agent", lambda: _json(client.get("/v1")))
    yield first
    if first.why:
        yield Part("connectors.json", "connectors of the running agent, health, metrics", "", "no agent answered")
        return
    names: list[str] = []

    def connectors() -> str:
        found = client.get("/v1/connectors")
        names.extend(str(one["name"]) for one in found["connectors"])
        return _json(found)

    yield _part("connectors.json", "states, counts, lag", connectors)
    for name in names:
        yield _part(f"connectors/{name}.json", "its definition as it runs, its files", partial(_described, client, name))
    yield _part(
        "losses.json", f"the newest {_LOSSES:,} entries of the loss ledger", lambda: _json(client.get(f"/v1/losses?limit={_LOSSES}"))
    )
    yield _part("agent-log.txt", "the latest lines of the running agent's log", lambda: "\n".join(client.get("/v1/log")["lines"]))
    for path in ("/livez", "/readyz", "/metrics"):
        yield _part(f"{path[1:]}.txt", f"what {path} answers", partial(client.text, path))


def _described(client: AgentClient, name: str) -> str:
    base = f"/v1/connectors/{name}"
    return _json({"definition": client.get(f"{base}/definition"), **client.get(f"{base}/files?limit={_FILES}")})


def _doctor(sought: Sought) -> str:
    if sought.directory is None:
        raise CopycatError("no directory of definitions was found")
    loaded = load_directory(sought.directory, sought.agent)
    steps = examine(Examined(sought.agent, loaded, sought.state_dir, sought.client.socket_path, find_user(None)))
    return _json([{"section": one.section, "verdict": one.verdict, "name": one.name, "text": one.text, "fix": one.fix} for one in steps])


def _store(state_dir: Path) -> str:
    there = [f"{path.name}: {path.lstat().st_size} bytes" for path in sorted(state_dir.iterdir())]
    try:
        return _json({"directory": str(state_dir), "files": there, "store": store_outline(state_dir)})
    except CopycatError as error:
        return _json({"directory": str(state_dir), "files": there, "store": str(error)})


def _service() -> str:
    return _said("systemctl", "show", _UNIT, f"--property={_SHOWN}")


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


def _pid(client: AgentClient) -> int:
    return int(client.get("/v1")["pid"])
