"""Stores that are unwell, that refuse, that hold names of any kind: told in words, and gone on with by itself."""

from __future__ import annotations

import errno
import json
import os
import resource
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

from copycat_agent.bundle.redacting import known_secrets, redacted
from copycat_agent.cli.main import app
from copycat_agent.dev_broker import free_port
from copycat_agent.errors import BlockedError
from copycat_agent.extending import Found, Troubled, parse_address
from copycat_agent.sources.objects.arrow_store import ArrowStore
from copycat_agent.sources.objects.blocks import ReplacedError
from copycat_agent.sources.objects.listing_schedule import NameRange
from copycat_agent.sources.objects.local_store import LocalStore
from copycat_agent.sources.objects.objects_probe import probe_objects
from copycat_agent.sources.objects.objects_source import ObjectsSource
from copycat_agent.sources.objects.options import ObjectsOptions
from copycat_agent.workbench.doctor.users import find_user
from tests.rig.object_store import CREDENTIALS, ObjectStore
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.objects.conftest import Bucket, Objects

HOSTILE = [
    "a b+c%20d&e=f?g#h",
    "control\x01\x1b[31m\x7f",
    "double//slash",
    "../up/../and/./down",
    "\u202eright to left é",
    "quote\"'`$(rm)",
    "<b>&amp;</b>",
    "return\rand\ttab",
    "\u00e9 composed",
    "e\u0301 composed",
    "/empty first part",
    "  blanks  ",
    "\x00nothing",
    "~$HOME*?[a]{b}",
    "n" * 900,
]
LOCAL = [
    "control\x01\x1b[31m\x7f",
    'new\nline {"level": "error"}',
    os.fsdecode(b"caf\xe9 \xff"),
    "\u00e9",
    "e\u0301",
    "a...",
    " ",
    "-rf",
    "*?[a]{b}",
    "n" * 255,
    "deep/" + "/".join("d" * 200 for _ in range(8)),
]


def test_names_may_hold_anything(shipping: Objects, bucket: Bucket) -> None:
    names = [*HOSTILE, "m" * (1024 - len(bucket.directory) - 1)]
    for number, name in enumerate(names):
        bucket.put(name, b"%d\n" % number)
    shipping.follow(
        bucket, {"pattern": "**", "cleanup": {"policy": "move", "to": f"/to-{bucket.directory[:20]}"}}, record={"key": "{@file.path}"}
    )
    records = shipping.records(until=len(names), deadline=90)
    prefix = f"s3://{bucket.store.bucket}/{bucket.directory}/"
    assert {one.key: one.value for one in records} == {f"{prefix}{name}".encode(): b"%d" % number for number, name in enumerate(names)}
    wait_until(lambda: not bucket.names(), 60, lambda: f"{bucket.names()}")
    shipping.wait_caught_up()
    moved = {name: bucket.store.client.get_object(Bucket=bucket.store.bucket, Key=f"to-{bucket.directory[:20]}/{name}") for name in names}
    assert [one["Body"].read() for one in moved.values()] == [b"%d\n" % number for number in range(len(names))]
    assert len(shipping.lines()) == len(names), "each once"


def test_names_of_files_may_hold_anything_and_none_is_moved_out_of_its_tree(shipping: Objects, tmp_path: Path) -> None:
    tree, done = tmp_path / "logs" / "tree", tmp_path / "done"
    for number, name in enumerate(LOCAL):
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%d\n" % number)
    source = {"type": "objects", "uri": f"file://{tree}", "min_age": "0s", "pattern": "**", "cleanup": {"policy": "move", "to": str(done)}}
    shipping.start(source=source)
    assert sorted(shipping.lines(until=len(LOCAL), deadline=90), key=int) == [str(number) for number in range(len(LOCAL))]
    wait_until(lambda: not [path for path in tree.rglob("*") if path.is_file()], 30, lambda: f"{[*tree.rglob('*')]}")
    assert [(done / name).read_bytes() for name in LOCAL] == [b"%d\n" % number for number in range(len(LOCAL))]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name in ("done", "logs")) == ["done", "logs"]
    shipping.wait_caught_up()
    assert len(shipping.lines()) == len(LOCAL), "each once"


