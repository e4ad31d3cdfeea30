"""A queue that tells of new objects: they are read at once, whatever it says, and what it does not say is found all the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from copycat_agent.sources.objects.notifications import names_in
from tests.rig.object_store import CREDENTIALS
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from tests.objects.conftest import Bucket, Objects


class Queue:
    """An SQS queue on the same server."""

    def __init__(self, bucket: Bucket) -> None:
        keys = {"aws_access_key_id": CREDENTIALS["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"]}
        self._client = boto3.client("sqs", endpoint_url=bucket.store.client.meta.endpoint_url, region_name="us-east-1", **keys)
        self.url: str = self._client.create_queue(QueueName=bucket.directory)["QueueUrl"]

    @property
    def arn(self) -> str:
        found = self._client.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])
        return str(found["Attributes"]["QueueArn"])

    def send(self, text: str) -> None:
        self._client.send_message(QueueUrl=self.url, MessageBody=text)

    def count(self) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self._client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(map(int, found.values()))


def event(bucket: Bucket, *names: str, kind: str = "ObjectCreated:Put") -> str:
    """As S3 sends it: keys are encoded."""
    keys = [f"{bucket.directory}/{name}".replace("+", "%2B").replace(" ", "+") for name in names]
    return json.dumps(
        {"Records": [{"eventName": kind, "s3": {"bucket": {"name": bucket.store.bucket}, "object": {"key": one}}} for one in keys]}
    )


def test_what_is_told_is_read_long_before_the_next_poll_and_messages_are_deleted(shipping: Objects, bucket: Bucket) -> None:
    queue = Queue(bucket)
    bucket.put("a", b"one\n")
    shipping.follow(bucket, {"poll_interval": "1h", "relist": "1h", "notify": {"sqs": queue.url}})
    shipping.lines(until=1)
    bucket.put("b c+d", b"two\n")
    queue.send(event(bucket, "b c+d", "a", "not there", "a"))
    assert shipping.lines(until=2) == ["one", "two"]
    for text in ("no json", "[]", '{"Event": "s3:TestEvent"}', event(bucket, "a", kind="ObjectRemoved:Delete"), '{"Records": [1]}'):
        queue.send(text)
    wait_until(lambda: queue.count() == 0, 60)
    bucket.put("c", b"three\n")
    queue.send(event(bucket, "c"))
    assert shipping.lines(until=3) == ["one", "two", "three"]
    assert shipping.status.reason == ""


def test_events_that_the_store_itself_sends_are_understood(shipping: Objects, bucket: Bucket) -> None:
    queue, client = Queue(bucket), bucket.store.client
    name = f"events-{bucket.directory.replace('_', '-')}"[:60].strip("-").lower()
    client.create_bucket(Bucket=name)
    wanted = {"QueueArn": queue.arn, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}
    client.put_bucket_notification_configuration(Bucket=name, NotificationConfiguration={"QueueConfigurations": [wanted]})
    uri = f"s3://{name}/in/{bucket.store.query}"
    shipping.start(source={"type": "objects", "uri": uri, "poll_interval": "1h", "relist": "1h", "notify": {"sqs": queue.url}})
    wait_until(lambda: queue.count() == 0, 60, "the test event is taken")
    client.put_object(Bucket=name, Key="in/b c+d%20/\u00e9", Body=b"one\n")
    client.put_object(Bucket=name, Key="elsewhere", Body=b"two\n")
    assert shipping.lines(until=1, deadline=90) == ["one"]
    client.delete_object(Bucket=name, Key="in/b c+d%20/\u00e9")
    wait_until(lambda: queue.count() == 0, 60)
    assert shipping.lines() == ["one"]


def test_a_queue_that_is_not_there_is_told_once_and_polls_go_on(
    shipping: Objects, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    url = Queue(bucket).url.replace(bucket.directory, "nobody")
    bucket.put("a", b"one\n")
    shipping.follow(bucket, {"poll_interval": "3s", "notify": {"sqs": url}})
    shipping.lines(until=1)
    wait_until(lambda: shipping.status.lag.troubled_files == 1, 30, lambda: f"{shipping.status}")
    bucket.put("b", b"two\n")
    assert shipping.lines(until=2, deadline=60) == ["one", "two"]
    assert shipping.status.state == "running"
    (told,) = [one for one in caplog.records if one.getMessage() == "source has a problem that does not stop reading"]
    assert vars(told)["fields"]["what"] == "source.notify"
    assert vars(told)["fields"]["why"] == "the queue cannot be read: there is no such queue; polls go on"


def made(key: str) -> dict[str, Any]:
    """Of bucket b; the key as it stands in the message."""
    return {"eventName": "ObjectCreated:CompleteMultipartUpload", "s3": {"bucket": {"name": "b"}, "object": {"key": key}}}


def test_more_messages_than_come_at_once_and_one_that_is_poison_hold_up_nobody(shipping: Objects, bucket: Bucket) -> None:
    queue = Queue(bucket)
    shipping.follow(bucket, {"poll_interval": "1h", "relist": "1h", "notify": {"sqs": queue.url}})
    shipping.wait_caught_up()
    bucket.store.put("elsewhere/x", b"not below the address\n")
    queue.send(event(bucket, "\ud800"))
    queue.send(event(bucket, "../elsewhere/x").replace(f"{bucket.directory}/../", ""))
    names = [f"{number:02}" for number in range(25)]
    for name in names:
        bucket.put(name, f"{name}\n".encode())
        queue.send(event(bucket, name))
        queue.send(json.dumps({"Type": "Notification", "Message": event(bucket, name)}))
    assert sorted(shipping.lines(until=25, deadline=90)) == names
    wait_until(lambda: queue.count() == 0, 60)
    assert sorted(shipping.lines()) == names, "each once, and nothing else"


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"Records": [{"eventName": "s3:ObjectCreated:Put", "s3": {"bucket": {"name": "b"}, "object": {"key": "a%2Bb+c"}}}]}, ["a+b c"]),
        ({"Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "other"}, "object": {"key": "a"}}}]}, []),
        ({"detail-type": "Object Created", "detail": {"bucket": {"name": "b"}, "object": {"key": "a+b"}}}, ["a+b"]),
        ({"detail-type": "Object Deleted", "detail": {"bucket": {"name": "b"}, "object": {"key": "a"}}}, []),
        ({"detail-type": "Object Created", "detail": {"bucket": "b"}}, []),
        ({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"}, []),
        (
            {"Records": [1, {"eventName": "ObjectCreated:Post"}, made("a"), made("x" * 1025), made(""), made("b%00%FFc")]},
            ["a", "b\0\ufffdc"],
        ),
        ({"Records": [{"eventName": "ObjectRemoved:Delete", "s3": {"bucket": {"name": "b"}, "object": {"key": "a"}}}, made("b")]}, ["b"]),
        ({"Records": [made("\ud800")]}, []),
        ({"Records": "x"}, []),
        ({"Records": {"a": 1}}, []),
        ({"Records": [{"eventName": "ObjectCreated:Put"}]}, []),
        (None, []),
    ],
)
def test_messages_of_each_way_name_what_was_made(body: Any, names: list[str]) -> None:
    text = json.dumps(body)
    assert list(names_in(text, "b")) == names
    assert list(names_in(json.dumps({"Type": "Notification", "Message": text}), "b")) == names
