"""Creates, changes and deletes connectors for clients, as files in the agent's directory of definitions.

A client's configuration is compared with the one that the file shows. Only differences are written, so that comments, references to secrets
and spelling stay, and `********` keeps the value that it hides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from copycat_agent.api import is_name
from copycat_agent.api.connect.calls import Call, Reply, WorkerView
from copycat_agent.api.connect.client_limits import Values, complaints, with_closed_of
from copycat_agent.api.connect.connector_views import info_document, known
from copycat_agent.api.connect.flat_config import CONNECTOR_CLASS, THEIRS, flat_config, flat_kafka
from copycat_agent.api.connect.nested_config import SAID_TWICE, nested, said_twice, without_parts_of
from copycat_agent.api.connect.validation import invalid, keys_known, refuse_too_much, texts_of
from copycat_agent.api.guard import StatusError
from copycat_agent.definitions import findings_of, load_content
from copycat_agent.definitions.formatting.editing import UneditableError, edited, is_same, new_text
from copycat_agent.definitions.yaml_tree import FILE_BYTES_MAX
from copycat_agent.display import HIDDEN
from copycat_agent.errors import BusyError, DefinitionError, UnknownConnectorError
from copycat_agent.options import AgentOptions
from copycat_agent.small_files import read_small_file
from copycat_agent.worker.handle import Target

_TARGETS: dict[str, Target] = {"RUNNING": "running", "PAUSED": "paused", "STOPPED": "stopped"}
_BODY = "the body is not of the form {name: ..., config: {...}}"


class _DefinitionFile(NamedTuple):
    """A definition's file: its path, its contents, and these as a configuration."""

    path: Path
    content: bytes
    config: Mapping[str, str]


def refuse_unless_writable(worker: WorkerView) -> None:
    """Raises StatusError 405, which says where definitions are, unless `api.connect.writable` is set."""
    connect = worker.control.options.api.connect
    if connect is None or not connect.writable:
        where = worker.control.view().directory
        words = (
            f"connectors of this agent are defined by files in {where}: change them there" if where else "this agent takes no definitions"
        )
        hint = "the agent reloads by itself, see: copycat check; or set api.connect.writable in agent.yaml"
        raise StatusError(HTTPStatus.METHOD_NOT_ALLOWED, words, hint)


def create(worker: WorkerView, call: Call) -> Reply:
    """Creates a connector, in the initial state that the body asks for. Answers 201 with its address."""
    body = call.body
    if not isinstance(body, dict) or body.keys() - {"name", "config", "initial_state"}:
        raise StatusError(HTTPStatus.BAD_REQUEST, _BODY)
    state = body.get("initial_state") or "RUNNING"
    target = _TARGETS.get(str(state).upper())
    if target is None:
        raise StatusError(HTTPStatus.BAD_REQUEST, f"initial_state is none of {', '.join(_TARGETS)}")
    given = body.get("name")
    name = "" if given is None else str(given)
    config = _with_name(texts_of(body.get("config"), has_nulls=False), name)
    with_class(config)
    try:
        worker.control.status(name)
    except UnknownConnectorError:
        return _create(worker, name, config, target)
    raise StatusError(HTTPStatus.CONFLICT, f"Connector {name} already exists")


def put_config(worker: WorkerView, call: Call) -> Reply:
    """Replaces the whole configuration of a connector, or creates it."""
    config = _with_name(texts_of(call.body, has_nulls=False), call.connector)
    with_class(config)
    try:
        file = _file_of(worker, call.connector)
    except UnknownConnectorError:
        return _create(worker, call.connector, config, "running")
    return _change(worker, call.connector, file, config)


def patch_config(worker: WorkerView, call: Call) -> Reply:
    """Replaces some keys of a configuration, with all their parts; null deletes one."""
    known(worker, call)
    file = _file_of(worker, call.connector)
    given = texts_of(call.body)
    body = call.body if isinstance(call.body, dict) else {}
    left = without_parts_of(given, file.config, keys_known(file.config))
    config = _with_name({**{key: value for key, value in left.items() if key not in body}, **given}, call.connector)
    with_class(config)
    return _change(worker, call.connector, file, config)


def delete(worker: WorkerView, call: Call) -> Reply:
    """Removes the file. The connector first settles what is in flight; its offsets stay."""
    known(worker, call)
    path = Path(worker.control.path(call.connector))
    worker.control.change_definition(call.connector, _content(path), None)
    return Reply(None, HTTPStatus.NO_CONTENT)


