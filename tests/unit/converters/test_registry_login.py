"""Logins to a real schema registry with tokens and client certificates: a server in front of it demands them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from copycat_agent import oauth as token_cache
from copycat_agent.converters import CONVERTERS, Converter, Site, build_converter
from copycat_agent.converters.registry_access import registry_of
from copycat_agent.definitions import load_file
from copycat_agent.errors import BlockedError, RetriableError
from copycat_agent.options import AgentOptions, SchemaRegistryOptions
from copycat_agent.workbench.doctor.registry_checks import examine_registries, registries
from copycat_agent.workbench.doctor.steps import CheckVerdict
from tests.rig.oauth import CLIENT_ID, SECRET, TokenServer
from tests.rig.secured import make_authority, openssl, sign

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.rig.registry import RegistryFront

SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}'


@pytest.fixture
def authority(registry_front: RegistryFront) -> Iterator[TokenServer]:
    """The registry wants its tokens."""
    with TokenServer() as server:
        registry_front.bearer = server.is_good
        yield server


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """`registry.pem` and `client.crt`, `client.key`, signed by `ca.pem`; `stranger.pem` by itself; `locked.key`: encrypted."""
    make_authority(tmp_path, "ca")
    sign(tmp_path, "registry")
    sign(tmp_path, "client")
    make_authority(tmp_path, "stranger")
    openssl(tmp_path, "ec", "-in", "client.key", "-out", "locked.key", "-aes256", "-passout", "pass:opens it")
    return tmp_path


def converter(tmp_path: Path, **registry: Any) -> Converter:
    (tmp_path / "order.avsc").write_text(SCHEMA)
    options = CONVERTERS["avro"].options.model_validate({"type": "avro", "schema": str(tmp_path / "order.avsc"), "auto_register": True})
    return build_converter(options, Site("value", SchemaRegistryOptions.model_validate(registry), None, None))


def topic() -> str:
    return f"t.{uuid.uuid4().hex[:12]}"


def oauth(server: TokenServer, **over: Any) -> dict[str, Any]:
    return {"token_url": server.token_url, "client_id": CLIENT_ID, "client_secret": SECRET, **over}


def with_secret(name: str, secret: str) -> SchemaRegistryOptions:
    token = {"token_url": "https://login.example.test/token", "client_id": CLIENT_ID}
    more: dict[str, Any] = {
        "basic_auth": {"username": "u", "password": secret},
        "key_password": secret,
        "client_secret": {**token, "client_secret": secret},
        "assertion": {**token, "method": "jwt_bearer", "assertion": {"key_file": "/k.pem", "key_password": secret}},
    }
    return SchemaRegistryOptions.model_validate(
        {"url": "http://127.0.0.1:1", ("oauth" if name in ("client_secret", "assertion") else name): more[name]}
    )


@pytest.mark.parametrize("name", ["basic_auth", "key_password", "client_secret", "assertion"])
def test_a_corrected_secret_is_used_at_once(name: str) -> None:
    first = registry_of(with_secret(name, "old"))
    assert registry_of(with_secret(name, "old")) is first
    assert registry_of(with_secret(name, "new")) is not first


def test_a_registry_is_asked_with_a_token_that_is_fetched_once(
    registry_front: RegistryFront, authority: TokenServer, tmp_path: Path
) -> None:
    convert = converter(tmp_path, url=registry_front.url, oauth=oauth(authority, logical_cluster="lsrc-1", identity_pool="pool-7"))
    for _ in range(3):
        assert convert({"id": "a"}, topic(), None)
    assert len(registry_front.requests) >= 3
    assert len(authority.asked) == 1
    assert (registry_front.told["target-sr-cluster"], registry_front.told["Confluent-Identity-Pool-Id"]) == ("lsrc-1", "pool-7")


def test_a_token_that_the_registry_refuses_blocks_and_is_replaced(
    registry_front: RegistryFront, authority: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_cache, "TRUSTED_SECONDS", 0.0)
    convert = converter(tmp_path, url=registry_front.url, oauth=oauth(authority))
    assert convert({"id": "a"}, topic(), None)
    authority.turn_keys()
    with pytest.raises(BlockedError, match=r"refuses this token \(HTTP 401\); correct converters.schema_registry.oauth"):
        convert({"id": "a"}, topic(), None)
    assert convert({"id": "a"}, topic(), None)
    assert len(authority.asked) == 2


def test_what_keeps_a_token_from_coming_is_told_without_the_secret(
    registry_front: RegistryFront, authority: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_cache, "FAILED_SECONDS", 0.0)
    convert = converter(tmp_path, url=registry_front.url, oauth=oauth(authority))
    authority.secret = "another"
    with pytest.raises(BlockedError, match=r"HTTP 401: invalid_client.*correct converters.schema_registry.oauth") as caught:
        convert({"id": "a"}, topic(), None)
    assert SECRET not in str(caught.value)
    authority.stop()
    with pytest.raises(RetriableError, match=r"no token from .*Connection refused"):
        convert({"id": "a"}, topic(), None)
    assert registry_front.requests == []


def test_a_registry_that_wants_a_client_certificate_is_shown_one(registry_front: RegistryFront, certificates: Path) -> None:
    url = registry_front.start_tls(certificates / "registry.pem", certificates / "ca.pem")
    tls = {"url": url, "ca_file": str(certificates / "ca.pem"), "cert_file": str(certificates / "client.crt")}
    assert converter(certificates, **tls, key_file=str(certificates / "client.key"))({"id": "a"}, topic(), None)
    locked = {"key_file": str(certificates / "locked.key"), "key_password": "opens it"}
    assert converter(certificates, **tls, **locked)({"id": "a"}, topic(), None)


def test_without_the_right_certificate_the_reason_names_the_options(registry_front: RegistryFront, certificates: Path) -> None:
    url = registry_front.start_tls(certificates / "registry.pem", certificates / "ca.pem")
    tls = {"url": url, "ca_file": str(certificates / "ca.pem")}
    stranger = {"cert_file": str(certificates / "stranger.pem"), "key_file": str(certificates / "stranger.key")}
    for own in ({}, stranger):
        with pytest.raises(BlockedError, match=r"cert_file and key_file under converters\.schema_registry"):
            converter(certificates, **tls, **own)({"id": "a"}, topic(), None)
    locked = {"cert_file": str(certificates / "client.crt"), "key_file": str(certificates / "locked.key")}
    for password in ({}, {"key_password": "does not"}):
        with pytest.raises(BlockedError, match="and its key cannot be used") as caught:
            converter(certificates, **tls, **locked, **password)({"id": "a"}, topic(), None)
        assert "does not" not in str(caught.value)


def test_doctor_looks_at_both(registry_front: RegistryFront, authority: TokenServer, certificates: Path) -> None:
    url = registry_front.start_tls(certificates / "registry.pem", certificates / "ca.pem")
    tls = {"url": url, "ca_file": str(certificates / "ca.pem"), "cert_file": str(certificates / "client.crt")}
    registry = {**tls, "key_file": str(certificates / "client.key"), "oauth": oauth(authority)}
    (certificates / "order.avsc").write_text(SCHEMA.replace('"id"', '"message"'))
    value = {"type": "avro", "schema": str(certificates / "order.avsc"), "auto_register": True}
    source = {"type": "log_file", "include": ["/a"]}

    def verdicts(registry: dict[str, Any]) -> dict[str, CheckVerdict]:
        converters = {"value": value, "schema_registry": registry}
        document = {"name": "app", "source": source, "record": {"topic": topic()}, "converters": converters}
        (certificates / "app.yaml").write_text(yaml.safe_dump(document))
        loaded = load_file(certificates / "app.yaml", AgentOptions())
        assert loaded.definition is not None, loaded.problems
        return {step.name: step.verdict for step in examine_registries(registries([loaded.definition]))}

    assert verdicts(registry) == dict.fromkeys(("dns", "tcp", "tls", "login", "subject"), CheckVerdict.OK)
    authority.secret = "another"
    assert verdicts({**registry, "oauth": oauth(authority, scope="x")})["login"] is CheckVerdict.FAIL
    assert verdicts({**registry, "key_file": str(certificates / "stranger.key")})["tls"] is CheckVerdict.FAIL
