"""The filelog receiver of the OpenTelemetry Collector, Filebeat and Flume themselves, stopped in order, and killed in a rotating log."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from copycat_agent.errors import CopycatError
from copycat_agent.workbench.takeover import PeerState, filebeat_registry, flume_positions, otel_storage
from copycat_agent.workbench.takeover.peer_state import PeerPosition
from tests.rig.waiting import wait_until
from tests.unit.workbench.takeover.following import following
from tests.unit.workbench.takeover.peers import read_on, read_spooled, spooling, successor, taken_over
from tests.unit.workbench.takeover.rotating import RotatingLog, assert_nothing_lost

pytestmark = [
    pytest.mark.long,  # they are built or fetched first: minutes, and 1.5 GB of modules
    pytest.mark.timeout(2400),
]
_HERE = Path(__file__).parent
_FILEBEAT = """filebeat.inputs: [{{type: {kind}, id: app, paths: ['{log}'], {often}}}]
filebeat.registry.flush: 500ms
output.file: {{path: '{work}/out', filename: lines, rotate_every_kb: 102400, codec.format.string: '%{{[message]}}'}}
"""
_ONE_BY_ONE = """queue.mem: {events: 64, flush.min_events: 1, flush.timeout: 0s}
output.file.bulk_max_size: 1
"""
"""So Filebeat saves after each line, and has a snapshot of its registry after some 45,000."""
_OFTEN = {
    "log": "scan_frequency: 100ms, backoff: 50ms, max_backoff: 100ms",
    "filestream": "prospector.scanner.check_interval: 100ms, backoff: {init: 50ms, max: 100ms}",
}
_FLUME = """a.sources = app
a.channels = memory
a.sinks = files
a.sources.app.channels = memory
{source}
a.channels.memory.type = memory
a.sinks.files.type = file_roll
a.sinks.files.channel = memory
a.sinks.files.sink.directory = {work}/out
a.sinks.files.sink.rollInterval = 0
"""
_TAILDIR = """a.sources.app.type = TAILDIR
a.sources.app.filegroups = logs
a.sources.app.filegroups.logs = {directory}/app\\\\.log
a.sources.app.positionFile = {work}/state/taildir_position.json
a.sources.app.writePosInterval = 500"""
_SPOOLDIR = """a.sources.app.type = spooldir
a.sources.app.spoolDir = {directory}
a.sources.app.trackingPolicy = {policy}"""


class Product(NamedTuple):
    """`build` makes it in a directory, with `tool`; `command` follows a log, with its state in `work/state` and the lines in `work/out`."""

    tool: str
    build: Callable[[Path], object]
    command: Callable[[Path, Path, Path], Sequence[str | Path]]
    read: Callable[[Path], PeerState]


def _go(name: str) -> Callable[[Path], object]:
    def build(directory: Path) -> object:
        shutil.copytree(_HERE / name, directory)
        return subprocess.run(["go", "build", "-p", "1", "-o", "peer", "."], cwd=directory, check=True, timeout=1800)

    return build


def _fetch_flume(directory: Path) -> object:
    shutil.copytree(_HERE / "flume_peer", directory)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
    return subprocess.run(command, cwd=directory, check=True, timeout=1800)


def _collector(built: Path, work: Path, log: Path) -> Sequence[str | Path]:
    (work / "state").mkdir()
    return [built / "peer", log, work / "state", work / "out" / "lines"]


def _filebeat(kind: str) -> Callable[[Path, Path, Path], Sequence[str | Path]]:
    def command(built: Path, work: Path, log: Path) -> Sequence[str | Path]:
        configuration = work / "filebeat.yml"
        configuration.write_text(_FILEBEAT.format(kind=kind, log=log, work=work, often=_OFTEN[kind]))
        configuration.chmod(0o600)
        return [built / "peer", "-e", "-c", configuration, "--path.home", work, "--path.data", work / "state"]

    return command


def _flume(source: str, **more: str) -> Callable[[Path, Path, Path], Sequence[str | Path]]:
    def command(built: Path, work: Path, log: Path) -> Sequence[str | Path]:
        configuration = work / "flume.properties"
        configuration.write_text(_FLUME.format(source=source.format(directory=log.parent, work=work, **more), work=work))
        java = ["java", "-Xmx128m", "-cp", f"{built}/jars/*"]
        return [*java, "org.apache.flume.node.Application", "-n", "a", "-f", configuration]

    return command


_BUILT_FILEBEAT = _go("filebeat_peer")
PRODUCTS = {
    "collector": Product("go", _go("otel_peer"), _collector, otel_storage.read),
    "filebeat-filestream": Product("go", _BUILT_FILEBEAT, _filebeat("filestream"), filebeat_registry.read),
    "filebeat-log": Product("go", _BUILT_FILEBEAT, _filebeat("log"), filebeat_registry.read),
    "flume": Product("mvn", _fetch_flume, _flume(_TAILDIR), flume_positions.read),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Product], Path]:
    """Makes a product the first time, and returns the directory that it is in."""
    made: dict[Callable[[Path], object], Path] = {}

    def of(product: Product) -> Path:
        if shutil.which(product.tool) is None:
            pytest.skip(f"{product.tool}, which makes it, is not installed")
        if product.build not in made:
            directory = tmp_path_factory.mktemp("product") / "built"
            product.build(directory)
            made[product.build] = directory
        return made[product.build]

    return of


@pytest.fixture(params=PRODUCTS)
def product(request: pytest.FixtureRequest) -> Product:
    return PRODUCTS[request.param]


@pytest.fixture
def command(product: Product, built: Callable[[Product], Path], tmp_path: Path, log: Path) -> Sequence[str | Path]:
    (tmp_path / "peer").mkdir()
    return product.command(built(product), tmp_path / "peer", log)


@pytest.fixture
def state(product: Product, tmp_path: Path) -> Callable[[], PeerState]:
    """`state()` reads what the product has saved."""
    return lambda: product.read(tmp_path / "peer" / "state")


def saved_in(state: PeerState, inode: int, lines: list[bytes]) -> int:
    """How far a product had saved that it was in a file of these lines; 0 where it keeps nothing of it."""
    content = b"".join(line + b"\n" for line in lines)

    def is_of_it(position: PeerPosition) -> bool:
        head = position.head.value if position.head is not None else b""
        return inode == position.inode if isinstance(position.inode, int) else isinstance(head, bytes) and content.startswith(head)

    return next((one.position for one in state.positions if is_of_it(one)), 0)


def test_the_agent_goes_on_behind_the_last_line_that_the_product_handed_on(
    command: Sequence[str | Path], state: Callable[[], PeerState], tmp_path: Path, log: Path
) -> None:
    log.write_bytes(b"".join(b"line %d\n" % number for number in range(200)))
    size = log.stat().st_size

    def is_saved() -> bool:
        try:
            return any(one.position == size for one in state().positions)
        except CopycatError:
            return False

    with following(command, tmp_path / "peer" / "out") as peer:
        peer.await_lines(200)
        wait_until(is_saved, 60.0, "it has saved where it is")
        peer.end()
    with log.open("ab") as file:
        file.write(b"new\n")
    assert read_on(log, taken_over(successor(log), state=state()).rows["app"]) == [b"new"]


def test_the_product_is_killed_in_the_middle_of_a_rotating_log_and_nothing_is_lost(
    command: Sequence[str | Path], state: Callable[[], PeerState], tmp_path: Path, log: Path
) -> None:
    log.unlink()
    rotating = RotatingLog(log)
    with following(command, tmp_path / "peer" / "out") as peer:

        def has_handed_on_what_it_saved() -> bool:
            """Flume's channel is in memory, and what is in it counts as read: killed with lines there, it loses them."""
            handed_on = set(peer.lines)
            parts = ((part, saved_in(state(), inode, part)) for inode, part in rotating.files)
            return all(set(b"".join(line + b"\n" for line in part)[:saved].splitlines()) <= handed_on for part, saved in parts)

        rotating.kill_in_the_middle(peer.await_lines, lambda: peer.kill_when(has_handed_on_what_it_saved))
        handed_on = peer.lines
    left = state()
    repeated = set(assert_nothing_lost(rotating, handed_on, read_on(log, taken_over(successor(log), state=left).rows["app"])))
    for inode, part in rotating.files:
        behind = b"".join(line + b"\n" for line in part)[saved_in(left, inode, part) :]
        assert repeated & set(part) <= set(behind.splitlines())


