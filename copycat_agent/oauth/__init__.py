"""OAuth access tokens, one per process and login: for Kafka's clients and the schema registry's; and what each way to a token needs."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from copycat_agent.oauth.token_cache import Tokens, tokens_of
from copycat_agent.oauth.token_requests import where_of
from copycat_agent.options import AssertionOptions, TokenOptions

__all__ = ["KAFKA_OAUTH", "REGISTRY_OAUTH", "Tokens", "token_problems", "tokens_of", "where_of"]

KAFKA_OAUTH, REGISTRY_OAUTH = "kafka.security.oauth", "converters.schema_registry.oauth"
"""Dotted options under which logins stand."""


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
