"""TLS and SASL towards a real broker that demands both."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.dev_broker import DevBroker
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.rig.shipping import Shipping

USER = "copycat"
PASSWORD = "a word that no log may show"
TOPIC = "secured"


def make_certificates(directory: Path) -> None:
    """`ca.pem`, and `broker.pem`: key and certificate for 127.0.0.1; `other-ca.pem` has signed nothing."""
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj"]
    for name in ("ca", "other-ca"):
        run = [*new, f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        subprocess.run(run, cwd=directory, check=True, capture_output=True, timeout=60)
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"]
    run = [*new, "/CN=broker", *signed, "-keyout", "broker.key", "-out", "broker.crt"]
    subprocess.run(run, cwd=directory, check=True, capture_output=True, timeout=60)
    (directory / "broker.pem").write_text((directory / "broker.key").read_text() + (directory / "broker.crt").read_text())


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of `make_certificates`."""
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory)
    return directory


@pytest.fixture(scope="module")
def secured_broker(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[DevBroker]:
    """A broker whose clients must come with TLS and the right password."""
    listener = "listener.name.client"
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        f"{listener}.ssl.keystore.type": "PEM",
        f"{listener}.ssl.keystore.location": str(certificates / "broker.pem"),
        f"{listener}.sasl.enabled.mechanisms": "PLAIN",
        f"{listener}.plain.sasl.jaas.config": f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    }
    with DevBroker(tmp_path_factory.mktemp("secured"), properties=properties) as broker:
        yield broker


def security(certificates: Path, **over: str) -> dict[str, Any]:
    """The `kafka` section of a client that is let in, over which the arguments go."""
    said = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": USER, "password": PASSWORD, "ca_file": str(certificates / "ca.pem")}
    return {"security": {**said, **over}, "create_topics": {"partitions": 1}}


def test_lines_arrive_through_tls_and_a_password(
    make_shipping: Callable[..., Shipping], secured_broker: DevBroker, certificates: Path, logs_dir: Path
) -> None:
    (logs_dir / "app.log").write_text("one\ntwo\n")
    shipping = make_shipping(bootstrap=secured_broker.bootstrap, topic=TOPIC)
    shipping.start(kafka=security(certificates))
    wait_until(lambda: shipping.status.counts.acknowledged == 2, message=lambda: str(shipping.status))
    client = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD,
        "ssl.ca.location": str(certificates / "ca.pem"),
    }  # fmt: skip
    assert [record.value for record in consume(secured_broker.bootstrap, TOPIC, until=2, client=client)] == [b"one", b"two"]


@pytest.mark.parametrize(
    ("over", "named"),
    [({"password": "wrong one"}, "username, password"), ({"ca_file": "other-ca.pem"}, "ca_file")],
    ids=["password", "authority"],
)
def test_a_client_that_is_not_let_in_is_blocked_and_told_what_to_check(
    make_shipping: Callable[..., Shipping], secured_broker: DevBroker, certificates: Path, logs_dir: Path, over: dict[str, str], named: str
) -> None:
    (logs_dir / "app.log").write_text("one\n")
    if "ca_file" in over:
        over = {"ca_file": str(certificates / over["ca_file"])}
    shipping = make_shipping(bootstrap=secured_broker.bootstrap, topic=TOPIC)
    shipping.start(kafka=security(certificates, **over))
    wait_until(lambda: shipping.status.state == "blocked", 60, message=lambda: str(shipping.status))
    assert named in shipping.status.reason
    assert PASSWORD not in shipping.status.reason
    assert "wrong one" not in shipping.status.reason
    assert {offset.position for offset in shipping.offsets.values()} == {0}
