"""Promises of the steps `cri` and `docker`: what the program wrote comes out, of one line or of several."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.errors import DataError
from tests.unit.transforms.steps import after, columns, draft, step

AT = "2026-11-21T05:00:00.123456789Z"
AT_MS = 1_795_237_200_123


def docker(log: str, **more: Any) -> str:
    return json.dumps({"log": log, "stream": "stdout", **more, "time": AT})


@pytest.mark.parametrize(
    ("line", "logtag", "message"),
    [
        (f"{AT} stdout F hello  there ", "F", "hello  there "),
        (f"{AT} stdout F ", "F", ""),
        (f"{AT} stdout F", "F", ""),
        (f"{AT} stdout P the first", "P", "the first"),
        (f"{AT} stdout F:x tagged", "F", "tagged"),
        (f"{AT} stdout P one \n{AT} stdout P two\n{AT} stdout F  three", "F", "one two three"),
        (f"{AT} stdout P one \n{AT} stdout P two", "P", "one two"),
        (f"{AT} stdout F java\n{AT} stdout P   at x\n{AT} stdout F (Y)\n{AT} stdout F   at z", "F", "java\n  at x(Y)\n  at z"),
    ],
)
def test_cri(line: str, logtag: str, message: str) -> None:
    record = draft(line.encode())
    assert step({"cri": {}})(record)
    assert record.value == {"time": AT, "stream": "stdout", "logtag": logtag, "message": message}
    assert record.timestamp_ms == AT_MS


@pytest.mark.parametrize(
    ("line", "logtag", "message"),
    [
        (docker("hello\n"), "F", "hello"),
        (docker("\n"), "F", ""),
        (docker("part"), "P", "part"),
        (docker('one "é" ') + "\n" + docker("two\n"), "F", 'one "é" two'),
        (docker("a\n") + "\n" + docker(" b\n"), "F", "a\n b"),
    ],
)
def test_docker(line: str, logtag: str, message: str) -> None:
    record = draft(line.encode())
    assert step({"docker": {}})(record)
    assert record.value == {"time": AT, "stream": "stdout", "logtag": logtag, "message": message}
    assert record.timestamp_ms == AT_MS


def test_docker_s_attributes_go_along() -> None:
    assert after({"docker": {}}, docker("x\n", attrs={"tag": "a"}).encode())["attrs"] == {"tag": "a"}


@pytest.mark.parametrize(
    ("action", "line", "words"),
    [
        ("cri", "secret", "not a line of CRI"),
        ("cri", f"{AT} stdin F secret", "not a line of CRI"),
        ("cri", f"{AT} stdout F a\nsecret", "not a line of CRI"),
        ("cri", "2026-99-21T05:00:00Z stdout F secret", "no time"),
        ("docker", "secret", "not JSON"),
        ("docker", '{"log":"secret"}', "not a line of Docker's json-file"),
        ("docker", '["secret"]', "not a line of Docker's json-file"),
        ("docker", '{"log":"secret","stream":"stdout","time":"x"}', "no time"),
    ],
)
def test_what_is_no_such_line_is_a_bad_record(action: str, line: str, words: str) -> None:
    record = draft(line.encode())
    with pytest.raises(DataError, match=words) as caught:
        step({action: {}})(record)
    assert "secret" not in str(caught.value)
    assert record.value == line.encode()


def test_a_field_is_unwrapped_into_another_one() -> None:
    found = after({"cri": {"field": "line", "into": "k8s"}}, {"line": f"{AT} stderr F x", "n": 1})
    assert found == {"n": 1, "k8s": {"time": AT, "stream": "stderr", "logtag": "F", "message": "x"}}


def test_their_columns() -> None:
    texts = {"time": "string", "stream": "string", "logtag": "string", "message": "string"}
    assert columns({"cri": {}}, message="string") == texts
    assert columns({"docker": {}}, message="string") == texts | {"attrs": "map<string, string>"}


@given(
    st.sampled_from(["cri", "docker"]),
    st.one_of(st.binary(max_size=60), st.text(max_size=30).map(lambda text: f"{AT} stdout F {text}".encode())),
)
def test_no_line_breaks_them(action: str, line: bytes) -> None:
    try:
        fields = after({action: {}}, line)
    except DataError:
        return
    assert isinstance(fields["message"], str)
