"""`copycat explain`: why a file is read, from where, as what; why it is not; what an option means."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from copycat_agent.cli.main import app
from copycat_agent.definitions import load_agent, load_content
from copycat_agent.errors import DefinitionError, Problem
from copycat_agent.model import Fingerprint
from copycat_agent.offsets import OffsetStore
from copycat_agent.offsets.store_reader import saved_offsets
from copycat_agent.options import AgentOptions
from copycat_agent.sinks.claims import Claims, LocalFile, Range
from copycat_agent.sinks.sink_stores import store_at
from copycat_agent.sources.files.paths import regular_files
from copycat_agent.workbench.explaining.keys import OptionKey, all_keys
from tests.cli.conftest import COMMAND
from tests.cli.test_dry_run import run_to_the_end
from tests.faults.conftest import LIKE_ANYONE

if TYPE_CHECKING:
    from typer.testing import Result


Ask = Callable[..., "Result"]


@pytest.fixture
def ask(connectors: Path, tmp_path: Path) -> Ask:
    """`ask(path, "-n", "2")` explains a path by the definitions of `connectors`, in this process."""

    def call(path: str | Path, *options: str) -> Result:
        arguments = ["explain", os.fsdecode(path), str(connectors), "--state-dir", str(tmp_path / "state"), *options]
        return CliRunner().invoke(app, arguments, catch_exceptions=False)

    return call


def test_a_hard_link_that_anybody_may_have_made_is_told_with_the_way_to_read_it(
    environment: dict[str, str], connectors: Path, tmp_path: Path
) -> None:
    """A real command, to which the kernel's setting shows as 0."""
    logs = tmp_path / "logs"
    logs.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("another user's\n")
    (logs / "app.log").hardlink_to(secret)
    (connectors / "app.yaml").write_text(f"name: app\nsource: {{type: log_file, include: ['{logs}/*.log']}}\nrecord: {{topic: t}}\n")
    unprotected = tmp_path / "protected_hardlinks"
    unprotected.write_text("0\n")
    script = f'mount --bind {unprotected} {regular_files.SYSCTL} || exit 99; exec "$@"'
    asked = ["unshare", "-m", "sh", "-c", script, "sh", *COMMAND, "explain", str(logs / "app.log"), str(connectors)]
    try:
        os.chown(secret, 64_321, 64_321)
        done = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=90, check=False, cwd=tmp_path)
    except OSError as error:
        pytest.skip(f"files cannot be given away, or namespaces made, here: {error}")
    if done.returncode in (1, 99) and not done.stdout:
        pytest.skip(f"no mount namespace here: {done.stderr}")
    assert "another user's" not in done.stdout
    assert "several hard links" in done.stdout
    assert "set follow_hard_links: true" in done.stdout


@pytest.fixture
def change(connectors: Path) -> Callable[..., None]:
    """`change("app", "log_file,", "log_file, start_at: end,")` edits a definition."""

    def edit(name: str, old: str, new: str) -> None:
        path = connectors / f"{name}.yaml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))

    return edit


def report(ask: Ask, path: str | Path, *options: str) -> list[dict[str, Any]]:
    done = ask(path, "--format", "json", *options)
    found: list[dict[str, Any]] = json.loads(done.stdout)["connectors"]
    return found


def test_a_file_that_is_read_is_told_with_everything_about_it(
    ask: Ask, define: Callable[..., Path], change: Callable[..., None], tmp_path: Path
) -> None:
    logs = define("app", "'t.{@file.name}'")
    change("app", "record: {", 'record: {key: "{message}", partition: 3, headers: {host: "{@connector}"}, ')
    (logs / "a.log").write_text("one\ntwo\nthr")
    done = ask(logs / "a.log")
    assert done.exit_code == 0
    inode = (logs / "a.log").stat().st_ino
    for words in (
        f"{logs}/a.log: one connector reads it", "app reads it", f"pattern       {logs}/*.log", f"inode {inode}", "no offset",
        "byte 0 of 11: start_at beginning", "unread        11 bytes", "t.{@file.name}", "always 3", "the next 2, as they would be sent",
        "bytes 0 to 4  -> t.a.log  key one  partition 3  host: app\n      one\n", "bytes 4 to 8",
    ):  # fmt: skip
        assert words in done.stdout, words
    assert "thr" not in done.stdout, "nobody has finished this line"
    assert not (tmp_path / "state").exists(), "it changes nothing"


