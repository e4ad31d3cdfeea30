"""Configurations of other products as definitions: what can be mapped is, what cannot is listed, nothing is passed over in silence.

One file per product; all of them read a text into `imported.ConfigNode`, whose leaves know whether they were made use of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from copycat_agent.workbench.importing import connect, filebeat, fluent_bit, flume, otel, rsyslog, vector
from copycat_agent.workbench.importing.imported import Imported, ImportedDefinition, ImportReport, Remark, text_of

__all__ = ["PRODUCTS", "ImportReport", "Imported", "ImportedDefinition", "Remark", "text_of"]

PRODUCTS: Mapping[str, Callable[[str, Sequence[str]], Imported]] = {
    "filebeat": filebeat.read,
    "fluent-bit": fluent_bit.read,
    "vector": vector.read,
    "connect": connect.read,
    "rsyslog": rsyslog.read,
    "flume": flume.read,
    "otel": otel.read,
}
"""By name: reads a text, and texts of files that belong to it. Raises `CopycatError` for what cannot be read at all."""
