"""The tools that empty a directory: how each is started on files that were dropped there."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import spool_files
from benchmarks.tools import Process, connect, start

_JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false"}
_PLUGIN = "com.github.jcustenborder.kafka.connect.spooldir.SpoolDir"
_NUMBERS = {"customer": "INT64", "qty": "INT64", "price": "FLOAT64"}


def _schemas(types: Mapping[str, str]) -> dict[str, str]:
    """Columns are text but for `types`. Generated schemas would make null of JSON's numbers, and cannot be had of packed files."""
    fields = {name: {"type": types.get(name, "STRING"), "isOptional": True} for name in spool_files.COLUMNS}
    key, value = ({"name": name, "type": "STRUCT", "isOptional": True, "fieldSchemas": of} for name, of in (("Key", {}), ("Value", fields)))
    return {"key.schema": json.dumps(key), "value.schema": json.dumps(value)}


_SPOOLDIR: dict[str, dict[str, str]] = {
    "csv": {"connector.class": f"{_PLUGIN}CsvSourceConnector", "csv.first.row.as.header": "true", **_JSON, **_schemas({})},
    "jsonl": {"connector.class": f"{_PLUGIN}JsonSourceConnector", **_JSON, **_schemas(_NUMBERS)},
    "lines": {"connector.class": f"{_PLUGIN}LineDelimitedSourceConnector"},
}
"""By kind of file. Its other settings are its defaults."""


@dataclass(frozen=True)
class Drop:
    """Files of one kind in `directory`, for one topic with one partition. `plugin`: Connect's `plugin.path`, with spooldir."""

    kind: str
    directory: Path
    files: int
    topic: str
    bootstrap: str
    work: Path
    plugin: Path | None = None


def copycat(drop: Drop) -> list[Process]:
    """`copycat run --until-idle`, with the definition's defaults but for the two that say what is there and where it goes."""
    definitions = drop.work / "connectors.d"
    definitions.mkdir(parents=True)
    finished, failed = _places(drop)
    definition = {
        "name": "drop",
        "source": {
            "type": "spool_dir",
            "dir": str(drop.directory),
            "ready": {"min_age": "0s"},
            "format": drop.kind,
            "cleanup": {"policy": "move", "to": finished, "failed_to": failed},
        },
        "record": {"topic": drop.topic},
        "kafka": {"bootstrap_servers": [drop.bootstrap]},
    }
    (definitions / "drop.yaml").write_text(json.dumps(definition))
    command = [sys.executable, "-m", "copycat_agent", "run", str(definitions), "--until-idle", "--state-dir", str(drop.work / "state")]
    return [start(drop.work, command)]


def spooldir(drop: Drop) -> list[Process]:
    """The spooldir plugin on Kafka Connect standalone, with a task for each file."""
    assert drop.plugin is not None
    finished, failed = _places(drop)
    settings = {
        **_SPOOLDIR[drop.kind],
        "tasks.max": str(drop.files),
        "topic": drop.topic,
        "input.path": str(drop.directory),
        "input.file.pattern": ".*",
        "finished.path": finished,
        "error.path": failed,
        "halt.on.error": "false",
    }
    return connect(drop.work, drop.bootstrap, {"drop": settings}, str(drop.plugin))


def filestream(drop: Drop) -> list[Process]:
    """Kafka Connect standalone with one FileStreamSource for each file: what Kafka brings along for lines."""
    source = {"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "topic": drop.topic}
    return connect(drop.work, drop.bootstrap, {path.name: {**source, "file": str(path)} for path in drop.directory.iterdir()})


def _places(drop: Drop) -> tuple[str, str]:
    """Directories for what is finished and for what is bad, made here."""
    places = [drop.work / name for name in ("finished", "failed")]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
    return str(places[0]), str(places[1])


TOOLS: dict[str, Callable[[Drop], list[Process]]] = {"copycat": copycat, "spooldir": spooldir, "filestream": filestream}
NAMES = {
    "copycat": "copycat",
    "spooldir": "Kafka Connect standalone, spooldir 2.0.65",
    "filestream": "Kafka Connect standalone, FileStreamSource",
}


def can(tool: str, drop: Drop, *, packed: bool) -> bool:
    """Whether a tool can do this at all."""
    if tool == "filestream":
        return drop.kind == "lines" and not packed
    return tool != "spooldir" or drop.plugin is not None
