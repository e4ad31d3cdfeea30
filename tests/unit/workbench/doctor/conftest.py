"""Certificates and brokers that the doctor is shown."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter

from copycat_agent.dev_broker import DevBroker
from copycat_agent.options import KafkaOptions
from copycat_agent.workbench.doctor import kafka_checks, network
from tests.rig.secured import make_authority, sign
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

USER, PASSWORD = "copycat", "a word that no report may show"
ADMIN, ADMIN_PASSWORD = "admin", "another word that no report may show"


PATIENT_SECONDS = 60.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that a person waits gladly is not what is tested: a machine that does much else may take longer."""
    monkeypatch.setattr(kafka_checks, "CLUSTER_SECONDS", PATIENT_SECONDS)
    monkeypatch.setattr(kafka_checks, "meet", functools.partial(network.meet, seconds=PATIENT_SECONDS))


def filter_of(one: AclBinding) -> AclBindingFilter:
    """What finds this right and no other."""
    return AclBindingFilter(one.restype, one.name, one.resource_pattern_type, one.principal, one.host, one.operation, one.permission_type)


def grant(admin: AdminClient, wanted: Sequence[AclBinding]) -> None:
    """Give rights, which hold when this returns: the broker hears of them a moment after they are there."""
    for answer in admin.create_acls(list(wanted)).values():
        answer.result(30)
    wait_until(lambda: all(admin.describe_acls(filter_of(one)).result(30) for one in wanted), 60, f"the rights hold: {wanted}")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`ca.pem`; `broker.pem` ends in 40 days, `soon.pem` in 3, `expired.pem` yesterday; `other-ca.pem` has signed nothing."""
    directory = tmp_path_factory.mktemp("certificates")
    for name in ("ca", "other-ca"):
        make_authority(directory, name)
    for name, days in (("broker", "40"), ("soon", "3"), ("expired", "-1")):
        sign(directory, name, "-days", days)
    return directory


class Secured(NamedTuple):
    """A broker that wants TLS and a password, and gives `USER` nothing but Write on the topic `open`."""

    broker: DevBroker
    certificates: Path

    def options(self, **over: Any) -> KafkaOptions:
        """A client's options that are right but for `over`."""
        security = {
            "protocol": "SASL_SSL", "mechanism": "PLAIN", "username": USER, "password": PASSWORD,
            "ca_file": str(self.certificates / "ca.pem"),
        }  # fmt: skip
        return KafkaOptions.model_validate(
            {"bootstrap_servers": (self.broker.bootstrap,), "security": {key: value for key, value in (security | over).items() if value}}
        )

    def admin(self) -> AdminClient:
        """A client that may do everything. Keep it while its answers are waited for."""
        return AdminClient({
            "bootstrap.servers": self.broker.bootstrap, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
            "sasl.username": ADMIN, "sasl.password": ADMIN_PASSWORD, "ssl.ca.location": str(self.certificates / "ca.pem"), "log_level": 0,
        })  # fmt: skip


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[Secured]:
    """See `Secured`. Topics: `open` may be written to, `closed` only looked at."""
    listener = "listener.name.client"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        f"{listener}.ssl.keystore.type": "PEM",
        f"{listener}.ssl.keystore.location": str(certificates / "broker.pem"),
        f"{listener}.sasl.enabled.mechanisms": "PLAIN",
        f"{listener}.plain.sasl.jaas.config": f'{login} user_{USER}="{PASSWORD}" user_{ADMIN}="{ADMIN_PASSWORD}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
    }
    with DevBroker(tmp_path_factory.mktemp("secured"), properties=properties, auto_create_topics=False) as broker:
        yield Secured(broker, certificates)


@pytest.fixture
def make_options(broker: DevBroker) -> Callable[..., KafkaOptions]:
    """Options of a client of the shared broker; `servers` go over its address."""

    def make(*servers: str, **more: Any) -> KafkaOptions:
        return KafkaOptions.model_validate({"bootstrap_servers": servers or (broker.bootstrap,), **more})

    return make
