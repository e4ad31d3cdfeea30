"""K. Health means delivery, and the metrics say what was delivered: over a real connector and a real broker."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from copycat_agent.control import AgentView, Control, ReloadResult
from copycat_agent.metrics import health_app
from copycat_agent.options import AgentOptions, ApiOptions
from tests.rig.disk import mounted
from tests.rig.kafka import create_topic, delete_topic, unique_topic
from tests.rig.waiting import wait_until
from tests.unit.metrics.doubles import get_json
from tests.unit.metrics.test_metrics import scrape, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from wsgiref.types import WSGIApplication

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.model import LossReason, LossTotal
    from copycat_agent.worker import Status
    from tests.conftest import ProxiedBroker
    from tests.rig.shipping import Shipping

STALLED_SECONDS = 1.5


class Inside:
    """A `Control` over the connectors of a test, which is all that monitoring reads of an agent."""

    def __init__(self, shipping: Shipping) -> None:
        self.options = AgentOptions(api=ApiOptions(stalled_after=STALLED_SECONDS))
        self._shipping = shipping

    def view(self) -> AgentView:
        worker = self._shipping._worker
        assert worker is not None
        return AgentView(
            version="0", pid=os.getpid(), uuid="", started=time.time(), state_dir=str(self._shipping.state_dir), directory="/etc/copycat",
            spark="running", java_pid=None, offsets_unsaved=worker.offsets_unsaved, last_reload=ReloadResult(),
        )  # fmt: skip

    def statuses(self) -> tuple[Status, ...]:
        assert self._shipping._worker is not None
        return self._shipping._worker.statuses()

    def loss_totals(self) -> Mapping[tuple[str, LossReason], LossTotal]:
        assert self._shipping._store is not None
        return self._shipping._store.loss_totals()


def app_of(shipping: Shipping) -> WSGIApplication:
    return health_app(cast("Control", Inside(shipping)))


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def wait_red(app: WSGIApplication, kind: str, provoke: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Wait until /healthz is red for this reason, looking as a monitor does; returns the trouble."""
    found: list[dict[str, Any]] = []

    def is_red() -> bool:
        provoke()
        status, body = get_json(app, "/healthz")
        found[:] = [one for one in body["troubles"] if one["kind"] == kind]
        assert (status == 503) == bool(body["troubles"])
        return bool(found)

    wait_until(is_red, 60, lambda: f"never {kind}: {get_json(app, '/healthz')}")
    return found[0]


def wait_green(app: WSGIApplication) -> None:
    wait_until(lambda: get_json(app, "/healthz")[0] == 200, 60, lambda: f"{get_json(app, '/healthz')}")


def test_without_a_broker_health_turns_red_when_there_is_something_to_send_and_green_with_it(
    make_shipping: Callable[..., Shipping], proxied_broker: ProxiedBroker, logs_dir: Path
) -> None:
    bootstrap = proxied_broker.bootstrap
    shipping = make_shipping(bootstrap=bootstrap, topic=create_topic(bootstrap, unique_topic()))
    append(logs_dir / "app", b"one\n")
    shipping.start(kafka={"client": {"reconnect.backoff.max.ms": 200}})
    shipping.records(until=1)
    shipping.wait_caught_up()
    app = app_of(shipping)
    wait_green(app)
    proxied_broker.proxy.cut()
    assert get_json(app, "/healthz")[0] == 200  # nothing to read: nothing is missing
    append(logs_dir / "app", b"two\n")
    trouble = wait_red(app, "stalled")
    assert trouble["connector"] == "app"
    assert trouble["reason"].startswith("nothing acknowledged for ")
    assert "4 bytes in 1 file wait" in trouble["reason"]
    assert get_json(app, "/livez")[0] == get_json(app, "/readyz")[0] == 200
    assert value(scrape(app), "stalled_seconds") > STALLED_SECONDS
    proxied_broker.proxy.forward()
    wait_green(app)
    assert shipping.lines(until=2)[-1] == "two"
    shipping.wait_caught_up()
    assert value(scrape(app), "lag_bytes") == value(scrape(app), "stalled_seconds") == 0


def test_a_missing_topic_turns_health_red_with_its_name_and_green_once_it_is_there(
    make_shipping: Callable[..., Shipping], broker: DevBroker, logs_dir: Path
) -> None:
    topic = unique_topic()
    shipping = make_shipping(topic=topic)
    append(logs_dir / "app", b"one\n")
    shipping.start()
    app = app_of(shipping)
    assert topic in wait_red(app, "blocked")["reason"]
    create_topic(broker.bootstrap, topic)
    wait_green(app)


def test_a_topic_that_is_deleted_under_a_connector_turns_health_red(
    make_shipping: Callable[..., Shipping], broker: DevBroker, topic: str, logs_dir: Path
) -> None:
    shipping = make_shipping(topic=topic)
    append(logs_dir / "app", b"one\n")
    shipping.start()
    shipping.records(until=1)
    app = app_of(shipping)
    delete_topic(broker.bootstrap, topic)
    trouble = wait_red(app, "blocked", lambda: append(logs_dir / "app", b"more\n"))
    assert trouble["action"].startswith("copycat doctor")
    create_topic(broker.bootstrap, topic)
    wait_green(app)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that a test can fill."""
    with mounted(tmp_path, "256k") as disk:
        yield disk


def test_offsets_that_cannot_be_saved_turn_health_red_and_it_says_so(shipping: Shipping, small_disk: Path, logs_dir: Path) -> None:
    shipping.state_dir = small_disk / "state"
    shipping.start()
    app = app_of(shipping)
    append(logs_dir / "app", b"one\n")
    shipping.records(until=1)
    wait_green(app)
    ballast = small_disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as stream:
        while True:
            stream.write(b"x" * 4096)
    trouble = wait_red(app, "offsets_unsaved", lambda: append(logs_dir / "app", b"more\n"))
    assert "space" in trouble["reason"]
    assert [labels for (name, labels), on in scrape(app).items() if name == "copycat_offsets_unsaved" and on]
    ballast.unlink()
    wait_green(app)


def test_three_files_of_a_thousand_lines_are_counted_byte_by_byte(shipping: Shipping, logs_dir: Path) -> None:
    """K6 of log-file.md."""
    for number in range(3):
        (logs_dir / f"f{number}").write_bytes(b"".join(b"%016d\n" % line for line in range(1000)))
    shipping.start()
    shipping.records(until=3000)
    shipping.wait_caught_up()
    samples = scrape(app_of(shipping))
    assert value(samples, "read_bytes_total") == 3 * 17_000
    assert value(samples, "records_read_total") == value(samples, "records_acknowledged_total") == 3000
    assert value(samples, "files_known") == 3
    assert value(samples, "connector_state", state="running") == 1
    assert value(samples, "delivery_seconds_count") >= 1
    assert [(offset.position, offset.records) for offset in shipping.offsets.values()] == [(17_000, 1000)] * 3
