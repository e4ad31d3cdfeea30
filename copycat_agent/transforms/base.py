"""What a transform is, and how the dict of transforms lists one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from copycat_agent.model import Record
from copycat_agent.options import TransformOptions

Transform = Callable[[Record], Record | None]
"""A step: a new record, or None to drop it on purpose. Pure and thread-safe; `DataError` for a record it cannot handle."""


@dataclass(frozen=True, slots=True)
class TransformKind:
    """An entry of `TRANSFORMS`. `options` describes a whole item, in a field named like the action."""

    options: type[TransformOptions]
    build: Callable[[Any], Transform]
