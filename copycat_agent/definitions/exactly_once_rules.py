"""What `delivery.guarantee: exactly_once` does not go together with: settings with which a transaction could outlive its time-out.

Steps that are not deterministic go with it, and `ordering: none`, and any policy for bad records: what became of a record is decided
once, within the transaction that commits it. No name is too long either: a transactional id has 113 characters at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from copycat_agent.definitions.client_settings import check_value
from copycat_agent.options import format_duration

if TYPE_CHECKING:
    from copycat_agent.definitions.reading import Reader
    from copycat_agent.options import DeliveryOptions, KafkaOptions

TRANSACTION_MS = 60_000
"""transaction.timeout.ms: what is open longer is aborted by the broker."""
MOST_MS = TRANSACTION_MS // 2
"""No request, and no batch, takes longer than half of it: so that what comes behind it, and the commit, are in time, too."""

_WITHIN = ("message.timeout.ms", "delivery.timeout.ms", "socket.timeout.ms")
"""Time-outs of requests. `linger.ms` is not among them: librdkafka wants it below `message.timeout.ms`, whatever is promised."""


def check_exactly_once(reader: Reader, delivery: DeliveryOptions, own: KafkaOptions, effective: KafkaOptions) -> None:
    """`own` is what this file says of Kafka, `effective` what holds with the agent's defaults under it."""
    if delivery.guarantee != "exactly_once":
        return
    if delivery.max_batch_time * 1000 > MOST_MS:
        words = (
            f"with exactly_once a batch is one transaction, and the broker aborts those that take {format_duration(TRANSACTION_MS / 1000)}"
        )
        reader.report(("delivery", "max_batch_time"), "exactly-once", words, f"set {format_duration(MOST_MS / 1000)} or less")
    for name in _WITHIN:
        text = effective.client.get(name, "")
        if text and check_value(name, text) is None and not 0 < int(text) <= MOST_MS:
            _tell(reader, name, is_own=name in own.client)


def _tell(reader: Reader, name: str, *, is_own: bool) -> None:
    text = f"has to be from 1 to {MOST_MS} with exactly_once, so that no request outlives its transaction"
    if is_own:
        reader.report(("kafka", "client", name), "exactly-once", text, "lower it, or delete it: the agent has a good value of its own")
    else:
        hint = f"set it in this file, under kafka.client, or lower it in agent.yaml; {name} there holds for all connectors"
        reader.report(("delivery", "guarantee"), "exactly-once", f"{name} of agent.yaml {text}", hint)
