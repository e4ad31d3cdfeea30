"""Access to a schema registry for one process: few requests, each bounded in time, with errors that say what to do.

The client bounds only single reads, and a batch has to end when the agent does: hence a deadline for the whole answer. The client's own
retries are off, because the batch's back-off applies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, TypeVar
from urllib.parse import urlsplit

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from copycat_agent.converters.base import Reference, RegistrySchema
from copycat_agent.converters.registry_session import ANSWER_SECONDS, connected
from copycat_agent.converters.schema_options import CertificateError, tls_context
from copycat_agent.errors import BlockedError, CopycatError, FatalError, RetriableError
from copycat_agent.oauth import REGISTRY_OAUTH, Tokens, tokens_of
from copycat_agent.options import SchemaRegistryOptions, without_login

_WORDS_MAX = 400
_REGISTRIES_MAX = 64
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _UNPROCESSABLE = 401, 403, 404, 409, 422
_TOO_MANY, _TIME_OUT, _SERVER = 429, 408, 500
_ABSENT_CODES = (40401, 40402, 40403)
"""A registry's own codes for a subject, a version and a schema that it does not have."""
_ID_MAX = 2**32 - 1
_UP = "is it up? check converters.schema_registry.url; the agent asks again by itself"
_TRUST = "set converters.schema_registry.ca_file to the authority that signed its certificate; url needs a name that is in it"
_SHOW = "set cert_file and key_file under converters.schema_registry to a certificate that it trusts"
_CLIENT_REFUSED = (
    "CERTIFICATE_REQUIRED",
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_UNKNOWN",
    "HANDSHAKE_FAILURE",
)
"""TLS alerts with which a server refuses a client's certificate."""
_NOT_A_REGISTRY = "correct converters.schema_registry.url: some registries answer below a path, such as /apis/ccompat/v7"

_T = TypeVar("_T")


class RegisteredSchema(NamedTuple):
    """A schema with its id; `version` is its number within its subject, 0 if the registry did not say."""

    id: int
    schema: RegistrySchema
    version: int = 0


