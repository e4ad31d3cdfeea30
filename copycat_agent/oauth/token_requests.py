"""Requests a token and interprets the answer. Contacts only the address in the definition: no proxy, no redirect.

Every method makes at most one request; the caller has the back-off and limits the time.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from copycat_agent.errors import BlockedError, CopycatError, RetriableError
from copycat_agent.options import OauthOptions, TokenOptions

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

ANSWER_SECONDS = 8.0
"""The time-out of a whole answer, including name resolution and connection."""
_STEP_SECONDS = 5.0
"""The time-out of a connection, and between two pieces of an answer."""
_ANSWER_BYTES_MAX = 256 * 1024
_PIECE_BYTES = 64 * 1024
_DEFAULT_SECONDS = 300.0
"""Assumed life of a token without an expiry."""
_LONGEST_SECONDS = 30 * 86400.0
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{1,65536}=*")
_CODE = re.compile(r"[a-z_]{1,40}")
_IMDS_URL = "http://169.254.169.254/metadata/identity/oauth2/token"
_IMDS_VERSION = "2018-02-01"
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION_BYTES_MAX = 64 * 1024
_UP = "is it up? the agent asks again by itself"
_TOO_MANY, _TIME_OUT, _SERVER, _OK = 429, 408, 500, 200
_REFUSED = (400, 401, 403)


class IssuedToken(NamedTuple):
    """A token, and its validity in seconds from now."""

    token: str
    seconds: float


class _TokenRequest(NamedTuple):
    """A request: a form to post, or a GET if `form` is None."""

    url: str
    form: Mapping[str, str] | None
    headers: Mapping[str, str]


def ask(options: TokenOptions, ca_file: str | None, section: str) -> IssuedToken:
    """Requests a token. `section` is the section of the options. Raises RetriableError or BlockedError, without any secret."""
    if isinstance(options, OauthOptions) and options.method == "msk_iam":
        return IssuedToken(*signed(options))
    asked, where = _QUESTIONS[options.method](options), where_of(options)
    context = _authorities(ca_file, section) if asked.url.startswith("https:") else None
    try:
        status, body = _exchange(asked, context)
    except (OSError, ValueError) as error:
        raise _unreachable(error, where, section) from None
    return _understood(status, body, where, section)


def where_of(options: TokenOptions) -> str:
    """Returns a name for the endpoint without secrets from its address."""
    if options.method == "msk_iam":
        return "AWS's signer"
    if "token_url" in options.hidden:  # it came from a file or a credential
        return "the token endpoint"
    address = urlsplit(options.token_url or _IMDS_URL)
    return f"{address.scheme}://{address.hostname}{f':{address.port}' if address.port else ''}{address.path}"


def _client_credentials(options: TokenOptions) -> _TokenRequest:
    """Returns the request of RFC 6749, 4.4. Id and secret are not URL-encoded, as in librdkafka and, by default, Kafka's Java client."""
    assert options.client_secret is not None
    login = f"{options.client_id}:{options.client_secret.get_secret_value()}"
    headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
    return _TokenRequest(options.token_url or "", _with_scope({"grant_type": "client_credentials"}, options), headers)


def _jwt_bearer(options: TokenOptions) -> _TokenRequest:
    """Returns the request of RFC 7523, 2.1."""
    form = {"grant_type": _JWT_BEARER, "assertion": _assertion(options)}
    return _TokenRequest(options.token_url or "", _with_scope(form, options), {})


def _azure_imds(options: TokenOptions) -> _TokenRequest:
    """https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token."""
    wanted = {"api-version": _IMDS_VERSION, "resource": options.resource or ""}
    query = wanted | ({"client_id": options.client_id} if options.client_id else {})
    return _TokenRequest(f"{options.token_url or _IMDS_URL}?{urlencode(query)}", None, {"Metadata": "true"})


_QUESTIONS: dict[str, Callable[[TokenOptions], _TokenRequest]] = {
    "oidc": _client_credentials,
    "jwt_bearer": _jwt_bearer,
    "azure_imds": _azure_imds,
}


def _with_scope(form: dict[str, str], options: TokenOptions) -> dict[str, str]:
    return form | ({"scope": options.scope} if options.scope else {})


def _assertion(options: TokenOptions) -> str:
    """Returns the assertion from its file, or one that is signed now."""
    wanted = options.assertion
    assert wanted is not None
    path = Path(wanted.file or wanted.key_file or "")
    try:
        with path.open("rb") as file:
            text = file.read(_ASSERTION_BYTES_MAX).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BlockedError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'not text'}", "let the agent's user read it"
        ) from None
    if wanted.file is not None:
        return text.strip()
    from joserfc import jwt  # noqa: PLC0415 - 0.2 s, for this alone
    from joserfc.jwk import ECKey, RSAKey  # noqa: PLC0415 - as above

    now = int(time.time())
    claims = {"iss": wanted.issuer, "sub": wanted.subject, "aud": wanted.audience or options.token_url, "jti": uuid.uuid4().hex}
    times = {"iat": now, "nbf": now, "exp": now + int(wanted.lifetime)}
    whole = {name: value for name, value in claims.items() if value} | times
    password = None if wanted.key_password is None else wanted.key_password.get_secret_value()
    try:
        key = (RSAKey if wanted.algorithm == "RS256" else ECKey).import_key(text, password=password)
        return jwt.encode({"alg": wanted.algorithm}, whole, key)
    except Exception as error:  # noqa: BLE001 - its words may show the key
        hint = f"it has to be the PEM of a private key for {wanted.algorithm}; key_password opens an encrypted one"
        raise BlockedError(f"{path} cannot be used to sign: {type(error).__name__}", hint) from None


