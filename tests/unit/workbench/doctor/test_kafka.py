"""Each layer between this host and a topic: the first that is not good is named, with the fix; those above are not guessed at."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from copycat_agent.dev_broker import free_port
from copycat_agent.options import Definition, KafkaOptions, TopicOptions
from copycat_agent.producer.probing import ClusterProbe
from copycat_agent.sources.log_file.log_options import LogFileOptions
from copycat_agent.workbench.doctor import CheckStep, CheckVerdict, network
from copycat_agent.workbench.doctor.kafka_checks import CLUSTER_SECONDS, Cluster, clusters, examine_cluster
from copycat_agent.workbench.doctor.topic_checks import TopicRequirement
from tests.rig.kafka import unique_topic
from tests.unit.workbench.doctor.conftest import PASSWORD, PATIENT_SECONDS, USER, grant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import ProxiedBroker
    from tests.unit.workbench.doctor.conftest import Secured

WANT = TopicRequirement(None, 2**20, keyed=True)


def look(options: KafkaOptions, **topics: TopicRequirement) -> list[CheckStep]:
    return examine_cluster(Cluster(options, ["app"], topics))


def bad(steps: list[CheckStep]) -> list[tuple[str, str]]:
    """Names and verdicts of what is not good."""
    return [(step.name, str(step.verdict)) for step in steps if step.verdict in (CheckVerdict.FAIL, CheckVerdict.WARN)]


def the(steps: list[CheckStep], name: str) -> CheckStep:
    (found,) = [step for step in steps if step.name == name]
    return found


def test_a_good_cluster_and_topic_are_good_at_every_layer(make_options: Callable[..., KafkaOptions], topic: str) -> None:
    steps = look(make_options(), **{topic: WANT})
    assert bad(steps) == []
    assert [step.name for step in steps] == ["dns", "tcp", "kafka", "login", "cluster", "topic"]
    assert "4.0 or newer" in the(steps, "kafka").text
    assert "may be written to" in the(steps, "topic").text


@pytest.fixture
def open_topics(secured: Secured) -> None:
    """`open` may be written to, `closed` only looked at."""
    admin = secured.admin()
    rights = [("open", AclOperation.WRITE), ("open", AclOperation.DESCRIBE), ("closed", AclOperation.DESCRIBE)]
    for answer in admin.create_topics([NewTopic(name, 1, 1) for name in ("open", "closed", "hidden")]).values():
        answer.result(30)
    wanted = [
        AclBinding(ResourceType.TOPIC, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
        for name, operation in rights
    ]
    grant(admin, wanted)


def test_through_tls_and_a_login_to_topics_that_are_open_closed_and_hidden(secured: Secured, open_topics: None) -> None:
    steps = look(secured.options(), open=WANT, closed=WANT, hidden=WANT)
    assert "certificate good" in the(steps, "tls").text
    assert "PLAIN as copycat" in the(steps, "login").text
    opened, closed, hidden = [step for step in steps if step.name == "topic"]
    assert (opened.verdict, closed.verdict, hidden.verdict) == ("ok", "fail", "fail")
    assert "may not write" in closed.text
    assert "--allow-principal User:copycat --operation Write" in closed.fix
    assert "closed to this user, or does not exist" in hidden.text
    assert PASSWORD not in str(steps)


@pytest.mark.parametrize(
    ("over", "layer", "said", "fix"),
    [
        ({"password": "wrong word"}, "login", "Invalid username or password", "username, password and mechanism"),
        ({"mechanism": "SCRAM-SHA-512"}, "sasl", "does not offer SCRAM-SHA-512, it offers: PLAIN", "kafka.security.mechanism"),
        ({"ca_file": "other-ca.pem"}, "tls", "not signed by ca_file", "kafka.security.ca_file"),
        ({"ca_file": ""}, "tls", "not signed by the system's authorities", "kafka.security.ca_file"),
        ({"ca_file": "nothing.pem"}, "tls", "cannot be used: No such file", "readable"),
        ({"ca_file": "ca.key"}, "tls", "cannot be used", "PEM"),
        ({"protocol": "SSL", "mechanism": "", "username": "", "password": ""}, "sasl", "wants a login, it offers: PLAIN", "SASL_SSL"),
        ({"protocol": "SASL_PLAINTEXT", "ca_file": ""}, "kafka", "does not speak Kafka over SASL_PLAINTEXT", "SASL_SSL"),
    ],
)  # fmt: skip
def test_what_keeps_a_client_out_is_named_with_its_layer_and_fix(
    secured: Secured, over: dict[str, str], layer: str, said: str, fix: str
) -> None:
    if over.get("ca_file"):
        over = over | {"ca_file": str(secured.certificates / over["ca_file"])}
    steps = look(secured.options(**over), t=WANT)
    assert bad(steps) == [(layer, "fail")]
    assert said in the(steps, layer).text
    assert fix in the(steps, layer).fix
    assert not the(steps, layer).unreachable
    assert [step.name for step in steps if step.verdict is CheckVerdict.SKIP][-1] == "topics"
    assert PASSWORD not in str(steps)
    assert "wrong word" not in str(steps)


def test_a_broker_by_a_name_that_its_certificate_does_not_have(secured: Secured) -> None:
    options = secured.options().model_copy(update={"bootstrap_servers": (f"localhost:{secured.broker.port}",)})
    step = the(look(options), "tls")
    assert "not for localhost" in step.text
    assert "subjectAltName" in step.fix


@pytest.fixture
def serve_tls(certificates: Path) -> Iterator[Callable[[str], str]]:
    """`serve_tls("expired")` answers with that certificate, and then with nothing that Kafka would say; gives its address."""
    listeners: list[socket.socket] = []

    def serve(name: str) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / f"{name}.pem")
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                try:
                    with context.wrap_socket(connection, server_side=True) as secured:
                        secured.recv(1)
                except OSError:
                    connection.close()

        threading.Thread(target=run, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield serve
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_an_expired_certificate_is_told_as_such(serve_tls: Callable[[str], str], certificates: Path) -> None:
    options = KafkaOptions.model_validate(
        {"bootstrap_servers": (serve_tls("expired"),), "security": {"protocol": "SSL", "ca_file": str(certificates / "ca.pem")}}
    )
    step = the(look(options), "tls")
    assert "does not hold now: certificate has expired" in step.text
    assert "renew it" in step.fix


def test_a_certificate_that_ends_soon_is_a_warning(tmp_path: Path, certificates: Path, secured: Secured) -> None:
    steps = look(secured.options())
    assert the(steps, "tls").verdict is CheckVerdict.OK  # 40 days
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates / "soon.pem")
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=lambda: server.wrap_socket(theirs, server_side=True).close())
    thread.start()
    with context.wrap_socket(ours, server_hostname="127.0.0.1") as stream:
        assert "GMT" in network.expiring(stream)
    thread.join()


def test_tls_towards_a_port_without_it(make_options: Callable[..., KafkaOptions]) -> None:
    step = the(look(make_options(security={"protocol": "SSL"})), "tls")
    assert "kafka.security.protocol to PLAINTEXT" in step.fix


def test_a_login_where_none_is_wanted(make_options: Callable[..., KafkaOptions]) -> None:
    said = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": USER, "password": PASSWORD}
    step = the(look(make_options(security=said)), "sasl")
    assert "does not use SASL" in step.text


def test_something_that_is_no_kafka(make_options: Callable[..., KafkaOptions]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        step = the(look(make_options(f"127.0.0.1:{listener.getsockname()[1]}")), "kafka")
        thread.join()
    assert "does not speak Kafka" in step.text


@pytest.mark.parametrize(
    ("address", "layer"), [("127.0.0.1:{port}", "tcp"), ("no-such-host.invalid:9092", "dns")], ids=["closed port", "unknown name"]
)
def test_a_broker_that_is_not_there(make_options: Callable[..., KafkaOptions], address: str, layer: str) -> None:
    steps = look(make_options(address.format(port=free_port())), t=WANT)
    assert bad(steps) == [(layer, "fail")]
    assert the(steps, layer).unreachable
    assert the(steps, layer).fix


def test_a_broker_that_swallows_everything_is_given_up_in_time(
    make_options: Callable[..., KafkaOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes the connection and what is sent; nobody ever reads it."""
    monkeypatch.undo()  # as patient as the doctor is
    with socket.create_server(("127.0.0.1", 0)) as listener:
        begun = time.monotonic()
        steps = look(make_options(f"127.0.0.1:{listener.getsockname()[1]}"), t=WANT)
    assert time.monotonic() - begun < 2 * CLUSTER_SECONDS
    assert bad(steps) == [("kafka", "fail")]
    assert the(steps, "kafka").unreachable


