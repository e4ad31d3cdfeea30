"""An agent that reads no columns does without the libraries for them."""

from __future__ import annotations

import subprocess
import sys


def test_the_libraries_of_avro_and_parquet_are_imported_with_their_first_connector() -> None:
    code = (
        "import sys\n"
        "from copycat_agent.definitions import load_file\n"
        "from copycat_agent.executor import run_batch\n"
        "from copycat_agent.formats.records import FORMATS, build_format\n"
        "assert not {'pyarrow', 'fastavro'} & set(sys.modules)\n"
        "for name, library in (('avro', 'fastavro'), ('parquet', 'pyarrow')):\n"
        "    build_format(FORMATS[name].options(type=name))\n"
        "    assert library in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
