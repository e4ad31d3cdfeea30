"""`config/validate`: checks a configuration key by key, without creating a connector.

References (`${env:NAME}`, `${file:/path}`) are not resolved, so that clients get no values of this host. The only files read are schemas
that the connector's definition names already.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from copycat_agent.api.connect.calls import Call, Reply, WorkerView
from copycat_agent.api.connect.client_limits import complaints, files_named
from copycat_agent.api.connect.config_keys import ConfigKey
from copycat_agent.api.connect.flat_config import CONNECTOR_CLASS, THEIRS, as_text, flat_config, flat_kafka
from copycat_agent.api.connect.nested_config import SAID_TWICE, keys_below, nested, said_twice
from copycat_agent.api.connect.plugin_views import keys_of
from copycat_agent.api.guard import StatusError
from copycat_agent.definitions import Finding, findings_of
from copycat_agent.definitions.formatting import flow
from copycat_agent.definitions.formatting.editing import NO_NUMBER, leaves, numbers_lost
from copycat_agent.errors import DefinitionError, UnknownConnectorError
from copycat_agent.options import HIDDEN
from copycat_agent.sources import SOURCES

KEYS_MAX = 1_000
"""Most keys of a configuration. An unknown key is compared with all known ones."""
KEY_CHARACTERS_MAX = 300
VALUES_MAX = 5_000
"""Most values of a configuration, including those within JSON."""
STEPS_MAX = 100
"""Most steps. An unknown step is searched in all packages, which takes 10 ms."""
ERRORS_TOLD = 100
"""Most errors in a message."""


def validate(worker: WorkerView, call: Call) -> Reply:
    """Returns every key with its definition, value and errors. The status is 200, whatever the errors."""
    config = texts_of(call.body)
    chosen, asked = config.get(CONNECTOR_CLASS), call.named["plugin"]
    if chosen is None:
        raise StatusError(HTTPStatus.BAD_REQUEST, "Connector config contains no connector type", f"set {CONNECTOR_CLASS}")
    if chosen != asked:
        words = f"Included connector type {chosen} does not match request type {asked}"
        raise StatusError(HTTPStatus.BAD_REQUEST, words)
    known = keys_known(config, HTTPStatus.INTERNAL_SERVER_ERROR)
    errors = _errors(worker, config, known)
    unnamed = [name for name in dict.fromkeys((*config, *errors)) if name not in known]
    every = [*known.values(), *(ConfigKey(name, "STRING", False, None, "", name.partition(".")[0]) for name in unnamed)]
    entries = [_entry(key, order, config.get(key.name), errors.get(key.name, [])) for order, key in enumerate(every, 1)]
    count = sum(len(each) for each in errors.values())
    groups = list(dict.fromkeys(key.group for key in every))
    return Reply({"name": chosen, "error_count": count, "groups": groups, "configs": entries})


def texts_of(body: object, *, has_nulls: bool = True) -> dict[str, str]:
    """Returns a client's configuration as texts; keys with null are left out. Raises StatusError 400, without `has_nulls` for null, too."""
    if not isinstance(body, dict) or any(isinstance(value, list | dict) for value in body.values()):
        raise StatusError(HTTPStatus.BAD_REQUEST, "the configuration is no map of texts")
    if len(body) > KEYS_MAX or any(len(key) > KEY_CHARACTERS_MAX for key in body):
        words = f"the configuration has more than {KEYS_MAX} keys, or one of more than {KEY_CHARACTERS_MAX} characters"
        raise StatusError(HTTPStatus.BAD_REQUEST, words)
    if not has_nulls and None in body.values():
        raise invalid(["Null value can not be supplied as the configuration value."])
    return {key: as_text(value) for key, value in body.items() if value is not None}


def refuse_too_much(wanted: Mapping[str, object]) -> None:
    """Raises StatusError 400 for a configuration that would take long to check: JSON in a value may be much larger than the keys."""
    steps = wanted.get("transforms")
    if isinstance(steps, list) and len(steps) > STEPS_MAX:
        raise invalid([f"transforms: more than {STEPS_MAX} steps"])
    if any(number >= VALUES_MAX for number, _ in enumerate(leaves(wanted))):
        raise invalid([f"it has more than {VALUES_MAX} values"])


def keys_known(config: Mapping[str, str], status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> dict[str, ConfigKey]:
    """Returns the keys of a configuration with a class, by name. Raises StatusError with `status` for an unknown class."""
    chosen = config[CONNECTOR_CLASS]
    keys = keys_of(chosen) if chosen in SOURCES.names() else None
    if keys is None:
        words = f"Failed to find any class that implements Connector and which name matches {chosen}, available connectors are: "
        raise StatusError(status, words + ", ".join(sorted(SOURCES)))
    return {key.name: key for key in (*keys, *keys_below(config))}


def invalid(found: Sequence[str]) -> StatusError:
    """Returns the error for an invalid configuration, with Connect's message and the errors `found`."""
    lines = [f"Connector configuration is invalid and contains the following {len(found)} error(s):", *found[:ERRORS_TOLD]]
    end = "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
    return StatusError(HTTPStatus.BAD_REQUEST, "\n".join((*lines, end)))


def _errors(worker: WorkerView, config: Mapping[str, str], known: Mapping[str, ConfigKey]) -> dict[str, list[str]]:
    """Returns the errors by key. If clients may not set a value, the checks end there, before any file is opened."""
    options = worker.control.options
    wanted = nested(config, known)
    refuse_too_much(wanted)
    found: dict[str, list[str]] = {key: [SAID_TWICE] for key in said_twice(config, known)}
    for option, why in _limits(worker, config, wanted):
        found.setdefault(THEIRS.get(option, option), []).append(why)
    for option in numbers_lost(wanted):
        found.setdefault(THEIRS.get(option, option), []).append(NO_NUMBER)
    if found:
        return found
    try:
        content = flow(wanted).encode("utf-8", "replace")
        findings: Iterable[Finding] = findings_of(content, options)
    except (DefinitionError, RecursionError) as error:
        words = error.problems[0].text if isinstance(error, DefinitionError) else "it is too deep"
        raise StatusError(HTTPStatus.BAD_REQUEST, f"the configuration cannot be read: {words}") from None
    for one in findings:
        name = ".".join(map(str, one.loc))
        found.setdefault(THEIRS.get(name, name), []).append(f"{one.text}; {one.hint}" if one.hint else one.text)
    return found


def _limits(worker: WorkerView, config: Mapping[str, str], wanted: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yields options that clients may not set, and why. If they may define no connectors, only files of schemas are checked."""
    before = flat_kafka(worker.control.options.kafka)
    with contextlib.suppress(UnknownConnectorError):
        before = flat_config(worker.control.definition(config.get("name", "")))
    shown = nested(before, keys_known({CONNECTOR_CLASS: config[CONNECTOR_CLASS], **before}))
    connect = worker.control.options.api.connect
    if connect is not None and connect.writable:
        yield from complaints(shown, wanted, connect.roots)
    else:
        yield from files_named(shown, wanted)


def _entry(key: ConfigKey, order: int, given: str | None, errors: list[str]) -> dict[str, Any]:
    """Returns a key's definition and value. Passwords are hidden."""
    value = key.default if given is None else HIDDEN if key.type == "PASSWORD" else given
    told = {"name": key.name, "value": value, "recommended_values": list(key.choices), "errors": errors, "visible": True}
    return {"definition": key.document(order), "value": told}