def test_a_directory_that_becomes_a_link_leads_nobody_out_of_the_tree(tmp_path: Path) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "a").write_bytes(b"one\n")
    store = LocalStore(parse_address(f"file://{tree}/"))
    (found,) = store.listed(NameRange())
    (tree / "deep").rename(outside)
    (tree / "deep").symlink_to(outside)
    assert (tree / "deep" / "a").read_bytes() == b"one\n"
    for ask in (
        lambda: store.look(found.name),
        lambda: store.open(found),
        lambda: store.delete(found),
        lambda: store.copy(found, f"{tree}/b"),
    ):
        with pytest.raises(FileNotFoundError):
            ask()
    assert (outside / "a").exists()
    assert not (tree / "b").exists()
    assert list(store.listed(NameRange())) == []


def test_a_tree_may_be_deeper_than_calls_and_descriptors_go(tmp_path: Path) -> None:
    path = f"{tmp_path}"
    for _ in range(1200):
        path += "/d"
        os.mkdir(path)  # noqa: PTH102 - all their parents would be made by calls as deep
    file = f"{path}/a"
    os.close(os.open(file, os.O_CREAT))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    try:
        store = LocalStore(parse_address(f"file://{tmp_path}/"))
        assert [one.name for one in store.listed(NameRange())] == [file]
        store.delete(store.look(file))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        Path(file).unlink(missing_ok=True)
        for _ in range(1200):  # as the directory of a test is removed by calls as deep
            os.rmdir(path)  # noqa: PTH106
            path = path[:-2]


@pytest.mark.parametrize("to", ["/data/in/x", "/data/./in/x", "/data//in/x", "//data/in", "/data/y/../in/x"])
@pytest.mark.parametrize("uri", ["file:///data/in/", "hdfs://host:8020/data/in", "file:///data/./in"])
def test_nothing_is_moved_to_where_it_would_be_read_again(to: str, uri: str) -> None:
    with pytest.raises(ValueError, match=r"cleanup\.to lies below source\.uri"):
        ObjectsOptions.model_validate({"type": "objects", "uri": uri, "cleanup": {"policy": "move", "to": to}})


def test_what_is_moved_may_lie_beside_the_tree_and_in_a_bucket_under_any_other_name() -> None:
    for uri, to in {"file:///data/in/": "/data/in/../done", "s3://bucket/data/in/": "/data//in/"}.items():
        ObjectsOptions.model_validate({"type": "objects", "uri": uri, "cleanup": {"policy": "move", "to": to}})


