"""Exit codes of every command; the numbers above 63 are those of sysexits.h."""

from __future__ import annotations

from typing import Final

GOOD: Final = 0
FAILED: Final = 1
USAGE: Final = 2
DEGRADED: Final = 3
BROKER_UNREACHABLE: Final = 69
GAVE_UP: Final = 75
DEFINITION_ERROR: Final = 78
INTERRUPTED: Final = 130
