"""A cluster that does not let the user read: what is missing is named, and reading begins by itself once it is granted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from copycat_agent.dev_broker import DevBroker
from copycat_agent.sources import SOURCES
from copycat_agent.sources.kafka import kafka_source
from copycat_agent.workbench.doctor.users import find_user
from tests.lake.conftest import Lake, Sent, send
from tests.rig.shipping import running_here
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

USER, PASSWORD = "reader", "a word that no report may show"
ADMIN, ADMIN_PASSWORD = "admin", "another word that no report may show"


def login(name: str, password: str) -> dict[str, str]:
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": name, "sasl.password": password}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevBroker]:
    """A broker that wants a password, and gives `USER` nothing. Its topic `orders` has five records."""
    listener, plain = "listener.name.client", "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        f"{listener}.sasl.enabled.mechanisms": "PLAIN",
        f"{listener}.plain.sasl.jaas.config": f'{plain} user_{USER}="{PASSWORD}" user_{ADMIN}="{ADMIN_PASSWORD}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
    }
    with DevBroker(tmp_path_factory.mktemp("guarded"), properties=properties, auto_create_topics=False) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, **login(ADMIN, ADMIN_PASSWORD)})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
        send(broker.bootstrap, "orders", [Sent(b'{"n": %d}' % number) for number in range(5)], **login(ADMIN, ADMIN_PASSWORD))
        yield broker


def grant(broker: DevBroker, kind: ResourceType, name: str, operation: AclOperation) -> None:
    """Let `USER` do this."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **login(ADMIN, ADMIN_PASSWORD)})
    rule = AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
    for answer in admin.create_acls([rule]).values():
        answer.result(30)


def test_what_is_missing_is_named_and_its_grant_is_noticed(guarded: DevBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "COMMIT_SECONDS", 0.2)
    security = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": USER, "password": PASSWORD}
    kafka: dict[str, Any] = {"bootstrap_servers": [guarded.bootstrap], "security": security}
    with running_here(Lake, tmp_path, "lake", guarded.bootstrap, "orders") as lake:
        definition = lake.definition(kafka=kafka, source={"discover_interval": "1s"}, sink={"roll": {"age": "200ms"}})

        def doctor() -> str:
            probe = SOURCES["kafka"].probe
            assert probe is not None
            return "; ".join(f"{one.verdict} {one.text} {one.fix}" for one in probe(definition.source, find_user(None)))

        def told(*words: str) -> None:
            wait_until(lambda: (said := doctor()) and all(one in said for one in words), 60, doctor)  # a busy broker answers late

        def blocked(words: str) -> None:
            wait_until(lambda: lake.status.state == "blocked" and words in lake.status.reason, 60, lambda: f"{lake.status}")

        told("fail topic orders: ", "Describe")
        lake.start(kafka=kafka, source={"discover_interval": "1s"}, sink={"roll": {"age": "200ms"}})
        blocked("Describe on the topic orders")
        grant(guarded, ResourceType.TOPIC, "orders", AclOperation.DESCRIBE)
        blocked("Read")
        assert "fail" in doctor(), "it may be looked at, and not read"
        grant(guarded, ResourceType.TOPIC, "orders", AclOperation.READ)
        lake.wait_written(5)
        # Rows can be read, and the group's refusal is known, before the batch that ends the back-off is judged.
        wait_until(lambda: lake.status.troubled_files == 1 and lake.status.state == "running", 30, lambda: f"{lake.status}")
        told("warn group copycat-lake")
        grant(guarded, ResourceType.GROUP, "copycat-lake", AclOperation.READ)
        wait_until(lambda: "group" not in doctor(), 30, doctor)
        assert "warn how long orders keep records is not known" in doctor()
        grant(guarded, ResourceType.TOPIC, "orders", AclOperation.DESCRIBE_CONFIGS)
        wait_until(lambda: "warn" not in doctor(), 30, doctor)
        wait_until(lambda: lake.status.troubled_files == 0, 30, lambda: f"{lake.status}")
        lake.stop()
