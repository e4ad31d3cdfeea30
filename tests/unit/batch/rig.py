"""Files, definitions and batches for tests of `run_batch`."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from copycat_agent.converters import CONVERTERS
from copycat_agent.encoding.encoder import Encoder, SplitEncoder
from copycat_agent.model import Batch, SourceOffset, SourcePartition, Split, TaskId
from copycat_agent.options import Definition
from copycat_agent.sources import SOURCES
from copycat_agent.transforms import TRANSFORMS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def definition(
    bootstrap: str,
    topic: str,
    *,
    line: dict[str, Any] | None = None,
    multiline: dict[str, Any] | None = None,
    record: dict[str, Any] | None = None,
    drop: str = "",
    steps: Sequence[dict[str, Any]] = (),
    value: str = "",
    errors: dict[str, Any] | None = None,
    client: dict[str, str] | None = None,
    create: dict[str, Any] | None = None,
) -> Definition:
    """A connector of these options; `drop`: lines with this text are dropped by a transform; `value`: the converter of values."""
    items = [*([{"drop_if": {"message": {"matches": drop}}}] if drop else []), *steps]
    transforms = [TRANSFORMS[next(iter(item))].options.model_validate(item) for item in items]
    converters = {"value": CONVERTERS[value].options.model_validate({"type": value})} if value else {}
    source = SOURCES["log_file"].options.model_validate(
        {"type": "log_file", "include": ("/x",), "line": line or {}, **({"multiline": multiline} if multiline else {})}
    )
    return Definition.model_validate(
        {
            "name": "app",
            "source": source,
            "transforms": tuple(transforms),
            "record": {"topic": topic, **(record or {})},
            "converters": converters,
            "errors": errors or {},
            "kafka": {"bootstrap_servers": (bootstrap,), "client": client or {}, "create_topics": create},
        }
    )


class OneByOne(Encoder):
    """An encoder that looks at each record by itself."""

    def bind(self, *arguments: Any, **more: Any) -> SplitEncoder:
        """See `Encoder.bind`."""
        made = super().bind(*arguments, **more)
        made.bulk = None
        return made


def split_of(path: Path, *, start: int = 0, end: int | None = None, final: bool = False, skipping: bool = False) -> Split:
    """A split of a whole file, or of a part of it."""
    end = path.stat().st_size if end is None else end
    return Split(SourcePartition("app", path.name), str(path), str(path), SourceOffset(start, skipping=skipping), end, final)


def batch_of(
    connector: Definition, *splits: Split, max_bytes: int = 2**26, max_seconds: float = 600.0, max_records: int = 0, samples: int = 0
) -> Batch:
    """One task's batch. By default its time does not run out: on a busy machine a few records may take many seconds."""
    return Batch(TaskId("app", 0), pickle.dumps(connector), splits, max_bytes, max_seconds, max_records, samples)


def after(split: Split, offset: SourceOffset) -> Split:
    """The split that is planned from this offset."""
    return replace(split, offset=offset)


def never() -> bool:
    """Nobody asks to stop."""
    return False


def write(path: Path, *lines: bytes) -> Path:
    """A file of these lines."""
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def append(path: Path, data: bytes) -> None:
    """More bytes."""
    with path.open("ab") as file:
        file.write(data)
