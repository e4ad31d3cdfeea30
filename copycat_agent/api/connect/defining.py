"""Connectors created, changed and deleted by clients: as files of the directory that the agent runs.

A configuration that comes back is compared with what the file shows as one. Only what differs is written, so that comments, references to
secrets and spelling stay, and `********` means what it hides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.api import is_name
from copycat_agent.api.connect.calls import Call, Reply, WorkerView
from copycat_agent.api.connect.client_limits import Values, complaints, with_kafka_of
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
from copycat_agent.small_files import read_small_file

if TYPE_CHECKING:
    from copycat_agent.options import AgentOptions
    from copycat_agent.worker.handle import Target

_TARGETS: dict[str, Target] = {"RUNNING": "running", "PAUSED": "paused", "STOPPED": "stopped"}
_BODY = "the body is not of the form {name: ..., config: {...}}"


class _Standing(NamedTuple):
    """A definition's file: where it is, what it holds, and that as a configuration."""

    path: Path
    content: bytes
    config: Mapping[str, str]


def refuse_unless_writable(worker: WorkerView) -> None:
    """Raise 405 where definitions are not changed from here, with the words that say where they are."""
    connect = worker.control.options.api.connect
    if connect is None or not connect.writable:
        where = worker.control.view().directory
        words = (
            f"connectors of this agent are defined by files in {where}: change them there" if where else "this agent takes no definitions"
        )
        hint = "the agent reloads by itself, see: copycat check; or set api.connect.writable in agent.yaml"
        raise StatusError(HTTPStatus.METHOD_NOT_ALLOWED, words, hint)


def create(worker: WorkerView, call: Call) -> Reply:
    """A new connector, in the state that the body asks for from its beginning on. 201 with its address."""
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
    """The whole configuration of a connector, which is created where there is none."""
    config = _with_name(texts_of(call.body, has_nulls=False), call.connector)
    with_class(config)
    try:
        standing = _standing(worker, call.connector)
    except UnknownConnectorError:
        return _create(worker, call.connector, config, "running")
    return _change(worker, call.connector, standing, config)


def patch_config(worker: WorkerView, call: Call) -> Reply:
    """Some keys of a configuration, each with all that it had in parts; null deletes one."""
    known(worker, call)
    standing = _standing(worker, call.connector)
    given = texts_of(call.body)
    body = call.body if isinstance(call.body, dict) else {}
    left = without_parts_of(given, standing.config, keys_known(standing.config))
    config = _with_name({**{key: value for key, value in left.items() if key not in body}, **given}, call.connector)
    with_class(config)
    return _change(worker, call.connector, standing, config)


def delete(worker: WorkerView, call: Call) -> Reply:
    """Remove the file. The connector settles what is in flight first; its offsets stay."""
    known(worker, call)
    path = Path(worker.control.path(call.connector))
    worker.control.change_definition(call.connector, _content(path), None)
    return Reply(None, HTTPStatus.NO_CONTENT)


def with_class(config: Mapping[str, str]) -> None:
    """Raise 400 for a configuration whose connectors nobody knows."""
    if CONNECTOR_CLASS not in config:
        told = ", ".join(f"{key}={value}" for key, value in config.items() if key == "name")
        raise StatusError(HTTPStatus.BAD_REQUEST, f"Connector config {{{told}}} contains no connector type")
    keys_known(config)


def _with_name(config: Mapping[str, str], name: str) -> dict[str, str]:
    """The configuration with the name that the address says, which it may say itself."""
    if config.get("name", name) != name:
        words = f"Connector name configuration ({config['name']}) doesn't match connector name in the URL ({name})"
        raise StatusError(HTTPStatus.BAD_REQUEST, words)
    return {**config, "name": name}


def _standing(worker: WorkerView, name: str) -> _Standing:
    """The file as it is now. BusyError where it holds something else than what runs: the client has seen that."""
    running = worker.control.definition(name)
    path = Path(worker.control.path(name))
    content = _content(path)
    loaded = load_content(path, content, worker.control.options).definition
    if loaded != running:
        words = f"{path.name} holds something else than what runs as {name}"
        raise BusyError(words, "the agent takes over what is good in a few seconds; see: copycat check")
    return _Standing(path, content, flat_config(running))


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


def _change(worker: WorkerView, name: str, standing: _Standing, config: Mapping[str, str]) -> Reply:
    shown = nested(standing.config, keys_known(standing.config))
    wanted = _checked(worker, shown, config)
    if not is_same(shown, wanted):
        content = _text_of(lambda: edited(standing.content, shown, wanted), worker.control.options)
        _write(worker, name, standing.content, content)
    return Reply(info_document(worker, name))


def _checked(worker: WorkerView, shown: Values, config: Mapping[str, str]) -> dict[str, object]:
    """What a definition would say. 400 where a client may not say it; nothing has been opened or looked up for it by then."""
    covered = [key for key, value in config.items() if value == HIDDEN and any(other.startswith(f"{key}.") for other in config)]
    if covered:
        raise invalid([f"{key}: it is hidden as a whole; leave what is in it, or say all of it" for key in covered])
    keys = keys_known(config)
    if twice := said_twice(config, keys):
        raise invalid([f"{key}: {SAID_TWICE}" for key in twice])
    wanted = nested(config, keys)
    refuse_too_much(wanted)
    connect = worker.control.options.api.connect
    if found := [_told(option, why) for option, why in complaints(shown, wanted, connect.roots if connect else ())]:
        raise invalid(found)
    return with_kafka_of(shown, wanted)


def _text_of(make: Callable[[], str], agent: AgentOptions) -> bytes:
    """The file's new content. 400 for one that cannot be made, or that says what no definition may say."""
    try:
        content = make().encode("utf-8", "replace")
        found = findings_of(content, agent)
    except UneditableError as error:
        raise invalid([_told(error.place, error.text)]) from None
    if found:
        raise invalid([_told(".".join(map(str, one.loc)), f"{one.text}; {one.hint}" if one.hint else one.text) for one in found])
    return content


def _told(option: str, why: str) -> str:
    return f"{THEIRS.get(option, option)}: {why}" if option else why


def _write(worker: WorkerView, name: str, before: bytes | None, content: bytes, target: Target | None = None) -> None:
    """Have it written and run. What `check` finds beyond the single definition, and what references to files lack, is 400, too."""
    try:
        worker.control.change_definition(name, before, content, target)
    except DefinitionError as error:
        told = [f"{Path(one.path).name}: {one.text}; {one.hint}" if one.hint else f"{one.text}" for one in error.problems]
        raise invalid(told) from None