def test_for_programs_it_says_the_same(ask: Ask, define: Callable[..., Path]) -> None:
    logs = define("app")
    (logs / "a.log").write_bytes(b"one\n\xff\ntwo\n")
    (entry,) = report(ask, logs / "a.log", "-n", "2")
    assert (entry["connector"], entry["takes"], entry["position"], entry["size"], entry["unread"]) == ("app", True, 0, 10, 10)
    assert (entry["saved"], entry["why_not"], entry["error"], entry["pattern"]) == (None, None, None, f"{logs}/*.log")
    assert [(record["fate"], record["start"], record["end"], record["topic"]) for record in entry["records"]] == [
        ("sent", 0, 4, "t"), ("sent", 4, 6, "t"),
    ]  # fmt: skip
    assert [record["value"] for record in entry["records"]] == ["one", {"base64": "/w=="}]
    assert report(ask, logs / "a.log", "-n", "0")[0]["records"] == []
    (refused,) = report(ask, logs / "b.txt")
    assert (refused["takes"], "position" in refused) == (False, False)


def link(logs: Path) -> None:
    (logs.parent / "real").write_text("x\n")
    (logs / "a.log").symlink_to(logs.parent / "real")


def linked_directory(logs: Path) -> None:
    (logs.parent / "elsewhere").mkdir()
    (logs.parent / "elsewhere/a.log").write_text("x\n")
    (logs / "sub").symlink_to(logs.parent / "elsewhere")


