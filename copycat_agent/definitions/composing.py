"""Composes one definition or agent.yaml: the options of the packages of sources, transforms and converters, and the rest.

Nothing raises; errors go to the reader's findings, and then the result is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from copycat_agent.converters import CONVERTERS
from copycat_agent.definitions.kafka_rules import (
    check_api,
    check_exactly_once,
    check_kafka,
    check_positions,
    check_spark,
    is_address,
    under,
)
from copycat_agent.definitions.loop_rules import check_loop
from copycat_agent.definitions.models import Loc, fields_by_key
from copycat_agent.definitions.options_reader import FAILED, ONLINE, InvalidValue, Reader
from copycat_agent.definitions.problems import action_here, missing, nearest
from copycat_agent.definitions.record_rules import (
    check_converters,
    check_dead_letters,
    check_errors,
    check_files,
    check_queries,
    check_record,
    check_timestamp,
    with_implied,
)
from copycat_agent.definitions.secret_values import Masker
from copycat_agent.definitions.source_rules import check_format, check_ordering, check_source
from copycat_agent.definitions.yaml_tree import MappingNode, Scalar, SequenceNode, is_null
from copycat_agent.errors import DefinitionError, Problem
from copycat_agent.formats.records import FORMATS
from copycat_agent.options import (
    FROM_YAML,
    AgentOptions,
    ConvertersOptions,
    Definition,
    KafkaOptions,
    Options,
    RecordOptions,
    SecretStr,
    TypeAdapter,
    ValidationError,
)
from copycat_agent.registry import FAULT, Registry, UnusablePart, described
from copycat_agent.sinks import SINKS
from copycat_agent.sources import SOURCES
from copycat_agent.transforms import TRANSFORMS, StepOptions
from copycat_agent.transforms.base import action_keys

_O = TypeVar("_O", bound=Options)


def compose(reader: Reader, agent: AgentOptions) -> Definition | None:
    """Returns the definition in the document, with the agent's Kafka options under its own; None if there are findings."""
    reader.unknown_keys(Definition, ())
    own = {"source": _source, "transforms": _transforms, "converters": _converters, "sink": _sink, "record": _record}
    simple = [name for name in Definition.model_fields if name not in own and name != "kafka"]
    parts: dict[str, Any] = {name: read(reader) for name, read in own.items()} | {name: reader.field(Definition, name) for name in simple}
    parts["kafka"] = _kafka(reader, agent.kafka)
    _check(reader, parts)
    if parts["delivery"] is not FAILED and parts["kafka"] is not FAILED and _writes_topics(parts):
        check_exactly_once(reader, parts["delivery"], parts["kafka"], under(agent.kafka, parts["kafka"]))
    if parts["delivery"] is not FAILED:
        check_positions(reader, parts["delivery"], agent.agent_id)
    if parts["source"] is not FAILED and parts["kafka"] is not FAILED:
        written = parts["record"] if parts["record"] is not FAILED and _writes_topics(parts) else None
        check_loop(
            reader, parts["source"], written, None if parts["errors"] is FAILED else parts["errors"], under(agent.kafka, parts["kafka"])
        )
    if reader.offline:
        parts |= {name: Definition.model_fields[name].get_default(call_default_factory=True) for name in ONLINE if parts[name] is FAILED}
    if reader.findings or any(part is FAILED for part in parts.values()):
        return None
    definition = Definition(**parts)
    hide_secrets(reader, definition)
    definition.keep_secret(reader.in_records)
    # only now: options that are hidden in this file stay hidden in the merged ones
    whole = with_implied(definition).model_copy(update={"kafka": under(agent.kafka, definition.kafka)})
    return whole.model_copy(update={"source": whole.source.completed(whole)})


def _check(reader: Reader, parts: Mapping[str, Any]) -> None:
    if parts["source"] is not FAILED:
        if parts["source"].type in SOURCES.built_in:
            check_source(reader, parts["source"])
            if (read := getattr(parts["source"], "kafka", None)) is not None:
                check_kafka(reader, read, read, ("source", "kafka"))
        else:  # in other packages options of these names may mean anything
            check_format(reader, parts["source"])
        if parts["delivery"] is not FAILED and parts["record"] is not FAILED:
            check_ordering(reader, parts["source"], parts["delivery"], parts["record"])
    if parts["source"] is not FAILED and parts["transforms"] is not FAILED:
        check_queries(reader, parts["source"], parts["transforms"])
    if parts["converters"] is not FAILED:
        known = [None if parts[name] is FAILED else parts[name] for name in ("source", "transforms", "record")]
        check_converters(reader, parts["converters"], *known)
    _check_output(reader, parts)
    if parts["errors"] is not FAILED:
        check_errors(reader, parts["errors"], () if parts["transforms"] is FAILED else parts["transforms"])
        if parts["record"] is not FAILED:
            check_dead_letters(reader, parts["errors"], parts["record"])


