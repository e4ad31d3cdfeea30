"""`fmt`, `new` and `import` as people call them: what goes to stdout, what to stderr, how they end, and what they leave alone."""

from __future__ import annotations

import gzip
import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from typer.testing import CliRunner

from copycat_agent.cli.main import app
from copycat_agent.definitions.writing import rewrite
from copycat_agent.errors import CopycatError
from tests.unit.workbench.guessing.known import SAMPLES

if TYPE_CHECKING:
    from typer.testing import Result

SHAPES = Path(__file__).parents[1] / "unit/workbench/importing/shapes"
UGLY = "record: {topic: 't'}  # where to\nsource: {include: [/x], type: log_file}\nname: x\n"
NICE = "name: x\nsource: {type: log_file, include: [/x]}\nrecord: {topic: t}  # where to\n"


def copycat(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), input=stdin, catch_exceptions=False)


@pytest.fixture
def ugly(tmp_path: Path) -> Path:
    path = tmp_path / "connectors.d/x.yaml"
    path.parent.mkdir()
    path.write_text(UGLY, "utf-8")
    return path


def test_fmt_writes_a_file_anew_with_its_mode_and_says_which(ugly: Path) -> None:
    ugly.chmod(0o640)
    done = copycat("fmt", ugly.parent)
    assert (done.exit_code, done.stdout, ugly.read_text("utf-8")) == (0, f"{ugly}\n", NICE)
    assert stat.S_IMODE(ugly.stat().st_mode) == 0o640
    inode = ugly.stat().st_ino
    assert (copycat("fmt", ugly).stdout, ugly.stat().st_ino) == ("", inode), "a good file is not touched"
    assert [one.name for one in ugly.parent.iterdir()] == ["x.yaml"]


