"""Logins with tokens, towards a real broker that checks each against the public key of a real authorization server."""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from copycat_agent.options import KafkaOptions
from copycat_agent.producer.topic_reader import TopicReader
from copycat_agent.workbench.doctor import kafka_checks
from copycat_agent.workbench.doctor.kafka_checks import clusters, examine_clusters
from copycat_agent.workbench.doctor.steps import CheckVerdict
from tests.rig.kafka import consume
from tests.rig.oauth import CLIENT_ID, SECRET, OauthBroker, TokenServer
from tests.rig.object_store import CREDENTIALS
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.rig.shipping import Shipping

PROCESSES = 3
"""This one, which asks for topics and positions, and two runners."""


@pytest.fixture(scope="module")
def authority() -> Iterator[TokenServer]:
    """The server whose keys the broker asks for."""
    with TokenServer() as server:
        yield server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, authority: TokenServer) -> Iterator[OauthBroker]:
    """A broker that lets in who has a token."""
    with OauthBroker(tmp_path_factory.mktemp("guarded"), authority) as broker:
        yield broker


@pytest.fixture
def login(authority: TokenServer) -> Iterator[TokenServer]:
    """A server of the same authority, on an address of its own: what it was asked is of this test alone."""
    with TokenServer(signs_as=authority) as server:
        yield server


@pytest.fixture
def topic(guarded: OauthBroker, make_name: Callable[[], str]) -> str:
    name = make_name()
    admin = AdminClient(guarded.client)  # a name: a client that is collected ends its calls
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor waits as long as a busy machine may take."""
    monkeypatch.setattr(kafka_checks, "CLUSTER_SECONDS", 60.0)


@pytest.fixture
def make_name() -> Callable[[], str]:
    return lambda: f"oauth.{base64.b32encode(str(time.monotonic_ns()).encode()).decode().strip('=')}"


def kafka(server: TokenServer, **over: Any) -> dict[str, Any]:
    """The `kafka` section of a client that is let in, over which the arguments go."""
    oauth = {"token_url": server.token_url, "client_id": CLIENT_ID, "client_secret": SECRET, **over}
    return {"security": {"protocol": "SASL_PLAINTEXT", "mechanism": "OAUTHBEARER", "oauth": oauth}}


def arrived(broker: OauthBroker, topic: str, count: int) -> list[bytes | None]:
    """The values that are committed, when there are so many."""
    return [record.value for record in consume(broker.bootstrap, topic, "read_committed", count, 60.0, broker.client)]


def test_the_broker_lets_nobody_in_whose_token_another_key_has_signed(guarded: OauthBroker) -> None:
    with TokenServer() as stranger:
        client = guarded.client | {"oauth_cb": lambda _: (stranger.token(), time.time() + 60), "log_level": 0}
        with pytest.raises(KafkaException):
            AdminClient(client).list_topics(timeout=2)
    assert AdminClient(guarded.client).list_topics(timeout=30).brokers


def test_all_producers_of_a_process_share_one_token(
    make_shipping: Callable[..., Shipping], guarded: OauthBroker, login: TokenServer, logs_dir: Path, topic: str
) -> None:
    """The library's own method asks for each client."""
    for name in ("a", "b", "c", "d"):
        (logs_dir / f"{name}.log").write_text("one\ntwo\n")
    shipping = make_shipping(bootstrap=guarded.bootstrap, topic=topic)
    shipping.start(kafka=kafka(login), delivery={"tasks_max": 4})
    wait_until(lambda: shipping.status.counts.acknowledged == 8, 60, message=lambda: str(shipping.status))
    assert sorted(arrived(guarded, topic, 8), key=str) == [b"one"] * 4 + [b"two"] * 4
    assert 1 <= len(login.asked) <= PROCESSES


