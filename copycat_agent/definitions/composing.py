"""Putting one document together: the parts that the packages of sources, transforms and converters bring, and the rest.

Nothing raises; what is wrong goes to the reader's findings, and the result is None when anything did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from copycat_agent.converters import CONVERTERS
from copycat_agent.definitions import rules, wording
from copycat_agent.definitions.document import Mapping as MappingNode
from copycat_agent.definitions.document import Scalar
from copycat_agent.definitions.document import Sequence as SequenceNode
from copycat_agent.definitions.masking import Masker
from copycat_agent.definitions.merging import under
from copycat_agent.definitions.models import Loc, fields_by_key
from copycat_agent.definitions.reading import FAILED, Failed, Reader
from copycat_agent.errors import DefinitionError, Problem
from copycat_agent.formats.records import FORMATS
from copycat_agent.options import (
    AgentOptions,
    ConvertersOptions,
    Definition,
    KafkaOptions,
    Options,
    SecretStr,
    TypeAdapter,
    ValidationError,
)
from copycat_agent.sources import SOURCES
from copycat_agent.transforms import TRANSFORMS

if TYPE_CHECKING:
    from collections.abc import Mapping

_O = TypeVar("_O", bound=Options)


def compose(reader: Reader, agent: AgentOptions) -> Definition | None:
    """The definition in the document, with the agent's Kafka options under its own."""
    reader.unknown_keys(Definition, ())
    own = {"source": _source, "transforms": _transforms, "converters": _converters}
    simple = [name for name in Definition.model_fields if name not in own and name != "kafka"]
    parts: dict[str, Any] = {name: read(reader) for name, read in own.items()} | {name: reader.field(Definition, name) for name in simple}
    parts["kafka"] = _kafka(reader, agent.kafka)
    _check(reader, parts)
    if reader.findings or any(part is FAILED for part in parts.values()):
        return None
    definition = Definition(**parts)
    hide_secrets(reader, definition)
    # only now: what is hidden in this file's options stays so in the merged ones
    return definition.model_copy(update={"kafka": under(agent.kafka, definition.kafka)})


def _check(reader: Reader, parts: Mapping[str, Any]) -> None:
    if parts["source"] is not FAILED:
        rules.check_source(reader, parts["source"])
        if parts["delivery"] is not FAILED and parts["record"] is not FAILED:
            rules.check_ordering(reader, parts["source"], parts["delivery"], parts["record"])
    if parts["record"] is not FAILED:
        rules.check_record(reader, parts["record"])
    if parts["errors"] is not FAILED:
        rules.check_dlq(reader, parts["errors"].dlq)


def compose_agent(reader: Reader) -> AgentOptions:
    """The agent's options in the document, as far as they are good."""
    reader.unknown_keys(AgentOptions, ())
    parts: dict[str, Any] = {name: reader.field(AgentOptions, name) for name in AgentOptions.model_fields if name != "kafka"}
    parts["kafka"] = _kafka(reader, KafkaOptions())
    agent = AgentOptions(**{name: part for name, part in parts.items() if part is not FAILED})
    rules.check_spark(reader, agent.spark)
    rules.check_api(reader, agent.api)
    hide_secrets(reader, agent)
    return agent


def overridden(agent: AgentOptions, overrides: Mapping[str, object]) -> AgentOptions:
    """`agent` with dotted options from the command line over it. Raises `DefinitionError` for a value that will not do."""
    for option, value in overrides.items():
        agent = _replaced(agent, option.split("."), value)
        addresses = agent.kafka.bootstrap_servers if option == "kafka.bootstrap_servers" else ()
        for address in addresses:
            if not rules.is_address(address):
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


def _kafka(reader: Reader, defaults: KafkaOptions) -> KafkaOptions | Failed:
    """The `kafka` section, option by option, so that one bad option does not hide what is wrong with the others."""
    node = reader.node(("kafka",))
    if not isinstance(node, MappingNode):
        return cast("KafkaOptions | Failed", reader.field(Definition, "kafka"))
    reader.unknown_keys(KafkaOptions, ("kafka",))
    parts: dict[str, Any] = {name: reader.field(KafkaOptions, name, ("kafka",)) for name in KafkaOptions.model_fields if name in node.items}
    own = KafkaOptions(**{name: part for name, part in parts.items() if part is not FAILED})
    rules.check_kafka(reader, own, under(defaults, own))
    return FAILED if FAILED in parts.values() else own


