"""Reads one document into the option models: nodes become values, references are resolved, errors get their place.

A `Reader` is made per file and used for one load. It collects errors in `findings`; nothing is raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from copycat_agent.definitions.models import Loc, fields_by_key
from copycat_agent.definitions.problems import Finding, combined, finding, missing, no_value, unknown_key
from copycat_agent.definitions.secret_values import (
    Masker,
    ReferenceProblem,
    has_reference,
    refers_to_secret,
    resolve,
    stood_in,
)
from copycat_agent.definitions.yaml_tree import MappingNode, Node, Scalar, SequenceNode, is_null, plain_value, way_to
from copycat_agent.display import is_secret_name
from copycat_agent.options import FROM_YAML, Options, TypeAdapter, ValidationError

_SHOWN: tuple[Loc, ...] = (
    ("name",), ("source", "include"), ("source", "exclude"), ("record", "topic"), ("record", "allowed_topics"),
    ("errors", "dlq", "topic"), ("kafka", "bootstrap_servers"), ("source", "kafka", "bootstrap_servers"), ("source", "topics"),
    ("source", "dir"), ("source", "uri"), ("sink", "uri"), ("sink", "path"), ("converters", "schema_registry", "url"), ("tests",),
)  # fmt: skip
"""Places whose values show in logs, reasons and metrics while the agent runs, or in `test`, without a masker."""
ONLINE = ("delivery", "limits", "kafka")
"""Sections that samples do not use: they may be incomplete if only samples are tried."""
_RETYPED = {"int_type", "float_type", "bool_type", "literal_error"}


class InvalidValue:
    """Stands for a value that could not be made; the reason is among the findings."""


FAILED = InvalidValue()


@lru_cache(maxsize=256)
def _adapter(model: type[Options], name: str) -> TypeAdapter[Any]:
    return TypeAdapter(model.model_fields[name].rebuild_annotation())


@dataclass(slots=True)
class Reader:
    """Reads options out of one document.

    `environ` None leaves references unresolved. `offline`: names stand for secrets and for variables that are not set, which are collected
    in `assumed`, by place (see `secret_values.stood_in`). `secret` are the places whose value came from a file or a credential,
    `unresolved` those whose reference was left or could not be resolved: errors there are not reported again. `in_records` are the secrets
    that may get into records.
    """

    root: Node
    environ: Mapping[str, str] | None
    masker: Masker
    findings: list[Finding] = field(default_factory=list)
    secret: set[Loc] = field(default_factory=set)
    in_records: set[str] = field(default_factory=set)
    unresolved: set[Loc] = field(default_factory=set)
    offline: bool = False
    assumed: dict[Loc, tuple[str, ...]] = field(default_factory=dict)
    _resolved: dict[Loc, str] = field(default_factory=dict)
    _retyped: set[Loc] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Collects the literal secrets first, so that no message can show one."""
        self._learn(self.root, (), secret=False)

    def _learn(self, node: Node, loc: Loc, *, secret: bool) -> None:
        if isinstance(node, Scalar):
            if secret and not has_reference(node.text):
                self.masker.add(node.text)
                if _is_put_into_records(loc) and "{" not in node.text:
                    self.in_records.add(node.text)
        elif isinstance(node, SequenceNode):
            for number, item in enumerate(node.items):
                self._learn(item, (*loc, number), secret=secret)
        else:
            for key, value in node.items.items():
                self._learn(value, (*loc, key), secret=secret or is_secret_name(key))

    def node(self, loc: Loc) -> Node | None:
        """Returns the node at exactly `loc`."""
        way = way_to(self.root, loc)
        return None if len(way) < len(loc) else way[-1][1] if way else self.root

    def met_by_samples(self) -> Iterator[str]:
        """Yields references that a name stands for, without those that only matter to Kafka."""
        for loc, references in self.assumed.items():
            if _meets_records(loc):
                yield from references

    def text(self, loc: Loc) -> str | None:
        """Returns the text of the scalar at `loc`, references resolved; None if there is none."""
        node = self.node(loc)
        return str(self._resolved.get(loc, node.text)) if isinstance(node, Scalar) else None

    def report(self, loc: Loc, code: str, text: str, hint: str = "", *, on_key: bool = False) -> InvalidValue:
        """Adds a finding, unless the place holds an unresolved reference."""
        return self.add(Finding(loc, code, text, hint, on_key))

    def add(self, found: Finding) -> InvalidValue:
        """Adds a finding, unless the place holds an unresolved reference."""
        if not any(found.loc[: len(loc)] == loc for loc in self.unresolved):
            self.findings.append(found)
        return FAILED

    def unknown_keys(self, model: type[Options], loc: Loc) -> None:
        """Reports every key of the map at `loc` that `model` does not have."""
        node = self.node(loc)
        for key in node.items if isinstance(node, MappingNode) else ():
            if key not in fields_by_key(model):
                self.add(unknown_key((*loc, key), model))

    def field(self, model: type[Options], name: str, loc: Loc = ()) -> object:
        """Returns the value of one field of `model` from the map at `loc`; its default if it is absent."""
        info = model.model_fields[name]
        if self.node((*loc, name)) is None:
            if info.is_required():
                return self.add(missing((*loc, name), info))
            return info.get_default(call_default_factory=True)
        return self._validate(_adapter(model, name), model, (*loc, name), loc)

    def options(self, model: type[Options], loc: Loc, *, short: str | None = None) -> object:
        """Returns the map at `loc` as `model`. A scalar there stands for `{short: scalar}` if `short` is given."""
        return self._validate(TypeAdapter(model), model, loc, loc, short)

    def made(self, model: type[Options], parts: Mapping[str, Any], loc: Loc) -> object:
        """Returns a `model` of parts that were validated one by one; only now parts that contradict each other are found."""
        try:
            return model(**parts)
        except ValidationError as error:
            self._explain(error.errors(include_url=False, include_input=False), model, loc, loc)
        return FAILED

    def _validate(self, adapter: TypeAdapter[Any], model: type[Options], loc: Loc, base: Loc, short: str | None = None) -> object:
        try:
            return adapter.validate_python(self._value(loc, short), strict=True, context=FROM_YAML)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False)
        retyped = {place for each in errors if (place := self._place(each, loc)) in self._resolved and each["type"] in _RETYPED}
        if retyped - self._retyped:
            self._retyped |= retyped
            return self._validate(adapter, model, loc, base, short)
        self._explain(errors, model, loc, base)
        return FAILED

    def _explain(self, errors: Sequence[Mapping[str, Any]], model: type[Options], loc: Loc, base: Loc) -> None:
        by_place: dict[Loc, list[Finding]] = {}
        for each in errors[:100]:
            place = self._place(each, loc)
            node = self.node(place)
            if is_null(node):
                found = no_value(place)
            else:
                written = node.text if isinstance(node, Scalar) and place not in self.secret else None
                found = finding(each, place, base, model, written)
            by_place.setdefault(place, []).append(found)
        for findings in by_place.values():
            self.add(combined(findings))

    def _place(self, error: Mapping[str, Any], loc: Loc) -> Loc:
        """Returns the place in the document of a pydantic error, without the names that unions and map keys add to it."""
        node, place = self.node(loc), loc
        for step in error["loc"]:
            inner = self.node((*place, step)) if isinstance(node, MappingNode | SequenceNode) else None
            if inner is not None:
                node, place = inner, (*place, step)
        return (*place, error["loc"][-1]) if error["type"] == "missing" else place

    def _value(self, loc: Loc, short: str | None) -> object:
        node = self.node(loc)
        if short is not None and isinstance(node, Scalar):
            return {short: self._scalar(node, loc)}
        return None if node is None else self._plain(node, loc)

    def _plain(self, node: Node, loc: Loc) -> object:
        """Returns the values that the models accept: dict, tuple, text, int, float, bool, None."""
        if isinstance(node, MappingNode):
            return {key: self._plain(value, (*loc, key)) for key, value in node.items.items()}
        if isinstance(node, SequenceNode):
            return tuple(self._plain(item, (*loc, number)) for number, item in enumerate(node.items))
        return self._scalar(node, loc)

    def _scalar(self, node: Scalar, loc: Loc) -> object:
        if not has_reference(node.text):
            return plain_value(node.text) if node.plain else node.text
        if loc not in self._resolved:
            self._resolved[loc] = self._resolve(node.text, loc)
        text = self._resolved[loc]
        return plain_value(text) if loc in self._retyped else text

    def _resolve(self, text: str, loc: Loc) -> str:
        if refers_to_secret(text) and any(loc[: len(shown)] == shown for shown in _SHOWN):
            hint = "use ${env:NAME}: what comes from a file or a credential is secret, and this shows in logs"
            self.report(loc, "secret-place", "no place for a secret", hint)
            self.unresolved.add(loc)
            return text
        if self.environ is None:
            self.unresolved.add(loc)
            return text
        if self.offline:
            written, (text, names) = text, stood_in(text, self.environ)
            if names:
                self.assumed[loc] = names
                self.unresolved.add(loc)
            if names == (written,):  # a name alone is no secret
                return text
        try:
            resolved = resolve(text, self.environ)
        except ReferenceProblem as problem:
            self.report(loc, "reference", problem.text, problem.hint)
            self.unresolved.add(loc)
            return text
        if resolved.secrets:
            self.secret.add(loc)
            for secret in (*resolved.secrets, resolved.text):
                self.masker.add(secret)
            self.in_records.update(resolved.secrets if _meets_records(loc) else ())
        elif any(is_secret_name(str(step)) for step in loc):
            self.masker.add(resolved.text)
            self.in_records.update((resolved.text,) if _is_put_into_records(loc) and loc not in self.assumed else ())
        return resolved.text


def _meets_records(loc: Loc) -> bool:
    """Returns whether the value affects records, and not only Kafka."""
    return loc[0] not in ONLINE and loc[:2] != ("converters", "schema_registry")


def _is_put_into_records(loc: Loc) -> bool:
    """Returns whether it is a header, or a field's value, with its name: `record.headers.token`, `transforms[0].set.password`."""
    return loc[:2] == ("record", "headers") or (loc[0] == "transforms" and loc[2:3] in {("set",), ("default",)})