def test_filebeat_is_killed_when_its_registry_has_a_snapshot_and_operations_behind_it(
    built: Callable[[Product], Path], tmp_path: Path, log: Path
) -> None:
    product, work = PRODUCTS["filebeat-filestream"], tmp_path / "peer"
    lines = [b"line %08d" % number for number in range(1_000_000)]
    log.write_bytes(b"".join(line + b"\n" for line in lines))
    work.mkdir()
    command = product.command(built(product), work, log)
    with (work / "filebeat.yml").open("a") as configuration:
        configuration.write(_ONE_BY_ONE)
    with following(command, work / "out") as peer:
        wait_until(lambda: any((work / "state").glob("registry/filebeat/[0-9]*.json")), 120.0, "a snapshot")
        peer.await_lines(len(peer.lines) + 1)
        peer.end(signal.SIGKILL)
        handed_on = peer.lines
    state = product.read(work / "state")
    saved = saved_in(state, log.stat().st_ino, lines) // len(b"line 00000000\n")
    assert 0 < saved <= len(handed_on)
    assert handed_on == lines[: len(handed_on)]
    assert read_on(log, taken_over(successor(log), state=state).rows["app"]) == lines[saved:]


@pytest.mark.parametrize("policy", ["rename", "tracker_dir"])
def test_flume_is_killed_in_the_middle_of_a_spooled_file_and_it_is_read_on(
    built: Callable[[Product], Path], tmp_path: Path, log: Path, policy: str
) -> None:
    """What it finished has another name, or a marker, and is not read again."""
    log.unlink()
    product = PRODUCTS["flume"]._replace(command=_flume(_SPOOLDIR, policy=policy))
    (tmp_path / "peer").mkdir()
    command = product.command(built(product), tmp_path / "peer", log)
    contents = [[b"line %d of %d" % (number, part) for number in range(count)] for part, count in enumerate((1000, 1000, 500_000))]
    for number, lines in enumerate(contents):
        (log.parent / f"{number}.log").write_bytes(b"".join(line + b"\n" for line in lines))

    def saved() -> list[bytes]:
        """What Flume has counted of the last file; nothing while it has not begun it."""
        positions = {Path(one.path).name: one.position for one in product.read(log.parent).positions}
        return b"".join(line + b"\n" for line in contents[2])[: positions.get("2.log", 0)].splitlines()

    with following(command, tmp_path / "peer" / "out") as peer:
        peer.kill_when(lambda: len(peer.lines) > 3000 and set(saved()) <= set(peer.lines))
        handed_on = set(peer.lines)
    counted = saved()
    assert 0 < len(counted) < len(contents[2]), "it was killed in the middle of the last file"
    definition = spooling(log.parent, exclude=["*.COMPLETED"])
    takeover = taken_over(definition, state=product.read(log.parent))
    read = read_spooled(log.parent, takeover, exclude=["*.COMPLETED"])
    assert handed_on | set(read) == {line for lines in contents for line in lines}
    assert handed_on & set(read) <= set(contents[2][len(counted) :])
    assert len(read) == len(contents[2]) - len(counted)