def _check_output(reader: Reader, parts: Mapping[str, Any]) -> None:
    """Checks where records go, and their form there."""
    if parts["sink"] is FAILED:  # then `record` may be one that `_record` made up
        return
    if not _writes_topics(parts):
        check_files(reader, *(parts[name] for name in ("sink", "source", "converters", "transforms")))
    elif parts["record"] is not FAILED:
        check_record(reader, parts["record"])
        if parts["kafka"] is not FAILED:
            check_timestamp(reader, parts["record"], parts["kafka"])


def compose_agent(reader: Reader) -> AgentOptions:
    """Returns the agent's options in the document, as far as they are valid."""
    reader.unknown_keys(AgentOptions, ())
    parts: dict[str, Any] = {name: reader.field(AgentOptions, name) for name in AgentOptions.model_fields if name != "kafka"}
    parts["kafka"] = _kafka(reader, KafkaOptions())
    agent = AgentOptions(**{name: part for name, part in parts.items() if part is not FAILED})
    check_spark(reader, agent.spark)
    check_api(reader, agent.api)
    hide_secrets(reader, agent)
    return agent


def overridden(agent: AgentOptions, overrides: Mapping[str, object]) -> AgentOptions:
    """Returns `agent` with dotted options from the command line. Raises `DefinitionError` for an invalid value."""
    for option, value in overrides.items():
        agent = _replaced(agent, option.split("."), value)
        addresses = agent.kafka.bootstrap_servers if option == "kafka.bootstrap_servers" else ()
        for address in addresses:
            if not is_address(address):
                raise DefinitionError((_command_line(option, Masker()(f"{address!r} is no broker address"), "write HOST:PORT"),))
    return agent


def _replaced(options: _O, steps: list[str], value: object) -> _O:
    name, *rest = steps
    if rest:
        return options.model_copy(update={name: _replaced(getattr(options, name), rest, value)})
    adapter: TypeAdapter[Any] = TypeAdapter(type(options).model_fields[name].rebuild_annotation())
    try:
        return options.model_copy(update={name: adapter.validate_python(value)})
    except ValidationError as error:
        words = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise DefinitionError((_command_line(name, words, ""),)) from None


def _command_line(option: str, text: str, hint: str) -> Problem:
    return Problem("command line", 0, 0, "bad-value", f"{option.rpartition('.')[2]}: {text}", hint)


def _kafka(reader: Reader, defaults: KafkaOptions) -> KafkaOptions | InvalidValue:
    """Reads the `kafka` section, option by option, so that one bad option does not hide errors in the others."""
    node = reader.node(("kafka",))
    if not isinstance(node, MappingNode):
        return cast("KafkaOptions | InvalidValue", reader.field(Definition, "kafka"))
    reader.unknown_keys(KafkaOptions, ("kafka",))
    parts: dict[str, Any] = {name: reader.field(KafkaOptions, name, ("kafka",)) for name in KafkaOptions.model_fields if name in node.items}
    own = KafkaOptions(**{name: part for name, part in parts.items() if part is not FAILED})
    check_kafka(reader, own, under(defaults, own))
    return FAILED if FAILED in parts.values() else own


def _source(reader: Reader) -> object:
    found = SOURCES.find(reader.text(("source", "type")) or "")
    if found is None or isinstance(found, UnusablePart) or "format" not in found.options.model_fields:
        return _typed(reader, ("source",), SOURCES)
    return _with_format(reader, found.options)


def _with_format(reader: Reader, model: type[Options]) -> object:
    """Reads a source with a format: an object of the class that its `type` names, or a name alone."""
    loc = ("source",)
    reader.unknown_keys(model, loc)
    parts: dict[str, Any] = {name: reader.field(model, name, loc) for name in model.model_fields if name != "format"}
    if reader.node((*loc, "format")) is not None:
        parts["format"] = _typed(reader, (*loc, "format"), FORMATS, short=True)
    return FAILED if FAILED in parts.values() else reader.made(model, parts, loc)


def _sink(reader: Reader) -> object:
    return reader.field(Definition, "sink") if reader.node(("sink",)) is None else _typed(reader, ("sink",), SINKS)


def _record(reader: Reader) -> object:
    """Reads `record`. With a sink other than topics it may be missing: the path of files stands for the topic, see `with_implied`."""
    if reader.node(("record",)) is None and reader.node(("sink",)) is not None and reader.text(("sink", "type")) != "kafka":
        return RecordOptions(topic="{@topic}")
    return reader.field(Definition, "record")


def _writes_topics(parts: Mapping[str, Any]) -> bool:
    """Returns whether records are known to go to topics."""
    return parts["sink"] is not FAILED and bool(parts["sink"].has_topics)


def _transforms(reader: Reader) -> object:
    node = reader.node(("transforms",))
    if not isinstance(node, SequenceNode):
        return reader.field(Definition, "transforms")
    items = tuple(_transform(reader, ("transforms", number)) for number in range(len(node.items)))
    return FAILED if FAILED in items else items


