"""A token that all clients of a process use until it is about to expire.

librdkafka's own OIDC asks for a token per client (five requests for five producers), and exactly once makes a client per transaction. Here
the endpoint is asked once; three quarters through the token's life the next one is fetched in the background, and the old one is used as
long as that fails.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import NamedTuple

from copycat_agent.errors import CopycatError, RetriableError
from copycat_agent.oauth.token_requests import ANSWER_SECONDS, IssuedToken, ask, where_of
from copycat_agent.options import TokenOptions

_RENEW_PART = 0.75
"""Part of a token's life after which it is renewed. librdkafka asks for the next one at 0.8 of the life it was told."""
LEAST_SECONDS = 1.0
"""A token that is good for less is not given to a client: it would have expired when the broker looks at it."""
FAILED_SECONDS = 2.0
"""Pause after a failure, so that clients that are made side by side do not wait one after the other for an endpoint that is silent."""
TRUSTED_SECONDS = 10.0
"""A token younger than this is not replaced because a broker refuses it: the next one would be refused as well."""
_TOKENS_MAX = 64


class _Kept(NamedTuple):
    """`got`, `renew` and `until` are `time.monotonic()`'s: a clock that is set has no effect."""

    text: str
    got: float
    renew: float
    until: float


class Tokens:
    """The tokens of one login. Thread-safe. What raises tells what a person can do, and no secret."""

    def __init__(self, options: TokenOptions, ca_file: str | None, section: str) -> None:
        """Asks nothing yet. `section` is where the options stand, such as `kafka.security.oauth`."""
        self._options = options
        self._ca_file = ca_file
        self._section = section
        self._asking = threading.Lock()
        self._kept: _Kept | None = None
        self._failure: CopycatError | None = None
        self._failed = 0.0

    def token(self) -> str:
        """A token that is good now; asks for one where there is none, for `ANSWER_SECONDS` at most.

        Raises RetriableError when no token comes, BlockedError when an operator has to do something.
        """
        kept = self._good()
        if kept is None:
            with self._asking:
                kept = self._good() or self._ask()
        return kept.text

    def give(self, _config: str) -> tuple[str, float, str, dict[str, str]]:
        """For `oauth_cb` of a Kafka client: token, when it expires, principal, SASL extensions.

        Called on a thread of the library for which closing the client waits, so it must not wait for the network: RetriableError where
        there is no token now. It asks again
        in ten seconds, and by then there may be one.
        """
        kept = self._good()
        if kept is None:
            self._renew_soon()
            raise RetriableError("no token")
        extensions: dict[str, str] = getattr(self._options, "extensions", {})
        return kept.text, time.time() + kept.until - time.monotonic(), "", extensions

    def distrust(self) -> None:
        """The token was refused: the next client gets a new one. Keys may have been changed, or the token revoked."""
        kept = self._kept
        if kept is not None and time.monotonic() - kept.got > TRUSTED_SECONDS:
            self._kept = None

    def _good(self) -> _Kept | None:
        """The token, if it can be given to a client. It is renewed in the background where it is time for that."""
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
            with contextlib.suppress(CopycatError):  # told where a client needs a token and there is none
                self._ask()
        finally:
            self._asking.release()

    def _ask(self) -> _Kept:
        """With `_asking` held."""
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
        self._kept = _Kept(answer.token, now, now + _RENEW_PART * answer.seconds, now + answer.seconds)
        return self._kept

    def _failed_just_now(self) -> CopycatError | None:
        return self._failure if time.monotonic() - self._failed < FAILED_SECONDS else None

    def _in_time(self) -> IssuedToken:
        """On a thread, since no library bounds the whole of an exchange, and some not even the look-up of a name."""
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
    """The tokens of these options: one `Tokens` per process and login. `ca_file` is used where the options name none."""
    hidden = options.client_secret, options.assertion.key_password if options.assertion else None
    key = (options.model_dump_json(), *(one.get_secret_value() if one else None for one in hidden), ca_file, section)
    with _guard:
        if len(_tokens) >= _TOKENS_MAX:
            _tokens.clear()
        return _tokens.setdefault(key, Tokens(options, options.ca_file or ca_file, section))


_guard = threading.Lock()
_tokens: dict[tuple[str | None, ...], Tokens] = {}
