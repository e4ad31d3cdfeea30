"""From the `kafka` section to librdkafka's configuration."""

from __future__ import annotations

import pickle

import pytest

from copycat_agent.definitions.client_settings import ACCEPTED
from copycat_agent.errors import FatalError
from copycat_agent.formats.lines import LineOptions
from copycat_agent.model import TaskId
from copycat_agent.options import KafkaOptions, OauthOptions, SecretStr, SecurityOptions
from copycat_agent.producer import ProducerPool
from copycat_agent.producer.settings import client_settings, message_timeout_ms, producer_settings, transactional_settings
from tests.rig.oauth import CLIENT_ID, TokenServer
from tests.rig.oauth import SECRET as OAUTH_SECRET

SECRET = "hunter2-canary"


def kafka(security: SecurityOptions = SecurityOptions(), client: dict[str, str] | None = None) -> KafkaOptions:  # noqa: B008 - frozen
    return KafkaOptions(bootstrap_servers=("k1:9092", "k2:9092"), security=security, client=client or {})


def test_every_producer_is_idempotent_and_waits_for_all_replicas() -> None:
    settings = producer_settings(kafka(), "copycat-app-0")
    assert (settings["enable.idempotence"], settings["acks"], settings["partitioner"]) == ("true", "all", "murmur2_random")
    assert settings["bootstrap.servers"] == "k1:9092,k2:9092"
    assert settings["client.id"] == "copycat-app-0"


def test_what_a_definition_says_wins_over_defaults() -> None:
    assert producer_settings(kafka(client={"linger.ms": "77", "compression.type": "zstd"}), "x")["linger.ms"] == "77"


@pytest.mark.parametrize("name", ["message.timeout.ms", "delivery.timeout.ms"])
def test_a_record_that_may_take_for_ever_is_waited_for_as_by_default(name: str) -> None:
    assert message_timeout_ms(kafka(client={name: "0"})) == message_timeout_ms(kafka())


@pytest.mark.parametrize("name", ["enable.idempotence", "acks", "bootstrap.servers", "delivery.report.only.error"])
def test_promises_win_over_what_a_definition_says(name: str) -> None:
    assert producer_settings(kafka(client={name: "wrong"}), "x")[name] != "wrong"
    assert name not in ACCEPTED


def test_memory_is_bounded_by_default() -> None:
    settings = producer_settings(kafka(), "x")
    assert int(settings["queue.buffering.max.messages"]) <= 100_000
    assert int(settings["queue.buffering.max.kbytes"]) <= 65_536


def test_the_client_lets_pass_the_longest_line_of_the_defaults_and_keeps_batches_within_a_topics_limit() -> None:
    settings = producer_settings(kafka(), "x")
    assert int(settings["message.max.bytes"]) >= LineOptions().max_bytes + 2**16
    assert int(settings["batch.size"]) < 1_048_588


def test_security_reaches_the_client() -> None:
    security = SecurityOptions(
        protocol="SASL_SSL",
        mechanism="SCRAM-SHA-512",
        username="me",
        password=SecretStr(SECRET),
        ca_file="/ca",
        cert_file="/cert",
        key_file="/key",
        key_password=SecretStr(SECRET),
    )
    settings = client_settings(kafka(security, {"broker.address.family": "v4"}))
    assert settings["sasl.password"] == settings["ssl.key.password"] == SECRET
    assert (settings["security.protocol"], settings["sasl.mechanism"], settings["sasl.username"]) == ("SASL_SSL", "SCRAM-SHA-512", "me")
    assert (settings["ssl.ca.location"], settings["ssl.certificate.location"], settings["ssl.key.location"]) == ("/ca", "/cert", "/key")
    assert settings["broker.address.family"] == "v4"


def test_every_client_of_a_cluster_is_given_one_token_and_never_the_secret() -> None:
    with TokenServer() as server:
        oauth = OauthOptions(token_url=server.token_url, client_id=CLIENT_ID, client_secret=SecretStr(OAUTH_SECRET))
        options = kafka(SecurityOptions(protocol="SASL_SSL", mechanism="OAUTHBEARER", oauth=oauth))
        made = [producer_settings(options, "x"), transactional_settings(options, "x", "id"), client_settings(options)]
        given = {settings["oauth_cb"]("")[0] for settings in made}
        assert len(given) == len(server.asked) == 1
        assert OAUTH_SECRET not in str(made)


def test_without_an_address_the_next_step_is_named() -> None:
    with pytest.raises(FatalError, match="copycat dev-broker"):
        producer_settings(KafkaOptions(), "x")


@pytest.mark.parametrize("security", [
    SecurityOptions(protocol="SSL", ca_file="/does/not/exist", key_password=SecretStr(SECRET)),
    SecurityOptions(protocol="SASL_SSL", mechanism="SCRAM-SHA-512", username="", password=SecretStr(SECRET)),
    SecurityOptions(protocol="SSL", cert_file=__file__, key_file=__file__, key_password=SecretStr(SECRET)),
])  # fmt: skip
def test_a_refused_configuration_is_fatal_and_tells_no_secret(security: SecurityOptions) -> None:
    with pytest.raises(FatalError) as caught:
        ProducerPool().take(TaskId("app", 0), kafka(security))
    assert SECRET not in f"{caught.value} {caught.value!r} {pickle.dumps(caught.value)!r}"
    assert "kafka" in str(caught.value)


def test_a_refused_value_is_fatal_and_names_the_property() -> None:
    with pytest.raises(FatalError, match=r"socket\.timeout\.ms"):
        ProducerPool().take(TaskId("app", 0), kafka(client={"socket.timeout.ms": "soon"}))
