"""A sample of a well-known format is recognised, and its definition loads, keeps fmt's form, and parses all of the sample."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.cli.new import case_of, holds, tried
from copycat_agent.definitions import load_content, load_directory
from copycat_agent.definitions.formatting import format_text, quoted
from copycat_agent.options import AgentOptions, Definition
from copycat_agent.sources.files.paths.matching import mismatch
from copycat_agent.workbench.guessing import DefinitionDraft, Guess, draft, guess, look, name_for
from copycat_agent.workbench.guessing.log_layouts import ACCESS_LOGS, LAYOUTS
from copycat_agent.workbench.importing import fluent_bit_steps, vrl
from tests.rig.examples import examples
from tests.unit.workbench.guessing.known import SAMPLES

EXPECTED = {
    "nginx-combined": ("combined", "regex timestamp convert"),
    "apache-common": ("common", "regex timestamp convert"),
    "apache-vhost": ("virtual hosts", "regex timestamp convert"),
    "apache-error": ("Apache error", "regex timestamp convert"),
    "apache24-error": ("Apache error", "regex timestamp convert"),
    "nginx-error": ("nginx error", "regex timestamp convert"),
    "openssh": ("RFC 3164", "syslog"),
    "linux": ("RFC 3164", "syslog"),
    "syslog-pri": ("RFC 3164", "syslog"),
    "syslog-5424": ("RFC 5424", "syslog"),
    "syslog-iso": ("rsyslog", "regex timestamp"),
    "json": ("JSON", "json timestamp"),
    "json-epoch": ("JSON", "json timestamp"),
    "logfmt": ("logfmt", "logfmt timestamp convert"),
    "cri": ("CRI", "cri"),
    "cri-json": ("JSON", "cri json"),
    "docker": ("Docker", "docker"),
    "python": ("Python", "regex timestamp"),
    "python-basic": ("Python", "regex"),
    "logback": ("logback", "regex timestamp"),
    "log4j": ("log4j", "regex timestamp"),
    "spring": ("Spring", "regex timestamp convert"),
    "zookeeper": ("ZooKeeper", "regex timestamp"),
    "hdfs": ("HDFS", "regex timestamp convert"),
    "spark": ("Spark", "regex timestamp"),
    "android": ("Android", "drop_if regex timestamp convert"),
    "apache-scanned": ("combined", "regex timestamp convert"),
    "nginx-longer": ("more behind it", "regex timestamp convert"),
    "w3c": ("IIS", "drop_if regex timestamp convert"),
    "ecs": ("JSON", "json timestamp"),
    "mongodb": ("JSON", "json timestamp"),
    "log4j2-json": ("JSON", "json timestamp"),
    "kafka": ("Kafka", "regex timestamp"),
    "hadoop": ("Hadoop", "regex timestamp"),
    "klog": ("klog", "regex timestamp convert"),
    "go": ("Go", "regex timestamp"),
    "level": ("level", "regex timestamp"),
    "csv": ("5 columns", "csv drop_if convert"),
    "csv-semicolon": ("semicolons", "csv drop_if convert"),
    "tsv": ("tabs", "csv drop_if convert"),
    "pairs": ("pairs", "key_value convert"),
    "plain": ("plain", ""),
}


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def loaded(text: str) -> Definition:
    found = load_content(Path("x.yaml"), text.encode(), AgentOptions(), environ={})
    assert found.problems == ()
    assert found.definition is not None
    assert format_text(text.encode()) == text
    return found.definition


def test_each_sample_is_expected_to_be_something() -> None:
    assert SAMPLES.keys() == EXPECTED.keys()


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_known_format_is_recognised_and_all_of_the_sample_parses_with_a_test_that_passes(kind: str, tmp_path: Path) -> None:
    sample = look(written(tmp_path / f"{kind}.log", SAMPLES[kind]))
    found = guess(sample.lines)
    what, actions = EXPECTED[kind]
    assert what in found.what
    assert " ".join(step.action for step in found.steps) == actions
    parts = DefinitionDraft("log_file", kind, f"logs.{kind}", sample.path, found)
    results = tried(loaded(draft(parts)), sample)
    assert (results.good, results.bad, results.error) == (results.total, (), "")
    assert results.total > 15
    case = case_of(parts, sample, results)
    assert case is not None
    definition = loaded(draft(parts._replace(case=case)))
    assert len(definition.tests) == 1
    assert holds(definition)


@pytest.mark.parametrize(("kind", "preset"), [("python", "python"), ("logback", "java"), ("spring", "java")])
def test_a_stack_trace_is_one_record_with_its_line(kind: str, preset: str, tmp_path: Path) -> None:
    sample = look(written(tmp_path / "a.log", SAMPLES[kind]))
    parts = DefinitionDraft("log_file", "a", "t", sample.path, guess(sample.lines))
    assert parts.guess is not None
    assert parts.guess.multiline == {"preset": preset}
    results = tried(loaded(draft(parts)), sample)
    (trace,) = [one for one in results.records if one.raw is not None and one.raw.rstrip().count(b"\n") > 2]
    assert isinstance(trace.outputs[0].value, Mapping)
    assert trace.outputs[0].value["message"].count("\n") == trace.raw.rstrip().count(b"\n")  # type: ignore[union-attr]


def test_lines_that_do_not_parse_are_told_by_number(tmp_path: Path) -> None:
    lines = SAMPLES["nginx-combined"]
    sample = look(written(tmp_path / "a.log", [*lines[:10], "garbage", *lines[10:], "more"]))
    results = tried(loaded(draft(DefinitionDraft("log_file", "a", "t", sample.path, guess(sample.lines)))), sample)
    assert (results.good, results.total, results.bad) == (30, 32, (11, 32))


@pytest.mark.parametrize(
    ("codec", "mark", "option"),
    [
        ("utf-8", "\ufeff", "auto"), ("utf-16-le", "\ufeff", "auto"), ("utf-16-be", "\ufeff", "auto"), ("utf-16-le", "", "utf-16-le"),
        ("latin-1", "", "latin-1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("subject", ["log_file", "spool_dir"])
def test_what_is_no_utf8_gets_its_encoding(tmp_path: Path, subject: str, codec: str, mark: str, option: str) -> None:
    path = tmp_path / "a.log"
    path.write_bytes((mark + "\r\n".join([*(line.replace("paid", "bezahlt, Grüße") for line in SAMPLES["level"]), ""])).encode(codec))
    sample = look(path)
    assert sample.encoding == option
    parts = DefinitionDraft(subject, "a", "t", path, guess(sample.lines), encoding=sample.encoding)
    results = tried(loaded(draft(parts)), sample)
    assert (results.good, results.total) == (30, 30)
    case = case_of(parts, sample, results)
    assert case is not None
    assert holds(loaded(draft(parts._replace(case=case))))


def test_bytes_that_are_no_text_are_told_from_a_log_with_a_hole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(range(256)) * 20)
    assert look(path).kind == "binary"
    path.write_bytes(b"\0" * 4096 + b"2026-11-22 05:00:00 after a truncation\n")
    assert look(path).kind == ""


def test_a_line_that_is_longer_than_what_is_looked_at_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("x" * 300_000)
    assert look(path).is_cut
    path.write_text("x\n" * 300_000)
    assert not look(path).is_cut


def test_the_name_of_a_sample_is_no_pattern(tmp_path: Path) -> None:
    path = tmp_path / "[a]*?.log"
    path.write_text("x\n")
    (pattern,) = yaml.safe_load(draft(DefinitionDraft("log_file", "a", "t", path)))["source"]["include"]
    assert mismatch([pattern], str(path)) is None
    assert mismatch([pattern], str(tmp_path / "a1.log")) is not None


def test_a_spooled_table_gets_its_delimiter_header_and_types(tmp_path: Path) -> None:
    sample = look(written(tmp_path / "orders.csv", SAMPLES["csv"]))
    parts = DefinitionDraft("spool_dir", "orders", "t", sample.path, guess(sample.lines))
    document = yaml.safe_load(draft(parts))
    assert document["source"]["format"] == {
        "type": "csv", "header": True, "types": {"day": "date", "qty": "int", "price": "decimal(18,2)", "paid": "bool"},
    }  # fmt: skip
    assert document["source"]["pattern"] == "*.csv*"
    assert "transforms" not in document
    results = tried(loaded(draft(parts)), sample)
    case = case_of(parts, sample, results)
    assert case is not None
    assert case.lines[0] == SAMPLES["csv"][0], "the header belongs to the test"
    assert holds(loaded(draft(parts._replace(case=case))))


@pytest.mark.parametrize("subject", ["log_file", "spool_dir"])
def test_each_option_that_is_commented_out_can_be_uncommented(subject: str) -> None:
    text = draft(DefinitionDraft(subject, "a", "t"))
    loaded(text)
    options = [line for line in text.splitlines() if re.match(r" *# [a-z_]+: [\[{a-z]", line) and "`" not in line]
    assert len(options) > 8
    for line in options:
        key = line.partition("# ")[2].partition(":")[0]
        indent = line.partition("#")[0]
        others = [one for one in text.splitlines() if not re.match(rf"{indent}{key}:", one)]
        others[others.index(line)] = line.replace("# ", "", 1)
        problems = load_content(Path("x.yaml"), "\n".join(others).encode(), AgentOptions(), environ={}).problems
        assert problems == (), line


def test_names_come_from_files() -> None:
    names = {
        "access.log.1.gz": "access",
        "Shop API.log": "shop-api",
        "orders-1.csv": "orders-1",
        "app.log-20261122": "app",
        "...": "log-file",
    }
    assert {name: name_for(Path(name), "log_file") for name in names} == names
    assert name_for(None, "spool_dir") == "spool-dir"


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=60), min_size=1, max_size=8))
def test_any_text_is_something_and_what_it_is_can_be_written_down(lines: list[str]) -> None:
    found: Guess = guess(lines)
    text = draft(DefinitionDraft("log_file", "a", "t", Path("/var/log/a.log"), found))
    assert load_content(Path("x.yaml"), text.encode(), AgentOptions(), environ={}).problems == ()


def test_no_pattern_that_is_written_down_is_slow(tmp_path: Path) -> None:
    patterns = [
        *(layout.pattern for layout in LAYOUTS),
        *(pattern for _, pattern, _ in ACCESS_LOGS),
        vrl.ACCESS_LINE,
        fluent_bit_steps.ACCESS_LINE,
    ]
    for number, pattern in enumerate(patterns):
        steps = f"transforms:\n  - regex: {quoted(pattern)}\n"
        text = f"name: x{number}\nsource: {{type: log_file, include: [/x{number}]}}\n{steps}record: {{topic: t}}\n"
        (tmp_path / f"{number}.yaml").write_text(text, "utf-8")
    loaded = load_directory(tmp_path, AgentOptions(), environ={})
    assert len(loaded.definitions) == len(patterns)
    assert [one.text for one in loaded.warnings] == []