def _transform(reader: Reader, loc: Loc) -> object:
    node = reader.node(loc)
    if not isinstance(node, MappingNode):
        name = reader.text(loc)
        hint = f"as in - drop_if: {{...}}; known are {_known(TRANSFORMS)}"
        if name is not None and name in TRANSFORMS.built_in and _needs_nothing(name, TRANSFORMS[name].options):
            hint = f"write - {name}: {{}}"
        return reader.report(loc, "wrong-type", "needs one action", hint)
    keys = [key for key in node.items if key not in action_keys(StepOptions)]
    # a package is only asked for a name that is not built in
    actions = [key for key in keys if key in TRANSFORMS.built_in] or [key for key in keys if TRANSFORMS.find(key) is not None]
    if len(actions) == 1:
        found = TRANSFORMS.find(actions[0])
        if found is None or isinstance(found, UnusablePart):
            return _unusable(reader, (*loc, actions[0]), found, on_key=True)
        return _step(reader, actions[0], found.options, loc)
    if actions:
        hint = "start it with a dash of its own"
        return reader.report((*loc, actions[1]), "several-actions", "a second action in one item", hint, on_key=True)
    if not keys:
        return reader.report(loc, "missing-key", "the action is missing", f"known are {_known(TRANSFORMS)}")
    hint = action_here(keys[0]) or nearest(keys[0], TRANSFORMS.names()) or f"known are {_known(TRANSFORMS)}"
    return reader.report((*loc, keys[0]), "unknown-type", f"unknown transform {keys[0]!r:.80}", hint, on_key=True)


def _step(reader: Reader, action: str, model: type[Options], loc: Loc) -> object:
    node = reader.node((*loc, action))
    if is_null(node) and _needs_nothing(action, model):
        return reader.report((*loc, action), "no-value", f"{action} has no value", f"write {action}: {{}}")
    return _options(reader, TRANSFORMS, action, model, loc)


def _needs_nothing(name: str, options: type[Options]) -> bool:
    """Returns whether `name: {}` is a whole step."""
    try:
        options.model_validate({name: {}}, strict=True, context=FROM_YAML)
    except Exception:  # noqa: BLE001 - a package's options raise anything
        return False
    return True


def _known(registry: Registry[Any]) -> str:
    return ", ".join(registry.names())


def _unusable(reader: Reader, loc: Loc, found: UnusablePart | None, *, on_key: bool = False) -> InvalidValue:
    """Reports a part that a package declares but cannot provide."""
    assert found is not None
    return reader.report(loc, "unusable-package", found.why, found.hint, on_key=on_key)


def _options(reader: Reader, registry: Registry[Any], name: str, model: type[Options], loc: Loc, *, short: str | None = None) -> object:
    """Reads the options of a part. A package's own validators may raise anything; that becomes a problem at its place."""
    origin = registry.origin(name)
    if origin is None:
        return reader.options(model, loc, short=short)
    try:
        return reader.options(model, loc, short=short)
    except Exception as error:  # noqa: BLE001 - somebody else's code
        return reader.report(loc, "unusable-package", f"{registry.noun} {name!r} of {origin.text}: {described(error)}", FAULT)


def _converters(reader: Reader) -> object:
    node = reader.node(("converters",))
    if not isinstance(node, MappingNode):
        return reader.field(Definition, "converters")
    reader.unknown_keys(ConvertersOptions, ("converters",))
    parts: dict[str, Any] = {
        name: _typed(reader, ("converters", name), CONVERTERS, short=True) for name in ("key", "value") if name in node.items
    }
    if "schema_registry" in node.items:
        parts["schema_registry"] = reader.field(ConvertersOptions, "schema_registry", ("converters",))
    return FAILED if FAILED in parts.values() else ConvertersOptions(**parts)


def _typed(reader: Reader, loc: Loc, registry: Registry[Any], *, short: bool = False) -> object | InvalidValue:
    """Reads the options at `loc` by the class that their `type` names; with `short`, a scalar is the type alone."""
    node, what = reader.node(loc), registry.noun
    if node is None:
        return reader.add(missing(loc, Definition.model_fields.get(str(loc[0]))))
    at = loc if short and isinstance(node, Scalar) else (*loc, "type")
    name = reader.text(at)
    if name is None:
        if not isinstance(node, MappingNode):
            return reader.report(loc, "wrong-type", "needs keys and values", f"type: {' or '.join(registry.names())}")
        return reader.report(at, "missing-key", f"the type of the {what} is missing", f"known are {_known(registry)}")
    found = registry.find(name)
    if found is None:
        hint = nearest(name, registry.names()) or f"known are {_known(registry)}"
        return reader.report(at, "unknown-type", f"unknown {what} {name!r:.80}", hint)
    if isinstance(found, UnusablePart):
        return _unusable(reader, at, found)
    return _options(reader, registry, name, found.options, loc, short="type" if short else None)


def hide_secrets(reader: Reader, root: Options) -> None:
    """Hides options whose values came from a file or a credential, in every repr from now on."""
    for loc in reader.secret:
        owner, name, value = root, "", root  # type: Options, str, Any
        for step in loc:
            if isinstance(value, Options):
                found = fields_by_key(type(value)).get(str(step))
                if found is None:
                    break
                owner, name = value, found[0]
                value = getattr(value, name)
            elif isinstance(value, tuple) and isinstance(step, int):
                value = value[step]
            else:
                break
        if not isinstance(value, SecretStr):
            owner.hide({name})