class SchemaRegistry:
    """One registry with one login. Thread-safe; performs one request at a time. Keeps no answers.

    Every method raises RetriableError if it does not answer, BlockedError if an operator has to act (a login), AbsentError for what it
    does not have, and FatalError if it refuses a schema, with its message.
    """

    def __init__(self, options: SchemaRegistryOptions) -> None:
        """Sends no request yet."""
        self._options = options
        self._tokens = None if options.oauth is None else tokens_of(options.oauth, None, REGISTRY_OAUTH)
        self._lock = threading.Lock()
        self.where = f"the schema registry at {without_login(options.url)}"

    def by_id(self, number: int) -> RegistrySchema:
        """Returns the schema that has this id."""
        return self._ask(lambda client: _written(client.get_schema(number)), f"schema {number}")

    def latest(self, subject: str) -> RegisteredSchema:
        """Returns the newest version of a subject."""
        return self._ask(lambda client: _registered(client.get_latest_version(subject)), f"subject {subject!r}")

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Returns one version of a subject."""
        return self._ask(lambda client: _registered(client.get_version(subject, version)), f"version {version} of subject {subject!r}")

    def find(self, subject: str, schema: RegistrySchema) -> RegisteredSchema:
        """Returns the registration of a schema in a subject."""
        what = f"this schema in subject {subject!r}"
        try:
            return self._ask(lambda client: _found(client, subject, schema, normal=False), what)
        except AbsentError:
            return self._ask(lambda client: _found(client, subject, schema, normal=True), what)  # perhaps in another notation

    def register(self, subject: str, schema: RegistrySchema) -> RegisteredSchema:
        """Returns the registration of a schema in a subject, and registers it if necessary."""

        def ask(client: SchemaRegistryClient) -> RegisteredSchema:
            return RegisteredSchema(_id(client.register_schema(subject, _schema(schema))), schema)

        return self._ask(ask, f"subject {subject!r}")

    def compatible(self, subject: str, schema: RegistrySchema) -> bool:
        """Returns whether a schema could become a subject's next version. Used by examinations."""
        try:
            return self._ask(lambda client: bool(client.test_compatibility(subject, _schema(schema))), f"subject {subject!r}")
        except AbsentError:
            return True  # the first version

    def _ask(self, question: Callable[[SchemaRegistryClient], _T], what: str) -> _T:
        if not self._lock.acquire(timeout=ANSWER_SECONDS):
            raise RetriableError(f"{self.where} has not answered another question yet", _UP)
        try:
            return self._in_time(question, what)
        finally:
            self._lock.release()

    def _in_time(self, question: Callable[[SchemaRegistryClient], _T], what: str) -> _T:
        """Runs the request on a thread, since the client bounds each step of an answer and not the whole."""
        if self._tokens is not None:
            self._tokens.token()  # before the request, because it has its own time-out
        outcome: list[tuple[_T | None, Exception | None]] = []

        def run() -> None:
            try:
                with _client(self._options, self._tokens) as client:  # too rare to keep a connection
                    outcome.append((question(client), None))
            except Exception as error:  # noqa: BLE001 - translated below
                outcome.append((None, error))

        thread = threading.Thread(target=run, name="schema-registry", daemon=True)
        thread.start()
        thread.join(ANSWER_SECONDS)
        if not outcome:
            raise RetriableError(f"{self.where} did not answer within {ANSWER_SECONDS:g} s", _UP)
        value, error = outcome[0]
        if isinstance(error, CopycatError):
            raise error
        if error is not None:
            raise self._translated(error, what) from None
        return value  # type: ignore[return-value]

    def _translated(self, error: Exception, what: str) -> CopycatError:
        if isinstance(error, SchemaRegistryError):
            refusal = self._refusal(int(error.http_status_code), _words(error), what)
            if isinstance(refusal, AbsentError):
                refusal.is_certain = error.error_code in _ABSENT_CODES
            return refusal
        if isinstance(error, KeyError | TypeError | AttributeError | ValueError | RecursionError):
            return BlockedError(f"{self.where} answers, but not as a schema registry does", _NOT_A_REGISTRY)
        reason = _clean(str(error)) or type(error).__name__
        if isinstance(error, CertificateError):
            return BlockedError(f"{self.where} cannot be asked: {reason}", f"correct converters.schema_registry.{error.option}")
        return self._unreachable(reason)

    def _unreachable(self, reason: str) -> CopycatError:
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            return BlockedError(f"{self.where} has a certificate that is refused: {reason}", _TRUST)
        if any(alert in reason for alert in _CLIENT_REFUSED):
            return BlockedError(f"{self.where} refuses this client's certificate, or wants one: {reason}", _SHOW)
        return RetriableError(f"{self.where} does not answer: {reason}", _UP)

    def _unauthorized(self) -> CopycatError:
        if self._tokens is not None:
            self._tokens.invalidate()
            return BlockedError(f"{self.where} refuses this token (HTTP 401)", f"correct {REGISTRY_OAUTH}")
        login = "refuses this login" if self._options.basic_auth else "wants a login"
        hint = "correct converters.schema_registry.basic_auth: {username, password}, or oauth"
        return BlockedError(f"{self.where} {login} (HTTP 401)", hint)

    def _refusal(self, status: int, words: str, what: str) -> CopycatError:
        """Returns the error for a response that is not a success, by what the caller has to do."""
        if status == _UNAUTHORIZED:
            return self._unauthorized()
        if status == _FORBIDDEN:
            return BlockedError(f"{self.where} does not let this login use {what} (HTTP 403)", "grant it there")
        if status == _NOT_FOUND:
            return AbsentError(f"{self.where} does not have {what}: {words}", "register the schema, or set auto_register: true")
        if status in (_CONFLICT, _UNPROCESSABLE):
            return FatalError(f"{self.where} refuses the schema for {what} (HTTP {status}): {words}", "correct the schema, or the subject")
        if status >= _SERVER or status in (_TOO_MANY, _TIME_OUT):
            return RetriableError(f"{self.where} cannot answer now (HTTP {status}): {words}", _UP)
        return BlockedError(f"{self.where} answers HTTP {status}: {words}", _NOT_A_REGISTRY)


