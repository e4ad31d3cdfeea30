"""Rights that are taken away while records flow, and given back: what is missing is named, and each record is there once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from copycat_agent.dev_broker import DevBroker
from copycat_agent.model import OFFSETS_TOPIC
from tests.rig.kafka import consume, unique_topic
from tests.rig.shipping import Shipping, running_here
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

USER, PASSWORD = "writer", "a word that no report may show"
TOPIC = ResourceType.TOPIC
ADMIN, ADMIN_PASSWORD = "admin", "another word that no report may show"


def login(name: str, password: str) -> dict[str, str]:
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": name, "sasl.password": password}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevBroker]:
    """A broker that asks for a password, and for a right to everything."""
    listener, plain = "listener.name.client", "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        f"{listener}.sasl.enabled.mechanisms": "PLAIN",
        f"{listener}.plain.sasl.jaas.config": f'{plain} user_{USER}="{PASSWORD}" user_{ADMIN}="{ADMIN_PASSWORD}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
    }
    with DevBroker(tmp_path_factory.mktemp("guarded"), properties=properties, auto_create_topics=False) as broker:
        yield broker


class Rights:
    """Rights of `USER`, each on a resource, whose name is a prefix if it ends with a dot."""

    def __init__(self, broker: DevBroker) -> None:
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap, **login(ADMIN, ADMIN_PASSWORD)})

    def topic(self, name: str) -> None:
        self._admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)

    def _rule(self, kind: ResourceType, name: str, operation: AclOperation, how: Any = AclBinding) -> Any:
        pattern = ResourcePatternType.PREFIXED if name.endswith(".") else ResourcePatternType.LITERAL
        return how(kind, name, pattern, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)

    def give(self, *rights: tuple[ResourceType, str, AclOperation]) -> None:
        for one in self._admin.create_acls([self._rule(*right) for right in rights]).values():
            one.result(30)

    def take(self, *rights: tuple[ResourceType, str, AclOperation]) -> None:
        """Returns when the broker goes by it: it answers before."""
        filters = [self._rule(*right, how=AclBindingFilter) for right in rights]
        for one in self._admin.delete_acls(filters).values():
            assert one.result(30), "there was such a right"
        wait_until(lambda: not any(self._admin.describe_acls(one).result(30) for one in filters), message="the right is taken")


def test_exactly_once_waits_for_each_right_that_was_taken_away_in_a_few_words(
    guarded: DevBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rights, topic, ids = Rights(guarded), unique_topic(), "copycat."
    rights.topic(topic)
    write, read = AclOperation.WRITE, AclOperation.READ  # either implies Describe
    writes = {"topic": (TOPIC, topic, write), "positions": (TOPIC, OFFSETS_TOPIC, write), "id": (ResourceType.TRANSACTIONAL_ID, ids, write)}
    named = {"topic": (topic, OFFSETS_TOPIC), "positions": (OFFSETS_TOPIC,), "id": ("transactional ids",)}
    rights.give(*writes.values(), (TOPIC, OFFSETS_TOPIC, read), (TOPIC, OFFSETS_TOPIC, AclOperation.CREATE))
    kafka = {"security": {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": USER, "password": PASSWORD}}
    with running_here(Shipping, tmp_path, "app", guarded.bootstrap, topic) as shipping:

        def arrived(count: int) -> None:
            client = login(ADMIN, ADMIN_PASSWORD)
            found = consume(guarded.bootstrap, topic, "read_committed", count, 60, client)
            assert [int(one.value or b"") for one in found] == list(range(count))

        def more(begin: int, end: int) -> None:
            with (shipping.logs / "a.log").open("a") as file:
                file.writelines(f"{number}\n" for number in range(begin, end))

        more(0, 50)
        shipping.start(kafka=kafka, delivery={"guarantee": "exactly_once"}, errors={"retry_max_delay": "300ms"})
        arrived(50)
        for begin, (what, right) in zip((50, 100, 150), writes.items(), strict=True):
            caplog.clear()
            rights.take(right)
            more(begin, begin + 50)
            wait_until(lambda: shipping.status.state == "blocked", 60, lambda: f"{shipping.status}")
            assert any(words in shipping.status.reason for words in named[what]), shipping.status.reason
            tries = shipping.status.retries
            wait_until(lambda: shipping.status.retries > tries + 4, 60, lambda: f"{shipping.status}")  # noqa: B023 - called at once
            assert shipping.status.state == "blocked"
            assert len([one for one in caplog.records if "backs off" in one.getMessage()]) <= 2, "once for each reason"
            rights.give(right)
            arrived(begin + 50)
            wait_until(lambda: shipping.status.state == "running", 60, lambda: f"{shipping.status}")