def test_a_producer_per_transaction_is_no_token_per_transaction(
    make_shipping: Callable[..., Shipping], guarded: OauthBroker, login: TokenServer, logs_dir: Path, topic: str
) -> None:
    shipping = make_shipping(bootstrap=guarded.bootstrap, topic=topic)
    shipping.start(kafka=kafka(login), delivery={"guarantee": "exactly_once"})
    for number in range(3):
        with (logs_dir / "app.log").open("a") as log:
            log.write(f"line {number}\n")
        wait_until(lambda: shipping.status.counts.acknowledged == number + 1, 60, message=lambda: str(shipping.status))  # noqa: B023
    assert arrived(guarded, topic, 3) == [b"line %d" % number for number in range(3)]
    assert 1 <= len(login.asked) <= PROCESSES


@pytest.mark.long
def test_lines_go_on_arriving_when_tokens_expire(
    tmp_path: Path, make_shipping: Callable[..., Shipping], login: TokenServer, logs_dir: Path
) -> None:
    """The broker ends a connection whose token has expired and was not shown anew."""
    login.lifetime_seconds = 15.0
    with OauthBroker(tmp_path / "brief", login, reauth_seconds=10.0) as broker:
        shipping = make_shipping(bootstrap=broker.bootstrap, topic="t")
        shipping.start(kafka=kafka(login) | {"create_topics": {}})
        number = 0
        while len(login.asked) < PROCESSES + 1:
            with (logs_dir / "app.log").open("a") as log:
                log.write(f"line {number}\n")
            number += 1
            wait_until(lambda: shipping.status.counts.acknowledged == number, 60, message=lambda: str(shipping.status))  # noqa: B023
        assert shipping.status.state == "running"
        login.lifetime_seconds = 3600.0
        assert arrived(broker, "t", number) == [b"line %d" % each for each in range(number)]


def test_a_wrong_secret_blocks_until_it_is_right(
    make_shipping: Callable[..., Shipping], guarded: OauthBroker, login: TokenServer, logs_dir: Path, topic: str
) -> None:
    login.secret = "what the server knows"
    (logs_dir / "app.log").write_text("one\n")
    shipping = make_shipping(bootstrap=guarded.bootstrap, topic=topic)
    shipping.start(kafka=kafka(login))
    wait_until(lambda: shipping.status.state == "blocked", 60, message=lambda: str(shipping.status))
    assert f"{login.token_url} gives this client no token (HTTP 401: invalid_client)" in shipping.status.reason
    assert "correct kafka.security.oauth" in shipping.status.reason
    assert SECRET not in shipping.status.reason
    assert {offset.position for offset in shipping.offsets.values()} == {0}
    login.secret = SECRET
    wait_until(lambda: shipping.status.counts.acknowledged == 1, 90, message=lambda: str(shipping.status))


@pytest.mark.parametrize("guarantee", ["at_least_once", pytest.param("exactly_once", marks=pytest.mark.long)])
def test_an_endpoint_that_is_away_is_waited_for(
    make_shipping: Callable[..., Shipping], guarded: OauthBroker, login: TokenServer, logs_dir: Path, topic: str, guarantee: str
) -> None:
    login.stop()
    (logs_dir / "app.log").write_text("one\n")
    shipping = make_shipping(bootstrap=guarded.bootstrap, topic=topic)
    shipping.start(kafka=kafka(login), delivery={"guarantee": guarantee})
    why = f"no token from {login.token_url}"
    wait_until(lambda: (now := shipping.status).state == "retrying" and why in now.reason, 60, message=lambda: str(shipping.status))
    login.start()
    wait_until(lambda: shipping.status.counts.acknowledged == 1, 60, message=lambda: str(shipping.status))
    assert arrived(guarded, topic, 1) == [b"one"]


