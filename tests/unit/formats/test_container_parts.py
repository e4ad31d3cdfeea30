"""Promises of the preset `container`: each line is a record at once, but for the parts that a container runtime has made of one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.formats.test_multiline import Reading, Seen, cri, frames, records


def docker(log: str, stream: str = "stdout") -> bytes:
    return json.dumps({"log": log, "stream": stream, "time": "2026-11-21T05:00:00Z"}, separators=(",", ":")).encode() + b"\n"


A, B, C = cri("stdout", "P", "a"), cri("stdout", "P", "b"), cri("stdout", "F", "c")
OTHER = cri("stderr", "F", "other")


@pytest.mark.parametrize(
    ("lines", "groups"),
    [
        ([C, C, C], [1, 1, 1]),
        ([A, B, C, C], [3, 1]),
        ([C, A, C, A, B, C], [1, 2, 3]),
        ([A, OTHER, C], [1, 1, 1]),  # a record's bytes are one stretch of the file
        ([OTHER, A, C, OTHER], [1, 2, 1]),
        ([docker("a"), docker("b\n"), docker("c\n")], [2, 1]),
        ([docker("a"), docker("x\n", "stderr"), docker("b\n")], [1, 1, 1]),
        ([b"plain\n", b" indented\n", b"\n", b"plain\n"], [1, 1, 1, 1]),
        ([cri("stdout", "F", "it says stdout P here"), C], [1, 1]),
    ],
)
@pytest.mark.parametrize("block", [1, 100, 2**20])
def test_parts_of_one_stream_are_one_record(lines: list[bytes], groups: list[int], block: int) -> None:
    data = b"".join(lines)
    assert [value.count(b"\n") + 1 for value in records(data, frames(block, preset="container"))] == groups
    assert b"\n".join(records(data, frames(block, preset="container"))) + b"\n" == data


SPELLED = [
    b'{"log": "a", "stream": "stdout", "time": "t"}\n',
    b'{ "time":"t" , "stream":"stdout", "log":"a" }\n',
    b' {"attrs":{"log":"x\\n","stream":"stderr"},"stream":"stdout","log":"a","time":"t"}\n',
    b'{"log":"a\\\\n","stream":"stdout","time":"t"}\n',
    b'{"log":"first\\n","stream":"stdout","time":"t","log":"a"}\n',
    b'{"l\\u006fg":"a","str\\u0065am":"stdout","time":"t"}\n',
]


@pytest.mark.parametrize("line", SPELLED)
@pytest.mark.parametrize("block", [1, 2**20])
def test_a_part_of_docker_is_one_however_its_json_is_spelled(line: bytes, block: int) -> None:
    data = docker("before\n") + line + docker("end\n") + docker("after\n")
    assert [value.count(b"\n") + 1 for value in records(data, frames(block, preset="container"))] == [1, 2, 1]


@pytest.mark.parametrize(
    "line",
    [
        b'{"time":"t","log":"whole\\n","stream":"stdout"}\n',
        b'{"log": "whole\\u000a", "stream": "stdout", "time": "t"}\n',
        b'{"log":"a","level":"no stream"}\n',
        b'{"log":"a","stream":"stdout"\n',
        b'["log", "stream"]\n',
    ],
)
def test_what_is_whole_or_nothing_of_docker_is_a_record_by_itself(line: bytes) -> None:
    data = line + docker("end\n")
    assert [value.count(b"\n") + 1 for value in records(data, frames(preset="container"))] == [1, 1]


def test_a_whole_line_waits_for_nothing() -> None:
    reading = Reading(C + A + C + B, frames(preset="container"))
    reading.step(len(reading.data))
    assert [one.end for one in reading.seen] == [len(C), len(C + A + C)]
    assert reading.position == len(C + A + C)


def test_a_part_whose_end_does_not_come_is_sent_in_time() -> None:
    reading = Reading(A + B, frames(preset="container"))
    reading.step(len(A + B), flush=True)
    assert reading.seen == [Seen("record", (A + B)[:-1], 0, len(A + B))]


def test_parts_over_the_limit_are_one_record_that_is_too_long() -> None:
    reading = Reading(A + B + A + C + C, frames(preset="container", max_lines=2))
    reading.step(len(reading.data), final=True)
    assert [(one.kind, one.end) for one in reading.seen] == [("long", len(A + B + A + C)), ("record", len(reading.data))]


LINES = st.lists(st.sampled_from([A, B, C, OTHER, cri("stderr", "P", "o"), docker("a"), docker("b\n"), b"plain\n", b"\n"]), max_size=25)


@given(LINES, st.lists(st.integers(0, 2000), max_size=6), st.sampled_from([1, 64, 2**20]))
def test_records_do_not_hang_on_where_reading_stopped(lines: list[bytes], stops: list[int], block: int) -> None:
    data = b"".join(lines)
    whole = Reading(data, frames(preset="container"))
    whole.step(len(data), final=True)
    pieces = Reading(data, frames(block, preset="container"))
    for stop in sorted(stops):
        if pieces.position <= stop < len(data):
            pieces.step(stop)
    pieces.step(len(data), final=True)
    assert pieces.seen == whole.seen
    assert pieces.position == len(data)
