"""Tokens come from a real endpoint over real HTTP, one for the whole process, and no reason tells a secret."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from joserfc.jwk import ECKey, RSAKey

from copycat_agent import oauth as token_cache
from copycat_agent.dev_broker import free_port
from copycat_agent.errors import BlockedError, CopycatError, RetriableError
from copycat_agent.oauth import Tokens, token_requests, tokens_of
from copycat_agent.options import OauthOptions
from tests.rig.oauth import CLIENT_ID, JWT_BEARER, SECRET, TokenServer
from tests.rig.secured import make_authority, sign
from tests.rig.threads import NewThreads
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECTION = "kafka.security.oauth"


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with TokenServer() as server:
        yield server


class Clock:
    """The time that tokens go by, which may be moved on."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(token_cache, "time", SimpleNamespace(time=time.time, monotonic=clock.monotonic))
    return clock


def options(server: TokenServer, **over: Any) -> OauthOptions:
    return OauthOptions.model_validate({"token_url": server.token_url, "client_id": CLIENT_ID, "client_secret": SECRET, **over})


def tokens(server: TokenServer, **over: Any) -> Tokens:
    return Tokens(made := options(server, **over), made.ca_file, SECTION)


def refused(asker: Tokens) -> CopycatError:
    """Why there is no token; the reason tells no secret."""
    with pytest.raises(RetriableError) as caught:
        asker.token()
    assert SECRET not in str(caught.value)
    return caught.value


def test_many_clients_made_at_once_share_one_request(server: TokenServer) -> None:
    server.hold_seconds = 0.2
    login = options(server)
    with ThreadPoolExecutor(8) as threads:
        got = list(threads.map(lambda _: tokens_of(login, None, SECTION).token(), range(16)))
    assert len(set(got)) == len(server.asked) == 1
    assert server.asked[0].form == {"grant_type": "client_credentials"}
    assert server.asked[0].login == (CLIENT_ID, SECRET)


def test_other_secrets_are_other_logins(server: TokenServer) -> None:
    assert tokens_of(options(server), None, SECTION) is tokens_of(options(server), None, SECTION)
    assert tokens_of(options(server), None, SECTION) is not tokens_of(options(server, client_secret="another"), None, SECTION)


def test_a_client_is_given_the_token_with_its_end_and_the_extensions(server: TokenServer) -> None:
    asker = tokens(server, extensions={"logicalCluster": "lkc-1"}, scope="kafka.write")
    held = asker.token()
    token, until, principal, extensions = asker.give("")
    assert (token, principal, extensions) == (held, "", {"logicalCluster": "lkc-1"})
    assert server.lifetime_seconds - 60 < until - time.time() <= server.lifetime_seconds
    assert server.asked[0].form["scope"] == "kafka.write"


def test_the_next_token_is_fetched_before_this_one_ends(server: TokenServer, clock: Clock) -> None:
    server.lifetime_seconds = 1000.0
    asker = tokens(server)
    first = asker.token()
    server.lifetime_seconds = 10_000.0
    clock.ahead_seconds = 800.0
    wait_until(lambda: asker.give("")[0] != first)
    assert len(server.asked) == 2
    assert asker.give("")[1] - time.time() > 9000


def test_a_good_token_is_used_while_no_new_one_comes(server: TokenServer, clock: Clock) -> None:
    server.lifetime_seconds = 1000.0
    asker = tokens(server)
    first = asker.token()
    server.answer = (503, b"")
    clock.ahead_seconds = 800.0
    wait_until(lambda: len(server.asked) > 1 or asker.give("")[0] != first)
    assert asker.token() == first
    clock.ahead_seconds = 1001.0
    assert not _given(asker)
    assert "HTTP 503" in refused(asker).message
    server.answer = None
    wait_until(lambda: _given(asker))


