"""A directory of definitions: what is read, what stands alone, what is compared across files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer import Typer
from typer.testing import CliRunner

from copycat_agent.cli.check import check
from copycat_agent.definitions import find_agent_file, load_agent, load_directory
from copycat_agent.errors import DefinitionError
from copycat_agent.options import AgentOptions
from copycat_agent.sources.files.paths.matching import shared_name
from tests.unit.definitions.conftest import GOOD, Load

if TYPE_CHECKING:
    import random


def named(name: str, topic: str = "t", path: str = "/var/log/app.log") -> str:
    """A definition with the given name, topic and path."""
    return f"name: {name}\nsource: {{type: log_file, include: [{path}]}}\nrecord: {{topic: {topic}}}\n"


def test_only_yaml_files_in_the_directory_itself_are_read_and_sorted(directory: Path) -> None:
    for name, file in [("z", "z.yml"), ("a", "a.yaml"), ("h", ".hidden.yaml"), ("d", "d.yaml.disabled"), ("t", "t.txt")]:
        (directory / file).write_text(named(name, topic=name))
    (directory / "deeper").mkdir()
    (directory / "deeper" / "x.yaml").write_text(named("x"))
    (directory / "dir.yaml").mkdir()
    loaded = load_directory(directory, AgentOptions())
    assert list(loaded.definitions) == ["a", "z"]
    assert loaded.paths == {"a": directory / "a.yaml", "z": directory / "z.yml"}
    assert loaded.problems == ()


def test_a_file_that_does_not_load_stops_no_other(load: Load) -> None:
    loaded = load(named("one"), "name: [", named("three", topic="u"), b"\xff")
    assert list(loaded.definitions) == ["one", "three"]
    assert {Path(each.path).name for each in loaded.problems} == {"b.yaml", "d.yaml"}


def test_what_cannot_be_read_is_a_problem_and_waits_for_nothing(directory: Path) -> None:
    os.mkfifo(directory / "pipe.yaml")
    (directory / "gone.yaml").symlink_to("nowhere")
    (directory / "zero.yaml").symlink_to("/dev/zero")
    (directory / "unseen.yaml").symlink_to("x" * 300)  # as a link to where this user may not look: not even its kind is known
    loaded = load_directory(directory, AgentOptions())
    assert [each.code for each in loaded.problems] == ["unreadable"] * 4
    assert [each.code for each in load_directory(directory / "none", AgentOptions()).problems] == ["unreadable"]


def test_two_files_with_one_name_are_both_refused_and_each_names_the_other(load: Load) -> None:
    loaded = load(named("app"), named("other", topic="o"), "# a copy\n" + named("app", topic="u"))
    assert list(loaded.definitions) == ["other"]
    assert [(Path(each.path).name, each.line, each.column, each.code) for each in loaded.problems] == [
        ("a.yaml", 1, 7, "duplicate-name"),
        ("c.yaml", 2, 7, "duplicate-name"),
    ]
    assert "c.yaml" in loaded.problems[0].text
    assert "a.yaml" in loaded.problems[1].text


def test_a_file_that_does_not_load_still_tells_its_name(load: Load) -> None:
    assert [file.name for file in load(named("app") + "nonsense: 1\n").files] == ["app"]


def test_connectors_that_do_the_same_are_warned_of_once_per_extra(load: Load) -> None:
    loaded = load(named("one"), named("two"), named("three"), named("four", topic="u"), named("five", path="/else"))
    assert len(loaded.definitions) == 5
    assert [Path(each.path).name for each in loaded.warnings] == ["b.yaml", "c.yaml"]
    assert all("a.yaml" in each.text for each in loaded.warnings)


def test_an_earlier_name_that_is_still_there_is_warned_of(load: Load) -> None:
    loaded = load(
        named("one", topic="t1") + "renamed_from: [two, one, former]\n", named("two", topic="t2") + "renamed_from: [one]\n",
        named("broken") + "nonsense: 1\n", named("new", topic="t3") + "renamed_from: [broken]\n",
    )  # fmt: skip
    assert [(Path(each.path).name, each.code) for each in loaded.warnings] == [
        ("a.yaml", "still-there"), ("b.yaml", "still-there"), ("d.yaml", "still-there"),
    ]  # fmt: skip
    assert "one was renamed from two, which is still there" in loaded.warnings[0].text


def test_connectors_whose_patterns_share_a_file_are_warned_of(load: Load) -> None:
    paths = ("/l/*.log", "/l/app-*", "/l/*.txt", "/m/*.log")
    loaded = load(*(named(name, path=repr(path)) for name, path in zip(("one", "two", "three", "four"), paths, strict=True)))
    assert [(each.code, Path(each.path).name) for each in loaded.warnings] == [("shared-files", "b.yaml"), ("shared-files", "c.yaml")]
    assert "'/l/app-.log'" in loaded.warnings[0].text
    apart = load(named("one", path="'/l/*.log'"), named("two", path="'/l/app-*'", topic="u"))
    assert apart.warnings == (), "each topic gets every record, which may be meant"


def test_everybody_is_compared_with_everybody_whose_patterns_may_share_a_file(load: Load, rng: random.Random) -> None:
    """Which the loader finds without looking at each pair."""
    levels = ("*", "**", "a", "b", "a*", "*b", "?", "[ab]", "ab")
    paths = sorted({"/" + "/".join(rng.choices(levels, k=rng.randint(1, 3))) + "/x.log" for _ in range(60)})
    rng.shuffle(paths)
    loaded = load(*(named(f"app-{number}", path=repr(path)) for number, path in enumerate(paths)))
    files = [file.name for file in loaded.files]
    order = [int(str(name).removeprefix("app-")) for name in files]
    shared = [
        (f"app-{mine}", f"app-{other}")
        for index, mine in enumerate(order)
        for other in order[:index]
        if shared_name(((paths[mine],), ()), ((paths[other],), ()))
    ]
    assert shared
    assert [tuple(each.text.split()[:3:2]) for each in loaded.warnings] == shared


@pytest.mark.parametrize(
    ("topics", "path", "clash"),
    [
        ("[a, orders]", "{@topic}", "orders"),
        ('["ord.*"]', "{@topic}", "orders"),
        ("[payments]", "{@topic}", ""),
        ('["ord.*"]\n  exclude: [orders]', "{@topic}", ""),
        ("[orders]", "other/{@topic}", ""),
    ],
)
def test_two_connectors_whose_files_would_have_the_same_names_are_refused(load: Load, topics: str, path: str, clash: str) -> None:
    def into(name: str, topics: str, path: str, uri: str) -> str:
        kafka = "kafka: {bootstrap_servers: [b:9092]}"
        sink = f"sink: {{type: files, uri: '{uri}', path: '{path}'}}"
        return f"name: {name}\nsource:\n  type: kafka\n  topics: {topics}\n{sink}\n{kafka}\n"

    loaded = load(into("one", "[orders]", "{@topic}", "file:///lake/"), into("two", topics, path, "file:///lake"))
    assert list(loaded.definitions) == ([] if clash else ["one", "two"]), loaded.problems
    assert [one.code for one in loaded.problems] == (["files-shared"] * 2 if clash else [])
    assert all(f"topic {clash}" in one.text for one in loaded.problems)


def test_a_disabled_connector_loads_and_is_nobodys_twin(load: Load) -> None:
    loaded = load(named("one"), named("two") + "enabled: false\n")
    assert loaded.definitions["two"].enabled is False
    assert loaded.warnings == ()


def test_the_agents_file_is_found_beside_the_directory(directory: Path) -> None:
    assert find_agent_file(directory) is None
    (directory.parent / "agent.yaml").write_text("log: {level: debug}\n")
    assert find_agent_file(directory) == directory.parent / "agent.yaml"
    assert find_agent_file(directory, Path("/other.yaml")) == Path("/other.yaml")


def test_the_agents_file_among_the_definitions_says_where_it_belongs(directory: Path) -> None:
    (directory / "agent.yaml").write_text("log: {level: debug}\n")
    assert [(each.code, each.hint) for each in load_directory(directory, AgentOptions()).problems] == [
        ("misplaced", "put it beside this directory, not into it")
    ]


def test_without_a_file_the_agent_has_its_defaults() -> None:
    assert load_agent(None) == AgentOptions()


def test_the_command_line_comes_before_the_agents_file(tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text("state_dir: /file\nkafka: {bootstrap_servers: [file:1], client: {linger.ms: 7}}\n")
    agent = load_agent(config, {"state_dir": None, "kafka.bootstrap_servers": ("option:1",)})
    assert agent.state_dir == "/file"
    assert agent.kafka.bootstrap_servers == ("option:1",)
    assert agent.kafka.client == {"linger.ms": "7"}


def test_every_problem_of_the_agents_file_is_told(tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text("stat_dir: /x\nspark: {driver_memory: 1MiB, conf: {a: b}}\nkafka: {client: {acks: 1}}\nlog: {level: trace}\n")
    with pytest.raises(DefinitionError) as caught:
        load_agent(config)
    assert [(each.line, each.code) for each in caught.value.problems] == [
        (1, "unknown-key"), (2, "bad-value"), (3, "kafka-client"), (4, "bad-value"),
    ]  # fmt: skip
    assert caught.value.problems[1].text == "must be at least 512MiB"


@pytest.mark.parametrize(("written", "size_bytes"), [("512m", 2**29), ("1g", 2**30), ("600MiB", 600 * 2**20)])
def test_the_jvms_heap_is_written_as_sizes_or_as_spark_writes_it(tmp_path: Path, written: str, size_bytes: int) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(f"spark: {{driver_memory: {written}}}\n")
    assert load_agent(config).spark.driver_memory == size_bytes


@pytest.mark.parametrize("address", ["k1", "k1:x", "k1:70000", ":9092", ""])
def test_a_broker_address_from_the_command_line_is_checked(address: str) -> None:
    with pytest.raises(DefinitionError):
        load_agent(None, {"kafka.bootstrap_servers": (address,)})


# copycat check


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr of `check`."""
    app = Typer()
    app.command()(check)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_check_of_good_definitions_exits_0_with_a_line_for_each(directory: Path) -> None:
    (directory / "a.yaml").write_text(named("one"))
    (directory / "b.yaml").write_text(named("two", topic="u") + "enabled: false\n")
    (directory.parent / "agent.yaml").write_text("kafka: {bootstrap_servers: ['k1:9092']}\n")
    assert run(str(directory)) == (0, "good one: log_file -> t\ngood two: log_file -> u (disabled)\n", "")


