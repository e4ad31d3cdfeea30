"""What `record`, and the policies for bad records, may say: templates that compile, topics that no log line can choose freely."""

from __future__ import annotations

import pytest

from tests.unit.definitions.conftest import Load

SOURCE = "name: app\nsource: {type: log_file, include: [/var/log/app.log]}\n"
TYPE = "message.timestamp.type"
STEP = "transforms: [{drop_if: {a: 1}, on_error: dlq}]\n"

GOOD = [
    'record: {topic: "logs.{a}"}',
    'record: {topic: "_logs-{a}"}',
    'record: {topic: "{a}", allowed_topics: [a, b]}',
    'record: {topic: "__{a}", allowed_topics: [__audit]}',
    "record: {topic: __audit}",
    'record: {topic: t, value: "{payload}"}',
    'record: {topic: t, value: "{a} of {b:>8}"}',
    *(f"record: {{topic: t, timestamp: {one}}}" for one in ("read", "event", "file", "broker")),
    "record: {topic: t, timestamp: broker}\nkafka: {create_topics: {config: {message.timestamp.type: LogAppendTime}}}",
    f"record: {{topic: t}}\n{STEP}errors: {{dlq: {{topic: d}}}}",
]
BAD = [
    ('record: {topic: "{a}"}', 3, "template", "allowed_topics"),
    ('record: {topic: ".{a}"}', 3, "template", "allowed_topics"),
    ('record: {topic: "_{a}"}', 3, "template", "allowed_topics"),
    ('record: {topic: "__{a}"}', 3, "template", "allowed_topics"),
    ('record: {topic: "._.{a}"}', 3, "template", "allowed_topics"),
    ('record: {topic: "__consumer_{a}"}', 3, "topic", "another prefix"),
    ('record: {topic: "logs/{a}"}', 3, "topic", "249"),
    ("record: {topic: __consumer_offsets}", 3, "topic", "another topic"),
    ('record: {topic: "{a}", allowed_topics: [a, __transaction_state]}', 3, "topic", "another topic"),
    ("record: {topic: t}\nerrors: {dlq: {topic: __consumer_offsets}}", 4, "topic", "another topic"),
    ("record: {topic: t}\nerrors: {dlq: {topic: t}}", 4, "topic", "another topic"),
    ('record: {topic: "{a}", allowed_topics: [a, d]}\nerrors: {dlq: {topic: d}}', 4, "topic", "another topic"),
    ('record: {topic: t, value: "{a"}', 3, "template", ""),
    ('record: {topic: t, value: ""}', 3, "bad-value", ""),
    ("record: {topic: t, timestamp: brokr}", 3, "bad-value", "broker"),
    (f"record: {{topic: t, timestamp: broker}}\nkafka: {{create_topics: {{config: {{{TYPE}: CreateTime}}}}}}", 3, "bad-value", "LogApp"),
    (f"record: {{topic: t}}\n{STEP}", 4, "bad-value", "errors: {dlq: {topic: NAME}}"),
]


@pytest.mark.parametrize("text", GOOD)
def test_what_works_is_good(load: Load, text: str) -> None:
    assert load(SOURCE + text).problems == ()


@pytest.mark.parametrize(("text", "line", "code", "hint"), BAD)
def test_what_cannot_work_is_told_with_its_place(load: Load, text: str, line: int, code: str, hint: str) -> None:
    (problem,) = load(SOURCE + text).problems
    assert (problem.line, problem.code) == (line, code)
    assert hint in problem.hint
