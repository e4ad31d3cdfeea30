"""Messages of a queue that tell of new objects: events of S3, as they come from S3, through SNS, or through EventBridge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote_plus

from copycat_agent.sources.objects.stores import Notice

Told = Callable[[str, Callable[[], Any]], Any]
"""`told(what, ask)`: what `ask` returns. Raises OSError."""
_AT_ONCE = 10
_RECEIVES_MOST = 50


class SqsQueue:
    """A `stores.NoticeQueue`."""

    def __init__(self, client: Any, told: Told, url: str, bucket: str) -> None:  # noqa: ANN401 - boto3 has no types
        """`client`: boto3's. `told` makes OSErrors of what it raises. Messages about other buckets are passed over."""
        self._client = client
        self._told = told
        self._url = url
        self._bucket = bucket

    def receive(self) -> Iterator[Notice]:
        """What it has now. Each comes again after its time of invisibility, until it is deleted."""
        for _ in range(_RECEIVES_MOST):
            asked = {"QueueUrl": self._url, "MaxNumberOfMessages": _AT_ONCE, "WaitTimeSeconds": 0}
            found = self._told("receive from the queue", partial(self._client.receive_message, **asked)).get("Messages", [])
            yield from (Notice(tuple(names_in(one["Body"], self._bucket)), one["ReceiptHandle"]) for one in found)
            if len(found) < _AT_ONCE:
                return

    def delete(self, receipts: Sequence[str]) -> None:
        """These are done with."""
        for begin in range(0, len(receipts), _AT_ONCE):
            entries = [{"Id": str(number), "ReceiptHandle": one} for number, one in enumerate(receipts[begin : begin + _AT_ONCE])]
            asked = {"QueueUrl": self._url, "Entries": entries}
            self._told("delete from the queue", partial(self._client.delete_message_batch, **asked))


def names_in(body: str, bucket: str) -> Iterator[str]:
    """Names of objects of a bucket that were made, as a message says; nothing for what is no such message."""
    try:
        event = json.loads(body)
        if isinstance(event, dict) and event.get("Type") == "Notification":
            event = json.loads(event["Message"])
        if not isinstance(event, dict):
            return
        if event.get("detail-type") == "Object Created":
            records = [(event["detail"]["bucket"]["name"], event["detail"]["object"]["key"])]
        else:
            made = [one for one in event.get("Records", ()) if "ObjectCreated" in str(one.get("eventName", ""))]
            records = [(one["s3"]["bucket"]["name"], unquote_plus(one["s3"]["object"]["key"])) for one in made]
        yield from (name for where, name in records if where == bucket)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
