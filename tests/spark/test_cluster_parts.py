"""Parts of installed packages on a cluster's executors: found where they are installed, and missed in clear words where not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from copycat_agent.definitions import load_file
from copycat_agent.errors import FatalError
from copycat_agent.options import AgentOptions, KafkaOptions
from copycat_agent.transforms import TRANSFORMS
from tests.rig.apart import ExecutorApart
from tests.rig.kafka import values
from tests.rig.packages import SHOUT, install
from tests.rig.spark_cluster import PROJECT, SparkCluster
from tests.unit.batch.rig import batch_of, split_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from copycat_agent.dev_broker import DevBroker

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]  # three JVMs have to start

SECONDS = 200


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """What a test's packages left in this process."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
    TRANSFORMS.forget()


def loaded(root: Path, broker: DevBroker, topic: str, step: dict[str, Any]) -> Any:
    """A definition with this step, through the loader."""
    path = root / "app.yaml"
    source = {"type": "log_file", "include": [f"{root}/app.log"]}
    path.write_text(yaml.safe_dump({"name": "app", "source": source, "transforms": [step], "record": {"topic": topic}}))
    found = load_file(path, AgentOptions(kafka=KafkaOptions(bootstrap_servers=(broker.bootstrap,))))
    assert found.problems == ()
    return found.definition


def test_executors_have_what_is_installed_for_them_and_say_what_is_not(
    cache: None, broker: DevBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = install(tmp_path / "theirs", "copycat-shout", {"transforms": {"shout": "shouting:SHOUT"}}, {"shouting": SHOUT})
    ours = install(tmp_path / "ours", "copycat-whisper", {"transforms": {"whisper": "whispering:W"}}, {"whispering": WHISPER})
    for site in (theirs, ours):
        monkeypatch.syspath_prepend(str(site))
    log = tmp_path / "app.log"
    log.write_bytes(b"hello\n")
    with SparkCluster(tmp_path, workers=1, python_path=f"{PROJECT}:{theirs}") as cluster:
        executor = ExecutorApart(tmp_path / "run", cluster.url)
        try:
            (good,) = executor.submit(batch_of(loaded(tmp_path, broker, topic, {"shout": "message"}), split_of(log))).result(SECONDS)
            (bad,) = executor.submit(batch_of(loaded(tmp_path, broker, topic, {"whisper": "message"}), split_of(log))).result(SECONDS)
        finally:
            executor.close()
    assert good.error is None
    assert values(broker.bootstrap, topic) == [b'{"message":"HELLO"}']
    assert isinstance(bad.error, FatalError)
    assert "a task cannot read the definition: ModuleNotFoundError: No module named 'whispering'" in str(bad.error)
    assert "install the package" in str(bad.error)


WHISPER = SHOUT.replace("shout", "whisper").replace("SHOUT", "W").replace("Shout", "Whisper").replace("upper", "lower")
