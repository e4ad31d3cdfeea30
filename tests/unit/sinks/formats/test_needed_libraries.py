"""Definitions without columns do without the libraries for them."""

from __future__ import annotations

import subprocess
import sys


def test_the_libraries_of_avro_and_parquet_are_imported_with_their_first_file() -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from copycat_agent.sinks.files_options import FilesSinkOptions\n"
        "from copycat_agent.sinks.formats import RangeFiles\n"
        "for name, library in (('jsonl', ''), ('csv', ''), ('avro', 'fastavro'), ('parquet', 'pyarrow')):\n"
        "    assert library not in sys.modules\n"
        "    RangeFiles(FilesSinkOptions(uri='file:///lake', format=name), Path(sys.argv[1]))\n"
        "    assert {'pyarrow', 'fastavro'} & set(sys.modules) <= {'fastavro', library}\n"
        "    assert not library or library in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, "/tmp"], check=True, timeout=60)