class AbsentError(BlockedError):
    """The requested object does not exist. `is_certain`: a registry says so, and no server that would answer every question with 404."""

    is_certain = False

    def __reduce__(self) -> tuple[type[BlockedError], tuple[str, str]]:
        """Pickles as a BlockedError, which is all that callers need."""
        return BlockedError, (self.message, self.hint)


def registry_of(options: SchemaRegistryOptions) -> SchemaRegistry:
    """Returns the registry of these options: one per process, address and login."""
    with _guard:
        if len(_registries) >= _REGISTRIES_MAX:
            _registries.clear()
        return _registries.setdefault(options, SchemaRegistry(options))


_guard = threading.Lock()
_registries: dict[SchemaRegistryOptions, SchemaRegistry] = {}


def _client(options: SchemaRegistryOptions, tokens: Tokens | None) -> SchemaRegistryClient:
    login = None
    if options.basic_auth is not None:
        login = options.basic_auth.username, options.basic_auth.password.get_secret_value()
    address = urlsplit(options.url)
    context = tls_context(options) if address.scheme == "https" else None
    return connected(address.geturl(), login, context, None if tokens is None else lambda _: _bearer(options, tokens))


def _bearer(options: SchemaRegistryOptions, tokens: Tokens) -> dict[str, str]:
    """Returns the token under the client's names. The logical cluster, which it requires, exists only in Confluent Cloud."""
    assert options.oauth is not None
    fields = {"bearer.auth.token": tokens.token(), "bearer.auth.logical.cluster": options.oauth.logical_cluster or ""}
    pool = options.oauth.identity_pool
    return fields if pool is None else {**fields, "bearer.auth.identity.pool.id": pool}


def _schema(schema: RegistrySchema) -> Schema:
    references = [SchemaReference(name=one.name, subject=one.subject, version=one.version) for one in schema.references]
    return Schema(schema.text, schema.kind, references)


def _registered(answer: Any) -> RegisteredSchema:  # noqa: ANN401 - the client's RegisteredSchema
    return RegisteredSchema(_id(answer.schema_id), _written(answer.schema), int(answer.version or 0))


def _written(schema: Any) -> RegistrySchema:  # noqa: ANN401 - the client's Schema
    references = tuple(Reference(one.name, one.subject, one.version) for one in schema.references or ())
    return RegistrySchema(str(schema.schema_type or "AVRO"), _text(schema.schema_str), references)


def _id(answered: object) -> int:
    """Returns a schema's id. Raises ValueError for an invalid one, since records with it could not be read."""
    if type(answered) is not int or not 0 < answered <= _ID_MAX:
        raise ValueError("no id")
    return answered


def _text(answered: object) -> str:
    if not isinstance(answered, str):
        raise TypeError("no schema")
    return answered


def _found(client: SchemaRegistryClient, subject: str, schema: RegistrySchema, *, normal: bool) -> RegisteredSchema:
    answer = client.lookup_schema(subject, _schema(schema), normalize_schemas=normal)
    return RegisteredSchema(_id(answer.schema_id), schema, int(answer.version or 0))


def _words(error: SchemaRegistryError) -> str:
    """Returns the registry's own message, if it has a readable one."""
    words = str(error.error_message or "")
    return "no reason given" if words.startswith("Unknown Schema Registry Error") or not words else _clean(words)


def _clean(text: str) -> str:
    return without_login("".join(character if character.isprintable() else " " for character in text))[:_WORDS_MAX]


class OfflineRegistry(SchemaRegistry):
    """Treats every schema as registered, with id 0. Raises RetriableError for what only the registry knows."""

    def find(self, subject: str, schema: RegistrySchema) -> RegisteredSchema:
        del subject
        return RegisteredSchema(0, schema)

    def register(self, subject: str, schema: RegistrySchema) -> RegisteredSchema:
        """Registers nothing."""
        return self.find(subject, schema)

    def _ask(self, question: Callable[..., Any], what: str) -> NoReturn:
        del question
        raise RetriableError(f"only the schema registry knows {what}")
