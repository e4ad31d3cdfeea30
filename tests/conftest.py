"""Fixtures of all tests: see `tests/rig` for what they hand out."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
import signal
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from xdist.scheduler import LoadFileScheduling

from copycat_agent import dev_broker
from copycat_agent.dev_broker import DevBroker, fetch_kafka
from tests.rig.agent import AgentProcess
from tests.rig.examples import PROFILE, examples
from tests.rig.kafka import create_topic, unique_topic
from tests.rig.kafka_classes import with_classes
from tests.rig.ledger import Ledger
from tests.rig.proxy import Proxy
from tests.rig.registry import RegistryFront, SchemaRegistry, fetch_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from xdist.remote import Producer

_AGENTS = pytest.StashKey[list[AgentProcess]]()
_SHOWN_CHARACTERS = 20_000
_TOGETHER = ("tests/faults/", "tests/jdbc/", "tests/spark/", "tests/unit/workbench/doctor/", "tests/unit/sinks/")
"""Directories whose files share an agent, a Spark session or a server, which each process of tests that has one starts for itself."""
_FIRST = (*_TOGETHER, "tests/simulation/", "tests/unit/transactions/")
_PORTS_EACH = 1500

settings.register_profile("same", max_examples=examples(100), derandomize=True, deadline=None, print_blob=True)
settings.register_profile("search", max_examples=examples(100), deadline=None, print_blob=True)
settings.load_profile(PROFILE)
if PROFILE == "same":  # else hypothesis takes numbers and texts from whatever modules of ours this process has imported so far
    providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seed N` repeats a run that printed this seed."""
    parser.addoption("--seed", type=int, default=None, help="seed of the `seed` and `rng` fixtures")


