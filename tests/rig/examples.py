"""How many examples a property test tries."""

from __future__ import annotations

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "same")
"""`same`: the same examples in every run; `search` looks for new ones, and for more."""


def examples(number: int) -> int:
    """Returns `number` for a search, else a third of it: they are the same in every run. At least ten, if it is that many."""
    return number if PROFILE == "search" else max(number // 3, min(number, 10))