def with_class(config: Mapping[str, str]) -> None:
    """Raises StatusError 400 for a configuration without a class, or with an unknown one."""
    if CONNECTOR_CLASS not in config:
        told = ", ".join(f"{key}={value}" for key, value in config.items() if key == "name")
        raise StatusError(HTTPStatus.BAD_REQUEST, f"Connector config {{{told}}} contains no connector type")
    keys_known(config)


def _with_name(config: Mapping[str, str], name: str) -> dict[str, str]:
    """Returns the configuration with the name of the address. Raises StatusError 400 if it names another one."""
    if config.get("name", name) != name:
        words = f"Connector name configuration ({config['name']}) doesn't match connector name in the URL ({name})"
        raise StatusError(HTTPStatus.BAD_REQUEST, words)
    return {**config, "name": name}


def _file_of(worker: WorkerView, name: str) -> _DefinitionFile:
    """Reads the present file. Raises BusyError if it differs from the running definition, which is what the client has seen."""
    running = worker.control.definition(name)
    path = Path(worker.control.path(name))
    content = _content(path)
    loaded = load_content(path, content, worker.control.options).definition
    if loaded != running:
        words = f"{path.name} holds something else than what runs as {name}"
        raise BusyError(words, "the agent takes over what is good in a few seconds; see: copycat check")
    return _DefinitionFile(path, content, flat_config(running))


def _content(path: Path) -> bytes:
    try:
        return read_small_file(path, FILE_BYTES_MAX)
    except OSError as error:
        raise BusyError(f"{path.name} cannot be read now: {error.strerror}", "try again") from None


def _create(worker: WorkerView, name: str, config: Mapping[str, str], target: Target) -> Reply:
    shown = nested(flat_kafka(worker.control.options.kafka), keys_known(config))
    wanted = {key: value for key, value in _checked(worker, {"kafka": shown.get("kafka", {})}, config).items() if key != "kafka"}
    if not is_name(name) or name == "agent":
        raise invalid(["name: 1 to 63 of a-z, 0-9 and -, not - first, and not agent, whose file would have a meaning of its own"])
    _write(worker, name, None, _text_of(lambda: new_text(wanted), worker.control.options), target)
    return Reply(info_document(worker, name), HTTPStatus.CREATED, f"/connectors/{name}")


def _change(worker: WorkerView, name: str, file: _DefinitionFile, config: Mapping[str, str]) -> Reply:
    shown = nested(file.config, keys_known(file.config))
    wanted = _checked(worker, shown, config)
    if not is_same(shown, wanted):
        content = _text_of(lambda: edited(file.content, shown, wanted), worker.control.options)
        _write(worker, name, file.content, content)
    return Reply(info_document(worker, name))


def _checked(worker: WorkerView, shown: Values, config: Mapping[str, str]) -> dict[str, object]:
    """Returns the values of the new definition. Raises StatusError 400 for values that clients may not set, before any file is opened."""
    covered = [key for key, value in config.items() if value == HIDDEN and any(other.startswith(f"{key}.") for other in config)]
    if covered:
        raise invalid([f"{key}: it is hidden as a whole; leave what is in it, or say all of it" for key in covered])
    keys = keys_known(config)
    if twice := said_twice(config, keys):
        raise invalid([f"{key}: {SAID_TWICE}" for key in twice])
    wanted = nested(config, keys)
    refuse_too_much(wanted)
    connect = worker.control.options.api.connect
    if found := [_message(option, why) for option, why in complaints(shown, wanted, connect.roots if connect else ())]:
        raise invalid(found)
    return with_closed_of(shown, wanted)


def _text_of(make: Callable[[], str], agent: AgentOptions) -> bytes:
    """Returns the file's new contents. Raises StatusError 400 if it cannot be edited so, or is no valid definition."""
    try:
        content = make().encode("utf-8", "replace")
        found = findings_of(content, agent)
    except UneditableError as error:
        raise invalid([_message(error.place, error.text)]) from None
    if found:
        raise invalid([_message(".".join(map(str, one.loc)), f"{one.text}; {one.hint}" if one.hint else one.text) for one in found])
    return content


def _message(option: str, why: str) -> str:
    return f"{THEIRS.get(option, option)}: {why}" if option else why


def _write(worker: WorkerView, name: str, before: bytes | None, content: bytes, target: Target | None = None) -> None:
    """Writes and runs a definition. Raises StatusError 400 for problems with other definitions, or with files that it refers to."""
    try:
        worker.control.change_definition(name, before, content, target)
    except DefinitionError as error:
        raise invalid([f"{Path(one.path).name}: {one.text}; {one.hint}" if one.hint else f"{one.text}" for one in error.problems]) from None
