"""What Spark's Python daemon imports before it forks: all that a batch of log lines needs, and nothing that only the driver needs."""

from __future__ import annotations

import subprocess
import sys

NEEDLESS = (
    "pandas.", "pyarrow.", "numpy.", "unittest.", "rich.", "typer.", "yaml.", "watchdog.", "sqlite3.", "copycat_agent.worker.",
    "copycat_agent.definitions.", "copycat_agent.offsets.", "copycat_agent.sources.log_file.log_file.",
    "copycat_agent.sources.log_file.log_catalog.",
    "copycat_agent.sources.spool_dir.", "copycat_agent.transforms.grok.", "copycat_agent.formats.records.csv_format.",
)  # fmt: skip
CODE = f"""
import gc, sys, threading
import copycat_agent.spark.daemon
print(threading.active_count(), gc.isenabled(), *(name for name in sys.modules if (name + ".").startswith({NEEDLESS!r})))
"""


def test_the_daemon_starts_no_thread_and_leaves_the_drivers_modules_alone() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], check=True, timeout=120, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "True"]
