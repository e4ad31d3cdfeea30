"""Each value of a definition is traced to the line that says it, to agent.yaml, to the command line, or to a default."""

from __future__ import annotations

from pathlib import Path

from copycat_agent.definitions import Origin, load_agent, load_file, origins
from copycat_agent.options import HIDDEN

TEXT = """\
# a comment
name: app
renamed_from: [old]
source: {type: log_file,
         include: [/var/log/app.log]}
transforms:
  - drop_if: {path: /healthz}
  - keep_if: {level: [error, warn]}
record:
  topic: logs.app
  headers: {host: h1, "odd.name": x}
converters:
  value: json
enabled: true
kafka:
  security:
    protocol: SASL_SSL
    mechanism: PLAIN
    username: u
    password: "hunter2-long"
  client: {compression.type: zstd}
"""
AGENT = """\
kafka:
  bootstrap_servers: [k1.example.test:9092]
  client:
    linger.ms: 5
    compression.type: gzip
  security: {protocol: SSL, ca_file: /etc/ca.pem}
"""


def traced(tmp_path: Path, text: str = TEXT, overrides: dict[str, object] | None = None, now: str | None = None) -> dict[str, Origin]:
    """Load `text` over `AGENT`, let the file become `now`, and trace."""
    path, agent_path = tmp_path / "app.yaml", tmp_path / "agent.yaml"
    path.write_text(text)
    agent_path.write_text(AGENT)
    agent = load_agent(agent_path, overrides)
    definition = load_file(path, agent).definition
    assert definition is not None
    if now is not None:
        path.write_text(now)
    found = origins(path, agent_path, definition, agent, tuple(overrides or {}))
    assert len({each.option for each in found}) == len(found)
    return {each.option: each for each in found}


def places(found: dict[str, Origin]) -> dict[str, tuple[str, str, int]]:
    return {option: (each.kind, Path(each.path).name, each.line) for option, each in found.items()}


def test_what_the_file_says_is_traced_to_its_line(tmp_path: Path) -> None:
    found = traced(tmp_path)
    at = places(found)
    lines = {
        "name": 2, "renamed_from": 3, "source.type": 4, "source.include": 5, "transforms.0.drop_if.path": 7,
        "transforms.1.keep_if.level": 8,
        "record.topic": 10, "record.headers.host": 11, "record.headers.odd.name": 11, "converters.value.type": 13, "enabled": 14,
        "kafka.security.username": 19, "kafka.client.compression.type": 21,
    }  # fmt: skip
    assert {option: at[option] for option in lines} == {option: ("definition", "app.yaml", line) for option, line in lines.items()}
    assert found["kafka.client.compression.type"].value == "zstd"


def test_a_secret_is_traced_and_not_shown(tmp_path: Path) -> None:
    found = traced(tmp_path)
    assert found["kafka.security.password"] == Origin("kafka.security.password", HIDDEN, "definition", str(tmp_path / "app.yaml"), 20)
    assert "hunter2" not in repr(found)


def test_what_agent_yaml_says_is_traced_to_its_line(tmp_path: Path) -> None:
    at = places(traced(tmp_path))
    assert at["kafka.bootstrap_servers"] == ("agent", "agent.yaml", 2)
    assert at["kafka.client.linger.ms"] == ("agent", "agent.yaml", 4)
    assert at["kafka.security.ca_file"] == ("agent", "agent.yaml", 6)


def test_the_command_line_counts_over_agent_yaml_and_the_definition_over_both(tmp_path: Path) -> None:
    overrides: dict[str, object] = {"kafka.bootstrap_servers": ("k9.example.test:9092",)}
    found = traced(tmp_path, overrides=overrides)
    assert found["kafka.bootstrap_servers"].kind == "command line"
    assert found["kafka.bootstrap_servers"].value == ["k9.example.test:9092"]
    own = traced(tmp_path, TEXT + "  bootstrap_servers: [k2.example.test:9092]\n", overrides)
    assert places(own)["kafka.bootstrap_servers"] == ("definition", "app.yaml", 22)


def test_all_else_is_a_default(tmp_path: Path) -> None:
    at = places(traced(tmp_path))
    for option in ("source.exclude", "delivery.linger", "errors.dlq", "record.key", "kafka.create_topics", "kafka.security.key_file"):
        assert at[option] == ("default", "", 0)


def test_lines_of_a_file_that_says_something_else_by_now_are_not_told(tmp_path: Path) -> None:
    for now in (TEXT.replace("logs.app", "logs.new"), "name: [", ""):
        found = traced(tmp_path, now=now)
        at = places(found)
        assert at["record.topic"] == ("changed", "app.yaml", 0)
        assert found["record.topic"].value == "logs.app"
        assert at["delivery.linger"] == ("default", "", 0)
        assert at["kafka.client.linger.ms"] == ("agent", "agent.yaml", 4)
