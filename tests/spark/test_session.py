"""What a session brings into the driver's process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ASKED_EARLY = """
import sys, threading
from pathlib import Path
from copycat_agent.options import SparkOptions
from copycat_agent.sources.contract_frames import SPARK
from copycat_agent.spark.host import SparkHost

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyspark" or name.startswith("copycat_agent.spark."):
            if threading.current_thread() in askers and host.state != "running":
                print(name)

host = SparkHost(SparkOptions(), Path(sys.argv[1]), 1)
askers = [threading.Thread(target=SPARK.session, args=(200.0,)) for _ in range(3)]
sys.meta_path.insert(0, Watch())
host.start()
for one in askers:
    one.start()
for one in askers:
    one.join()
print(type(SPARK.session()).__name__)
host.close()
"""


@pytest.mark.timeout(300)
def test_who_asks_for_a_session_before_it_is_up_imports_nothing_of_spark_beside_the_thread_that_starts_it(
    cache: None, tmp_path: Path
) -> None:
    """Two that import pyspark at the same time may each find it half imported; the thread that starts Spark died of it."""
    command = [sys.executable, "-c", _ASKED_EARLY, str(tmp_path / "run")]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout.split() == ["SparkSession"]
