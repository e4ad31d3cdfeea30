"""Records of topics are handed on in order, each once, also where their values are decoded a few at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.model import Stretch
from copycat_agent.producer.partition_reading import ReceivedRun
from copycat_agent.sources.contract import EnvelopedRun
from copycat_agent.sources.kafka import kafka_source
from copycat_agent.sources.kafka.kafka_options import KafkaSourceOptions


class OneRun:
    """In place of a `PartitionReader`: values from offset 100 on, in one run."""

    def __init__(self, values: Sequence[bytes | None]) -> None:
        self._values = values

    def read(self, *_: object) -> Iterator[ReceivedRun]:
        keys = [b"%d" % index for index in range(len(self._values))]
        yield ReceivedRun(range(100, 100 + len(keys)), self._values, keys, [()] * len(keys), [None] * len(keys))


@given(st.lists(st.none() | st.binary(max_size=3), min_size=1), st.integers(1, 5) | st.none())
def test_a_reader_may_return_fewer_values_than_it_was_given(values: list[bytes | None], most: int | None) -> None:
    def read(given: Sequence[bytes]) -> tuple[list[Any], None]:
        return [{"v": value} for value in given[:most]], None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaSourceOptions, "values_reader", lambda _: read)
        patch.setattr(kafka_source, "PartitionReader", lambda *_, **__: OneRun(values))
        source = kafka_source.KafkaSource(KafkaSourceOptions(topics=("t",)))
        runs = list(source.read(Stretch("t/0", "t/0", 100, 100 + len(values))))
    ends: list[int] = []
    keys, found, raw = list[Any](), list[Any](), list[Any]()
    for run, end in runs:
        assert isinstance(run, EnvelopedRun)
        assert (end, len(run.values)) == (run.ends[-1], len(run.ends))
        assert run.size_bytes == sum(map(len, filter(None, [*(run.raw or ()), *run.envelopes.keys])))
        ends += run.ends
        keys += run.envelopes.keys
        found += run.values
        raw += run.raw or ()
    assert ends == list(range(101, 101 + len(values)))
    assert keys == [b"%d" % index for index in range(len(values))]
    assert raw == values
    assert found == [None if value is None else {"v": value} for value in values]
