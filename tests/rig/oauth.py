"""An authorization server that signs real tokens, and a broker whose only way in they are."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import ssl
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from copycat_agent.dev_broker import DevBroker, free_port

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

CLIENT_ID, SECRET = "copycat", "a secret that no log may show: 5f0c"
_AUDIENCE = "kafka"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_LOGIN = f"{_OAUTH}.OAuthBearerLoginModule required"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class Asked(NamedTuple):
    """A request for a token: method, path, query or form, and the client's id and secret where it has sent them."""

    method: str
    path: str
    form: dict[str, str]
    login: tuple[str, str] | None
    metadata: str | None


class TokenServer:
    """Gives tokens to whoever knows the secret, and its public key to brokers. `asked` lists the requests for tokens.

    `answer` (status, body) is given in place of a token; `hold_seconds` is waited before any, until `go_on` is set; `lifetime_seconds` is
    that of tokens.
    `stop` and `start` take it down and up, at the same address. `assertions` is the key that signs the assertions of clients.
    `signs_as`: its tokens are as good as those of that server.
    """

    def __init__(self, port: int = 0, signs_as: TokenServer | None = None) -> None:
        self.asked: list[Asked] = []
        self.answer: tuple[int, bytes] | None = None
        self.hold_seconds = 0.0
        self.go_on = threading.Event()
        self.lifetime_seconds = 3600.0
        self.secret = SECRET
        self.assertions: RSAKey | None = None
        self._key: RSAKey = signs_as._key if signs_as is not None else _new_key()
        self._port = port or free_port()
        self._server: ThreadingHTTPServer | None = None
        self.scheme = "http"

    @property
    def origin(self) -> str:
        """SCHEME://HOST:PORT."""
        return f"{self.scheme}://127.0.0.1:{self._port}"

    @property
    def token_url(self) -> str:
        """Where clients ask."""
        return f"{self.origin}/token"

    @property
    def keys_url(self) -> str:
        """Where brokers ask."""
        return f"{self.origin}/keys"

    def token(self, **claims: Any) -> str:
        """A token as it is given out."""
        now = time.time()
        whole = {"iss": "rig", "aud": _AUDIENCE, "sub": CLIENT_ID, "iat": int(now), "exp": int(now + self.lifetime_seconds), **claims}
        return jwt.encode({"alg": "RS256", "kid": "rig"}, {**whole, "jti": uuid.uuid4().hex}, self._key)

    def is_good(self, token: str) -> bool:
        """Whether this server has signed it, and it has not expired."""
        try:
            return float(jwt.decode(token, self._key).claims["exp"]) > time.time()
        except (JoseError, ValueError):
            return False

    def turn_keys(self) -> None:
        """Tokens that were given out before are not good any more, once a broker has asked for the keys anew."""
        self._key = _new_key()

    def start(self, certificate: Path | None = None) -> None:
        """Up; behind TLS with a key and certificate (PEM)."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler())
        self._server.daemon_threads = True
        if certificate is not None:
            self.scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="token-server", daemon=True).start()

    def stop(self) -> None:
        """Down: connections are refused."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def given(self, asked: Asked) -> tuple[int, dict[str, Any]]:
        """Status and body of the answer to a request for a token."""
        if asked.path == "/metadata/identity/oauth2/token":
            good = asked.metadata == "true" and asked.method == "GET" and {"api-version", "resource"} <= set(asked.form)
            return (200, {"access_token": self.token(), "expires_in": str(int(self.lifetime_seconds))}) if good else (400, {"error": "bad"})
        if asked.form.get("grant_type") == JWT_BEARER:
            assert self.assertions is not None
            claims = jwt.decode(asked.form["assertion"], self.assertions).claims
            return 200, {"access_token": self.token(sub=claims["sub"]), "token_type": "Bearer", "expires_in": self.lifetime_seconds}
        if asked.form.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        if asked.login != (CLIENT_ID, self.secret):
            described = f"unknown client {asked.login}"  # some servers repeat what they were sent
            return 401, {"error": "invalid_client", "error_description": described}
        return 200, {"access_token": self.token(), "token_type": "Bearer", "expires_in": self.lifetime_seconds}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                address = urlsplit(self.path)
                if address.path == "/keys":
                    self._reply(200, {"keys": [server._key.as_dict(private=False)]})
                else:
                    self._token(address.path, address.query)

            def do_POST(self) -> None:
                self._token(self.path, self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())

            def _token(self, path: str, form: str) -> None:
                said = {name: one for name, (one, *_) in parse_qs(form).items()}
                server.asked.append(
                    Asked(self.command, path, said, _login(self.headers.get("Authorization")), self.headers.get("Metadata"))
                )
                server.go_on.wait(server.hold_seconds)
                if server.answer is not None:
                    self._send(*server.answer)
                else:
                    self._reply(*server.given(server.asked[-1]))

            def _reply(self, status: int, body: dict[str, Any]) -> None:
                self._send(status, json.dumps(body).encode())

            def _send(self, status: int, body: bytes) -> None:
                with contextlib.suppress(OSError):  # whoever asked has given up
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Nobody reads it."""

        return Handler


def _new_key() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "rig", "use": "sig", "alg": "RS256"}, private=True, auto_kid=False)


def _login(header: str | None) -> tuple[str, str] | None:
    if header is None or not header.startswith("Basic "):
        return None
    user, _, password = base64.b64decode(header[6:]).decode().partition(":")
    return user, password


class OauthBroker(DevBroker):
    """A broker that checks tokens against the public key of a server; clients have to show one again every `reauth_seconds`."""

    def __init__(self, directory: Path, server: TokenServer, reauth_seconds: float = 0, more: dict[str, str] | None = None) -> None:
        listener = "listener.name.client"
        super().__init__(directory, properties={
            "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"{listener}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{listener}.oauthbearer.sasl.jaas.config": f"{_LOGIN};",
            f"{listener}.oauthbearer.sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
            # not below the listener: there Kafka 4.1 does not find the address, takes the validator of clients, and checks no signature
            "sasl.oauthbearer.jwt.validator.class": f"{_OAUTH}.BrokerJwtValidator",
            "sasl.oauthbearer.jwks.endpoint.url": server.keys_url,
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": "1000",
            "sasl.oauthbearer.expected.audience": _AUDIENCE,
            "sasl.oauthbearer.expected.issuer": "rig",
            "sasl.oauthbearer.clock.skew.seconds": "0",
            f"{listener}.oauthbearer.connections.max.reauth.ms": str(int(reauth_seconds * 1000)),
            **(more or {}),
        })  # fmt: skip
        self._server = server

    def start(self, timeout: float = 60.0) -> str:
        """Kafka asks only addresses that it is allowed to, by a property of its JVM."""
        with _environment("JDK_JAVA_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._server.keys_url}"):
            return super().start(timeout)

    @property
    def client(self) -> dict[str, Any]:
        """Settings of a client that reads what arrived."""
        return {
            "bootstrap.servers": self.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (self._server.token(), time.time() + self._server.lifetime_seconds),
        }  # fmt: skip


@contextlib.contextmanager
def _environment(name: str, value: str) -> Any:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before
