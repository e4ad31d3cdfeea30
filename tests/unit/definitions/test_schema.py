"""The schema, the reference and the examples say the same as the loader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer import Typer
from typer.testing import CliRunner

from copycat_agent.cli.check import schema
from copycat_agent.definitions import load_agent, load_file
from copycat_agent.definitions.models import all_models, definition_schema, parts_of_definitions
from copycat_agent.definitions.reference import reference
from copycat_agent.definitions.yaml_tree import MappingNode, Node, Scalar, parse, plain_value
from copycat_agent.options import AgentOptions, Definition
from tests.unit.definitions.conftest import GOOD
from tests.unit.definitions.test_problems import OPTIONS

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "connectors.d").glob("*.yaml*"))


def data(node: Node) -> Any:
    """A document as JSON would have it."""
    if isinstance(node, Scalar):
        return plain_value(node.text) if node.plain else node.text
    if isinstance(node, MappingNode):
        return {key: data(value) for key, value in node.items.items()}
    return [data(item) for item in node.items]


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    """The schema, itself valid."""
    made = definition_schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_each_example_loads_and_agrees_with_the_schema(path: Path, validator: jsonschema.Draft202012Validator, tmp_path: Path) -> None:
    (tmp_path / "kafka_password").write_text("not shown")
    loaded = load_file(path, AgentOptions(), environ={"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert loaded.problems == ()
    assert loaded.definition is not None
    validator.validate(data(parse(path.read_text())))


def test_one_example_runs_as_it_is_against_the_dev_broker() -> None:
    loaded = load_file(ROOT / "connectors.d" / "system-logs.yaml", AgentOptions(), environ={}).definition
    assert loaded is not None
    assert loaded.source.type == "log_file"
    assert loaded.kafka.bootstrap_servers == ("127.0.0.1:9092",)
    assert loaded.kafka.create_topics is not None


def test_the_example_of_the_agents_file_loads(tmp_path: Path) -> None:
    (tmp_path / "kafka_password").write_text("x")
    agent = load_agent(ROOT / "docs" / "agent.yaml", environ={"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert agent.kafka.security.password is not None


# to JSON Schema 2.0 is an integer
TYPE_CODES = {"unknown-key", "wrong-type", "no-value", "unknown-type"}
OF_TYPE = [case for case in OPTIONS if case[3] in TYPE_CODES and "2.0" not in case[0]]


@pytest.mark.parametrize("case", OF_TYPE, ids=str)
def test_what_the_loader_refuses_for_its_type_the_schema_refuses(case: tuple[Any, ...], validator: jsonschema.Draft202012Validator) -> None:
    assert not validator.is_valid(data(parse(GOOD + case[0])))


def test_a_reference_may_stand_for_a_number(validator: jsonschema.Draft202012Validator) -> None:
    validator.validate(data(parse(GOOD + "enabled: '${env:E}'\ndelivery: {tasks_max: '${env:N}', linger: '${env:L}'}\n")))


def test_defaults_are_in_the_units_of_a_definition() -> None:
    properties = definition_schema()["$defs"]["DeliveryOptions"]["properties"]
    assert (properties["linger"]["default"], properties["max_batch_bytes"]["default"]) == ("50ms", "64MiB")


def test_every_option_has_a_description() -> None:
    for model in all_models((Definition, AgentOptions, *parts_of_definitions())):
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"
    made = definition_schema()
    for section in (made, *made["$defs"].values()):
        assert all("description" in described for described in section.get("properties", {}).values())


def test_no_two_classes_of_options_share_a_name() -> None:
    """The schema has them by their names."""
    models = all_models((Definition, AgentOptions, *parts_of_definitions()))
    names = [model.__name__ for model in models]
    assert sorted(names) == sorted(set(names))


def test_the_command_prints_the_schema() -> None:
    app = Typer()
    app.command()(schema)
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == definition_schema()


def test_the_reference_is_in_step_with_the_models() -> None:
    page = (ROOT / "docs" / "definitions.md").read_text()
    assert page == reference(), "run: python -m copycat_agent.definitions.reference > docs/definitions.md"
