"""What a record format is, and how the dict of formats lists one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from copycat_agent.formats.model import RecordFormat
from copycat_agent.options import Field, Options


class FormatOptions(Options):
    """Base of a format's options. `type` is the name in `FORMATS`."""

    type: str = Field(description="Format of the files.")


@dataclass(frozen=True, slots=True)
class FormatKind:
    """An entry of `FORMATS`."""

    options: type[FormatOptions]
    build: Callable[[Any], RecordFormat]
