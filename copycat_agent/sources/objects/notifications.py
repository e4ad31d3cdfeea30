"""Reads messages about new objects from a queue: events of S3, sent by S3 itself, SNS or EventBridge."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote_plus

from copycat_agent.sources.objects.stores import NotificationQueue, ObjectNotification, Store

Translate = Callable[[str, Callable[[], Any]], Any]
"""`translate(what, ask)` returns what `ask` returns, and translates its exceptions into OSError."""
_AT_ONCE = 10
"""SQS's limit of messages in a request."""
_RECEIVES_MOST = 50
"""Most requests for messages in one look."""
WAIT_SECONDS = 1
"""Without a wait SQS asks only some of its servers, and often finds nothing in a queue with few messages."""
RETRY_SECONDS = 10.0
"""Wait before a queue that cannot be read is tried again, with credentials read anew."""
_NAME_BYTES_MAX = 1024
"""Longest name of an object in S3."""


class ReceivedNotifications:
    """The messages of one queue that were received and not deleted yet, with the keys of their objects.

    `trouble` says why the queue cannot be read, "" while it can.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._queue: NotificationQueue | None = None
        self._keys: dict[str, set[str]] = {}
        self._failed_at = -math.inf
        self.trouble = ""

    def receive(self, store: Store, is_saved: Callable[[str], bool], now: float, *, waits: bool) -> list[ObjectNotification]:
        """Deletes messages whose keys are all saved, then returns new ones. `now` is `time.monotonic()`.

        `waits`: the call may take a second, because there is nothing else to do.
        """
        if self.trouble and now - self._failed_at < RETRY_SECONDS:
            return []
        found = []
        try:
            self._queue = self._queue or store.queue(self._url)
            done = [receipt for receipt, keys in self._keys.items() if all(map(is_saved, keys))]
            self._queue.delete(done)
            for receipt in done:
                del self._keys[receipt]
            for notice in self._queue.receive(WAIT_SECONDS if waits else 0):
                found.append(notice)  # noqa: PERF402 - keeps the messages received before a failure
            self.trouble = ""
        except OSError as error:
            self._queue, self._failed_at = None, now
            self.trouble = f"the queue cannot be read: {error.strerror}; polls go on"
        return found

    def keep(self, receipt: str, keys: set[str]) -> None:
        """Notes the keys of a message, which is deleted once they are all saved."""
        self._keys[receipt] = keys


class SqsQueue:
    """A `stores.NotificationQueue`."""

    def __init__(self, client: Any, translate: Translate, url: str, bucket: str) -> None:  # noqa: ANN401 - boto3 has no types
        """`client` is boto3's; `translate` translates what it raises into OSError. Messages about other buckets are ignored."""
        self._client = client
        self._translate = translate
        self._url = url
        self._bucket = bucket

    def receive(self, wait_seconds: int) -> Iterator[ObjectNotification]:
        """Yields messages; waits `wait_seconds` for the first. SQS sends each again after its visibility timeout, until it is deleted."""
        for number in range(_RECEIVES_MOST):
            asked = {"QueueUrl": self._url, "MaxNumberOfMessages": _AT_ONCE, "WaitTimeSeconds": 0 if number else wait_seconds}
            found = self._translate("receive from the queue", partial(self._client.receive_message, **asked)).get("Messages", [])
            yield from (ObjectNotification(tuple(names_in(one["Body"], self._bucket)), one["ReceiptHandle"]) for one in found)
            if not found:
                return

    def delete(self, receipts: Sequence[str]) -> None:
        """Deletes messages by their receipts."""
        for begin in range(0, len(receipts), _AT_ONCE):
            entries = [{"Id": str(number), "ReceiptHandle": one} for number, one in enumerate(receipts[begin : begin + _AT_ONCE])]
            asked = {"QueueUrl": self._url, "Entries": entries}
            self._translate("delete from the queue", partial(self._client.delete_message_batch, **asked))


def names_in(body: str, bucket: str) -> Iterator[str]:
    """Yields the names of new objects of a bucket that a message reports; nothing for any other message."""
    for one in _records_in(body):
        try:
            where, name = _made(one)
            if where == bucket and 0 < len(name.encode()) <= _NAME_BYTES_MAX:
                yield name
        except (ValueError, KeyError, TypeError, AttributeError):
            continue


def _records_in(body: str) -> list[Any]:
    """Returns the events of a message: one from EventBridge, several from S3."""
    try:
        event = json.loads(body)
        if isinstance(event, dict) and event.get("Type") == "Notification":
            event = json.loads(event["Message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    if not isinstance(event, dict):
        return []
    records = event.get("Records", [event])
    return records if isinstance(records, list) else []


def _made(record: Any) -> tuple[str, str]:  # noqa: ANN401 - whatever is sent
    """Returns bucket and name of an event. S3 encodes names like form data, EventBridge does not. Raises for any other record."""
    if record.get("detail-type") == "Object Created":
        return record["detail"]["bucket"]["name"], record["detail"]["object"]["key"]
    if "ObjectCreated" not in record["eventName"]:
        raise KeyError
    return record["s3"]["bucket"]["name"], unquote_plus(record["s3"]["object"]["key"])
