"""OAuth access tokens, one per process and login, for Kafka's clients and the schema registry's; and the options of each method.

librdkafka's own OIDC requests a token per client (five requests for five producers), and exactly once makes a client per transaction. Here
one token is requested; after three quarters of its life the next one is fetched in the background, and the old one is used as long as that
fails.
"""

from __future__ import annotations

import contextlib
import re
import ssl
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from copycat_agent.errors import CopycatError, RetriableError
from copycat_agent.oauth.token_requests import ANSWER_SECONDS, IssuedToken, ask, where_of
from copycat_agent.options import AssertionOptions, TokenOptions

__all__ = ["KAFKA_OAUTH", "REGISTRY_OAUTH", "Tokens", "token_problems", "tokens_of", "where_of"]

KAFKA_OAUTH, REGISTRY_OAUTH = "kafka.security.oauth", "converters.schema_registry.oauth"
"""Dotted options of the sections with logins."""


_NEEDS: dict[str, tuple[str, ...]] = {
    "oidc": ("token_url", "client_id", "client_secret"),
    "jwt_bearer": ("token_url", "assertion"),
    "azure_imds": ("resource",),
    "msk_iam": ("region",),
}
_ALSO: dict[str, tuple[str, ...]] = {
    "oidc": ("scope", "ca_file"),
    "jwt_bearer": ("scope", "ca_file"),
    "azure_imds": ("token_url", "client_id", "ca_file"),
    "msk_iam": ("role_arn",),
}
_ANYWAY = {"method", "extensions", "logical_cluster", "identity_pool"}
_URL = re.compile(r"https?://[^\s/]+")
_EXTENSION = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\t\r\n -~]*")


class TokenProblem(NamedTuple):
    """One contradiction among options: the option, the code, the reason, and the next step."""

    name: str
    code: str
    why: str
    hint: str = ""


def token_problems(options: TokenOptions) -> Iterator[TokenProblem]:
    """Yields what is wrong with the options of a login. Uses no network."""
    method = options.method
    for name in _NEEDS[method]:
        if getattr(options, name) is None:
            yield TokenProblem("method" if method != "oidc" else "", "missing-key", f"{method} needs {name}", f"add {name}")
    for name in sorted(options.model_fields_set - _ANYWAY - {*_NEEDS[method], *_ALSO[method]}):
        if getattr(options, name) is not None:
            yield TokenProblem(name, "bad-value", f"is not used with method {method}", "delete it, or set another method")
    if options.token_url is not None and not _is_address(options.token_url):
        yield TokenProblem("token_url", "bad-value", "needs a URL", "as in https://login.example.test/token")
    if options.ca_file is not None:
        yield from _authorities(options.ca_file)
    if options.assertion is not None:
        yield from _assertion(options.assertion)
    extensions: dict[str, str] = getattr(options, "extensions", {})
    for name, value in extensions.items():
        if not _EXTENSION.fullmatch(name) or name == "auth" or not _EXTENSION_VALUE.fullmatch(value):
            yield TokenProblem(
                "extensions", "bad-value", f"{name!r} is no SASL extension", "names are letters only, and not auth; values ASCII"
            )


def _is_address(text: str) -> bool:
    try:
        return bool(_URL.match(text)) and bool(urlsplit(text).hostname) and urlsplit(text).port != 0
    except ValueError:
        return False


def _authorities(path: str) -> Iterator[TokenProblem]:
    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        yield TokenProblem("ca_file", "bad-value", "holds no certificates", "it has to be PEM (-----BEGIN CERTIFICATE-----)")
    except (OSError, ValueError) as error:
        why = f"cannot be read: {getattr(error, 'strerror', None) or 'not a file name'}"
        yield TokenProblem("ca_file", "bad-value", why, "name a readable PEM file")


def _assertion(options: AssertionOptions) -> Iterator[TokenProblem]:
    if (options.file is None) == (options.key_file is None):
        hint = "file: one that somebody else signs; key_file: the agent signs one"
        yield TokenProblem("assertion", "bad-value", "needs either file or key_file", hint)
    elif options.file is not None and options.model_fields_set - {"file"}:
        others = ", ".join(sorted(options.model_fields_set - {"file"}))
        yield TokenProblem("assertion", "bad-value", f"file holds a whole assertion: {others} would have no effect", "delete them, or file")


RENEW_PART = 0.75
"""Part of a token's life after which it is renewed. librdkafka requests the next one at 0.8 of the life it was given."""
LEAST_SECONDS = 1.0
"""A token with a shorter remaining life is not given to a client: it would have expired when the broker checks it."""
FAILED_SECONDS = 2.0
"""Pause after a failure, so that clients that are made side by side do not wait one after the other for a silent endpoint."""
TRUSTED_SECONDS = 10.0
"""A token younger than this is not replaced when a broker refuses it: the next one would be refused as well."""
_TOKENS_MAX = 64