def _authorities(ca_file: str | None, section: str) -> ssl.SSLContext:
    """Returns a context of the file's authorities, else the host's own. A directory is allowed, as in librdkafka's https.ca.location."""
    is_directory = ca_file is not None and Path(ca_file).is_dir()
    try:
        return ssl.create_default_context(capath=ca_file) if is_directory else ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise BlockedError(f"ca_file {ca_file}: {error.strerror or 'no certificates'}", f"correct {section}.ca_file") from None


def _exchange(asked: _TokenRequest, context: ssl.SSLContext | None) -> tuple[int, bytes]:
    """Returns status and body. Raises OSError, or ValueError for an invalid answer. Ends soon after `ANSWER_SECONDS`, whatever comes."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection  # noqa: PLC0415 - 40 ms that others do without

    address = urlsplit(asked.url)
    host, target = address.hostname or "", (address.path or "/") + (f"?{address.query}" if address.query else "")
    connection: HTTPConnection = HTTPConnection(host, address.port, timeout=_STEP_SECONDS)
    if context is not None:
        connection = HTTPSConnection(host, address.port, timeout=_STEP_SECONDS, context=context)
    form = None if asked.form is None else urlencode(asked.form)
    headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded", **asked.headers}
    end = threading.Timer(ANSWER_SECONDS, _cut, (connection,))
    end.daemon = True
    end.start()
    try:
        connection.request("GET" if form is None else "POST", target, form, headers)
        answer = connection.getresponse()
        return answer.status, _body(answer, time.monotonic() + ANSWER_SECONDS)
    except HTTPException as error:
        raise ValueError(f"no HTTP ({type(error).__name__})") from None
    finally:
        end.cancel()
        connection.close()


def _cut(connection: HTTPConnection) -> None:
    """Ends an answer: one whose beginning trickles would hold its thread for ever."""
    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _body(answer: HTTPResponse, deadline: float) -> bytes:
    body = b""
    while piece := answer.read1(_PIECE_BYTES):
        body += piece
        if len(body) > _ANSWER_BYTES_MAX or time.monotonic() > deadline:
            raise ValueError("an answer without an end")
    return body


def _unreachable(error: Exception, where: str, section: str) -> CopycatError:
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = f"set {section}.ca_file to the authority that signed its certificate; token_url needs a name that is in it"
        return BlockedError(f"{where} has a certificate that is refused: {error.verify_message}", hint)
    said = "no answer" if isinstance(error, TimeoutError) else getattr(error, "reason", None) or getattr(error, "strerror", None)
    return RetriableError(f"no token from {where}: {said or type(error).__name__}", _UP)


def _understood(status: int, body: bytes, where: str, section: str) -> IssuedToken:
    """Returns the token of an answer. Errors repeat only the endpoint's error code: some endpoints describe what they were sent."""
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    said = said if isinstance(said, dict) else {}
    if status in _REFUSED:
        code = said.get("error")
        words = f"HTTP {status}: {code}" if isinstance(code, str) and _CODE.fullmatch(code) else f"HTTP {status}"
        raise BlockedError(f"{where} gives this client no token ({words})", f"correct {section}: the client's id, its secret, scope")
    if status >= _SERVER or status in (_TOO_MANY, _TIME_OUT):
        raise RetriableError(f"no token from {where}: HTTP {status}", _UP)
    token = said.get("access_token")
    if status != _OK or not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise BlockedError(f"{where} answers HTTP {status}, and not with a token", f"correct {section}.token_url")
    seconds = _lifetime(said.get("expires_in"), token)
    if not seconds > 0:
        raise BlockedError(f"{where} gives tokens that have expired", "set the clocks of this host and of that one right")
    return IssuedToken(token, min(seconds, _LONGEST_SECONDS))


def _lifetime(told: object, token: str) -> float:
    """Returns the seconds given beside the token (Azure writes a text), which no clock affects; else those of the token's own claim."""
    try:
        return float(told)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        pass
    try:
        part = token.split(".")[1]
        claims: Any = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return float(claims["exp"]) - time.time()
    except (IndexError, KeyError, TypeError, ValueError):
        return _DEFAULT_SECONDS


_WHERE = "give the agent's process credentials as AWS's libraries find them: an instance role, a profile, AWS_ACCESS_KEY_ID"


def signed(options: OauthOptions) -> tuple[str, float]:
    """Returns a token, and its validity in seconds. Raises BlockedError, or RetriableError if AWS does not answer."""
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer  # noqa: PLC0415 - an extra, and slow to import
        from botocore.exceptions import ClientError, HTTPClientError  # noqa: PLC0415 - comes with it
    except ImportError:
        words = "a login to Amazon MSK needs a Python package that is not installed"
        raise BlockedError(words, "pip install 'copycat-agent[msk-iam]'") from None
    try:
        if options.role_arn is not None:
            token, until_ms = Signer.generate_auth_token_from_role_arn(options.region, options.role_arn)
        else:
            token, until_ms = Signer.generate_auth_token(options.region)
    except HTTPClientError as error:
        raise RetriableError(f"AWS does not answer: {type(error).__name__}", "the agent asks again by itself") from None
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "no reason given")
        raise BlockedError(f"AWS refuses to lend role_arn: {code}", "grant sts:AssumeRole on it to the agent's credentials") from None
    except AttributeError:  # the signer's way to report that there are none
        raise BlockedError("no AWS credentials are found", _WHERE) from None
    except Exception as error:  # noqa: BLE001 - its words may show what was sent
        raise BlockedError(f"the AWS credentials cannot be used: {type(error).__name__}", _WHERE) from None
    return token, until_ms / 1000 - time.time()
