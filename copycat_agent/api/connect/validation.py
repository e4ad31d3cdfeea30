"""`config/validate`: what is wrong with a configuration, key by key, without a connector of it.

References (`${env:NAME}`, `${file:/path}`) are left as they are: who asks gets no value of this host's. Of its files only schemas are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from copycat_agent.api.connect.calls import Call, Reply, WorkerView
from copycat_agent.api.connect.config_keys import ConfigKey
from copycat_agent.api.connect.flat_config import CONNECTOR_CLASS, THEIRS, as_text
from copycat_agent.api.connect.nested_config import keys_below, nested
from copycat_agent.api.connect.plugin_views import keys_of
from copycat_agent.api.guard import StatusError
from copycat_agent.definitions import Finding, findings_of
from copycat_agent.errors import DefinitionError
from copycat_agent.options import HIDDEN, AgentOptions
from copycat_agent.sources import SOURCES

KEYS_MAX = 1_000
"""Of one configuration. What nobody knows is compared with all that is known."""
KEY_CHARACTERS_MAX = 300


def validate(worker: WorkerView, call: Call) -> Reply:
    """Every key with its definition, its value and what is wrong with it. 200 whatever is."""
    config = _texts(call.body)
    chosen, asked = config.get(CONNECTOR_CLASS), call.named["plugin"]
    if chosen is None:
        raise StatusError(HTTPStatus.BAD_REQUEST, "Connector config contains no connector type", f"set {CONNECTOR_CLASS}")
    if chosen != asked:
        words = f"Included connector type {chosen} does not match request type {asked}"
        raise StatusError(HTTPStatus.BAD_REQUEST, words)
    keys = keys_of(chosen) if chosen in SOURCES.names() else None
    if keys is None:
        words = f"Failed to find any class that implements Connector and which name matches {chosen}, available connectors are: "
        raise StatusError(HTTPStatus.INTERNAL_SERVER_ERROR, words + ", ".join(sorted(SOURCES)))
    known = {key.name: key for key in (*keys, *keys_below(config))}
    errors = _errors(config, known, worker.control.options)
    unnamed = [name for name in dict.fromkeys((*config, *errors)) if name not in known]
    every = [*known.values(), *(ConfigKey(name, "STRING", False, None, "", name.partition(".")[0]) for name in unnamed)]
    entries = [_entry(key, order, config.get(key.name), errors.get(key.name, [])) for order, key in enumerate(every, 1)]
    count = sum(len(each) for each in errors.values())
    groups = list(dict.fromkeys(key.group for key in every))
    return Reply({"name": chosen, "error_count": count, "groups": groups, "configs": entries})


def _texts(body: object) -> dict[str, str]:
    """The configuration; numbers and booleans become their texts, and null says nothing."""
    if not isinstance(body, dict) or any(isinstance(value, list | dict) for value in body.values()):
        raise StatusError(HTTPStatus.BAD_REQUEST, "the body is no map of texts")
    if len(body) > KEYS_MAX or any(len(key) > KEY_CHARACTERS_MAX for key in body):
        words = f"the configuration has more than {KEYS_MAX} keys, or one of more than {KEY_CHARACTERS_MAX} characters"
        raise StatusError(HTTPStatus.BAD_REQUEST, words)
    return {key: as_text(value) for key, value in body.items() if value is not None}


def _errors(config: Mapping[str, str], known: Mapping[str, ConfigKey], agent: AgentOptions) -> dict[str, list[str]]:
    """What is wrong, by key."""
    try:
        content = json.dumps(nested(config, known), ensure_ascii=False).encode("utf-8", "replace")
        findings: Iterable[Finding] = findings_of(content, agent)
    except (DefinitionError, RecursionError) as error:
        words = error.problems[0].text if isinstance(error, DefinitionError) else "it is too deep"
        raise StatusError(HTTPStatus.BAD_REQUEST, f"the configuration cannot be read: {words}") from None
    found: dict[str, list[str]] = {}
    for one in findings:
        name = ".".join(map(str, one.loc))
        found.setdefault(THEIRS.get(name, name), []).append(f"{one.text}; {one.hint}" if one.hint else one.text)
    return found


def _entry(key: ConfigKey, order: int, given: str | None, errors: list[str]) -> dict[str, Any]:
    """A key's definition and value. A password is not told again."""
    value = key.default if given is None else HIDDEN if key.type == "PASSWORD" else given
    told = {"name": key.name, "value": value, "recommended_values": list(key.choices), "errors": errors, "visible": True}
    return {"definition": key.document(order), "value": told}
