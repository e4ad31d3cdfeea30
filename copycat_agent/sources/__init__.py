"""The registry of sources. A new source is one file and one line in `_BUILT_IN`."""

from __future__ import annotations

from dataclasses import replace

from copycat_agent.formats.model import one_line
from copycat_agent.formats.records import FORMATS
from copycat_agent.model import Column
from copycat_agent.options import SourceOptions
from copycat_agent.registry import ProviderGuard, Registry, wrong_kind, wrong_type_name
from copycat_agent.sources.base import (
    DescriptorStore,
    FileState,
    FileView,
    FollowsFiles,
    KeepsFiles,
    KnowsUnchanged,
    Lag,
    LooksLater,
    Offsets,
    Plan,
    Source,
    SourceKind,
    create_source,
    only_looking,
)
from copycat_agent.sources.contract import PolledOptions
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.planner import Changes

__all__ = [
    "SOURCES", "Changes", "DescriptorStore", "FileState", "FileView", "FollowsFiles", "Identity", "KeepsFiles", "KnowsUnchanged", "Lag",
    "LooksLater", "Offsets", "Plan", "Source", "SourceKind", "create_source", "declared_columns", "only_looking",
]  # fmt: skip

_BUILT_IN: dict[str, SourceKind | str] = {
    "log_file": "copycat_agent.sources.log_file.log_kind:LOG_FILE",
    "spool_dir": "copycat_agent.sources.spool_dir.spool_kind:SPOOL_DIR",
    "objects": "copycat_agent.sources.objects.objects_kind:OBJECTS",
    "journald": "copycat_agent.sources.journald.journald_source:JOURNALD",
    "jdbc": "copycat_agent.sources.jdbc.jdbc_kind:JDBC",
    "kafka": "copycat_agent.sources.kafka.kafka_kind:KAFKA",
    "datasource": "copycat_agent.sources.datasource.source:DATASOURCE",
}


def _wrong(name: str, part: SourceKind) -> str:
    return wrong_kind(part, SourceKind, SourceOptions) or wrong_type_name(name, part.options)


def _fenced(kind: SourceKind, fence: ProviderGuard) -> SourceKind:
    fenced = replace(kind, make=fence(kind.make), open=fence(kind.open), framing=fence(kind.framing), saved=fence(kind.saved))
    probe = kind.probe
    return fenced if probe is None else replace(fenced, probe=fence(lambda *asked: list(probe(*asked))))


SOURCES = Registry("source", _BUILT_IN, _wrong, _fenced)
"""`SourceKind` by type name, also those of installed packages."""


def declared_columns(options: SourceOptions) -> tuple[Column, ...] | None:
    """Returns the fields of a source's records before any step, as far as its definition declares them; None if only the data shows them.

    A source of lines has one field, `message`.
    """
    form = getattr(options, "format", None)
    if form is None:
        return None if isinstance(options, PolledOptions) else one_line(options)
    kind = FORMATS.get(form.type)
    return None if kind is None else kind.columns(form)
