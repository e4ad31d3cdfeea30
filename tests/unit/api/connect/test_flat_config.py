"""A definition as a map of text to text: everything that it says, nothing that is secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from copycat_agent.api.connect.flat_config import flat_config
from copycat_agent.definitions import load_content
from copycat_agent.options import AgentOptions, KafkaOptions

AGENT = AgentOptions(kafka=KafkaOptions(bootstrap_servers=("k1:9092",)))
LEAST = {"name": "app", "connector.class": "log_file", "tasks.max": "2", "kafka.bootstrap_servers": '["k1:9092"]'}


def flat(text: str, source: str = "{type: log_file, include: [/var/log/app.log]}", record: str = "{topic: logs}") -> Mapping[str, str]:
    content = f"name: app\nsource: {source}\nrecord: {record}\n{text}\n"
    loaded = load_content(Path("app.yaml"), content.encode(), AGENT, environ={})
    assert loaded.definition is not None, loaded.problems
    return flat_config(loaded.definition)


def test_what_is_the_default_is_not_told() -> None:
    assert flat("enabled: true\ndelivery: {guarantee: at_least_once}") == {
        **LEAST, "source.include": '["/var/log/app.log"]', "record.topic": "logs",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("delivery: {tasks_max: 4}", {"tasks.max": "4"}),
        ("delivery: {linger: 5ms, max_batch_bytes: 1MiB}", {"delivery.linger": "5ms", "delivery.max_batch_bytes": "1MiB"}),
        ("enabled: false", {"enabled": "false"}),
        ("limits: {records_per_second: 5}", {"limits.records_per_second": "5"}),
        ("transforms: [{json: {}}]", {"transforms.0.json": "{}"}),
        ("transforms: [{logfmt: {}}, {set: {a.b: x}}]", {"transforms.0.logfmt": "{}", "transforms.1.set.a.b": "x"}),
        ("transforms: [{drop_if: {path: {matches: ^/h}}}]", {"transforms.0.drop_if.path": '{"matches": "^/h"}'}),
        ("transforms: [{keep_if: {a: {not: [b, c]}}}]", {"transforms.0.keep_if.a": '{"not": {"any_of": ["b", "c"]}}'}),
        (
            "transforms: [{drop_if: {a: {not: {gt: 5.5}, exists: true}}}]",
            {"transforms.0.drop_if.a": '{"exists": true, "not": {"gt": 5.5}}'},
        ),
        ("converters: {value: json}\ntransforms: [{json: {}}]", {"converters.value.type": "json"}),
        ("errors: {tolerance: all, dlq: {topic: bad}}", {"errors.tolerance": "all", "errors.dlq.topic": "bad"}),
        ("kafka: {client: {linger.ms: 5}}", {"kafka.client.linger.ms": "5"}),
        ("renamed_from: [old]", {"renamed_from": '["old"]'}),
    ],
)
def test_what_is_said_is_told_under_its_dotted_key(text: str, expected: dict[str, str]) -> None:
    found = flat(text)
    assert found.items() >= expected.items()
    assert all(isinstance(value, str) for value in found.values())


def test_sections_of_a_source_and_headers_are_told(tmp_path: Path) -> None:
    found = flat("", "{type: log_file, include: [/a], line: {max_bytes: 2MiB}}", "{topic: logs, headers: {host: '{@host}'}}")
    assert (found["source.line.max_bytes"], found["record.headers.host"]) == ("2MiB", "{@host}")
    spool = flat("", f"{{type: spool_dir, dir: {tmp_path}, format: {{type: csv, delimiter: ';'}}}}")
    assert (spool["connector.class"], spool["source.format.type"], spool["source.format.delimiter"]) == ("spool_dir", "csv", ";")


def test_samples_are_no_part_of_it() -> None:
    assert flat("tests: [{input: a, expect: []}]").keys() == flat("").keys()


def test_a_secret_is_hidden_wherever_it_stands(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("c4n4ry-Zq7")
    text = (
        f"transforms: [{{json: {{}}}}, {{set: {{api_token: '${{file:{tmp_path}/token}}'}}}}]\n"
        f"kafka: {{security: {{protocol: SASL_SSL, mechanism: PLAIN, username: u, password: c4n4ry-Zq7}}, client: {{}}}}"
    )
    found = flat(text, record=f"{{topic: logs, headers: {{token: '${{file:{tmp_path}/token}}'}}}}")
    assert "c4n4ry" not in str(found)
    assert found["kafka.security.password"] == "********"


def test_a_literal_password_among_the_options_of_a_data_source_is_hidden_too() -> None:
    """They are any options, and every user of the host may read here."""
    options = "{password: c4n4ry-1, apiKey: c4n4ry-2, url: 'jdbc://u:c4n4ry-3@h/x', table: orders, pem: ''}"
    found = flat("", f"{{type: datasource, class: 'a:B', options: {options}}}")
    assert [found[f"source.options.{name}"] for name in ("password", "apiKey", "url", "table")] == [
        "********", "********", "jdbc://********@h/x", "orders",
    ]  # fmt: skip


def test_a_password_within_a_value_is_hidden_too() -> None:
    found = flat("transforms: [{json: {}}, {set: {login: {user: u, password: c4n4ry-5, more: [{secret: c4n4ry-6}]}}}]")
    assert "c4n4ry" not in str(found)
    assert '"user": "u"' in found["transforms.1.set.login"]
