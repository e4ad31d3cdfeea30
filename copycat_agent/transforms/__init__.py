"""Transforms: callables `Record -> Record | None`, where None drops the record on purpose.

Empty so far: a line travels as its bytes. A new transform is one file and one line in `TRANSFORMS`.
"""

from __future__ import annotations

from copycat_agent.options import TransformOptions

TRANSFORMS: dict[str, type[TransformOptions]] = {}
