"""What is lost with a file of the contract that is gone: what was not read of it, and nothing where all of it was."""

from __future__ import annotations

import pytest

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.contract_partitions import FilePartitions

WHY = "it was deleted before it was read to its end"


@pytest.mark.parametrize(
    ("offset", "lost"),
    [
        (SourceOffset(40, size=100), [(40, 100)]),
        (SourceOffset(0, size=100), [(0, 100)]),
        (SourceOffset(100, size=100), []),  # read to its end, which was not saved as such
        (SourceOffset(100, size=100, done=True), []),
    ],
)
def test_only_what_was_not_read_is_lost(offset: SourceOffset, lost: list[tuple[int, int]]) -> None:
    partitions = FilePartitions(counts_records=False)
    assert [(one.start, one.end) for one in partitions.losses_of(SourcePartition("c", "k"), offset, WHY)] == lost
