"""The commands with objects: runs to the end and their accounts, dead letters that are sent again, what a running agent shows."""

from __future__ import annotations

from email.utils import formatdate
from typing import TYPE_CHECKING

import pytest

from tests.rig.kafka import consume

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.dev_broker import DevBroker
    from tests.objects.conftest import Command, Handler, Server


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


@pytest.mark.timeout(180)
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
