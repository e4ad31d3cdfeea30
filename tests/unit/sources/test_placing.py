"""`place`: an offset that a person chose, in files of any encoding, delimiter and packing."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from copycat_agent.cli.offsets_access import rules_of
from copycat_agent.errors import DataError
from copycat_agent.model import SourceState
from copycat_agent.sources.log_file.beginning.manual_position import LineRules, StartPosition, place
from tests.unit.sources.rig import Agent, agent_for
from tests.unit.sources.saved import remount
from tests.unit.sources.spool.rig import Spool, lines

if TYPE_CHECKING:
    from pathlib import Path


def placed(path: Path, wanted: str, rules: LineRules | None = None) -> StartPosition:
    return place("app", {}, wanted, path=str(path), rules=rules)


def read_on(agent: Agent, chosen: StartPosition) -> list[bytes]:
    """What an agent reads that starts with the chosen offset."""
    agent.store[chosen.partition] = chosen.offset
    agent.state = SourceState({"first_ms": 1, "seen_ms": 0, "rotations": 0, "ahead_ns": 0, "boot": ""})
    agent.restart()
    agent.drain()
    assert agent.losses == []
    return agent.lines


@pytest.mark.parametrize(
    ("rules", "data", "second"),
    [
        (LineRules("||"), b"one||two||thr", 5),
        (LineRules("\r\n"), b"one\r\ntwo\r\nthr", 5),
        (LineRules(encoding="utf-16-le"), "one\n\u0a0awo\nthr".encode("utf-16-le"), 8),
        (LineRules(), "one\n\u0a0awo\nthr".encode("utf-16"), 10),
    ],
)
def test_lines_begin_where_the_definition_says(tmp_path: Path, rules: LineRules, data: bytes, second: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(data)
    chosen = placed(path, str(second), rules)
    assert (chosen.offset.position, chosen.offset.records, chosen.doubts) == (second, 1, ())
    assert placed(path, "end", rules).offset.records == 2
    (doubt,) = placed(path, str(second + 1), rules).doubts
    assert f"it begins at {second}" in doubt


def test_lines_are_counted_across_blocks(tmp_path: Path) -> None:
    path = tmp_path / "f"
    utf_32 = (LineRules(encoding="utf-32-be"), "ab\n".encode("utf-32-be"))
    for rules, line in ((LineRules(), b"a\n"), (LineRules("|||"), b"abcdef|||"), utf_32):
        path.write_bytes(line * 500_000 + b"x")
        chosen = placed(path, "end", rules)
        assert (chosen.offset.position, chosen.offset.records, chosen.doubts) == (len(line) * 500_000, 500_000, ())


def test_a_packed_file_is_read_on_from_a_byte_of_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "f.gz"
    lines = [b"line %d" % number for number in range(1000)]
    path.write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    position = len(b"\n".join(lines[:990])) + 1
    chosen = placed(path, str(position))
    assert (chosen.offset.compression, chosen.offset.records, chosen.offset.size, chosen.doubts) == ("gzip", 990, path.stat().st_size, ())
    offset = placed(path, "end").offset
    assert (offset.done, offset.records) == (True, 1000)
    (doubt,) = placed(path, "100000").doubts
    assert "bytes long unpacked" in doubt
    (doubt,) = placed(path, str(position + 1)).doubts
    assert f"it begins at {position}" in doubt


def test_what_is_not_to_be_unpacked_is_not(tmp_path: Path) -> None:
    path = tmp_path / "f.gz"
    path.write_bytes(gzip.compress(b"line\n" * 9))
    assert not placed(path, "5", LineRules(unpacks=False)).offset.compression


def test_a_damaged_archive_says_so(tmp_path: Path) -> None:
    path = tmp_path / "f.gz"
    path.write_bytes(gzip.compress(b"line\n" * 9)[:-6] + b"damage")
    assert any("damaged behind byte 45" in doubt for doubt in placed(path, "5").doubts)


def test_the_agent_goes_on_where_it_was_put(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one\ntwo\nthree\n")
    assert read_on(agent_for(tmp_path), placed(path, "4")) == [b"two", b"three"]


def test_a_file_whose_device_number_has_changed_keeps_its_key(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one\ntwo\n")
    agent = agent_for(tmp_path)
    agent.drain()
    saved = remount(agent.store)
    key = next(one.key for one in saved)
    by_path, by_key = place("app", saved, "4", path=str(path)), place("app", saved, "4", key=key)
    assert by_path == by_key
    assert (by_path.partition.key, by_path.doubts) == (key, ())
    ranges = {one._replace(key=f"{one.key}:0-4"): offset for one, offset in saved.items() if one.key == key}
    with pytest.raises(DataError, match="in 1 ranges"):
        place("app", ranges, "4", path=str(path))


@pytest.mark.parametrize(("wanted", "sent"), [("4", [b"two"]), ("end", []), ("beginning", [b"one", b"two"])])
def test_a_spooled_file_that_was_never_read_is_read_on_from_where_it_was_put(tmp_path: Path, wanted: str, sent: list[bytes]) -> None:
    """Its row says which file it is of: without the modification time it would be set aside as a file that has changed."""
    (tmp_path / "in").mkdir()
    spool = Spool(tmp_path / "in", cleanup={"policy": "delete"})
    path = spool.drop("a", lines("one", "two"))
    chosen = place("drops", {}, wanted, path=str(path), rules=rules_of(spool.definition.source.model_dump()))
    spool.store[chosen.partition] = chosen.offset
    spool.restart()
    spool.drain()
    assert (spool.arrived, spool.losses, path.exists()) == (sent, [], False)


def test_the_lines_of_a_spooled_file_are_those_of_its_format(tmp_path: Path) -> None:
    spool = Spool(tmp_path, format={"type": "lines", "line": {"delimiter": "|"}})
    path = spool.drop("a", b"one|two|thr")
    chosen = placed(path, "end", rules_of(spool.definition.source.model_dump()))
    assert (chosen.offset.position, chosen.doubts) == (8, ())
