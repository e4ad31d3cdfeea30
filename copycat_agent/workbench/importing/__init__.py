"""Converts configurations of other products to definitions. What cannot be mapped is listed, and nothing is ignored silently.

There is one module per product. All parse a text into `imported.ConfigNode`, whose leaves record whether they were used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from copycat_agent.workbench.importing import connect, filebeat, fluent_bit, flume, otel, rsyslog, vector
from copycat_agent.workbench.importing.imported import ImportedDefinition, ImportReport, ImportResult, Remark, text_of

__all__ = ["PRODUCTS", "ImportReport", "ImportResult", "ImportedDefinition", "Remark", "text_of"]

PRODUCTS: Mapping[str, Callable[[str, Sequence[str]], ImportResult]] = {
    "filebeat": filebeat.read,
    "fluent-bit": fluent_bit.read,
    "vector": vector.read,
    "connect": connect.read,
    "rsyslog": rsyslog.read,
    "flume": flume.read,
    "otel": otel.read,
}
"""Readers by product. Each takes a text, and texts of files that belong to it, and raises CopycatError if it cannot be parsed."""
