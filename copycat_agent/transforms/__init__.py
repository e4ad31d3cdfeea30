"""Transforms: the steps of `transforms:`, each of which works on one record at a time.

A new transform is one file and one line in `_BUILT_IN`. Its options describe a whole item of `transforms:` in a definition, in a field
named like the action: `- drop_if: {...}` is a class with the field `drop_if`.
"""

from __future__ import annotations

from collections.abc import Sequence

from copycat_agent.formats.draft import Draft
from copycat_agent.options import Definition, SourceOptions, TransformOptions
from copycat_agent.registry import Registry
from copycat_agent.transforms.base import (
    Columns,
    GuardedTransform,
    Steady,
    Step,
    StepError,
    StepFaultError,
    StepOptions,
    Transform,
    TransformKind,
    action_keys,
    fenced_transform,
    wrong_transform,
)
from copycat_agent.transforms.match import Condition, compile_matcher
from copycat_agent.transforms.sql import RAW_LINE, SqlOptions, SqlStep, declared_columns, plain_type, sql_at

__all__ = [
    "TRANSFORMS",
    "UNKNOWN_COLUMNS",
    "UNKNOWN_COLUMNS_HINT",
    "Columns",
    "Condition",
    "Draft",
    "GuardedTransform",
    "Steady",
    "Step",
    "StepError",
    "StepFaultError",
    "StepOptions",
    "Transform",
    "TransformKind",
    "action_of",
    "build_transform",
    "columns_after",
    "columns_at",
    "compile_matcher",
    "kind_of",
    "sql_step",
]

_BUILT_IN: dict[str, TransformKind | str] = {
    "regex": "copycat_agent.transforms.regex_:REGEX",
    "grok": "copycat_agent.transforms.grok:GROK",
    "syslog": "copycat_agent.transforms.syslog:SYSLOG",
    "cri": "copycat_agent.transforms.containers:CRI",
    "docker": "copycat_agent.transforms.containers:DOCKER",
    "json": "copycat_agent.transforms.containers:JSON",
    "logfmt": "copycat_agent.transforms.key_value:LOGFMT",
    "csv": "copycat_agent.transforms.csv_:CSV",
    "key_value": "copycat_agent.transforms.key_value:KEY_VALUE",
    "timestamp": "copycat_agent.transforms.times:TIMESTAMP",
    "convert": "copycat_agent.transforms.convert:CONVERT",
    "rename": "copycat_agent.transforms.field_layout:RENAME",
    "set": "copycat_agent.transforms.set_:SET",
    "default": "copycat_agent.transforms.set_:DEFAULT",
    "drop_fields": "copycat_agent.transforms.field_layout:DROP_FIELDS",
    "keep_fields": "copycat_agent.transforms.field_layout:KEEP_FIELDS",
    "flatten": "copycat_agent.transforms.field_layout:FLATTEN",
    "nest": "copycat_agent.transforms.field_layout:NEST",
    "replace": "copycat_agent.transforms.regex_:REPLACE",
    "hash": "copycat_agent.transforms.masking:HASH",
    "mask": "copycat_agent.transforms.masking:MASK",
    "keep_if": "copycat_agent.transforms.filtering:KEEP_IF",
    "drop_if": "copycat_agent.transforms.filtering:DROP_IF",
    "sql": "copycat_agent.transforms.sql:SQL",
    "sample": "copycat_agent.transforms.filtering:SAMPLE",
}

TRANSFORMS = Registry("transform", _BUILT_IN, wrong_transform, fenced_transform)
"""Transforms by the name of their action; includes those of installed packages."""


def action_of(options: TransformOptions) -> str:
    """Returns the name of these options in `TRANSFORMS`. Raises `MissingPartError` if their package is no longer installed."""
    model = type(options)
    assert issubclass(model, StepOptions)
    names = [name for name in action_keys(model) if name not in action_keys(StepOptions)]
    own = (name for name in names if name in TRANSFORMS.built_in and TRANSFORMS[name].options is model)
    return next(own, None) or next(name for name in names if TRANSFORMS[name].options is model)


def kind_of(options: TransformOptions) -> TransformKind:
    """Returns the entry of `TRANSFORMS` for these options; see `action_of`."""
    return TRANSFORMS[action_of(options)]


def build_transform(options: TransformOptions, number: int = 0) -> Transform:
    """Returns the transform of one validated item, the `number`-th from 0, with its `if` and `on_error`. Called once per definition."""
    kind, name = kind_of(options), f"transforms[{number}] {action_of(options)}"
    assert isinstance(options, StepOptions)
    condition = None if options.if_ is None else compile_matcher(options.if_)
    return GuardedTransform(kind.build(options), name, condition, options.on_error)


def columns_after(steps: Sequence[TransformOptions], before: Columns | None) -> Columns | None:
    """Returns the fields of records after these steps, as far as they are known before any record is read; None if they are not."""
    for options in steps:
        before = kind_of(options).columns(options, before)
    return before


UNKNOWN_COLUMNS = "nobody knows the columns of records before a record is read"
"""Why a query without a schema cannot be run."""
UNKNOWN_COLUMNS_HINT = 'declare them: sql: {query: "...", schema: "ts timestamp, level string"}'


def sql_step(definition: Definition) -> SqlStep | None:
    """Returns the query, None when the definition has none. `columns` are None if they are neither declared nor known."""
    number = sql_at(definition.transforms)
    if number is None:
        return None
    options = definition.transforms[number]
    assert isinstance(options, SqlOptions)
    return SqlStep(number, options, columns_at(definition.source, definition.transforms, number))


def columns_at(source: SourceOptions, transforms: Sequence[TransformOptions], number: int) -> Columns | None:
    """Returns the columns of the table of the query that is the `number`-th step: declared, or as known from the steps before."""
    options = transforms[number]
    assert isinstance(options, SqlOptions)
    if (declared := declared_columns(options)) is not None:
        return declared
    is_text = source.type == "log_file" or getattr(getattr(source, "format", None), "type", "") == "lines"
    columns = columns_after(transforms[:number], RAW_LINE if is_text else None)
    if not columns:
        return None
    try:
        return tuple(column._replace(type=plain_type(column.type)) for column in columns)
    except ValueError:
        return None
