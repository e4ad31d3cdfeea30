"""Steps as the pipeline has them: from options as YAML gives them, pickled as they cross to a task, bound to one file."""

from __future__ import annotations

import pickle
from typing import Any

from copycat_agent.model import Column
from copycat_agent.options import FROM_YAML
from copycat_agent.templates import SplitMeta
from copycat_agent.transforms import TRANSFORMS, Draft, Step, action_of, build_transform, columns_after

META = SplitMeta("/var/log/app.log", 7, "web1", "app")


def options(item: dict[str, Any]) -> Any:
    """The validated item: `{"rename": {...}}`."""
    action = next(key for key in item if key in TRANSFORMS)
    made = TRANSFORMS[action].options.model_validate(item, strict=True, context=FROM_YAML)
    assert action_of(made) == action
    return made


def step(item: dict[str, Any], meta: SplitMeta = META) -> Step:
    """The step of an item."""
    return build_transform(pickle.loads(pickle.dumps(options(item)))).bind(meta)


def draft(value: bytes | dict[str, Any]) -> Draft:
    """A record in bytes 100 to 120 of its file, its third."""
    return Draft(value, 100, 120, 3)


def after(item: dict[str, Any], value: bytes | dict[str, Any]) -> Any:
    """The record's value behind one step that does not drop it."""
    record = draft(value)
    assert step(item)(record) is True
    return record.value


def columns(item: dict[str, Any], **types: str) -> dict[str, str] | None:
    """Declared fields behind one step."""
    found = columns_after([options(item)], tuple(Column(name, type_) for name, type_ in types.items()))
    return None if found is None else {column.name: column.type for column in found}
