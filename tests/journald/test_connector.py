"""A journal as a connector of the real worker, on a real broker: what a read_committed consumer sees, and what is told."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from copycat_agent.sources.journald import journald_source
from tests.journald.conftest import needs_journals
from tests.rig.journals import JournalWriter, lines, vacuum, write_journal
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rig.kafka import Consumed
    from tests.rig.shipping import Shipping

pytestmark = [needs_journals, pytest.mark.timeout(300)]
both = pytest.mark.parametrize("guarantee", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once"])


def of(journal: Path, **more: Any) -> dict[str, Any]:
    """A source section."""
    return {"type": "journald", "directory": str(journal), "poll_interval": "100ms", **more}


def arrived(shipping: Shipping, count: int | None = None) -> list[Consumed]:
    return consume(shipping.bootstrap, shipping.topic, "read_committed", count, 90.0)


def seen(shipping: Shipping, count: int | None = None) -> list[int]:
    """Numbers of the entries, in the order of the topic."""
    return [int(json.loads(one.value or b"")["MESSAGE"].removeprefix("line ")) for one in arrived(shipping, count)]


def losses(shipping: Shipping) -> list[tuple[str, int, str]]:
    """The ledger, as it is saved."""
    return [(one.reason, one.records, one.detail) for one in shipping.losses]


@pytest.mark.parametrize("guarantee", ["at_least_once", pytest.param("exactly_once", marks=pytest.mark.long)])
def test_a_journal_is_followed_over_restarts_and_rotations(guarantee: str, shipping: Shipping, journal: Path) -> None:
    source, delivery = of(journal), {"guarantee": guarantee}
    with JournalWriter(journal) as writer:
        writer.add(lines(0, 4999))
        shipping.start(source=source, delivery=delivery, deadline=60)
        assert seen(shipping, 5000) == list(range(5000))
        writer.rotate()
        writer.add(lines(5000, 5009))
        assert seen(shipping, 5010) == list(range(5010))
        shipping.stop()
        writer.add(lines(5010, 5019))
        writer.rotate()
        writer.add(lines(5020, 5029))
        shipping.start(source=source, delivery=delivery, deadline=60)
        assert seen(shipping, 5030) == list(range(5030))
    shipping.stop()
    assert seen(shipping) == list(range(5030))


@both
def test_a_journal_that_grows_and_rotates_while_it_is_read_is_read_once(
    guarantee: str, shipping: Shipping, journal: Path, rng: random.Random
) -> None:
    """Nobody waits for anybody: files are set aside in the middle of a read, and while journalctl opens them."""
    with JournalWriter(journal) as writer:
        writer.add(lines(0, 0))
        shipping.start(source=of(journal), delivery={"guarantee": guarantee, "max_batch_bytes": "64KiB"}, deadline=60)

        def write() -> None:
            for burst in range(100):
                writer.begin(lines(writer.written, writer.written + rng.randrange(1, 120), PADDING="x" * rng.randrange(400)))
                time.sleep(rng.choice((0.0, 0.01, 0.05)))
                if burst % 9 == 8:
                    writer.rotate()
            writer.close()

        writing = threading.Thread(target=write)
        writing.start()
        try:
            arrived(shipping, 101)
        finally:
            writing.join()
        assert seen(shipping, writer.written) == list(range(writer.written))
    shipping.stop()
    assert seen(shipping) == list(range(writer.written)), "each once, in its order"
    assert len(list(journal.glob("app@*.journal"))) == 11


def test_fields_go_through_steps_templates_and_timestamps(shipping: Shipping, journal: Path) -> None:
    write_journal(journal, [{**entry, "_SYSTEMD_UNIT": "a.service", "DATA": b"\xff\x00"} for entry in lines(0, 9)])
    steps = [
        {"timestamp": {"field": "__REALTIME_TIMESTAMP", "format": "unix_us"}},
        {"drop_if": {"PRIORITY": "7"}},
        {"rename": {"MESSAGE": "message"}},
        {"keep_fields": ["message", "DATA", "PRIORITY"]},
    ]
    record = {"key": "{PRIORITY}", "timestamp": "event", "origin_headers": False}
    shipping.start(source=of(journal), transforms=steps, record=record, deadline=60)
    found = arrived(shipping, 9)
    assert [json.loads(one.value or b"")["message"] for one in found] == [f"line {number}" for number in range(10) if number % 8 != 7]
    assert json.loads(found[0].value or b"") == {"message": "line 0", "DATA": "/wA=", "PRIORITY": "0"}
    assert (found[1].key, found[1].timestamp_ms) == (b"1", 1_700_000_000_001)


@both
def test_what_was_vacuumed_is_in_the_ledger_once(guarantee: str, shipping: Shipping, journal: Path) -> None:
    source, delivery = of(journal), {"guarantee": guarantee}
    with JournalWriter(journal) as writer:
        writer.add(lines(0, 9))
        shipping.start(source=source, delivery=delivery, deadline=60)
        assert seen(shipping, 10) == list(range(10))
        wait_until(lambda: any("cursor" in one.cursor for one in shipping.offsets.values()), 30)
        shipping.stop()
        writer.add(lines(10, 19))
        writer.rotate()
        writer.add(lines(20, 29))
        vacuum(journal)
        shipping.start(source=source, delivery=delivery, deadline=60)
        assert seen(shipping, 20) == [*range(10), *range(20, 30)]
        wait_until(lambda: len(losses(shipping)) == 1, 30, "the ledger")
        ((reason, records, detail),) = losses(shipping)
        assert (reason, records) == ("destroyed", 0)
        assert "is gone, and perhaps some behind it" in detail
        writer.add(lines(30, 31))
        assert seen(shipping, 22)[-2:] == [30, 31]
        assert len(losses(shipping)) == 1


def test_large_entries_are_dead_letters_and_damage_is_told(shipping: Shipping, journal: Path, rng: random.Random) -> None:
    journal.mkdir()
    (journal / "bad.journal").write_bytes(rng.randbytes(200_000))
    write_journal(journal, [*lines(0, 4), {"MESSAGE": "core", "COREDUMP": b"\0" * 2_000_000}, *lines(5, 9)])
    letters = f"{shipping.topic}-dlq"
    errors = {"tolerance": "all", "dlq": {"topic": letters}}
    shipping.start(source=of(journal), errors=errors, kafka={"create_topics": {"partitions": 1}}, deadline=60)
    assert seen(shipping, 10) == list(range(10))
    (letter,) = consume(shipping.bootstrap, letters, "read_committed", 1, 60.0)
    assert any(b"by its field COREDUMP" in (value or b"") for _, value in letter.headers)
    wait_until(lambda: any(reason == "damaged" for reason, _, _ in losses(shipping)), 30, "the ledger")


@both
def test_journalctl_may_be_killed_and_nothing_is_lost(guarantee: str, shipping: Shipping, journal: Path) -> None:
    count = 12_000
    write_journal(journal, lines(0, count - 1, PADDING="x" * 300))
    delivery = {"guarantee": guarantee, "max_batch_bytes": "1MiB"}
    shipping.start(source=of(journal), delivery=delivery, limits={"records_per_second": 1500}, deadline=60)
    kills, deadline = 0, time.monotonic() + 90
    while kills < 4 and time.monotonic() < deadline and shipping.status.counts.acknowledged < count:
        for one in journalctls():
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
                kills += 1
        time.sleep(0.05)
    assert kills, "this shows nothing"
    wait_until(lambda: len(set(seen(shipping, count))) == count, 90, lambda: f"{shipping.status}")
    shipping.stop()
    found = seen(shipping)
    assert list(dict.fromkeys(found)) == list(range(count)), "in their order, but for what comes again"
    assert guarantee == "at_least_once" or len(found) == count
    wait_until(lambda: not journalctls(), 60, "one that was asked for the journal's end may outlive the connector by a moment")


def journalctls() -> list[psutil.Process]:
    found = []
    for one in psutil.Process().children(recursive=True):
        try:
            if one.name() == "journalctl" and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
        except psutil.NoSuchProcess:
            continue
    return found


def test_a_pause_and_a_changed_filter_go_on_where_it_was(shipping: Shipping, journal: Path) -> None:
    with JournalWriter(journal) as writer:
        writer.add(lines(0, 9))
        shipping.start(source=of(journal, priority="3"), deadline=60)
        assert seen(shipping, 6) == [0, 1, 2, 3, 8, 9]
        shipping.stop()
        writer.add(lines(10, 15))
        shipping.start(source=of(journal, priority="debug"), deadline=60)
        assert seen(shipping, 12) == [0, 1, 2, 3, 8, 9, *range(10, 16)]
        assert losses(shipping) == []


def test_a_line_arrives_because_the_journals_files_change(shipping: Shipping, journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journald_source, "ASK_SECONDS", 3600.0)  # where nothing has changed
    with JournalWriter(journal) as writer:
        writer.add(lines(0, 0))
        shipping.start(source=of(journal, poll_interval="500ms"), deadline=60)
        seen(shipping, 1)
        for number in range(1, 8):
            writer.begin(lines(number, number))
            assert seen(shipping, number + 1) == list(range(number + 1))


def test_a_run_to_the_end_ends(shipping: Shipping, journal: Path) -> None:
    write_journal(journal, lines(0, 999))
    shipping.start(source=of(journal), until_idle=True, deadline=60)
    shipping.wait_idle()
    assert seen(shipping) == list(range(1000))


def test_no_journal_yet_is_trouble_that_ends_by_itself(shipping: Shipping, journal: Path) -> None:
    shipping.start(source=of(journal), deadline=60)
    wait_until(lambda: "No such file or directory" in shipping.status.reason, 60, lambda: f"{shipping.status}")
    write_journal(journal, lines(0, 4))
    assert seen(shipping, 5) == list(range(5))
