"""The example package, built, installed and run as its user would; and one that is bad beside it, which is its own connector's trouble."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from tests.cli.conftest import PROJECT, Done
from tests.rig.kafka import consume, values, wait_for_markers
from tests.rig.packages import SHOUT, install
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess

EXAMPLE = PROJECT / "docs/examples/copycat-extras"
STANZAS = "Mail: ann@x\nNote: a long text\n\nMail: bob@x\n\n\n\nno colon\n\nMail: cid@x"


@pytest.fixture(scope="module")
def extras(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the example's wheel is installed into, by pip and without a network."""
    root = tmp_path_factory.mktemp("extras")
    source = shutil.copytree(EXAMPLE, root / "source", ignore=shutil.ignore_patterns("__pycache__"))
    _run(source, "hatchling", "build", "-t", "wheel", "-d", str(root / "dist"))
    (wheel,) = (root / "dist").glob("*.whl")
    quietly = ("-q", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check")
    _run(root, "pip", "install", *quietly, "--target", str(root / "site"), str(wheel))
    return root / "site"


def _run(directory: Path, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=directory, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def test_check_schema_and_explain_know_the_parts_of_a_package(copycat: Callable[..., Done], extras: Path) -> None:
    here = {"PYTHONPATH": f"{PROJECT}:{extras}"}
    done = copycat("check", EXAMPLE / "connectors.d", env=here)
    assert (done.returncode, "error[" in done.stderr) == (0, False)
    assert done.stdout.splitlines() == [
        "good contacts: spool_dir -> contacts",
        "good payments-pods: pod_logs -> logs.payments",
        "good shop-tables: tables -> shop",
    ]
    made = json.loads(copycat("schema", env=here).stdout)
    jsonschema.Draft202012Validator.check_schema(made)
    validator = jsonschema.Draft202012Validator(made)
    for good, step in ((True, {"message": 10}), (False, {"message": "ten"})):
        assert validator.is_valid(definition_of(transforms=[{"shorten": step}])) is good
    explained = copycat("explain", "transforms.shorten", env=here).stdout
    assert "transform shorten of package copycat-extras 1.0" in explained
    assert "how many characters are left" in explained


def test_without_the_package_its_names_are_unknown(copycat: Callable[..., Done]) -> None:
    done = copycat("check", EXAMPLE / "connectors.d")
    assert done.returncode == 78
    for words in (
        "unknown source 'pod_logs'",
        "unknown source 'tables'",
        "unknown format 'stanzas'",
        "unknown transform 'shorten'",
        "unknown converter 'tsv'",
    ):
        assert done.stderr.count(words) == 2 - (words.partition("'")[2] != "shorten'")


def definition_of(**sections: Any) -> dict[str, Any]:
    return {"name": "a", "source": {"type": "log_file", "include": ["/a"]}, "record": {"topic": "t"}, **sections}


def parts(root: Path, topics: list[str]) -> dict[str, dict[str, Any]]:
    """Definitions that use each part, and two of a bad package: one whose step raises, one that cannot be loaded."""
    (root / "pods/payments_x/c").mkdir(parents=True)
    (root / "pods/payments_x/c/0.log").write_text("hello world\nwith\ttab\n")
    (root / "in").mkdir()
    (root / "in/contacts.txt").write_text(STANZAS)
    spool = {"type": "spool_dir", "dir": str(root / "in"), "ready": {"min_age": "0s"}, "format": {"type": "stanzas", "lower_case": True}}
    return {
        "pods": {
            "source": {"type": "pod_logs", "namespace": "payments", "root": str(root / "pods")},
            "transforms": [{"shorten": {"message": 8}}],
            "record": {"topic": topics[0]},
            "converters": {"value": {"type": "tsv", "fields": ["message", "gone"]}},
        },
        "contacts": {
            "source": spool,
            "transforms": [{"shorten": {"note": 6}}],
            "record": {"topic": topics[1], "key": "{mail}"},
            "errors": {"tolerance": "all"},
        },
        "shouting": {
            "source": {"type": "log_file", "include": [str(root / "pods/*/*/*.log")]},
            "transforms": [{"shout": "card", "on_error": "keep"}],
            "record": {"topic": topics[2]},
            "errors": {"tolerance": "all"},
        },
        "broken": {
            "source": {"type": "log_file", "include": [str(root / "pods/*/*/*.log")]},
            "transforms": [{"broken": "message"}],
            "record": {"topic": topics[2]},
        },
    }


def test_all_parts_run_on_a_real_broker_and_a_bad_package_stops_only_its_own_connectors(
    agent: AgentProcess, broker: DevBroker, make_topic: Callable[..., str], extras: Path, tmp_path: Path
) -> None:
    points = {"transforms": {"shout": "shouting:SHOUT", "broken": "not_there:BROKEN"}}
    bad = install(tmp_path / "bad", "copycat-bad", points, {"shouting": SHOUT})
    topics = [make_topic(), make_topic(), make_topic()]
    for name, sections in parts(tmp_path, topics).items():
        agent.define(name, sections)
    agent.start("--until-idle", env={"PYTHONPATH": f"{PROJECT}:{extras}:{bad}"})
    assert agent.wait() == 1
    assert values(broker.bootstrap, topics[0]) == [b"hello wo\t", b"with\\ttab\t"]
    arrived = [(record.key, json.loads(record.value or b"")) for record in consume(broker.bootstrap, topics[1])]
    assert arrived == [
        (b"ann@x", {"mail": "ann@x", "note": "a long"}),
        (b"bob@x", {"mail": "bob@x"}),
        (b"cid@x", {"mail": "cid@x"}),
    ]
    assert values(broker.bootstrap, topics[2]) == []
    assert "transform 'broken' of package copycat-bad 1.0: it cannot be loaded: ModuleNotFoundError" in agent.log
    assert "0.log', bytes 0 to 12, stage transform: transforms[0] shout of package copycat-bad 1.0: KeyError at shouting.py:" in agent.log
    assert "hello" not in agent.log


@pytest.mark.timeout(600)
def test_a_source_on_the_contract_runs_with_exactly_once(
    agent: AgentProcess, broker: DevBroker, topic: str, extras: Path, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop, shop:
        for table in ("orders", "refunds"):
            shop.execute(f"CREATE TABLE {table} (number INTEGER, note TEXT)")
            shop.executemany(f"INSERT INTO {table} VALUES (?, ?)", [(number, table) for number in range(2500)])  # noqa: S608 - two names
    source = {"type": "tables", "database": str(tmp_path / "shop.db"), "tables": ["orders", "refunds"]}
    agent.define("shop", {"source": source, "record": {"topic": topic, "key": "{@file.path}"}, "delivery": {"guarantee": "exactly_once"}})
    for _ in range(2):  # the second run has nothing to send
        agent.start("--until-idle", env={"PYTHONPATH": f"{PROJECT}:{extras}"})
        assert agent.wait() == 0, agent.log
    wait_for_markers(broker.bootstrap, topic)
    found = consume(broker.bootstrap, topic, "read_committed")
    for table in ("orders", "refunds"):
        rows = [json.loads(one.value or b"") for one in found if one.key == table.encode()]
        assert rows == [{"number": number, "note": table} for number in range(2500)]


@pytest.mark.long
def test_resident_runners_have_the_parts_too(
    agent: AgentProcess, broker: DevBroker, make_topic: Callable[..., str], extras: Path, tmp_path: Path
) -> None:
    topics = [make_topic(), make_topic(), make_topic()]
    wanted = {name: sections for name, sections in parts(tmp_path, topics).items() if name in ("pods", "contacts")}
    for name, sections in wanted.items():
        agent.define(name, sections)
    agent.start(env={"PYTHONPATH": f"{PROJECT}:{extras}"})
    wait_until(lambda: len(values(broker.bootstrap, topics[0])) + len(values(broker.bootstrap, topics[1])) == 5, 60.0, lambda: agent.log)
    agent.stop()
