"""An entry of `SOURCES` of a class that an author wrote on the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from copycat_agent.sources.base import Offsets, Source, SourceKind
from copycat_agent.sources.contract_source import ContractSource
from copycat_agent.sources.contract_stream import Records, RecordStream

if TYPE_CHECKING:
    from copycat_agent.formats import RecordFormat
    from copycat_agent.logs import Log
    from copycat_agent.model import Split
    from copycat_agent.options import DeliveryOptions
    from copycat_agent.sources.contract import AuthorSource, PolledOptions
    from copycat_agent.sources.files.reading.stream import Stream


def source_kind(options: type[PolledOptions], source: Callable[[Any], AuthorSource]) -> SourceKind:
    """What `source`, a class or function that makes one of its options, is in `SOURCES`. `options` have a `type` of their own."""

    def make(connector: str, chosen: PolledOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> Source:
        return ContractSource(connector, chosen, delivery, offsets, log, source(chosen))

    def framing(chosen: PolledOptions, *, raw: bool) -> RecordFormat:
        del raw  # there are no bytes as they stand in a file
        return cast("RecordFormat", Records(source(chosen), f"source {chosen.type}"))

    def opened(split: Split, records: Records) -> Stream:
        return cast("Stream", RecordStream(split, records))

    return SourceKind(options, make, opened, framing)