def _source(reader: Reader) -> object:
    known = {name: entry.options for name, entry in SOURCES.items()}
    model = known.get(reader.text(("source", "type")) or "")
    if model is None or "format" not in model.model_fields:
        return _typed(reader, ("source",), known, "source")
    return _with_format(reader, model)


def _with_format(reader: Reader, model: type[Options]) -> object:
    """A source with a format: that is of the class that its `type` names, or a name alone."""
    loc = ("source",)
    reader.unknown_keys(model, loc)
    parts: dict[str, Any] = {name: reader.field(model, name, loc) for name in model.model_fields if name != "format"}
    if reader.node((*loc, "format")) is not None:
        formats = {name: entry.options for name, entry in FORMATS.items()}
        parts["format"] = _typed(reader, (*loc, "format"), formats, "format", short=True)
    return FAILED if FAILED in parts.values() else model(**parts)


def _transforms(reader: Reader) -> object:
    node = reader.node(("transforms",))
    if not isinstance(node, SequenceNode):
        return reader.field(Definition, "transforms")
    items = tuple(_transform(reader, ("transforms", number)) for number in range(len(node.items)))
    return FAILED if FAILED in items else items


def _transform(reader: Reader, loc: Loc) -> object:
    node = reader.node(loc)
    known = ", ".join(TRANSFORMS)
    if not isinstance(node, MappingNode):
        return reader.report(loc, "wrong-type", "needs one action", f"as in - drop_if: {{...}}; known are {known}")
    actions = [key for key in node.items if key in TRANSFORMS]
    if len(actions) == 1:
        return reader.options(TRANSFORMS[actions[0]].options, loc)
    if actions:
        hint = "start it with a dash of its own"
        return reader.report((*loc, actions[1]), "several-actions", "a second action in one item", hint, on_key=True)
    first = next(iter(node.items), "")
    hint = wording.nearest(first, TRANSFORMS) or f"known are {known}"
    return reader.report((*loc, first), "unknown-type", f"unknown transform {first!r:.80}", hint, on_key=True)


def _converters(reader: Reader) -> object:
    node = reader.node(("converters",))
    if not isinstance(node, MappingNode):
        return reader.field(Definition, "converters")
    reader.unknown_keys(ConvertersOptions, ("converters",))
    options = {name: entry.options for name, entry in CONVERTERS.items()}
    parts: dict[str, Any] = {
        name: _typed(reader, ("converters", name), options, "converter", short=True) for name in ("key", "value") if name in node.items
    }
    if "schema_registry" in node.items:
        parts["schema_registry"] = reader.field(ConvertersOptions, "schema_registry", ("converters",))
    return FAILED if FAILED in parts.values() else ConvertersOptions(**parts)


def _typed(reader: Reader, loc: Loc, known: Mapping[str, type[Options]], what: str, *, short: bool = False) -> object | Failed:
    """The options at `loc` by the class that their `type` names; with `short`, a scalar is the type alone."""
    node = reader.node(loc)
    if node is None:
        return reader.add(wording.missing(loc, Definition.model_fields.get(str(loc[0]))))
    at = loc if short and isinstance(node, Scalar) else (*loc, "type")
    name = reader.text(at)
    hint = f"known are {', '.join(known)}"
    if name is None:
        if not isinstance(node, MappingNode):
            return reader.report(loc, "wrong-type", "needs keys and values", f"type: {' or '.join(known)}")
        return reader.report(at, "missing-key", f"the type of the {what} is missing", hint)
    if name not in known:
        return reader.report(at, "unknown-type", f"unknown {what} {name!r:.80}", wording.nearest(name, known) or hint)
    return reader.options(known[name], loc, short="type" if short else None)


def hide_secrets(reader: Reader, root: Options) -> None:
    """Mask the options whose values came from a file or a credential, in every repr from now on."""
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
