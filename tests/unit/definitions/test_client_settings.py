"""`kafka.client`: librdkafka's own names and ranges, less those that carry promises, secrets or code."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import confluent_kafka
import pytest

from copycat_agent.definitions.client_settings import ACCEPTED, PROPERTIES, READING, REFUSED, VERSION, check_name, check_value


def installed_properties(target: Path) -> dict[str, str]:
    """The installed library's own list, in the form of `PROPERTIES`."""
    library = next(Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*.so*"), None)
    if library is None:
        pytest.skip("confluent-kafka brings no library of its own here")
    libc, rdkafka = ctypes.CDLL(None), ctypes.CDLL(str(library))
    libc.fopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.fopen(str(target).encode(), b"w"))
    rdkafka.rd_kafka_conf_properties_show(stream)
    libc.fclose(stream)
    found: dict[str, str] = {}
    for line in target.read_text().splitlines():
        if match := re.match(r"(\S+)\s+\|\s+([CP*])\s+\|\s*(.*?)\s*\|.*\*Type: (.*?)\*", line):
            name, client, values, kind = match.groups()
            found.setdefault(name, _kind(client, values.replace(" .. ", "..").replace(", ", "|"), kind))
    return found


def _kind(client: str, values: str, kind: str) -> str:
    if kind == "see dedicated API":
        return "callback"
    if client == "C":
        return "consumer"
    words = {"integer": f"int {values}", "float": f"float {values}", "boolean": "bool"}
    if kind in words:
        return words[kind]
    return f"{'flags' if kind == 'CSV flags' else 'enum'} {values}" if values else "text"


def test_the_table_is_that_of_the_installed_library(tmp_path: Path) -> None:
    installed = installed_properties(tmp_path / "properties")
    assert installed == PROPERTIES, "\n".join(f'    "{name}": "{installed[name]}",' for name in sorted(installed))
    assert confluent_kafka.libversion()[0] == VERSION


def test_every_property_of_a_producer_is_accepted_or_refused_with_a_reason() -> None:
    for name, kind in PROPERTIES.items():
        assert (check_name(name) is None) == (name in ACCEPTED)
        if wrong := check_name(name):
            assert wrong[1], (name, kind)
    assert set(REFUSED) <= set(PROPERTIES)


@pytest.mark.parametrize(
    ("name", "place"),
    [("plugin.library.paths", "code"), ("ssl.engine.location", "code"), ("ssl.providers", "code"), ("sasl.kerberos.kinit.cmd", "code"),
     ("sasl.password", "kafka.security.password"), ("sasl.username", "kafka.security.username"), ("ssl.key.pem", "key_file"),
     ("ssl.key.password", "key_password"), ("ssl.keystore.location", "PEM"), ("ssl.keystore.password", "PEM"), ("ssl.ca.pem", "ca_file"),
     ("sasl.oauthbearer.client.secret", "oauth.client_secret"), ("sasl.oauthbearer.config", "oauth"),
     ("security.protocol", "kafka.security.protocol"), ("sasl.mechanism", "mechanism"), ("sasl.mechanisms", "mechanism"),
     ("bootstrap.servers", "kafka.bootstrap_servers"), ("metadata.broker.list", "kafka.bootstrap_servers"),
     ("acks", "delivery.guarantee"),
     ("enable.idempotence", "delivery.guarantee"), ("request.required.acks", "delivery.guarantee"),
     ("transactional.id", "delivery.guarantee"),
     ("delivery.report.only.error", "delivery.guarantee"), ("enable.gapless.guarantee", "delivery.guarantee"),
     ("opaque", "programs"), ("error_cb", "programs"), ("group.id", "consumers"),
     ("sasl.oauthbearer.assertion.private.key.pem", "oauth"), ("partitioner", "partition")],
)  # fmt: skip
def test_what_must_not_stand_here_is_refused_with_the_right_place(name: str, place: str) -> None:
    wrong = check_name(name)
    assert wrong is not None
    assert place in wrong[1]


def test_a_source_takes_what_a_producer_takes_and_settings_of_consumers_that_only_tune() -> None:
    assert {name: READING[name] for name in ACCEPTED} == ACCEPTED
    assert {PROPERTIES[name] for name in READING.keys() - ACCEPTED.keys()} == {"consumer"}
    for name, kind in PROPERTIES.items():
        wrong = check_name(name, READING)
        assert (wrong is None) == (name in READING), name
        assert wrong is None or wrong[1], (name, kind)


@pytest.mark.parametrize("end", [0, -1])
def test_a_consumer_takes_what_a_source_accepts(end: int) -> None:
    """The least and the most of each, one by one."""
    for name in READING.keys() - ACCEPTED.keys():
        kind, _, values = READING[name].partition(" ")
        text = values.split("..")[end] if kind == "int" else ("true", "false")[end]
        confluent_kafka.Consumer({"group.id": "any", "receive.message.max.bytes": "2147483647", name: text}).close()


def test_nothing_accepted_is_a_secret_or_code() -> None:
    assert not [name for name in READING if re.search(r"passw|secret|\.pem$|plugin|engine|provider|\.cmd|passphrase|_cb$", name)]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [("linger.ms", ["0", "5", "0.5", "900000"], ["-1", "900001", "5ms", "", "1e3", "nan"]),
     ("batch.size", ["1", "1000000"], ["0", "1.5", "2147483648", "1 ", "\uff11"]),
     ("compression.level", ["-1", "12"], ["-2", "13"]),
     ("socket.keepalive.enable", ["true", "false"], ["yes", "1", "True"]),
     ("compression.type", ["zstd", "none"], ["brotli", ""]),
     ("debug", ["broker", "broker,topic", "broker, topic"], ["nothing", "broker,", ""]),
     ("client.id", ["x"], [""]),
     ("max.in.flight", ["1", "5"], ["6", "0"]), ("retries", ["1"], ["0"]), ("queue.buffering.max.messages", ["1"], ["0"])],
)  # fmt: skip
def test_values_are_checked_in_range_and_not_repeated(name: str, good: list[str], bad: list[str]) -> None:
    assert [check_value(name, text) for text in good] == [None] * len(good)
    assert all(check_value(name, text) for text in bad)


def test_the_library_takes_what_is_accepted() -> None:
    producer = confluent_kafka.Producer(
        {"max.in.flight": "5", "retries": "1", "enable.idempotence": "true", "acks": "all", "queue.buffering.max.kbytes": "2097151"}
    )
    assert len(producer) == 0