def test_one_address_that_answers_is_enough_and_the_other_is_worth_a_word(
    make_options: Callable[..., KafkaOptions], broker: Any, topic: str
) -> None:
    steps = look(make_options(f"127.0.0.1:{free_port()}", broker.bootstrap), **{topic: WANT})
    assert bad(steps) == [("tcp", "warn")]


def test_addresses_that_brokers_tell_their_clients_are_tried_too(
    proxied_broker: ProxiedBroker, make_options: Callable[..., KafkaOptions]
) -> None:
    """Asked by its own address, the broker sends its clients to the proxy, which is cut."""
    assert "can be reached" in the(look(make_options(proxied_broker.broker.address)), "advertised").text
    proxied_broker.proxy.cut()
    steps = look(make_options(proxied_broker.broker.address), t=WANT)
    assert bad(steps) == [("advertised", "fail")]
    assert the(steps, "advertised").unreachable
    assert proxied_broker.proxy.address in the(steps, "advertised").text
    assert "advertised.listeners" in the(steps, "advertised").fix


def test_addresses_that_the_client_hears_of_before_it_can_ask_count_too(
    proxied_broker: ProxiedBroker, make_options: Callable[..., KafkaOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves the broker that told it: on a slow machine its own question is never answered."""
    proxied_broker.proxy.cut()
    probe = ClusterProbe(make_options(proxied_broker.broker.address), time.monotonic() + PATIENT_SECONDS)
    with monkeypatch.context() as patch:
        patch.setattr(probe, "_client", Unanswered(probe._client))
        assert probe.brokers() == (proxied_broker.proxy.address,)
    probe.close()


def test_a_missing_topic_comes_with_the_command_that_creates_it(make_options: Callable[..., KafkaOptions], broker: Any) -> None:
    name = unique_topic()
    step = the(look(make_options(), **{name: WANT}), "topic")
    assert (step.verdict, step.unreachable) == ("fail", False)
    assert f"kafka-topics.sh --bootstrap-server {broker.bootstrap} --create --topic {name}" in step.fix
    step = the(look(make_options(), **{name: WANT._replace(create=TopicOptions(partitions=3))}), "topic")
    assert (step.verdict, "creates it with 3 partitions" in step.text) == ("ok", True)
    assert name not in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics, "looking made it"


@pytest.mark.parametrize(
    ("config", "want", "name", "fix"),
    [
        ({"max.message.bytes": "1000"}, WANT, "size", "max.message.bytes=1049600"),
        ({"min.insync.replicas": "2"}, WANT, "replicas", "min.insync.replicas"),
        ({"retention.ms": "60000"}, WANT, "retention", "retention.ms"),
        ({"cleanup.policy": "compact"}, WANT._replace(keyed=False), "compaction", "record.key"),
        (
            {"message.timestamp.type": "CreateTime"},
            WANT._replace(timestamps=frozenset({"broker"})),
            "timestamp",
            "message.timestamp.type=LogAppendTime",
        ),
        ({"message.timestamp.type": "LogAppendTime"}, WANT._replace(timestamps=frozenset({"event", "read"})), "timestamp", "CreateTime"),
    ],
)
def test_a_topic_that_will_not_take_or_keep_what_is_sent(
    make_options: Callable[..., KafkaOptions],
    make_topic: Callable[..., str],
    config: dict[str, str],
    want: TopicRequirement,
    name: str,
    fix: str,
) -> None:
    steps = look(make_options(), **{make_topic(1, config): want})
    assert [found for found, _ in bad(steps)] == [name]
    assert fix in the(steps, name).fix


class Unanswered:
    """A client that is never answered in time."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    def list_topics(self, timeout: float) -> Any:
        time.sleep(min(timeout, 0.1))
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def poll(self, timeout: float) -> int:
        return self._client.poll(timeout)


def definition(name: str, **sections: Any) -> Definition:
    source = LogFileOptions(type="log_file", include=("/x",))
    return Definition.model_validate({"name": name, "source": source, "record": {"topic": f"{name}.topic"}, **sections})


def test_connectors_of_one_cluster_are_one_look_with_all_their_topics_and_dead_letter_topics() -> None:
    here = {"bootstrap_servers": ("127.0.0.1:1",)}
    found = clusters([
        definition("a", kafka=here, errors={"tolerance": "all", "dlq": {"topic": "dlq"}}),
        definition("b", kafka=here | {"create_topics": {"partitions": 2}}, record={"topic": "b.{level}", "allowed_topics": ("b.x", "b.y")}),
        definition("c", kafka={"bootstrap_servers": ("127.0.0.1:2",)}),
    ])  # fmt: skip
    assert [one.connectors for one in found] == [["a", "b"], ["c"]]
    assert set(found[0].topics) == {"a.topic", "dlq", "b.x", "b.y"}
    assert found[0].templates == ["b: b.{level}"]
    assert found[0].topics["b.x"].create is not None


def test_the_longest_record_is_a_group_of_lines_where_there_are_groups() -> None:
    line: dict[str, Any] = {"type": "log_file", "include": ("/x",), "line": {"max_bytes": 5}}
    grouped = line | {"multiline": {"preset": "java", "max_bytes": 7}}
    kafka_checks = {"bootstrap_servers": ("127.0.0.1:1",)}
    (found,) = clusters([
        definition(name, kafka=kafka_checks, source=LogFileOptions.model_validate(source), record={"topic": topic})
        for name, source, topic in (("a", line, "one"), ("b", grouped, "one"), ("c", line, "two"))
    ])  # fmt: skip
    assert [(want.record_bytes, want.limit) for want in found.topics.values()] == [(7, "multiline.max_bytes"), (5, "line.max_bytes")]


def test_without_any_address_the_way_to_a_trial_is_named() -> None:
    step = the(examine_cluster(Cluster(KafkaOptions(), ["app"])), "address")
    assert "copycat dev-broker" in step.fix
