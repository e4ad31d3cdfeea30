"""What is destroyed before it can be read is in the ledger, to the byte, and survives restarts and kills."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.model import Loss
    from tests.rig.shipping import Shipping


def entered(shipping: Shipping) -> tuple[Loss, ...]:
    assert shipping._store is not None
    return shipping._store.losses(None, 100)


def test_what_was_cut_and_what_went_away_while_nobody_looked_is_entered_once(shipping: Shipping, logs_dir: Path) -> None:
    """A topic that is missing keeps everything waiting, so that it is known and unread when it is destroyed."""
    topic, shipping.topic = shipping.topic, "missing"
    cut, gone = logs_dir / "cut", logs_dir / "gone"
    for log in (cut, gone):
        log.write_bytes(b"destroyed\n" * 10)
    shipping.start()
    wait_until(lambda: shipping.status.state == "blocked")
    assert shipping.status.lag.oldest_unread_ms > 0
    shipping.stop()
    os.truncate(cut, 0)
    cut.write_bytes(b"new\n")
    gone.unlink()
    shipping.topic = topic
    for _ in range(2):
        shipping.start()
        assert shipping.lines(1) == ["new"]
        wait_until(lambda: len(entered(shipping)) >= 2, message=lambda: f"{entered(shipping)}")
        shipping.wait_caught_up()
        losses = sorted((loss.path, loss.start, loss.end, loss.reason) for loss in entered(shipping))
        assert losses == [(str(cut), 0, 100, "destroyed"), (str(gone), 0, 100, "destroyed")]
        shipping.stop()


def test_a_long_line_that_was_cut_is_entered_with_the_offset_that_passes_it(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app"
    log.write_bytes(b"x" * 5000 + b"\ngood\n")
    source = {"line": {"max_bytes": "1KiB", "on_too_long": "truncate"}}
    shipping.start(source=source)
    assert shipping.lines(2) == ["x" * 1024, "good"]
    wait_until(lambda: entered(shipping))
    (loss,) = entered(shipping)
    assert (loss.reason, loss.size_bytes, loss.records) == ("too_long", 5001 - 1024, 1), "the line feed goes with it"
    shipping.stop()
    shipping.start(source=source)
    assert entered(shipping) == (loss,)
    assert shipping._store is not None
    assert shipping._store.loss_totals()["app", "too_long"].entries == 1
