"""Checks schema registries, layer by layer: the first failure explains the rest. Sends the converters' requests; registers nothing."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from copycat_agent.converters.schema_options import CertificateError, tls_context
from copycat_agent.encoding.encoder import Encoder
from copycat_agent.errors import CopycatError, DataError
from copycat_agent.oauth import REGISTRY_OAUTH, tokens_of, where_of
from copycat_agent.options import Definition, SchemaRegistryOptions, without_login
from copycat_agent.workbench.doctor.network import STEP_SECONDS, NetworkTrouble, reach
from copycat_agent.workbench.doctor.steps import CheckStep, Notes, side_by_side

_PORTS = {"http": 80, "https": 443}


@dataclass(slots=True)
class UsedRegistry:
    """A registry with one address and login. `converters`: label (connector and part), converter, and the topics it writes to."""

    options: SchemaRegistryOptions
    converters: list[tuple[str, Any, tuple[str, ...]]] = field(default_factory=list)


def registries(definitions: Iterable[Definition]) -> list[UsedRegistry]:
    """Returns the distinct registries that converters use."""
    found: list[UsedRegistry] = []
    for definition in definitions:
        options = definition.converters.schema_registry
        parts = [(part, getattr(definition.converters, part)) for part in ("key", "value")]
        wanted = [(part, each) for part, each in parts if hasattr(each, "subject_strategy")]
        if options is None or not wanted:
            continue
        used = next((one for one in found if one.options == options), None)
        if used is None:
            used = UsedRegistry(options)
            found.append(used)
        encoder = Encoder(definition)
        for part, each in wanted:
            topics = encoder.literal_topics or definition.record.allowed_topics or (("",) if each.subject else ())
            used.converters.append((f"{definition.name}, {part}", getattr(encoder.layout, f"convert_{part}"), topics))
    return found


def examine_registries(found: Sequence[UsedRegistry]) -> list[CheckStep]:
    """Returns the steps of all registries, which are checked in parallel."""
    return [step for steps in side_by_side(_examine, found, "registry") for step in steps]


def _examine(used: UsedRegistry) -> list[CheckStep]:
    notes = Notes(f"schema registry {without_login(used.options.url)}")
    try:
        _reach(notes, used.options)
        _log_in(notes, used.options)
    except NetworkTrouble as trouble:
        notes.fail(trouble.layer, trouble.message, trouble.hint)
        notes.not_asked("subjects")
        return notes.steps
    for label, converter, topics in used.converters:
        if not topics:
            notes.skip("subject", f"{label}: goes by a topic that is made from data, so it is known with the first record only")
        for topic in topics:
            if not _ask(notes, label, converter, topic):
                return notes.steps
    return notes.steps


def _reach(notes: Notes, options: SchemaRegistryOptions) -> None:
    """Checks name, connection and certificate. Raises `NetworkTrouble`."""
    address = urlsplit(options.url)
    host = address.hostname or ""
    port = address.port or _PORTS[address.scheme]
    try:
        connection, ip = reach(host, port)
    except NetworkTrouble as trouble:
        fix = (
            f"getent hosts {host}; correct converters.schema_registry.url" if trouble.layer == "dns" else f"is it up? nc -vz {host} {port}"
        )
        raise NetworkTrouble(trouble.layer, trouble.message, fix) from None
    with connection:
        notes.ok("dns", ip)
        notes.ok("tcp", "connected")
        if address.scheme != "https":
            return
        connection.settimeout(STEP_SECONDS)
        try:
            with tls_context(options).wrap_socket(connection, server_hostname=host) as secured:
                notes.ok("tls", f"{secured.version()}, certificate good")
        except CertificateError as error:
            raise NetworkTrouble("tls", str(error), f"correct converters.schema_registry.{error.option}") from None
        except ssl.SSLCertVerificationError as error:
            fix = "set converters.schema_registry.ca_file to the authority that signed its certificate, and use the name in it"
            raise NetworkTrouble("tls", f"its certificate is refused: {error.verify_message}", fix) from None
        except OSError as error:
            reason = getattr(error, "reason", "") or error.strerror or "no answer"
            raise NetworkTrouble(
                "tls", f"the TLS handshake fails: {reason}", "is this its https port? if it is not, write http://"
            ) from None


def _log_in(notes: Notes, options: SchemaRegistryOptions) -> None:
    """Checks that a token comes, if one is needed; the first request shows whether it is accepted. Raises `NetworkTrouble`."""
    if options.oauth is None:
        return
    try:
        tokens_of(options.oauth, None, REGISTRY_OAUTH).token()
    except CopycatError as error:
        raise NetworkTrouble("login", error.message, error.hint) from None
    notes.ok("login", f"a token from {where_of(options.oauth)}")


def _ask(notes: Notes, label: str, converter: Any, topic: str) -> bool:  # noqa: ANN401 - a converter with schemas
    """Checks the schema of one topic. Returns False for an error that all other topics would have as well."""
    try:
        notes.ok("subject", f"{label}: {converter.examine(topic)}")
    except DataError:
        notes.skip("subject", f"{label}: its schema is made from the files, so it is known with the first record only")
    except CopycatError as error:
        is_login = "(HTTP 401)" in error.message
        notes.fail("login" if is_login else "subject", f"{label}: {error.message}", error.hint)
        return not is_login
    return True