def pytest_configure() -> None:
    """A shell starts what runs in the background with SIGINT ignored, and children inherit that: tests that send it would wait for ever."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _take_own_ports(os.environ.get("PYTEST_XDIST_WORKER", ""))


def _take_own_ports(worker: str) -> None:
    """Processes of tests side by side choose ports of their own: one that is chosen is bound seconds later, when a JVM is up."""
    ports, number = dev_broker._PORTS, int(worker.removeprefix("gw") or -1)
    slices = len(ports) // _PORTS_EACH
    dev_broker._PORTS = ports[number % slices * _PORTS_EACH :][:_PORTS_EACH]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Next to nothing of what is imported and collected becomes garbage, now or later: nobody looks for it there."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What goes to one process for minutes comes first: begun last, it would be waited for when everything else is done."""
    items.sort(key=lambda item: not item.nodeid.startswith(_FIRST))


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """Each file goes to one process of tests, and so does all of a directory of `_TOGETHER`."""

    def _split_scope(self, nodeid: str) -> str:
        return next((directory for directory in _TOGETHER if nodeid.startswith(directory)), nodeid.partition("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Scheduling | None:
    """What `--dist loadfile` means here."""
    return _Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def _log_set_up() -> Iterator[None]:
    """A command that runs in this process sets the log up for itself: the next test's is as it was."""
    loggers = [logging.getLogger(), logging.getLogger("copycat_agent")]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Fetch Kafka, if a test needs it and it is not there, outside of any test's time-out."""
    wanted = {name for item in session.items if isinstance(item, pytest.Function) for name in item.fixturenames}
    if any("broker" in name for name in wanted):
        fetch_kafka()
        if cache := getattr(session.config, "cache", None):  # it may be turned off
            dev_broker._JVM_OPTIONS = with_classes(cache.mkdir("kafka"))
    if "schema_registry" in wanted:
        with contextlib.suppress(OSError, subprocess.SubprocessError):  # then only the tests that need it fail, and say so
            fetch_registry()
    if "connect_worker" in wanted:
        from tests.rig.connect import fetch_connect  # noqa: PLC0415 - needs the benchmarks, which a source distribution lacks

        with contextlib.suppress(OSError, RuntimeError, subprocess.SubprocessError):  # as above
            fetch_connect()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows the logs of its agents."""
    report = yield
    if report.failed:
        for agent in item.stash.get(_AGENTS, []):
            report.sections.append((f"agent log {agent.log_path}", agent.log[-_SHOWN_CHARACTERS:]))
    return report


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed, shown when the test fails; `--seed` repeats it."""
    chosen = request.config.getoption("--seed")
    number = random.SystemRandom().randrange(2**32) if chosen is None else int(chosen)
    print(f"repeat with --seed {number}")  # captured, so shown for failures only
    return number


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Randomness that `--seed` repeats."""
    return random.Random(seed)


@pytest.fixture
def ledger(seed: int) -> Iterator[Ledger]:
    """A ledger whose writers are closed at the end."""
    ledger = Ledger(seed)
    yield ledger
    ledger.close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevBroker]:
    """The real broker that all tests share; leave it running. Topics are not created by themselves."""
    with DevBroker(tmp_path_factory.mktemp("broker"), auto_create_topics=False) as broker:
        yield broker


@pytest.fixture(scope="session")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    """The real schema registry that all tests share; subjects need names of their own."""
    with SchemaRegistry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture
def registry_client(schema_registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    """The client of consumers: what a test registers and reads with."""
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        yield client


@pytest.fixture
def registry_front(schema_registry: SchemaRegistry) -> Iterator[RegistryFront]:
    """The registry behind a front that counts, hangs and goes down, for one test."""
    with RegistryFront(schema_registry.url) as front:
        yield front


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[DevBroker]:
    """A running broker for one test that stops, kills or freezes it (about 3 s to start)."""
    with DevBroker(tmp_path / "own-broker", auto_create_topics=False) as broker:
        yield broker


class ProxiedBroker(NamedTuple):
    """A broker whose clients all go through `proxy`, whatever address they were given first."""

    broker: DevBroker
    proxy: Proxy

    @property
    def bootstrap(self) -> str:
        """HOST:PORT through the proxy."""
        return self.broker.bootstrap


@pytest.fixture(scope="session")
def shared_proxied_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedBroker]:
    """Started with the first test that asks; use `proxied_broker`."""
    directory = tmp_path_factory.mktemp("proxied")
    with Proxy() as proxy, DevBroker(directory, advertised=proxy.address, auto_create_topics=False) as broker:
        proxy.upstream = broker.address
        yield ProxiedBroker(broker, proxy)


@pytest.fixture
def proxied_broker(shared_proxied_broker: ProxiedBroker) -> Iterator[ProxiedBroker]:
    """A second broker behind a proxy, both in good order at the beginning of each test."""
    shared_proxied_broker.proxy.reset()
    yield shared_proxied_broker
    shared_proxied_broker.proxy.reset()
    if shared_proxied_broker.broker.pid is None:
        shared_proxied_broker.broker.start()
    shared_proxied_broker.broker.resume()


@pytest.fixture
def make_topic(broker: DevBroker) -> Callable[..., str]:
    """`make_topic(partitions=1, config=None)` creates a uniquely named topic on `broker` and returns its name."""

    def make(partitions: int = 1, config: dict[str, str] | None = None) -> str:
        return create_topic(broker.bootstrap, unique_topic(), partitions, config)

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A new topic with one partition on `broker`."""
    return make_topic()


@pytest.fixture
def make_agent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., AgentProcess]]:
    """`make_agent(bootstrap, name="agent")` gives an agent that is not started yet, below `tmp_path / name`."""
    agents: list[AgentProcess] = []
    request.node.stash[_AGENTS] = agents

    def make(bootstrap: str, name: str = "agent") -> AgentProcess:
        agents.append(AgentProcess(tmp_path / name, bootstrap))
        return agents[-1]

    yield make
    for agent in agents:
        agent.close()


@pytest.fixture
def agent(make_agent: Callable[..., AgentProcess], broker: DevBroker) -> AgentProcess:
    """An agent for `broker`, not started: `define` connectors, then `start`. Nothing of it survives the test."""
    return make_agent(broker.bootstrap)
