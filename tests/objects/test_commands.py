"""The commands with objects: runs to the end and their accounts, dead letters that are sent again, what a running agent shows."""

from __future__ import annotations

import json
import threading
from email.utils import formatdate
from typing import TYPE_CHECKING

import pytest

from tests.objects.conftest import Command
from tests.objects.test_trouble import LOCAL
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.objects.conftest import Bucket, Handler, Server
    from tests.rig.agent import AgentProcess


def answer_for(closed: str, *names: str) -> Callable[[Handler], None]:
    """A bucket with these objects, whose content is their name; `closed` must not be read."""
    listed = "".join(
        f"<Contents><Key>{one}</Key><Size>{len(one)}</Size><ETag>&quot;{one}&quot;</ETag>"
        "<LastModified>2026-11-21T05:00:00Z</LastModified></Contents>"
        for one in names
    )
    page = f"<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>{listed}</ListBucketResult>".encode()

    def answer(handler: Handler) -> None:
        name = handler.path.partition("?")[0].removeprefix("/b").strip("/")
        if not name:
            handler.say(200, page)
        elif name == closed and handler.command == "GET":
            handler.say(403, b"<Error><Code>AccessDenied</Code></Error>")
        else:
            when = formatdate(1_795_237_200, usegmt=True)
            headers = {"ETag": f'"{name}"', "Last-Modified": when}
            handler.say(206, name.encode(), headers=headers)

    return answer


@pytest.mark.timeout(400)
def test_a_run_to_the_end_ends_with_an_object_that_is_not_allowed_to_be_read_as_failed(
    copycat: Command, server: Server, broker: DevBroker, make_topic: Callable[..., str]
) -> None:
    server.answer = answer_for("closed", "a", "closed", "z")
    topic = make_topic()
    path = copycat.define("app", {"uri": server.uri}, topic)
    done = copycat("backfill", path)
    assert done.returncode == 1, done.stdout + done.stderr
    first, *others, total = done.stdout.splitlines()
    assert first.startswith("s3://b/closed: failed: 's3://b/closed' cannot be read: it is not allowed (AccessDenied from GetObject)"), first
    assert [one.partition(";")[0] for one in others if one.startswith("s3:")] == ["s3://b/a: done", "s3://b/z: done"]
    assert "finished: 3 files (2 done, 1 failed); 2 records read, 2 acknowledged" in total
    assert sorted(one.value or b"" for one in consume(broker.bootstrap, topic)) == [b"a", b"z"]
    server.answer = answer_for("", "a", "closed", "z")
    again = copycat("run", path.parent, "--until-idle")
    assert again.returncode == 0, again.stdout + again.stderr
    assert sorted(one.value or b"" for one in consume(broker.bootstrap, topic)) == [b"a", b"closed", b"z"]


def rows(*numbers: int) -> bytes:
    return b"".join(b'{"n": %d, "level": "%s"}\n' % (number, b"warn" if number % 2 else b"info") for number in numbers)


class Live:
    """An agent with two connectors over a bucket: one with a query, one whose records are bad until their key is mended."""

    def __init__(self, agent: AgentProcess, bucket: Bucket, topics: list[str]) -> None:
        self.agent, self.bucket = agent, bucket
        self.queried, self.plain, self.bad = topics
        self.copycat = Command(agent.root, agent.bootstrap)

    def define(self, *, key: str = "k", more: str = "") -> None:
        """Both; `more`: options of their address."""
        source = {"uri": self.bucket.uri + more, "poll_interval": "1s"}
        errors = {"tolerance": "all", "dlq": {"topic": self.bad}}
        query = {"query": "SELECT n * 10 AS n FROM records WHERE level = 'warn'", "schema": "n int, level string"}
        lines = {**source, "pattern": "*.jsonl", "format": "jsonl"}
        self.copycat.define("queried", lines, self.queried, transforms=[{"sql": query}], errors=errors)
        self.copycat.define("plain", {**source, "pattern": "*.log"}, self.plain, errors=errors, record={"topic": self.plain, "key": key})

    def values(self, topic: str, until: int | None = None) -> list[bytes]:
        return sorted(one.value or b"" for one in consume(self.agent.bootstrap, topic, until=until, deadline=180))

    def ask(self, *arguments: object, broker: bool = False) -> str:
        done = self.copycat(*arguments, broker=broker)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout


@pytest.mark.timeout(400)
def test_objects_go_through_sql_dead_letters_tap_and_a_reload_of_their_address(
    agent: AgentProcess, bucket: Bucket, make_topic: Callable[..., str]
) -> None:
    live = Live(agent, bucket, [make_topic() for _ in range(3)])
    bucket.put("a.jsonl", rows(1, 2, 3) + b"no json\n" + rows(5))
    bucket.put("a.log", b"seven\n")
    live.define(key="{nobody}")
    agent.start()
    assert live.values(live.queried, 3) == [b'{"n":10}', b'{"n":30}', b'{"n":50}']
    assert live.values(live.bad, 2) == [b"no json", b"seven"]
    live.define()
    sent = json.loads(live.ask("dlq", "replay", agent.connectors_dir, "plain", "--format", "json", broker=True))
    assert (sent["sent"], sent["left"]) == (1, 0)
    assert live.values(live.plain) == [b"seven"]
    wait_until(lambda: "~ plain (record.key)" in agent.log, 60, lambda: agent.log[-3000:])
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.wait(0.3):
            bucket.put(f"t{number:04}.log", b"tapped\n")
            number += 1

    writing = threading.Thread(target=write)
    writing.start()
    try:
        tapped = json.loads(live.ask("tap", "plain", "--limit", "1", "--format", "json"))
    finally:
        over.set()
        writing.join()
    assert (tapped["value"], tapped["key"], tapped["topic"]) == ("tapped", "k", live.plain)
    live.define(more="&profile=nobody")
    wait_until(lambda: "profile or region in its address is none" in agent.log, 60, lambda: agent.log[-3000:])
    bucket.put("z.jsonl", rows(9))
    live.define(more="&scheme=http")
    assert live.values(live.queried, 4)[3:] == [b'{"n":90}']
    agent.stop()
    assert len(live.values(live.queried)) == 4, "under another address of the same objects none is read again"
    assert "Traceback" not in agent.log


@pytest.mark.timeout(400)
def test_names_of_any_kind_forge_no_line_of_an_account_or_a_log(copycat: Command, tmp_path: Path, make_topic: Callable[..., str]) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in (*LOCAL[:5], "z\nerror: forged"):
        (tree / name).write_bytes(b"one\n")
    (tree / "bad\n\x1b[2Jfile:forged: done.gz").write_bytes(b"\x1f\x8b\x08\x00 this is no gzip data")
    path = copycat.define("app", {"uri": f"file://{tree}", "min_age": "0s", "pattern": "**"}, make_topic())
    done = copycat("backfill", path, "--verbose")
    assert done.returncode == 1, "one is damaged"
    assert "\x1b" not in done.stdout + done.stderr
    assert len([line for line in done.stdout.splitlines() if line.startswith(f"file://{tree}/")]) == 7
    assert not [line for line in done.stdout.splitlines() if line.startswith(("error", "file:forged"))]
    assert not [line for line in done.stderr.splitlines() if line.startswith("error: forged")]
    assert "7 files (6 done, 1 failed)" in done.stdout, done.stdout
    described = copycat("losses", broker=False)
    assert "\x1b" not in described.stdout
    assert len(described.stdout.splitlines()) < 8