class _CachedToken(NamedTuple):
    """A token. `got`, `renew` and `until` are `time.monotonic()`: setting the clock has no effect."""

    text: str
    got: float
    renew: float
    until: float


class Tokens:
    """The tokens of one login. Thread-safe. Errors say what a person can do, and hold no secret."""

    def __init__(self, options: TokenOptions, ca_file: str | None, section: str) -> None:
        """Requests nothing yet. `section` is the section of the options, such as `kafka.security.oauth`."""
        self._options = options
        self._ca_file = ca_file
        self._section = section
        self._asking = threading.Lock()
        self._kept: _CachedToken | None = None
        self._failure: CopycatError | None = None
        self._failed = 0.0

    def token(self) -> str:
        """Returns a valid token; requests one if there is none, for `ANSWER_SECONDS` at most.

        Raises RetriableError if no token comes, BlockedError if an operator has to act.
        """
        kept = self._good()
        if kept is None:
            with self._asking:
                kept = self._good() or self._ask()
        return kept.text

    def give(self, _config: str) -> tuple[str, float, str, dict[str, str]]:
        """Returns for `oauth_cb` of a Kafka client: token, its expiry, principal, SASL extensions.

        Called on a thread of the library that closing the client waits for, so it must not wait for the network: raises RetriableError if
        there is no token now. The library calls again in ten seconds, and by then there may be one.
        """
        kept = self._good()
        if kept is None:
            self._renew_soon()
            raise RetriableError("no token")
        extensions: dict[str, str] = getattr(self._options, "extensions", {})
        return kept.text, time.time() + kept.until - time.monotonic(), "", extensions

    def invalidate(self) -> None:
        """Drops a refused token: the next client gets a new one. Keys may have been changed, or the token revoked."""
        kept = self._kept
        if kept is not None and time.monotonic() - kept.got > TRUSTED_SECONDS:
            self._kept = None

    def _good(self) -> _CachedToken | None:
        """Returns the token, if a client may get it. It is renewed in the background if it is time for that."""
        kept, now = self._kept, time.monotonic()
        if kept is None or now > kept.until - LEAST_SECONDS:
            return None
        if now > kept.renew:
            self._renew_soon()
        return kept

    def _renew_soon(self) -> None:
        if self._failed_just_now() is None and self._asking.acquire(blocking=False):
            try:
                threading.Thread(target=self._renew, name="oauth", daemon=True).start()
            except RuntimeError:  # no more threads
                self._asking.release()

    def _renew(self) -> None:
        try:
            with contextlib.suppress(CopycatError):  # reported when a client needs a token and there is none
                self._ask()
        finally:
            self._asking.release()

    def _ask(self) -> _CachedToken:
        """Requests a token, with `_asking` held."""
        failed = self._failed_just_now()
        if failed is not None:
            raise type(failed)(failed.message, failed.hint)
        try:
            answer = self._in_time()
        except CopycatError as error:
            self._failure, self._failed = error.with_traceback(None), time.monotonic()
            raise
        now = time.monotonic()
        self._failure = None
        self._kept = _CachedToken(answer.token, now, now + RENEW_PART * answer.seconds, now + answer.seconds)
        return self._kept

    def _failed_just_now(self) -> CopycatError | None:
        return self._failure if time.monotonic() - self._failed < FAILED_SECONDS else None

    def _in_time(self) -> IssuedToken:
        """Requests on a thread, since no library limits the time of a whole exchange, and some not even of a name look-up."""
        outcome: list[IssuedToken | CopycatError] = []

        def run() -> None:
            try:
                outcome.append(ask(self._options, self._ca_file, self._section))
            except CopycatError as error:
                outcome.append(error)
            except Exception as error:  # noqa: BLE001 - its words may hold what was sent
                outcome.append(RetriableError(f"no token from {where_of(self._options)}: {type(error).__name__}"))

        thread = threading.Thread(target=run, name="oauth-answer", daemon=True)
        thread.start()
        thread.join(ANSWER_SECONDS)
        if not outcome:
            raise RetriableError(f"no token from {where_of(self._options)} within {ANSWER_SECONDS:g} s", "is it up? the agent asks again")
        if isinstance(outcome[0], CopycatError):
            raise outcome[0]
        return outcome[0]


def tokens_of(options: TokenOptions, ca_file: str | None, section: str) -> Tokens:
    """Returns the one `Tokens` of these options in this process. `ca_file` is used if the options have none."""
    hidden = options.client_secret, options.assertion.key_password if options.assertion else None
    key = (options.model_dump_json(), *(one.get_secret_value() if one else None for one in hidden), ca_file, section)
    with _guard:
        if len(_tokens) >= _TOKENS_MAX:
            _tokens.clear()
        return _tokens.setdefault(key, Tokens(options, options.ca_file or ca_file, section))


_guard = threading.Lock()
_tokens: dict[tuple[str | None, ...], Tokens] = {}
