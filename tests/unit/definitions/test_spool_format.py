"""`source: {type: spool_dir, format: ...}` through the loader: a word or a map, with the place of everything that is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.definitions import load_file
from copycat_agent.options import AgentOptions
from copycat_agent.workbench.explaining import find_keys

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.definitions.load_result import LoadedFile


def load(tmp_path: Path, source: str, rest: str = "") -> LoadedFile:
    path = tmp_path / "x.yaml"
    path.write_text(f"name: x\nsource: {{type: spool_dir, dir: /in, {source}}}\nrecord: {{topic: t}}\n{rest}", "utf-8")
    return load_file(path, AgentOptions())


@pytest.mark.parametrize("source", ["format: csv", "format: {type: csv}"])
def test_a_format_is_a_word_or_a_map(tmp_path: Path, source: str) -> None:
    definition = load(tmp_path, source).definition
    assert definition is not None
    assert definition.source.format.type == "csv"  # type: ignore[attr-defined]


def test_a_pattern_is_one_or_a_list(tmp_path: Path) -> None:
    one, several = (load(tmp_path, f"pattern: {text}").definition for text in ('"*.csv"', '["*.csv", "*.gz"]'))
    assert one is not None
    assert several is not None
    assert one.source.pattern == ("*.csv",)  # type: ignore[attr-defined]
    assert several.source.pattern == ("*.csv", "*.gz")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("source", "place", "text", "hint"),
    [
        ("format: cvs", "cvs", "unknown format 'cvs'", "did you mean csv?"),
        ("format: {type: csv, delimitr: x}", "delimitr", "unknown key 'delimitr'", "did you mean delimiter?"),
        ("patern: x", "patern", "unknown key 'patern'", "did you mean pattern?"),
        ("format: {header: true}", "format", "the type of the format is missing", "known are"),
        ("order_by: {regex: '('}", "'('", "not a regular expression: missing ), unterminated subpattern at position 0", ""),
        ("order_by: siz", "siz", "needs one of mtime, name, size, none", "did you mean size?"),
        (
            "format: avro, unpack: {archives: true}",
            "true",
            "files of format avro cannot be read in archives",
            "delete it, or take the files out before they get here",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, source: str, place: str, text: str, hint: str) -> None:
    (problem,) = load(tmp_path, source).problems
    assert (problem.line, problem.text) == (2, text)
    assert problem.source_line[problem.column - 1 :].startswith(place)
    assert problem.hint.startswith(hint)


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    assert len(load(tmp_path, "patern: x, format: {type: csv, delimitr: x}, order_by: siz").problems) == 3


def test_ordering_none_is_for_whole_files(tmp_path: Path) -> None:
    assert load(tmp_path, "format: lines", "delivery: {ordering: none}\n").definition is not None
    path = tmp_path / "y.yaml"
    path.write_text("name: y\nsource: {type: log_file, include: [/x]}\nrecord: {topic: t}\ndelivery: {ordering: none}\n", "utf-8")
    (problem,) = load_file(path, AgentOptions()).problems
    assert "always read in order" in problem.text
    path.write_text(
        'name: y\nsource: {type: spool_dir, dir: /x}\nrecord: {topic: t, headers: {row: "{@record.number}"}}\ndelivery: {ordering: none}\n',
        "utf-8",
    )
    (problem,) = load_file(path, AgentOptions()).problems
    assert "@record.number" in problem.text


def test_options_of_formats_can_be_asked_for() -> None:
    found = [one for one in find_keys("source.format.delimiter") if "format csv" in one.where]
    assert [one.where.rpartition("source ")[2] for one in found] == ["spool_dir, format csv", "objects, format csv"]
    assert all("type: csv" in one.example for one in found)