@pytest.mark.parametrize(
    ("include", "name", "make", "words"),
    [
        ("*.log", "a.txt", Path.touch, "*.log does not name it: a.txt does not match *.log"),
        ("*.log", ".a.log", Path.touch, ".a.log is hidden: wildcards do not match a leading dot"),
        ("**/*.log", ".git/a.log", None, ".git is hidden"),
        ("*.log", "sub/a.log", None, "*.log names files, it does not go into sub: **/*.log would"),
        ("a.log", "a.log/b", None, "the pattern ends at a.log"),
        ("*/*.log", "a.log", Path.touch, "the pattern goes on below it: /*.log"),
        ("*.log', '/srv/x/*.txt", "b.txt", Path.touch, "none of its 2 patterns names it, the nearest is"),
        ("*.log", "a.log", os.mkfifo, "not a regular file"),
        ("*.log", "a.log", Path.mkdir, "directory"),
        ("*.log", "a.log", None, "there is no such file now"),
        ("sub/*.log", "sub/a.log", None, "/sub"),
        ("*/*.log", "sub/a.log", None, "there is no directory"),
        ("*.log", "a.log", lambda path: link(path.parent), "symbolic link"),
        ("*/*.log", "sub/a.log", lambda path: linked_directory(path.parent.parent), "symbolic link"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_read_comes_with_the_reason(
    ask: Ask,
    define: Callable[..., Path],
    change: Callable[..., None],
    include: str,
    name: str,
    make: Callable[[Path], Any] | None,
    words: str,
) -> None:
    logs = define("app")
    change("app", f"{logs}/*.log", f"{logs}/{include}")
    if make is not None:
        make(logs / name)
    done = ask(logs / name)
    assert (done.exit_code, "app does not read it" in done.stdout) == (1, True)
    assert words in done.stdout
    assert report(ask, logs / name)[0]["takes"] is False


def test_an_excluded_file_is_told_with_the_pattern(ask: Ask, define: Callable[..., Path], change: Callable[..., None]) -> None:
    logs = define("app")
    change("app", "log_file,", "log_file, exclude: ['x*', '*-debug.log'],")
    (logs / "a-debug.log").touch()
    assert "source.exclude leaves it out, by *-debug.log" in ask(logs / "a-debug.log").stdout


def test_a_disabled_connector_reads_nothing_and_says_what_it_would(ask: Ask, define: Callable[..., Path]) -> None:
    logs = define("app", more="enabled: false\n")
    (logs / "a.log").write_text("one\n")
    done = ask(logs / "a.log")
    assert (done.exit_code, "would read it, and is disabled" in done.stdout, "\n      one" in done.stdout) == (1, True, True)


def test_definitions_that_do_not_load_are_named(ask: Ask, define: Callable[..., Path], connectors: Path) -> None:
    (connectors / "bad.yaml").write_text("name: bad\n")
    done = ask("/x/a.log")
    assert (done.exit_code, done.stdout) == (78, "")
    assert "source is missing" in done.stderr
    logs = define("app")
    (logs / "a.log").write_text("one\n")
    done = ask(logs / "a.log")
    assert (done.exit_code, "bad.yaml does not load" in done.stderr) == (0, True)


@pytest.mark.skipif(os.geteuid() == 0 and not LIKE_ANYONE, reason="no setpriv, and root may read everything")
@pytest.mark.parametrize(("closed", "words"), [("a.log", "may not read"), ("", "may not pass through")])
def test_a_file_that_may_not_be_opened_comes_with_who_needs_what(
    define: Callable[..., Path], connectors: Path, environment: dict[str, str], tmp_path: Path, closed: str, words: str
) -> None:
    logs = define("app")
    (logs / "a.log").write_text("one\n")
    (logs / closed).chmod(0o000)
    command = [*LIKE_ANYONE, *COMMAND, "explain", f"{logs}/a.log", str(connectors)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    (logs / closed).chmod(0o755)
    assert done.returncode == 1, done.stderr
    assert "Permission denied" in done.stdout or words in done.stdout
    assert "setfacl" in done.stdout


def test_it_goes_on_where_a_run_would_and_says_why(ask: Ask, define: Callable[..., Path], connectors: Path, tmp_path: Path) -> None:
    logs, state = define("app"), tmp_path / "state"
    (logs / "a.log").write_text("one\n")
    run_to_the_end(connectors, state)
    assert "unread        nothing" in ask(logs / "a.log").stdout
    with (logs / "a.log").open("a") as log:
        log.write("two\n")
    before = saved_offsets(state)
    (entry,) = report(ask, logs / "a.log")
    assert (entry["position"], entry["saved"]["records"], [one["value"] for one in entry["records"]]) == (4, 1, ["two"])
    assert "still holds" in entry["why"]
    with (logs / "a.log").open("a") as log:
        log.write("half")
    assert report(ask, logs / "a.log")[0]["unread"] == 8
    (logs / "a.log").write_text("other\nbytes\n")
    (entry,) = report(ask, logs / "a.log")
    assert (entry["position"], "begins anew" in entry["why"], entry["file_key"][-1]) == (0, True, "1")
    assert saved_offsets(state) == before
    with OffsetStore.open(state):  # as an agent that runs
        assert ask(logs / "a.log").exit_code == 0


def test_a_line_that_is_not_finished_is_no_record_yet(ask: Ask, define: Callable[..., Path]) -> None:
    logs = define("app")
    (logs / "a.log").write_text("half")
    assert "records       no whole record yet" in ask(logs / "a.log").stdout
    (logs / "a.log").write_text("one\nhalf")
    assert "then 4 bytes that make no whole record yet" in ask(logs / "a.log").stdout
    assert "no whole record" not in ask(logs / "a.log", "-n", "1").stdout, "nobody has looked so far"


def test_a_packed_file_is_read_as_what_it_holds_and_as_the_rest_of_what_it_was(
    ask: Ask, define: Callable[..., Path], change: Callable[..., None], connectors: Path, tmp_path: Path
) -> None:
    logs = define("app")
    change("app", "*.log'", "*.log*'")
    first = "".join(f"line {number}\n" for number in range(300))
    (logs / "a.log").write_text(first)
    run_to_the_end(connectors, tmp_path / "state")
    (logs / "a.log").unlink()
    (logs / "a.log.1.gz").write_bytes(gzip.compress(f"{first}two\n".encode()))
    (logs / "b.log.gz").write_bytes(gzip.compress(b"one\n")[:-6])
    entry = report(ask, logs / "a.log.1.gz")[0]
    assert (entry["compression"], entry["rest_of"], [one["value"] for one in entry["records"]]) == ("gzip", f"{logs}/a.log", ["two"])
    assert f"it is the rest of {logs}/a.log" in ask(logs / "a.log.1.gz").stdout
    done = ask(logs / "b.log.gz")
    assert ("packed        gzip, 18 bytes on disk" in done.stdout, "\n      one\n" in done.stdout) == (True, True)


def test_a_copy_that_may_become_a_rotated_file_is_not_shown_as_new(
    ask: Ask, define: Callable[..., Path], change: Callable[..., None], connectors: Path, tmp_path: Path
) -> None:
    logs = define("app")
    change("app", "*.log'", "*.log*'")
    (logs / "a.log").write_text("x" * 2000 + "\n")
    run_to_the_end(connectors, tmp_path / "state")
    shutil.copyfile(logs / "a.log", logs / "a.log.1")
    entry = report(ask, logs / "a.log.1")[0]
    assert ("may be a copy" in entry["why"], entry["records"]) == (True, [])
    (logs / "a.log").write_text("new\n")
    entry = report(ask, logs / "a.log.1")[0]
    assert (f"goes on where {logs}/a.log ended" in entry["why"], entry["position"], entry["unread"]) == (True, 2001, 0)


def test_destroyed_bytes_are_told_before_they_are_entered(ask: Ask, define: Callable[..., Path], connectors: Path, tmp_path: Path) -> None:
    logs = define("app")
    (logs / "a.log").write_text("one\nunfinished")
    store = tmp_path / "state"
    run_to_the_end_of_lines(connectors, store)
    (logs / "a.log").write_text("one\n")
    entry = report(ask, logs / "a.log")[0]
    assert sum(loss["size_bytes"] for loss in entry["losses"]) == 10


def run_to_the_end_of_lines(connectors: Path, state: Path) -> None:
    """As `run_to_the_end`, but like a run that was ended: 10 bytes of an unfinished line are known and not read."""
    run_to_the_end(connectors, state)
    with OffsetStore.open(state) as store:
        saved = store.read("app")
        known = {one: replace(offset, position=4, records=1, fingerprint=Fingerprint()) for one, offset in saved.items() if offset.path}
        store.reset(known)


def test_other_names_of_a_file_are_told(ask: Ask, define: Callable[..., Path]) -> None:
    logs = define("app")
    (logs / "a.log").write_text("one\n")
    (logs / "b.log").hardlink_to(logs / "a.log")
    (logs / "link.txt").symlink_to(logs / "a.log")
    first, second = (report(ask, logs / name)[0] for name in ("a.log", "b.log"))
    assert first["names"] == second["names"] == [f"{logs}/a.log", f"{logs}/b.log"]
    assert ask(logs / "link.txt").exit_code == 0, "a link that is not read leads to a file that is"


def test_a_newer_generation_waits_for_the_older_one(ask: Ask, define: Callable[..., Path], change: Callable[..., None]) -> None:
    logs = define("app")
    change("app", "*.log'", "*.log*'")
    for name, seconds in (("a.log.1", 1000), ("a.log", 2000)):
        (logs / name).write_text(f"{name}\n")
        os.utime(logs / name, (seconds, seconds))
    entry = report(ask, logs / "a.log")[0]
    assert (entry["file_state"], entry["after"]) == ("waiting", f"{logs}/a.log.1")
    assert [record["value"] for record in entry["records"]] == ["a.log"]
    assert f"waits for     {logs}/a.log.1" in ask(logs / "a.log").stdout


def test_a_file_that_left_its_patterns_is_read_to_its_end(ask: Ask, define: Callable[..., Path], connectors: Path, tmp_path: Path) -> None:
    logs = define("app")
    (logs / "a.log").write_text("one\n")
    run_to_the_end(connectors, tmp_path / "state")
    with (logs / "a.log").open("a") as log:
        log.write("two\n")
    (logs / "a.log").rename(logs / "a.old")
    done = ask(logs / "a.old")
    assert (done.exit_code, "none names it any more" in done.stdout, "\n      two" in done.stdout) == (0, True, True)
    assert "another file had this name: byte 4" in ask(logs / "a.log").stdout


def test_records_that_are_not_sent_say_why(ask: Ask, define: Callable[..., Path], change: Callable[..., None]) -> None:
    logs = define("app", more="transforms: [{drop_if: {message: noise}}]\nerrors: {tolerance: all, dlq: {topic: dead}}\n")
    change("app", "log_file,", "log_file, line: {max_bytes: 10B},")
    (logs / "a.log").write_text("good\nnoise\n" + "x" * 50 + "\nlater\n")
    records = report(ask, logs / "a.log")[0]["records"]
    assert [(one["fate"], one["topic"]) for one in records] == [("sent", "t"), ("dropped", None), ("dead-lettered", "dead"), ("sent", "t")]
    assert (records[1]["start"], records[1]["end"], "longer than" in records[2]["why"]) == (5, 11, True)
    change("app", ", dlq: {topic: dead}", "")
    assert [one["fate"] for one in report(ask, logs / "a.log")[0]["records"]] == ["sent", "dropped", "rejected", "sent"]
    change("app", "tolerance: all", "tolerance: none")
    done = ask(logs / "a.log")
    assert (done.exit_code, "stops         behind byte 11:" in done.stdout, "xxxx" in done.stdout) == (0, True, False)


def test_it_reads_no_further_than_it_must(ask: Ask, define: Callable[..., Path]) -> None:
    logs = define("app", more="transforms: [{keep_if: {message: never}}]\n")
    (logs / "a.log").write_text(("x" * 999 + "\n") * 8_000)
    (dropped,) = report(ask, logs / "a.log")[0]["records"]
    assert (dropped["fate"], dropped["end"] < 6 * 2**20) == ("dropped", True)


@pytest.mark.parametrize("name", [b"a\x1b[31m\n.log", b"caf\xe9.log", "b\u202e.log".encode()])
def test_names_and_records_do_not_act_on_the_terminal(ask: Ask, define: Callable[..., Path], name: bytes) -> None:
    logs = define("app", more="transforms: []\n")
    path = os.fsencode(logs) + b"/" + name
    Path(os.fsdecode(path)).write_bytes(b"\x1b[2J\x9b\xe2\x80\xae\n")
    done = ask(os.fsdecode(path))
    assert (done.exit_code, done.stderr) == (0, "")
    assert all(line.isprintable() for line in done.stdout.splitlines())


def test_two_connectors_on_one_file_are_both_told(ask: Ask, define: Callable[..., Path], connectors: Path) -> None:
    logs = define("app", "one")
    (connectors / "other.yaml").write_text((connectors / "app.yaml").read_text().replace("name: app", "name: other"))
    define("third")
    (logs / "a.log").write_text("x\n")
    done = ask(logs / "a.log")
    assert "2 connectors read it, each sends every record" in done.stdout
    assert done.stdout.index("third does not read it") > done.stdout.index("other reads it")


def test_without_a_directory_it_takes_the_one_that_is_there(
    define: Callable[..., Path], tmp_path: Path, connectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = define("app")
    (logs / "a.log").write_text("x\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    done = CliRunner().invoke(app, ["explain", "app-logs/a.log"])
    assert (done.exit_code, f"{logs}/a.log: one connector" in done.stdout) == (0, True), done.stderr
    shutil.move(connectors, tmp_path / "elsewhere")
    if not Path("/etc/copycat/connectors.d").is_dir():
        done = CliRunner().invoke(app, ["explain", "app-logs/a.log"])
        assert (done.exit_code, "name the directory" in done.stderr) == (2, True)


@pytest.fixture
def lake(connectors: Path, tmp_path: Path) -> Claims:
    """Two connectors that write files, of one topic each, of which `orders-lake` has written some."""
    for name in ("orders", "events"):
        sink = f"{{type: files, uri: 'file://{tmp_path}/lake/'}}"
        text = f"name: {name}-lake\nsource: {{type: kafka, topics: ['{name}.*'], exclude: [orders-x]}}\nsink: {sink}\n"
        (connectors / f"{name}.yaml").write_text(text)
    store = store_at(f"file://{tmp_path}/lake/")
    claims = Claims(store, "orders-lake")
    for first, directories in ((claims.resume("orders", 3, 0), ["a", "b"]), (10, [])):
        made = [store.scratch() / directory for directory in directories]
        for one in made:
            one.write_text("{}\n")
        files = [LocalFile(one, one.name, 1) for one in made]
        claims.commit(Range("orders", 3, first, first + 9), files, "jsonl")
    return claims


def test_the_files_of_a_range_are_named_without_the_claim_that_a_record_is_in_one(ask: Ask, lake: Claims, tmp_path: Path) -> None:
    done = ask("orders/3@5")
    files = [f"  file://{tmp_path}/lake/{one}/orders+3+{0:020}+{9:020}.jsonl" for one in "ab"]
    tail = "  a record among them that was null, dropped or dead-lettered is in no file"
    assert done.stdout.splitlines() == ["orders-lake: offsets 0 to 9 of orders/3 are in", *files, tail]
    (found,) = json.loads(ask("orders/3@5", "--format", "json").stdout)
    assert (found["first"], found["last"], len(found["files"])) == (0, 9, 2)
    assert ask("orders/3@15").stdout.startswith("orders-lake: no file has orders/3@15: it was null, dropped, dead-lettered")
    assert ask("orders/3@25").stdout == "orders-lake: orders/3@25 is not written yet: offsets below 20 are\n"


def test_connectors_that_do_not_read_the_topic_are_left_out(ask: Ask, lake: Claims, connectors: Path) -> None:
    assert ask("orders/7@5").stdout == "orders-lake: nothing of orders/7 is written\n"
    for topic in ("orders-x", "others"):
        done = ask(f"{topic}/0@5")
        assert (done.exit_code, done.stdout) == (1, f"no connector in {connectors} writes files of {topic}\n")


def explained(key: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["explain", key, *options], catch_exceptions=False)


def test_an_option_is_explained_by_its_key() -> None:
    done = explained("source.line.on_too_long")
    assert done.exit_code == 0
    for words in (
        "in a definition, source log_file",
        "copycat.truncated",
        "dlq, truncate, split, drop",
        '"dlq"',
        "source: {line: {on_too_long: ",
    ):
        assert words in done.stdout
    assert "in a definition or agent.yaml" in explained("kafka.security.protocol").stdout
    assert "required" in explained("record.topic").stdout
    assert "on_too_long" in explained("source.line").stdout, "keys below it are named"
    assert explained("errors.tolerance").stdout == explained("tolerance").stdout
    (entry,) = json.loads(explained("errors.dlq", "--format", "json").stdout)
    assert entry["children"] == ["errors.dlq.topic", "errors.dlq.include_raw"]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("source.lin.max_bytes", "source.line.max_bytes"),
        ("tolerence", "errors.tolerance"),
        ("timestamp", "record.timestamp"),
        ("start-at", "source.start_at"),
    ],
)
def test_a_key_that_is_none_is_guessed(wrong: str, right: str) -> None:
    done = explained(wrong)
    assert (done.exit_code, done.stdout) == (1, "")
    assert right in done.stderr.partition("did you mean")[2]


def test_settings_of_librdkafka_are_told_or_refused() -> None:
    assert "0..900000" in explained("kafka.client.linger.ms").stdout
    assert "delivery.guarantee decides this" in explained("kafka.client.acks").stdout
    assert "to the consumer" in explained("source.kafka.client.fetch.min.bytes").stdout
    assert "source.kafka.client" in explained("kafka.client.fetch.min.bytes").stdout


def test_the_place_nearest_to_the_top_is_meant_and_types_are_known() -> None:
    assert explained("topic").stdout == explained("record.topic").stdout
    assert explained("multiline").stdout == explained("source.multiline").stdout
    assert "keys below  source.include, " in explained("log_file").stdout
    places = [one["key"] for one in json.loads(explained("json", "--format", "json").stdout)]
    assert list(dict.fromkeys(places)) == ["transforms.json", "source.format.type", "converters.key.type", "converters.value.type"]


EXAMPLES = {one.example: one for one in all_keys() if one.example}


@pytest.mark.parametrize("section", sorted({one.key.partition(".")[0] for one in EXAMPLES.values()}))
def test_every_example_loads(section: str, tmp_path: Path) -> None:
    """As far as the option itself goes: what it needs beside it is another matter."""
    bad = {}
    for one in EXAMPLES.values():
        if one.key.partition(".")[0] == section:
            problems = problems_of_definition(one.example) if one.where.startswith("a definition") else problems_of_agent(one, tmp_path)
            bad[one.where, one.key] = [each for each in problems if each.code not in {"missing-key", "security", "converter", "sink"}]
    assert {place: problems for place, problems in bad.items() if problems} == {}


def problems_of_definition(example: str) -> tuple[Problem, ...]:
    return load_content(Path("x.yaml"), whole(example).encode(), AgentOptions(), resolve_env=False).problems


def problems_of_agent(key: OptionKey, directory: Path) -> tuple[Problem, ...]:
    path = directory / "agent.yaml"
    path.write_text(key.example, "utf-8")
    try:
        load_agent(path, resolve_env=False)
    except DefinitionError as error:
        return error.problems
    return ()


def whole(example: str) -> str:
    """A definition with the example in it, and what no definition goes without."""
    source = "{}" if re.search("type: (spool_dir|objects|journald|jdbc|kafka|datasource)", example) else "{type: log_file, include: [/x]}"
    needed = {"name": "x", "source": source, "record": "{topic: t}"}
    section, _, value = example.partition(": ")
    own = set(re.findall(r"(?:^{|, )(\w+):", value))
    kept = [one for one in needed.get(section, "{}")[1:-1].split(", ") if one.partition(":")[0] not in own and ":" in one]
    needed[section] = "{" + ", ".join([*kept, value[1:-1]]) + "}" if kept else value
    return "".join(f"{key}: {text}\n" for key, text in needed.items())


def test_each_option_of_transforms_and_tests_has_an_example_and_a_meaning() -> None:
    mine = [one for one in all_keys() if one.key.startswith(("transforms.", "tests."))]
    assert len({one.key for one in mine}) > 150
    assert [one.key for one in mine if not one.example or not one.meaning] == []


def test_what_every_transform_has_is_told_once() -> None:
    done = explained("transforms.on_error")
    assert "in a definition, any transform" in done.stdout
    assert done.stdout.count("transforms.on_error") == 1
