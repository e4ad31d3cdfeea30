"""What a session brings into the driver's process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_DRIVER = """
import sys
from pathlib import Path
from copycat_agent.options import SparkOptions
from copycat_agent.spark.host import SparkHost
host = SparkHost(SparkOptions(), Path(sys.argv[1]), 1)
host.start()
host.session(60)
print(*(name for name in ("pandas", "numpy", "pyarrow", "unittest") if name in sys.modules), "end")
host.close()
"""


def test_a_session_without_a_query_brings_neither_pandas_nor_test_helpers(cache: None, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _DRIVER, str(tmp_path / "run")]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=90).stdout.split() == ["end"]
