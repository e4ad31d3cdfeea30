"""What a definition says is taken as it is written: nothing is guessed, and nothing is coerced silently."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from copycat_agent.definitions.secret_values import ReferenceProblem, resolve
from copycat_agent.definitions.yaml_tree import plain_value
from copycat_agent.options import AgentOptions, Definition, KafkaOptions, SecurityOptions, TopicOptions, WrittenFloat
from copycat_agent.transforms import action_of
from tests.unit.definitions.conftest import GOOD, Load


def only(load: Load, section: str, **settings: object) -> Definition:
    """The one definition of a good file with `section` from line 4 on."""
    loaded = load(GOOD + section + "\n", **settings)
    assert loaded.problems == ()
    return loaded.definitions["app"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("false", False), ("null", None), ("~", None), ("", None), ("0", 0), ("-7", -7), ("42", 42), ("1.50", 1.5)],
)
def test_plain_scalars_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    assert plain_value(text) == value
    assert type(plain_value(text)) is type(value) or isinstance(plain_value(text), WrittenFloat)


@pytest.mark.parametrize(
    "text",
    ["no", "yes", "on", "off", "True", "NO", "y", "Null", "010", "0x10", "0o7", "1_000", "+1", "-0", "12:30:45", "2026-11-21", "1e3", ".5",
     "5.", ".inf", ".nan", "9" * 19, "=", "<<"],
)  # fmt: skip
def test_everything_else_stays_text(text: str) -> None:
    assert plain_value(text) == text


def test_texts_that_other_yaml_readers_change_arrive_unchanged(load: Load) -> None:
    definition = only(load, "kafka: {client: {client.id: no, client.rack: 12:30:45}}")
    assert definition.kafka.client == {"client.id": "no", "client.rack": "12:30:45"}


def test_numbers_and_booleans_in_maps_of_text_are_taken_as_written(load: Load) -> None:
    definition = only(load, "kafka: {client: {linger.ms: 5, socket.keepalive.enable: true}, create_topics: {config: {a: 1.10, b: 007}}}")
    assert definition.kafka.client == {"linger.ms": "5", "socket.keepalive.enable": "true"}
    assert definition.kafka.create_topics == TopicOptions(config={"a": "1.10", "b": "007"})


def test_units_and_lists(load: Load) -> None:
    delivery = only(load, "delivery: {linger: 500ms, max_batch_time: 1.5s, max_batch_bytes: 1MiB}").delivery
    assert (delivery.linger, delivery.max_batch_time, delivery.max_batch_bytes) == (0.5, 1.5, 2**20)
    assert only(load, "kafka: {bootstrap_servers: [a:1, '[::1]:2']}").kafka.bootstrap_servers == ("a:1", "[::1]:2")


def test_a_converter_may_be_named_alone(load: Load) -> None:
    short, long = (only(load, f"converters: {{value: {text}}}") for text in ("json", "{type: json}"))
    assert short == long
    assert short.converters.value is not None
    assert short.converters.value.type == "json"


def test_transforms_keep_their_order_and_their_kind(load: Load) -> None:
    definition = only(load, "transforms: [{drop_if: {a: 1}}, {keep_if: {b: [x, y]}}, {drop_if: {c: {ge: 1.10}}}]")
    assert [action_of(item) for item in definition.transforms] == ["drop_if", "keep_if", "drop_if"]


def test_anchors_and_aliases_work(load: Load) -> None:
    definition = only(load, "errors: {dlq: {topic: &t dead}}\nkafka: {client: {client.id: *t}}")
    assert definition.errors.dlq is not None
    assert definition.errors.dlq.topic == definition.kafka.client["client.id"] == "dead"


def test_a_definition_survives_pickling(load: Load) -> None:
    section = "converters: {value: json}\nkafka: {security: {protocol: SASL_SSL, mechanism: PLAIN, username: u, password: p}}"
    definition = only(load, section)
    assert pickle.loads(pickle.dumps(definition)) == definition
    assert type(definition) is Definition


# References


def test_a_resolved_value_is_read_as_what_the_option_wants(load: Load) -> None:
    section = "enabled: ${env:E}\ndelivery: {tasks_max: '${env:N}', linger: '${env:N}0ms'}\nkafka: {client: {client.id: '${env:N}'}}\n"
    definition = only(load, section + "errors: {dlq: {topic: '${env:N}'}}", environ={"E": "false", "N": "3"})
    assert definition.enabled is False
    assert (definition.delivery.tasks_max, definition.delivery.linger, definition.kafka.client["client.id"]) == (3, 0.03, "3")
    assert definition.errors.dlq is not None
    assert definition.errors.dlq.topic == "3"


def test_a_resolved_value_is_no_yaml(load: Load) -> None:
    injected = "x}\nenabled: false #"
    assert only(load, "kafka: {client: {client.id: '${env:X}'}}", environ={"X": injected}).kafka.client["client.id"] == injected


def test_a_resolved_value_that_does_not_fit_is_a_problem_at_its_place(load: Load) -> None:
    problems = load(GOOD + "delivery: {tasks_max: '${env:N}'}\n", environ={"N": "many"}).problems
    assert [(each.line, each.column, each.code) for each in problems] == [(4, 23, "wrong-type")]


@pytest.mark.parametrize(
    ("text", "resolved"),
    [("${env:A}", "1"), ("x${env:A}y${env:A}", "x1y1"), ("${env:NO:-d}", "d"), ("${env:EMPTY:-d}", "d"), ("${env:EMPTY}", ""),
     ("${env:NO:-}", ""), ("$${env:A}", "${env:A}"), ("${env:LOOP}", "${env:A}"), ("$5 $(A) $A", "$5 $(A) $A")],
)  # fmt: skip
def test_references_are_replaced_once(text: str, resolved: str) -> None:
    assert resolve(text, {"A": "1", "EMPTY": "", "LOOP": "${env:A}"}).text == resolved


def test_files_and_credentials_lose_one_line_end(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\nb\n\n")
    assert resolve(f"${{file:{tmp_path}/f}}", {}) == ("a\nb\n", ("a\nb\n",))
    assert resolve("${cred:f}", {"CREDENTIALS_DIRECTORY": str(tmp_path)}).secrets == ("a\nb\n",)


@pytest.mark.parametrize(
    "text",
    ["${env:NO}", "${env:}", "${env:A B}", "${env:A", "${A}", "${vault:x}", "${}", "${file:relative}", "${file:/no/such}",
     "${file:/dev/zero}", "${file:/proc/self}", "${file:\0}", "${cred:../x}", "${cred:..}", "${cred:no}", "${cred:}"],
)  # fmt: skip
def test_a_reference_that_cannot_be_resolved_is_refused_with_a_next_step(tmp_path: Path, text: str) -> None:
    with pytest.raises(ReferenceProblem) as caught:
        resolve(text, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert caught.value.hint


def test_a_pipe_in_place_of_a_secret_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReferenceProblem, match="not a regular file"):
        resolve(f"${{file:{tmp_path}/pipe}}", {})


def test_an_unresolved_reference_is_one_problem_and_not_two(load: Load) -> None:
    problems = load(GOOD + "delivery: {tasks_max: '${env:N}', linger: '${env:L}'}\n").problems
    assert [(each.column, each.code) for each in problems] == [(23, "reference"), (43, "reference")]


def test_without_env_references_are_left_and_do_not_fail(load: Load) -> None:
    text = GOOD + "delivery: {tasks_max: '${env:N}'}\nkafka: {bootstrap_servers: ['${env:K}'], client: {linger.ms: '${env:L}'}}\n"
    assert load(text, resolve_env=False).problems == ()
    assert [each.code for each in load(text + "enabled: no\n", resolve_env=False).problems] == ["wrong-type"]


# The agent's Kafka options under a definition's


def agent() -> AgentOptions:
    """An agent with all of the Kafka section."""
    security = SecurityOptions.model_validate(
        {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "agent", "password": "p", "ca_file": "/ca"}
    )
    client = {"linger.ms": "9", "client.id": "agent"}
    kafka = KafkaOptions(bootstrap_servers=("agent:1",), client=client, security=security, create_topics=TopicOptions(partitions=6))
    return AgentOptions(kafka=kafka)


def test_a_definition_that_says_nothing_has_the_agents_kafka_options(load: Load) -> None:
    assert only(load, "", agent=agent()).kafka == agent().kafka


def test_a_definition_overrides_option_by_option_and_client_and_security_key_by_key(load: Load) -> None:
    section = "kafka: {bootstrap_servers: [own:1], client: {linger.ms: 5}, security: {username: own}}"
    kafka = only(load, section, agent=agent()).kafka
    assert kafka.bootstrap_servers == ("own:1",)
    assert kafka.client == {"linger.ms": "5", "client.id": "agent"}
    assert kafka.security == agent().kafka.security.model_copy(update={"username": "own"})
    assert kafka.create_topics == TopicOptions(partitions=6)


def test_null_turns_a_default_of_the_agent_off(load: Load) -> None:
    assert only(load, "kafka: {create_topics: null}", agent=agent()).kafka.create_topics is None


def test_what_the_agent_says_may_be_unused_but_not_what_the_definition_says(load: Load) -> None:
    assert only(load, "kafka: {security: {protocol: PLAINTEXT}}", agent=agent()).kafka.security.protocol == "PLAINTEXT"
    problems = load(GOOD + "kafka: {security: {protocol: PLAINTEXT, username: me}}\n", agent=agent()).problems
    assert [(each.column, each.code) for each in problems] == [(51, "security")]