def test_fmt_follows_a_link_and_leaves_it_one(ugly: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(ugly)
    assert copycat("fmt", link).exit_code == 0
    assert (link.is_symlink(), ugly.read_text("utf-8")) == (True, NICE)


@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_fmt_can_only_look(ugly: Path, option: str) -> None:
    done = copycat("fmt", option, ugly)
    assert (done.exit_code, ugly.read_text("utf-8")) == (1, UGLY)
    assert str(ugly) in done.stdout
    copycat("fmt", ugly)
    assert copycat("fmt", option, ugly).exit_code == 0


@pytest.mark.parametrize(
    "section",
    [
        "kafka: {security: {password: 'sesame123'}}",
        "kafka:\n  security: {\n    'password':'sesame123'}",
        "converters:   {schema_registry: {url: 'http://u:sesame123@r:1'}}",
        "kafka: {bootstrap_servers:   ['u:sesame123@k1:9092']}",
    ],
)
def test_fmt_shows_no_secret_in_a_diff(ugly: Path, section: str) -> None:
    ugly.write_text(f"{UGLY}{section}\n", "utf-8")
    assert "sesame" not in copycat("fmt", "--diff", ugly).output


def test_fmt_is_a_filter_too() -> None:
    done = copycat("fmt", "-", stdin=UGLY)
    assert (done.exit_code, done.stdout) == (0, NICE)


def test_fmt_reports_what_is_no_yaml_as_check_does_and_goes_on(ugly: Path) -> None:
    bad = ugly.parent / "a.yaml"
    bad.write_text("name: [\n", "utf-8")
    done = copycat("fmt", ugly.parent)
    assert (done.exit_code, bad.read_text("utf-8"), ugly.read_text("utf-8")) == (78, "name: [\n", NICE)
    assert "error[yaml-syntax]" in done.stderr


def test_a_file_that_somebody_changed_meanwhile_is_left_alone(ugly: Path) -> None:
    with pytest.raises(OSError, match="changed it meanwhile"):
        rewrite(ugly, b"what it was before", NICE.encode())
    assert (ugly.read_text("utf-8"), [one.name for one in ugly.parent.iterdir()]) == (UGLY, ["x.yaml"])


def test_new_without_a_sample_prints_a_definition_that_check_accepts(tmp_path: Path) -> None:
    for subject in ("log_file", "spool_dir"):
        done = copycat("new", subject, "--name", "my-app", "--topic", "logs.mine")
        assert done.exit_code == 0
        (tmp_path / f"{subject}.yaml").write_text(done.stdout.replace("my-app", subject.replace("_", "-"), 1), "utf-8")
        assert yaml.safe_load(done.stdout)["record"]["topic"] == "logs.mine"
    assert copycat("check", tmp_path).exit_code == 0
    assert copycat("fmt", "--check", tmp_path).exit_code == 0


def test_new_reads_a_packed_sample_and_tells_what_parses_and_what_comes_next(tmp_path: Path) -> None:
    sample = tmp_path / "access.log.1.gz"
    lines = [*SAMPLES["nginx-combined"][:10], "garbage", *SAMPLES["nginx-combined"][10:]]
    sample.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    done = copycat("new", "log_file", "--from", sample)
    assert done.exit_code == 0
    document = yaml.safe_load(done.stdout)
    assert document["name"] == "access"
    assert document["source"]["include"] == [str(tmp_path / "access.log")]
    assert document["tests"][0]["expect"][0]["value"]["status"] == 200
    for words in ("combined format", "30 of 31 records parse", "lines 11", "quotes a line of the sample", f"copycat try {sample} -d"):
        assert words in done.stderr
    directory = tmp_path / "connectors.d"
    directory.mkdir()
    assert copycat("new", "log_file", "--from", sample, "-o", directory / "a.yaml").stdout == ""
    assert copycat("test", directory).exit_code == 0
    with pytest.raises(CopycatError, match="is there already"):
        copycat("new", "log_file", "-o", directory / "a.yaml")


def test_new_says_what_is_wrong_with_a_sample_or_a_name(tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    for sample in (tmp_path / "none.log", tmp_path / "empty.log", tmp_path):
        with pytest.raises(CopycatError):
            copycat("new", "log_file", "--from", sample)
    assert copycat("new", "log_file", "--name", "BAD").exit_code == 78


def test_new_tells_bytes_from_text(tmp_path: Path) -> None:
    sample = tmp_path / "a.bin"
    sample.write_bytes(bytes(range(256)) * 20)
    with pytest.raises(CopycatError, match="binary file: no log of lines"):
        copycat("new", "log_file", "--from", sample)
    assert "format: {type: binary}" in copycat("new", "spool_dir", "--from", sample).stdout


def test_import_prints_definitions_and_reports_with_lines(tmp_path: Path) -> None:
    done = copycat("import", "filebeat", SHAPES / "filebeat.yml")
    assert done.exit_code == 1
    assert [one["name"] for one in yaml.safe_load_all(done.stdout)] == ["shop", "filebeat-2", "filebeat-3"]
    assert "line 41: input udp" in done.stderr
    assert "sesame" not in done.output
    done = copycat("import", "fluent-bit", SHAPES / "fluent-bit.yaml", "-o", tmp_path / "out")
    assert (done.exit_code, done.stdout) == (0, "")
    assert copycat("check", tmp_path / "out").exit_code == 0
    with pytest.raises(CopycatError, match="is there already"):
        copycat("import", "fluent-bit", SHAPES / "fluent-bit.yaml", "-o", tmp_path / "out")


def test_import_for_programs() -> None:
    done = copycat("import", "connect", SHAPES / "spooldir.json", "--format", "json")
    report = json.loads(done.stdout)
    assert [one["name"] for one in report["definitions"]] == ["orders"]
    assert report["unmapped"][0]["line"] == 42
    assert done.exit_code == 1


def test_import_writes_numbers_as_numbers_and_tells_of_those_that_a_definition_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "vector.yaml"
    path.write_text("""\
sources: {a: {type: file, include: [/var/log/a.log]}}
transforms: {r: {type: remap, inputs: [a], source: ".small = 0.00001\\n.long = 12345678901234567890"}}
sinks: {k: {type: kafka, inputs: [r], bootstrap_servers: "k:9092", topic: t, encoding: {codec: json}}}
""")
    done = copycat("import", "vector", path, "--format", "json")
    report = json.loads(done.stdout)
    assert "- set: {small: 0.00001}" in report["definitions"][0]["text"]
    assert [(one["what"], one["why"].startswith("a definition holds numbers of up to 18 digits")) for one in report["unmapped"]] == [
        ("a.yaml transforms.1.set.long", True)
    ]
    assert done.exit_code == 1


def test_import_reads_what_belongs_to_a_file() -> None:
    alone = copycat("import", "fluent-bit", SHAPES / "fluent-bit.conf")
    assert "parser shop_access" in alone.stderr
    both = copycat("import", "fluent-bit", SHAPES / "fluent-bit.conf", "--with", SHAPES / "parsers.conf")
    assert "parser shop_access" not in both.stderr


def test_import_says_where_a_file_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "filebeat.yml"
    path.write_text("filebeat.inputs: [\n", "utf-8")
    with pytest.raises(CopycatError, match=r"filebeat\.yml: line 2"):
        copycat("import", "filebeat", path)