def test_check_exits_78_when_any_is_bad_and_tells_it_on_stderr(directory: Path) -> None:
    (directory / "a.yaml").write_text(named("one"))
    (directory / "b.yaml").write_text(named("two") + "enabled: no\n")
    code, out, err = run(str(directory))
    assert code == 78
    assert out == f"good one: log_file -> t\nbad  two: 1 problem in {directory / 'b.yaml'}\n"
    assert f"{directory / 'b.yaml'}:4:10: error[wrong-type] needs true or false" in err


def test_check_exits_78_for_the_agents_file_alone(directory: Path) -> None:
    (directory / "a.yaml").write_text(named("one"))
    (directory.parent / "agent.yaml").write_text("nonsense: 1\n")
    assert run(str(directory))[0] == 78


def test_check_without_env_passes_what_only_the_host_knows(directory: Path) -> None:
    (directory / "a.yaml").write_text(named("one") + "delivery: {tasks_max: '${env:NO_SUCH_NAME}'}\n")
    assert run(str(directory))[0] == 78
    assert run(str(directory), "--no-env")[0] == 0


def test_check_writes_json_for_scripts(directory: Path) -> None:
    (directory / "a.yaml").write_text(GOOD)
    (directory / "b.yaml").write_text(GOOD.replace("app\n", "two\n", 1) + "enabled: no\n")
    code, out, _ = run(str(directory), "--format", "json")
    report = json.loads(out)
    assert code == 78
    assert report["good"] is False
    assert [(each["name"], each["good"]) for each in report["definitions"]] == [("app", True), ("two", False)]
    assert [(each["line"], each["code"]) for each in report["problems"]] == [(4, "wrong-type")]
