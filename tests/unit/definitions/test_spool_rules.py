"""A spool directory's definition says what cannot work, and what would take away or repeat another connector's files."""

from __future__ import annotations

import pytest

from tests.unit.definitions.conftest import Load


def definition(source: str, name: str = "app", topic: str = "t") -> str:
    return f"name: {name}\nsource: {{{source}}}\nrecord: {{topic: {topic}}}\n"


def spool(rest: str = "", cleanup: str = "", directory: str = "/spool/in", name: str = "app", topic: str = "t") -> str:
    more = (f", {rest}" if rest else "") + (f", cleanup: {{{cleanup}}}" if cleanup else "")
    return definition(f"type: spool_dir, dir: {directory}{more}", name, topic)


GOOD = [
    spool(), spool(cleanup="policy: delete"), spool(cleanup="policy: move, to: /spool/done"),
    spool(cleanup="failed_to: /spool/bad, retain: 14d"), spool('ready: {done_file: "{name}.ok"}'), spool("ready: {done_file: _SUCCESS}"),
    spool(cleanup="policy: move, to: /spool/in/done"), spool("recursive: true", "policy: move, to: /spool/in-done"),
    spool(cleanup="policy: move_by_date, to: /spool, failed_to: /spool, retain: 14d, across_devices: copy"),
]  # fmt: skip
BAD = [
    (spool(directory="spool"), "an absolute path", "start it with /"),
    (spool(directory='"/spool/*"'), "no wildcards", "pattern"),
    (spool(directory="/spool/../in"), "without ..", "/in"),
    (spool('pattern: "sub/*.csv"'), "no slash", "recursive: true"),
    (spool('pattern: ["*", ../x]'), "no slash", "recursive: true"),
    (spool('ready: {done_file: "../{name}"}'), "no name of a file", "{name}.done"),
    (spool("ready: {done_file: ..}"), "no name of a file", "{name}.done"),
    (spool('ready: {done_file: "{nam}.ok"}'), "{nam} stands for nothing", "{name}.done"),
    (spool(cleanup="policy: move"), "needs a directory", "to: /DIR"),
    (spool(cleanup="policy: move_by_date, failed_to: /bad"), "move_by_date needs a directory", "to: /DIR"),
    (spool(cleanup="policy: delete, to: /done"), "has no effect with policy: delete", "policy: move"),
    (spool(cleanup="to: /done"), "has no effect with policy: none", "policy: move"),
    (spool(cleanup="policy: delete, retain: 14d"), "has no effect without a directory", "delete retain"),
    (spool(cleanup="policy: move, to: done"), "an absolute path", "start it with /"),
    (spool(cleanup="policy: move, to: /spool/in"), "would be read again", "another directory"),
    (spool(cleanup="policy: move, to: //spool/./in/"), "would be read again", "another directory"),
    (spool(cleanup="failed_to: /spool/in"), "would be read again", "another directory"),
    (spool("recursive: true", "policy: move, to: /spool/in/done"), "would be read again", "recursive: false"),
    (spool("recursive: true", "policy: move, to: /spool"), "read again", "recursive: false"),
]


@pytest.mark.parametrize("text", GOOD)
def test_what_works_is_good(load: Load, text: str) -> None:
    loaded = load(text)
    assert not loaded.problems
    assert not loaded.warnings


@pytest.mark.parametrize(("text", "words", "hint"), BAD)
def test_what_cannot_work_is_told_with_the_way_out(load: Load, text: str, words: str, hint: str) -> None:
    (problem,) = load(text).problems
    assert words in problem.text
    assert hint in problem.hint
    assert problem.line == 2


LOG = "type: log_file, include: [/spool/in/*.log]"


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        (definition(LOG, "tail", "u"), True),
        (definition("type: log_file, include: ['/spool/**/*.log']", "tail", "u"), True),
        (definition("type: log_file, include: ['/spool/in/deep/*.log']", "tail", "u"), False),
        (definition(LOG + ", exclude: ['*']", "tail", "u"), False),
        (definition(LOG, "tail", "u") + "enabled: false\n", False),
        (spool("pattern: 'a*'", directory="/spool/in/", name="tail", topic="u"), True),
        (spool("recursive: true", directory="/spool", name="tail", topic="u"), True),
        (spool("pattern: '*.csv', exclude: ['*.csv']", name="tail", topic="u"), False),
        (spool(directory="/spool", name="tail", topic="u"), False),
    ],
)
@pytest.mark.parametrize(("cleanup", "does"), [("policy: delete", "deletes"), ("policy: move, to: /done", "moves away")])
def test_cleanup_of_what_another_connector_reads_is_an_error_that_names_both(
    load: Load, other: str, shared: bool, cleanup: str, does: str
) -> None:
    loaded = load(spool(cleanup=cleanup), other)
    assert len(loaded.problems) == shared
    if shared:
        (problem,) = loaded.problems
        assert f"app {does} files that tail (" in problem.text
        assert problem.path.endswith("a.yaml")
        assert [*loaded.definitions] == ["tail"], "the other one is none the worse"


@pytest.mark.parametrize("other", [definition(LOG, "tail", "u"), spool(name="tail", topic="u")])
def test_log_files_that_another_connector_reads_are_not_deleted(load: Load, other: str) -> None:
    loaded = load(definition(LOG + ", cleanup: {policy: delete}"), other)
    assert "app deletes files that tail (" in loaded.problems[0].text
    assert [*loaded.definitions] == ["tail"]


@pytest.mark.parametrize("passed_over", ["start_at: end", 'start_at: "2026-01-01T00:00:00Z"', "ignore_older: 7d"])
def test_log_files_that_nobody_has_read_are_not_deleted(load: Load, passed_over: str) -> None:
    (problem,) = load(definition(f"{LOG}, cleanup: {{policy: delete}}, {passed_over}")).problems
    assert "which nobody has read" in problem.text
    assert "start_at: beginning" in problem.hint
    assert not load(definition(f"{LOG}, {passed_over}")).problems


def test_without_cleanup_two_may_read_one_directory(load: Load) -> None:
    assert not load(spool(), definition(LOG, "tail", "u")).problems


def test_files_moved_to_where_another_connector_sends_them_again_are_a_warning(load: Load) -> None:
    mine = spool(cleanup="policy: move_by_date, to: /done")
    again = definition("type: log_file, include: ['/done/*/*']", "again")
    assert [warning.text for warning in load(mine, again).warnings if "moves files to /done" in warning.text]
    assert not load(mine, definition("type: log_file, include: ['/done/*/*']", "again", "u")).warnings
    assert not load(mine, definition("type: log_file, include: ['/else/*/*']", "again")).warnings
