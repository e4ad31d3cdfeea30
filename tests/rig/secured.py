"""A broker that wants TLS and a login, and the certificates for it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, NamedTuple, Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic

from copycat_agent.dev_broker import DevBroker

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
"""Found at once. Primes for RSA are looked for, which takes long on a busy machine."""
_SECONDS = 60.0
_ADMIN, _ADMIN_PASSWORD = "admin", "the admin's own word"


def openssl(directory: Path, *arguments: str) -> None:
    """Run openssl there."""
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=_SECONDS)


def make_authority(directory: Path, name: str) -> None:
    """`NAME.pem`: an authority's certificate, and `NAME.key`."""
    made = ["-nodes", "-days", "90", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
    openssl(directory, "req", "-x509", *_KEY, *made)


def sign(directory: Path, name: str, *options: str, subject: str = "IP:127.0.0.1") -> None:
    """`NAME.pem`: key and certificate for 127.0.0.1, or another `subject`, signed by the authority `ca`."""
    openssl(directory, "req", "-new", *_KEY, "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
    (directory / f"{name}.ext").write_text(f"subjectAltName={subject}\nbasicConstraints=CA:FALSE\n")
    signed = ["x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", f"{name}.ext"]
    openssl(directory, *signed, *options, "-out", f"{name}.crt")
    (directory / f"{name}.pem").write_text((directory / f"{name}.key").read_text() + (directory / f"{name}.crt").read_text())


class Login(NamedTuple):
    """A user and a password."""

    username: str
    password: str


class ScramBroker:
    """A broker whose only way in is SASL_SSL: SCRAM-SHA-512 for `login`. `ca_file` is the authority that signed its certificate."""

    def __init__(self, directory: Path, login: Login) -> None:
        self.login = login
        make_authority(directory, "ca")
        sign(directory, "broker", "-days", "30")
        self.ca_file = directory / "ca.pem"
        listener = "listener.name.client"
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        properties = {
            "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"{listener}.ssl.keystore.type": "PEM",
            f"{listener}.ssl.keystore.location": str(directory / "broker.pem"),
            f"{listener}.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            f"{listener}.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            f"{listener}.plain.sasl.jaas.config": f'{plain} user_{_ADMIN}="{_ADMIN_PASSWORD}";',
        }
        self._broker = DevBroker(directory / "kafka", properties=properties, auto_create_topics=False)

    def __enter__(self) -> Self:
        """Start, and make the user."""
        self._broker.start()
        wanted = UserScramCredentialUpsertion(
            self.login.username, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), self.login.password.encode()
        )
        admin = self._admin()  # a name: a client that is collected ends its calls
        for answer in admin.alter_user_scram_credentials([wanted]).values():
            answer.result(_SECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop."""
        self._broker.stop()

    @property
    def bootstrap(self) -> str:
        """HOST:PORT."""
        return self._broker.bootstrap

    @property
    def client(self) -> dict[str, str]:
        """Settings of a client that may do everything."""
        return {
            "bootstrap.servers": self.bootstrap, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
            "sasl.username": _ADMIN, "sasl.password": _ADMIN_PASSWORD, "ssl.ca.location": str(self.ca_file),
        }  # fmt: skip

    def create_topics(self, *names: str) -> None:
        """One partition each."""
        admin = self._admin()
        for answer in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            answer.result(_SECONDS)

    def _admin(self) -> AdminClient:
        return AdminClient({**self.client, "log_level": "0"})
