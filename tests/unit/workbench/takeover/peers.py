"""States of peers as they write them, and what a takeover makes of them, with an agent that goes on from there."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from copycat_agent import logs
from copycat_agent.definitions import load_content
from copycat_agent.errors import CopycatError
from copycat_agent.model import SavedRow, SourceOffset, SourcePartition, offsets_in
from copycat_agent.options import AgentOptions
from copycat_agent.sources.log_file.beginning.manual_position import LineRules
from copycat_agent.workbench.takeover import PEERS, FileDecision, PeerState, Successor, Takeover, take_over
from tests.unit.sources.rig import Agent
from tests.unit.sources.spool.rig import Spool

LINES = b"one\ntwo\nthree\n"
_LOG = logs.get("test")
_MAP = (
    b"\xac\xed\x00\x05sr\x00\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16`\xd1\x03\x00\x02F\x00\nloadFactorI\x00\tthresholdxp"
    b"?@\x00\x00\x00\x00\x00\x0cw\x08"
)
"""Java's serialized map as far as its number of buckets, as the JDK writes it."""
_FIRST_ARRAY, _LATER_ARRAY = b"ur\x00\x02[B\xac\xf3\x17\xf8\x06\x08T\xe0\x02\x00\x00xp", b"uq\x00~\x00\x02"


def successor(include: Path | str, name: str = "app", *, pipelines: frozenset[str] | None = None, **source: object) -> Successor:
    """A connector of log files that takes over."""
    return _successor(name, f"type: log_file, include: ['{include}']", source, pipelines)


def spooling(directory: Path, name: str = "app", *, pipelines: frozenset[str] | None = None, **source: object) -> Successor:
    """A connector of spooled lines that takes over."""
    return _successor(name, f"type: spool_dir, dir: '{directory}'", {"format": "lines", "cleanup": {"policy": "none"}} | source, pipelines)


def _successor(name: str, source: str, options: Mapping[str, object], pipelines: frozenset[str] | None) -> Successor:
    more = "".join(f", {key}: {value}" for key, value in options.items())
    text = f"name: {name}\nsource: {{{source}{more}}}\nrecord: {{topic: t}}\n"
    text += "kafka: {bootstrap_servers: ['127.0.0.1:1']}\n"
    loaded = load_content(Path(f"{name}.yaml"), text.encode(), AgentOptions())
    assert loaded.definition is not None, loaded.problems
    return Successor(loaded.definition, LineRules(), pipelines)


def taken_over(*successors: Successor, state: PeerState, trust_names: bool = False) -> Takeover:
    """What is made of a peer's state."""
    return take_over(successors, state, _LOG, trust_names=trust_names)


def offsets(takeover: Takeover) -> dict[SourcePartition, SourceOffset]:
    """What is to be saved of files, whosever they are."""
    return {partition: offset for rows in takeover.rows.values() for partition, offset in offsets_in(rows).items()}


def judged(takeover: Takeover) -> dict[str, FileDecision]:
    """Judgements by the names of their files."""
    return {Path(one.path).name: one for one in takeover.decisions}


def read_on(include: Path | str, rows: Mapping[SourcePartition, SavedRow], **options: Any) -> list[bytes]:
    """The lines that an agent reads which starts with these rows; nothing may count as lost."""
    agent = Agent((str(include),), **options)
    agent.saved = rows
    agent.restart()
    agent.drain()
    assert agent.losses == []
    return agent.lines


def read_spooled(directory: Path, takeover: Takeover, **options: Any) -> list[bytes]:
    """The records that an agent reads in a spool directory which starts with what was taken over."""
    spool = Spool(directory, **({"cleanup": {"policy": "none"}} | options))
    spool.store = {SourcePartition("drops", partition.key): offset for partition, offset in offsets(takeover).items()}
    spool.restart()
    spool.drain()
    return spool.arrived


def refused(product: str, state: Path) -> str:
    """The words with which a state is refused. They name the file."""
    with pytest.raises(CopycatError) as caught:
        PEERS[product](state)
    assert str(state.parent) in caught.value.message
    return caught.value.message


def assert_never_crashes(product: str, state: Path, whole: bytes, target: Path) -> None:
    """No beginning of a state, and no byte of it that is another one, makes its reader raise anything but an error for people.

    `target` is the file that is spoilt, `state` what is read.
    """
    spoilt = [whole[:size] for size in range(len(whole))] + [b"", b"\0" * 64, b"[" * 100_000, os.urandom(500), b"\xff\xfe"]
    spoilt += [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in range(len(whole))]
    for content in spoilt:
        target.write_bytes(content)
        try:
            PEERS[product](state)
        except CopycatError:
            continue


def java_map(entries: Mapping[bytes, bytes | None]) -> bytes:
    """A `HashMap<byte[], byte[]>` as Connect's FileOffsetBackingStore writes it."""
    out, array = _MAP + struct.pack(">ii", 16, len(entries)), _FIRST_ARRAY
    for pair in entries.items():
        for one in pair:
            out += b"p" if one is None else array + struct.pack(">i", len(one)) + one
            array = _LATER_ARRAY
    return out + b"x"