def test_a_kafka_client_never_waits_for_the_network(server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its library calls from a thread of its own, for which closing the client waits."""
    for module in (token_cache, token_requests):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 60.0)
    server.hold_seconds = 60.0
    asker = tokens(server)
    with pytest.raises(RetriableError):
        asker.give("")
    wait_until(lambda: len(server.asked) == 1)
    with pytest.raises(RetriableError):
        asker.give("")
    server.go_on.set()
    wait_until(lambda: _given(asker))
    assert len(server.asked) == 1


def _given(asker: Tokens) -> bool:
    try:
        return bool(asker.give(""))
    except RetriableError:
        return False


def test_a_token_that_a_broker_refuses_is_replaced_unless_it_is_new(server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_cache, "TRUSTED_SECONDS", 3600.0)
    asker = tokens(server)
    first = asker.token()
    asker.invalidate()
    assert asker.token() == first
    monkeypatch.setattr(token_cache, "TRUSTED_SECONDS", 0.0)
    asker.invalidate()
    assert asker.token() != first


def test_a_wrong_secret_blocks_without_telling_it(server: TokenServer) -> None:
    server.secret = "what the server knows"
    why = refused(tokens(server))
    assert isinstance(why, BlockedError)
    assert "HTTP 401: invalid_client" in why.message
    assert SECTION in why.hint


def test_an_endpoint_that_is_away_is_asked_again(server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_cache, "FAILED_SECONDS", 0.0)
    server.stop()
    asker = tokens(server)
    why = refused(asker)
    assert type(why) is RetriableError
    assert server.token_url in why.message
    assert "Connection refused" in why.message
    server.start()
    assert asker.token()


def test_an_endpoint_that_hangs_is_waited_for_once_by_all(server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_cache, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(token_cache, "FAILED_SECONDS", 3600.0)  # also for who comes late
    server.hold_seconds = 30.0
    asker = tokens(server)
    with ThreadPoolExecutor(4) as threads:
        assert [type(why) for why in threads.map(lambda _: refused(asker), range(4))] == [RetriableError] * 4
    wait_until(lambda: server.asked, message="the request has arrived")
    assert len(server.asked) == 1


def test_a_trickling_answer_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_requests, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(token_cache, "ANSWER_SECONDS", 0.3)
    is_over, threads = threading.Event(), NewThreads()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def trickle() -> None:
            connection = listening.accept()[0]
            with connection:
                connection.recv(4096)
                while not is_over.wait(0.05):
                    try:
                        connection.send(b"H")
                    except OSError:
                        return

        trickling = threading.Thread(target=trickle)
        trickling.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/token"
        asker = Tokens(OauthOptions.model_validate({"token_url": url, "client_id": "a", "client_secret": SECRET}), None, SECTION)
        refused(asker)
        try:
            wait_until(lambda: not threads.named("oauth"))
        finally:
            is_over.set()
            trickling.join()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, b"<html>"), "not with a token"),
        ((200, b'{"access_token": "a b"}'), "not with a token"),
        ((200, b'{"access_token": 5}'), "not with a token"),
        ((302, b""), "not with a token"),
        ((404, b"{}"), "not with a token"),
        ((400, b'{"error": "the secret was X"}'), "(HTTP 400)"),
        ((200, b'{"access_token": "abc", "expires_in": 0}'), "have expired"),
        ((200, b'{"access_token": "abc", "expires_in": "nan"}'), "have expired"),
    ],
)
def test_an_answer_that_is_no_token_blocks(server: TokenServer, answer: tuple[int, bytes], said: str) -> None:
    server.answer = answer
    why = refused(tokens(server))
    assert isinstance(why, BlockedError)
    assert said in why.message


def test_an_answer_without_a_lifetime_goes_by_the_tokens_own(server: TokenServer) -> None:
    server.answer = (200, b'{"access_token": "%s"}' % server.token(exp=int(time.time()) + 5000).encode())
    asker = tokens(server)
    asker.token()
    assert 4900 < asker.give("")[1] - time.time() <= 5000


def test_no_proxy_of_the_environment_is_used(server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert tokens(server).token()


def test_a_certificate_of_nobody_known_blocks_and_one_of_ca_file_is_good(server: TokenServer, tmp_path: Path) -> None:
    make_authority(tmp_path, "ca")
    sign(tmp_path, "login")
    server.stop()
    server.start(tmp_path / "login.pem")
    why = refused(tokens(server))
    assert isinstance(why, BlockedError)
    assert "certificate that is refused" in why.message
    assert f"{SECTION}.ca_file" in why.hint
    assert tokens(server, ca_file=str(tmp_path / "ca.pem")).token()
    assert "No such file" in refused(tokens(server, ca_file="/nope.pem")).message


def test_an_assertion_from_a_file_is_read_anew_each_time(server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_cache, "TRUSTED_SECONDS", 0.0)
    server.assertions = RSAKey.generate_key(2048)
    signer = TokenServer()
    signer._key = server.assertions
    held = tmp_path / "token"
    login = {"method": "jwt_bearer", "client_id": None, "client_secret": None, "assertion": {"file": str(held)}}
    asker = tokens(server, **login)
    assert "cannot be read" in refused(tokens(server, **login)).message
    for subject in ("one", "two"):
        held.write_text(signer.token(sub=subject) + "\n")
        asker.token()
        asker.invalidate()
    assert [asked.form["grant_type"] for asked in server.asked] == [JWT_BEARER] * 2
    assert len({asked.form["assertion"] for asked in server.asked}) == 2


@pytest.mark.parametrize("kind", ["RS256", "ES256"])
def test_an_assertion_is_signed_with_a_key(server: TokenServer, tmp_path: Path, kind: str) -> None:
    key: Any = RSAKey.generate_key(2048) if kind == "RS256" else ECKey.generate_key("P-256")
    server.assertions = key
    (tmp_path / "key.pem").write_bytes(key.as_pem(private=True, password="opens it"))
    signing = {"key_file": str(tmp_path / "key.pem"), "key_password": "opens it", "algorithm": kind, "issuer": "me", "subject": "agent-7"}
    login = {"method": "jwt_bearer", "client_id": None, "client_secret": None}
    assert tokens(server, **login, assertion=signing).token()
    why = refused(tokens(server, **login, assertion={**signing, "key_password": "does not"}))
    assert "cannot be used to sign" in why.message
    assert "opens it" not in str(why)


def test_a_managed_identity_of_azure_needs_no_secret(server: TokenServer) -> None:
    url = f"{server.origin}/metadata/identity/oauth2/token"
    login = {"method": "azure_imds", "token_url": url, "client_id": "1-2-3", "client_secret": None, "resource": "api://kafka"}
    assert tokens(server, **login).token()
    asked = server.asked[0]
    assert (asked.method, asked.metadata) == ("GET", "true")
    assert asked.form == {"api-version": "2018-02-01", "resource": "api://kafka", "client_id": "1-2-3"}