def test_a_file_that_was_replaced_is_neither_deleted_nor_moved(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\n")
    store = LocalStore(parse_address(f"file://{tmp_path}/"))
    (found,) = store.listed(NameRange())
    (tmp_path / "a").write_bytes(b"another\n")
    asks: list[Callable[[], object]] = [lambda: store.delete(found), lambda: store.copy(found, f"{tmp_path}/b")]
    for ask in asks:
        with pytest.raises(ReplacedError):
            ask()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_bucket_that_is_not_there_blocks_until_it_is(shipping: Objects, s3: ObjectStore, tmp_path: Path) -> None:
    name = tmp_path.name.replace("_", "-")[:60].lower().strip("-")
    shipping.start(source={"type": "objects", "uri": f"s3://{name}/{s3.query}"})
    wait_until(lambda: shipping.status.state == "blocked", 30, lambda: f"{shipping.status}")
    assert "there is no such bucket" in str(shipping.status.reason)
    s3.client.create_bucket(Bucket=name)
    s3.client.put_object(Bucket=name, Key="a", Body=b"one\n")
    assert shipping.lines(until=1, deadline=90) == ["one"]
    wait_until(lambda: shipping.status.state == "running", 30)


def test_a_store_that_is_down_is_waited_for(shipping: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with ObjectStore(tmp_path) as store:
        store.client.put_object(Bucket=store.bucket, Key="a", Body=b"one\n")
        shipping.start(source={"type": "objects", "uri": f"s3://{store.bucket}/{store.query}"})
        assert shipping.lines(until=1) == ["one"]
        store.stop()
        wait_until(lambda: shipping.status.state == "retrying", 60, lambda: f"{shipping.status}")
        words = str(shipping.status.reason)
        assert "the store does not answer" in words
        assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in words
        until = time.monotonic() + 3
        while time.monotonic() < until:
            assert shipping.status.state == "retrying", "until it is there"
            time.sleep(0.02)
        store.start()
        store.client.put_object(Bucket=store.bucket, Key="b", Body=b"two\n")
        assert shipping.lines(until=2, deadline=60) == ["one", "two"]
        assert shipping.losses == (), "what was deleted had been delivered"


def test_a_store_that_is_not_waited_for_any_longer_ends_a_run_to_the_end(shipping: Objects) -> None:
    uri = f"s3://bucket/?endpoint_override=127.0.0.1:{free_port()}&scheme=http&region=us-east-1"
    shipping.start(source={"type": "objects", "uri": uri}, errors={"retry_timeout": "2s"}, until_idle=True, deadline=60)
    shipping.wait_idle()
    assert shipping.status.state == "failed"
    assert "gave up after errors.retry_timeout: s3://bucket/ cannot be listed" in shipping.status.reason


def test_cleanup_that_is_not_allowed_is_the_object_s_trouble_and_nobody_else_s(shipping: Objects, tmp_path: Path) -> None:
    tree = tmp_path / "logs" / "tree"
    tree.mkdir()
    (tree / "a").write_bytes(b"one\n")
    target = tmp_path / "logs" / "file"
    target.write_bytes(b"no directory")
    source = {"type": "objects", "uri": f"file://{tree}", "min_age": "0s", "cleanup": {"policy": "move", "to": str(target / "done")}}
    shipping.start(source=source)
    shipping.lines(until=1)
    wait_until(lambda: shipping.status.lag.troubled_files == 1, 60, lambda: f"{shipping.status}")
    (tmp_path / "logs" / "beside").write_bytes(b"two\n")
    (tmp_path / "logs" / "beside").rename(tree / "b")  # else it might be met, and moved, before it is written
    assert shipping.lines(until=2) == ["one", "two"]
    target.unlink()
    wait_until(lambda: not list(tree.iterdir()), 60)
    assert sorted(path.name for path in (target / "done").iterdir()) == ["a", "b"]


def test_damage_ends_an_object_and_no_other(shipping: Objects, bucket: Bucket) -> None:
    bucket.put("a.gz", b"\x1f\x8b\x08\x00 this is no gzip data")
    bucket.put("b", b"two\n")
    shipping.follow(bucket)
    assert shipping.lines(until=1) == ["two"]
    wait_until(lambda: shipping.losses, 60)
    (loss,) = shipping.losses
    assert (loss.reason, loss.path.rpartition("/")[2]) == ("damaged", "a.gz")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"uri": "s3://key:secret@bucket/"}, "must not hold a key or a password"),
        ({"uri": "ftp://x/"}, "are not known"),
        ({"uri": "s3://bucket/a/*.log"}, "uri holds no pattern"),
        ({"uri": "s3://bucket/?regoin=eu-central-1"}, "uri has an option that is not known: regoin"),
        ({"uri": "s3://bucket/a/", "cleanup": {"policy": "move"}}, "need each other"),
        ({"uri": "s3://bucket/a/", "cleanup": {"policy": "move", "to": "/a/done"}}, "would be read again"),
        ({"uri": "gs://bucket/a/", "cleanup": {"policy": "tag"}}, "are for s3 alone"),
    ],
)
def test_what_cannot_work_is_refused_with_words(shipping: Objects, source: dict[str, Any], words: str) -> None:
    with pytest.raises(AssertionError, match=words) as caught:
        shipping.definition(source={"type": "objects", **source})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "source",
    [
        {"uri": "s3://id:canary@bucket/"},
        {"uri": "s3://bucket/?access_key=id&secret_key=canary"},
        {"uri": "abfss://box@account.dfs.core.windows.net/?client_secret=canary"},
        {"uri": "s3://bucket/?endpoint_override=http://id:canary@host"},
        {"uri": "s3://bucket/", "notify": {"sqs": "https://sqs.eu-central-1.amazonaws.com/1/q?X-Amz-Signature=canary"}},
        {"uri": "s3://bucket/", "notify": {"sqs": "https://id:canary@sqs.eu-central-1.amazonaws.com/1/q"}},
    ],
)
def test_a_secret_where_none_may_be_is_refused_and_not_repeated(source: dict[str, Any], form: str, tmp_path: Path) -> None:
    definition = {"name": "a", "source": {"type": "objects", **source}, "record": {"topic": "t"}, "kafka": {"bootstrap_servers": ["h:1"]}}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(definition), "utf-8")
    for command in (["check", str(tmp_path), "--format", form], ["plan", str(tmp_path), "--format", form], ["doctor", str(tmp_path)]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code != 0
        assert "a.yaml" in done.output
        assert "canary" not in done.output
    definition["name"] = "no definition:"  # shown to others all the same
    assert "canary" not in known_secrets((), {})(redacted(yaml.safe_dump(definition)))


def test_doctor_lists_and_reads_one(bucket: Bucket) -> None:
    user = find_user(None)
    options = ObjectsOptions(uri=bucket.uri, pattern=("*.log",))
    assert [(one.name, one.verdict) for one in probe_objects(options, user)] == [("list", "ok")]
    bucket.put("a.log", b"one\n")
    bucket.put("b.txt", b"two\n")
    listed, read = probe_objects(options, user)
    assert "has 2 objects; source.pattern and exclude leave 1 of them" in listed.text
    assert read.verdict == "ok"
    (failed,) = probe_objects(ObjectsOptions(uri=f"s3://nobody/{bucket.store.query}"), user)
    assert (failed.verdict, "there is no such bucket" in failed.text, bool(failed.fix)) == ("fail", True, True)


def test_explain_says_whether_an_object_is_read_next(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("a.log", b"one\n")
    definition = {"source": {"type": "objects", "uri": bucket.uri, "pattern": "*.log"}, "record": {"topic": "t"}}
    (tmp_path / "connectors.d").mkdir()
    (tmp_path / "connectors.d" / "a.yaml").write_text(json.dumps({"name": "a", **definition}), "utf-8")
    asked = [str(tmp_path / "connectors.d"), "--state-dir", str(tmp_path / "state")]
    name = f"s3://{bucket.store.bucket}/{bucket.directory}/"
    read = CliRunner().invoke(app, ["explain", f"{name}a.log", *asked], catch_exceptions=False)
    assert (read.exit_code, "one" in read.stdout) == (0, True), read.output
    other = CliRunner().invoke(app, ["explain", f"{name}b.log", *asked])
    assert (other.exit_code, "none of the objects that are to be read next" in other.stdout) == (1, True), other.output


def test_links_of_a_tree_are_not_followed_and_names_may_be_any_bytes(shipping: Objects, tmp_path: Path) -> None:
    tree = tmp_path / "logs" / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "again").symlink_to(tree)
    (tree / "other").symlink_to("/etc/passwd")
    os.mkfifo(tree / "pipe")
    (tree / os.fsdecode(b"caf\xe9.log")).write_bytes(b"one\n")
    (tree / "deep" / "b").write_bytes(b"two\n")
    shipping.start(source={"type": "objects", "uri": f"file://{tree}", "min_age": "0s"}, record={"key": "{@file.name}"}, until_idle=True)
    shipping.wait_idle()
    assert {one.key: one.value for one in shipping.records()} == {b"caf\\xe9.log": b"one", b"b": b"two"}


def test_a_tree_that_is_not_there_is_no_empty_one(shipping: Objects, tmp_path: Path) -> None:
    tree = tmp_path / "logs" / "tree"
    tree.mkdir()
    (tree / "a").write_bytes(b"one\n")
    shipping.start(source={"type": "objects", "uri": f"file://{tree}", "min_age": "0s"})
    shipping.lines(until=1)
    tree.rename(tmp_path / "away")
    wait_until(lambda: shipping.status.state == "blocked", 30, lambda: f"{shipping.status}")
    assert "No such file or directory" in shipping.status.reason
    (tmp_path / "away").rename(tree)
    (tree / "b").write_bytes(b"two\n")
    assert shipping.lines(until=2, deadline=90) == ["one", "two"]
    assert shipping.losses == ()


def test_a_file_of_a_tree_that_is_away_is_not_taken_for_a_deleted_one(tmp_path: Path) -> None:
    """Its losses would be told, and what was delivered of it sent again once the tree is back."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_bytes(b"one\n")
    store = LocalStore(parse_address(f"file://{tree}/"))
    (found,) = store.listed(NameRange())
    tree.rename(tmp_path / "away")
    for look in (lambda: store.look(found.name), lambda: store.open(found), lambda: store.delete(found)):
        with pytest.raises(OSError, match="the tree is not there") as raised:
            look()
        assert not isinstance(raised.value, FileNotFoundError)
    (tmp_path / "away").rename(tree)
    (tree / "a").unlink()
    with pytest.raises(FileNotFoundError):
        store.look(found.name)


def test_other_file_systems_list_read_move_and_delete(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "in" / "deep").mkdir(parents=True)
    (root / "in" / "deep" / "a").write_bytes(b"x" * 10)
    (root / "in" / "b").write_bytes(b"")
    store = ArrowStore(parse_address(f"file://{root}/in"))
    found = list(store.listed(NameRange()))
    assert [one.name for one in found] == [f"{root}/in/b", f"{root}/in/deep/a"]
    assert store.look(found[1].name) == found[1]
    with closing(store.open(found[1])) as file:
        assert (file.read_at(0, 4), file.read_at(8, 4), file.read_at(10, 1), file.is_unchanged()) == (b"xxxx", b"xx", b"", True)
    store.copy(found[1], store.name_at(f"{root}/done/a"))
    store.delete(found[1])
    store.delete(found[1])
    assert (root / "done" / "a").read_bytes() == b"x" * 10
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        store.look(found[1].name)
    (root / "in" / "b").write_bytes(b"changed")
    with closing(store.open(found[0]._replace(size=7))) as file, pytest.raises(ReplacedError):
        file.read_at(0, 7)


def test_a_directory_that_may_not_be_listed_is_told_and_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "a").write_bytes(b"one\n")
    os.utime(tmp_path / "a", (1, 1))
    scandir = os.scandir

    def refusing(path: str) -> Any:
        if "lost+found" in path:
            raise PermissionError(errno.EACCES, "Permission denied")  # root's rights do not let it be refused
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    options = ObjectsOptions(uri=f"file://{tmp_path}")
    with closing(ObjectsSource(options)) as source:
        assert [type(one) for one in source.look({}, to_the_end=False)] == [Troubled, Found]
    with closing(ObjectsSource(options)) as source, pytest.raises(BlockedError, match=r"lost\+found/ cannot be listed"):
        list(source.look({}, to_the_end=True))
    left_out = options.model_copy(update={"exclude": ("lost+found/**",)})
    with closing(ObjectsSource(left_out)) as source:
        assert [type(one) for one in source.look({}, to_the_end=True)] == [Found]
