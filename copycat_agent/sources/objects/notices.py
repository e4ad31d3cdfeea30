"""Messages of a queue that tell of new objects: events of S3, as they come from S3, through SNS, or through EventBridge."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from copycat_agent.sources.objects.stores import Notice

if TYPE_CHECKING:
    from copycat_agent.sources.objects.stores import NoticeQueue, Store

Told = Callable[[str, Callable[[], Any]], Any]
"""`told(what, ask)`: what `ask` returns. Raises OSError."""
_AT_ONCE = 10
_RECEIVES_MOST = 50
WAIT_SECONDS = 1
"""Without any wait SQS asks some of its servers only, and finds nothing in a queue that has little."""
RETRY_SECONDS = 10.0
"""A queue that cannot be read is asked again after so long, with credentials that may have been changed."""
_NAME_BYTES_MAX = 1024


class Notices:
    """Of one queue: messages that were received, by what they are deleted by, and keys of what they told of.

    `trouble`: why the queue cannot be read, "" while it can.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._queue: NoticeQueue | None = None
        self._keys: dict[str, set[str]] = {}
        self._failed_at = -math.inf
        self.trouble = ""

    def receive(self, store: Store, is_saved: Callable[[str], bool], now: float, *, waits: bool) -> list[Notice]:
        """Deletes messages of which all keys are saved, then returns what is new. `now`: of `time.monotonic()`.

        `waits`: there is nothing else to do, it may take a second.
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
                found.append(notice)  # noqa: PERF402 - what came before it fails counts
            self.trouble = ""
        except OSError as error:
            self._queue, self._failed_at = None, now
            self.trouble = f"the queue cannot be read: {error.strerror}; polls go on"
        return found

    def keep(self, receipt: str, keys: set[str]) -> None:
        """This message told of these: it is deleted once they are saved."""
        self._keys[receipt] = keys


class SqsQueue:
    """A `stores.NoticeQueue`."""

    def __init__(self, client: Any, told: Told, url: str, bucket: str) -> None:  # noqa: ANN401 - boto3 has no types
        """`client`: boto3's. `told` makes OSErrors of what it raises. Messages about other buckets are passed over."""
        self._client = client
        self._told = told
        self._url = url
        self._bucket = bucket

    def receive(self, wait_seconds: int) -> Iterator[Notice]:
        """What it has, or gets in so long. Each comes again after its time of invisibility, until it is deleted."""
        for number in range(_RECEIVES_MOST):
            asked = {"QueueUrl": self._url, "MaxNumberOfMessages": _AT_ONCE, "WaitTimeSeconds": 0 if number else wait_seconds}
            found = self._told("receive from the queue", partial(self._client.receive_message, **asked)).get("Messages", [])
            yield from (Notice(tuple(names_in(one["Body"], self._bucket)), one["ReceiptHandle"]) for one in found)
            if not found:
                return

    def delete(self, receipts: Sequence[str]) -> None:
        """These are done with."""
        for begin in range(0, len(receipts), _AT_ONCE):
            entries = [{"Id": str(number), "ReceiptHandle": one} for number, one in enumerate(receipts[begin : begin + _AT_ONCE])]
            asked = {"QueueUrl": self._url, "Entries": entries}
            self._told("delete from the queue", partial(self._client.delete_message_batch, **asked))


def names_in(body: str, bucket: str) -> Iterator[str]:
    """Names of objects of a bucket that were made, as a message says; nothing for what is no such message."""
    for one in _records_in(body):
        try:
            where, name = _made(one)
            if where == bucket and 0 < len(name.encode()) <= _NAME_BYTES_MAX:
                yield name
        except (ValueError, KeyError, TypeError, AttributeError):
            continue


def _records_in(body: str) -> list[Any]:
    """What a message has one or several of. EventBridge sends each event by itself."""
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
    """Bucket and name. EventBridge has names as they are, S3 encodes them as forms are. Raises what a record of another form leads to."""
    if record.get("detail-type") == "Object Created":
        return record["detail"]["bucket"]["name"], record["detail"]["object"]["key"]
    if "ObjectCreated" not in record["eventName"]:
        raise KeyError
    return record["s3"]["bucket"]["name"], unquote_plus(record["s3"]["object"]["key"])