@pytest.mark.long
def test_a_token_that_the_broker_refuses_is_not_used_again(
    tmp_path: Path, make_shipping: Callable[..., Shipping], authority: TokenServer, login: TokenServer, logs_dir: Path
) -> None:
    """The keys of the authority are changed while the token would be good for an hour."""
    with OauthBroker(tmp_path / "turned", login, reauth_seconds=4.0) as broker:
        shipping = make_shipping(bootstrap=broker.bootstrap, topic="t")
        (logs_dir / "app.log").write_text("one\n")
        shipping.start(kafka=kafka(login) | {"create_topics": {}, "client": {"message.timeout.ms": "5000"}})
        wait_until(lambda: shipping.status.counts.acknowledged == 1, 60, message=lambda: str(shipping.status))
        before = len(login.asked)
        login.turn_keys()
        broker.restart()
        (logs_dir / "app.log").write_text("one\ntwo\n")
        wait_until(lambda: shipping.status.counts.acknowledged == 2, 110, message=lambda: str(shipping.status))
        assert len(login.asked) > before


@pytest.mark.usefixtures("patient")
def test_doctor_logs_in_with_a_token_and_tells_what_keeps_it_from_that(
    make_shipping: Callable[..., Shipping], guarded: OauthBroker, login: TokenServer, topic: str
) -> None:
    shipping = make_shipping(bootstrap=guarded.bootstrap, topic=topic)

    def step() -> Any:
        steps = examine_clusters(clusters([shipping.definition(kafka=kafka(login))]))
        return next(one for one in steps if one.name == "login")

    assert step().verdict is CheckVerdict.OK
    assert step().text == f"OAUTHBEARER as a token from {login.token_url}"
    assert len(login.asked) == 1
    with TokenServer() as stranger:
        stranger.secret = "another"
        steps = examine_clusters(clusters([shipping.definition(kafka=kafka(stranger))]))
        failed = next(one for one in steps if one.name == "login")
        assert (failed.verdict, SECRET in str(steps)) == (CheckVerdict.FAIL, False)
        assert "HTTP 401: invalid_client" in failed.text


def test_a_topic_is_read_back_with_a_token(guarded: OauthBroker, login: TokenServer, topic: str) -> None:
    """As `copycat dlq` does."""
    producer = Producer(guarded.client)
    producer.produce(topic, b"one")
    producer.flush(30)
    options = KafkaOptions.model_validate({"bootstrap_servers": (guarded.bootstrap,), **kafka(login)})
    with TopicReader(options, topic, "rig") as reader:
        assert [record.value for record in reader.records({})] == [b"one"]
    assert len(login.asked) == 1


@pytest.mark.usefixtures("patient")
def test_extensions_and_the_token_of_msk_reach_the_broker(
    make_shipping: Callable[..., Shipping], guarded: OauthBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS alone can check its signature: this broker refuses the token, for it is no JWT, and has it as AWS's brokers would."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    oauth = {"method": "msk_iam", "region": "eu-west-1", "extensions": {"traceId": "17"}}
    with Recorder(guarded.port) as recorder:
        shipping = make_shipping(bootstrap=recorder.address, topic=topic)
        section = {"security": {"protocol": "SASL_PLAINTEXT", "mechanism": "OAUTHBEARER", "oauth": oauth}}
        steps = examine_clusters(clusters([shipping.definition(kafka=section)]))
        assert next(one for one in steps if one.name == "login").verdict is CheckVerdict.FAIL
        match = re.search(rb"n,,\x01auth=Bearer ([A-Za-z0-9_-]+)\x01traceId=17\x01\x01", bytes(recorder.sent))
        assert match is not None
        url = base64.urlsafe_b64decode(match[1] + b"=" * (-len(match[1]) % 4))
        assert url.startswith(b"https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect&")
        assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in json.dumps([step.text for step in steps])


class Recorder:
    """An address in front of a broker that keeps all that clients send to it."""

    def __init__(self, port: int) -> None:
        self.sent = bytearray()
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listening.accept()[0]
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._port))
            threading.Thread(target=self._pass, args=(client, broker, self.sent), daemon=True).start()
            threading.Thread(target=self._pass, args=(broker, client, bytearray()), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        try:
            while piece := source.recv(65536):
                kept += piece
                target.sendall(piece)
        except OSError:
            pass
        finally:
            for one in (source, target):
                one.close()
