"""The user's cache, for commands that tests give another home."""

from __future__ import annotations

import os
from pathlib import Path

CACHE = {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))}
"""Without it each start of Spark records its class archive anew, which takes ten seconds and more."""
