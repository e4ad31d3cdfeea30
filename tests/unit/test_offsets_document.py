"""Offsets as JSON: every row that a source may save is taken back, whatever its positions count."""

from __future__ import annotations

import pytest

from copycat_agent.errors import DataError
from copycat_agent.model import Fingerprint, SourceOffset, SourcePartition
from copycat_agent.offsets.document import from_document, from_documents, saved_rows, to_document, to_documents

ONE = SourcePartition("drops", "fe00:1:2:0")
HEAD = Fingerprint(1024, "digest")


@pytest.mark.parametrize(
    "offset",
    [
        SourceOffset(4096, fingerprint=HEAD, records=7, size=9000),
        SourceOffset(500, fingerprint=HEAD, records=500, size=9000),  # a position that is a record's number
        SourceOffset(500, fingerprint=Fingerprint(9000, "whole"), records=500, size=9000, done=True),
        SourceOffset(4096, fingerprint=HEAD, mtime_ns=-1),
        SourceOffset(4096, fingerprint=HEAD, mtime_ns=-(2**63) * 10**9),
        SourceOffset(4096, fingerprint=HEAD, mtime_ns=10_413_792_000 * 10**9),  # the year 2300
        SourceOffset(0, fingerprint=Fingerprint(200, "whole"), size=200, done=True, trouble="parquet: no footer"),
        SourceOffset(
            3, fingerprint=Fingerprint(24, "whole", 3, "tail"), records=1, size=24, done=True, compression="gzip"
        ),  # larger than what it holds
    ],
)
def test_what_is_saved_can_be_shown_exported_and_taken_back(offset: SourceOffset) -> None:
    assert from_document("drops", to_document(ONE, offset)) == (ONE, offset)


@pytest.mark.parametrize(
    "offset",
    [
        SourceOffset(500, fingerprint=HEAD, records=7, size=9000),
        SourceOffset(500, fingerprint=Fingerprint(0, "", 501, "tail"), records=500, size=9000),
    ],
)
def test_a_fingerprint_of_bytes_behind_the_position_is_refused(offset: SourceOffset) -> None:
    with pytest.raises(DataError, match="does not fit"):
        from_document("drops", to_document(ONE, offset))


def test_a_position_of_a_source_without_files_has_to_be_json() -> None:
    offset = SourceOffset(3, records=3, path="x", cursor='{"offset":{"id":5}}')
    assert from_document("drops", to_document(ONE, offset)) == (ONE, offset)
    document = to_document(ONE, offset)
    for wrong in ("end", '{"offset":', "[" * 100_000):
        document["offset"]["cursor"] = wrong
        with pytest.raises(DataError, match=f"cursor of {ONE.key} has to be the text of a JSON value, not "):
            from_document("drops", document)


def test_a_cursor_set_back_sets_the_position_back_and_reading_changes_nothing() -> None:
    """An offset to save, from the agent's API, Connect's or a command, must not be before later commits; one that is shown is unchanged."""
    back, ahead = SourceOffset(20, cursor='{"offset":3}'), SourceOffset(20, cursor='{"offset":30}')
    for row, expected in ((back, 3), (ahead, 20), (SourceOffset(20, cursor='{"offset":{"id":5}}'), 20), (SourceOffset(20, cursor="7"), 20)):
        document = to_documents({ONE: row})
        [wanted] = from_documents("drops", document).values()
        assert isinstance(wanted, SourceOffset)
        assert (wanted.position, wanted.cursor) == (expected, row.cursor)
        assert saved_rows("drops", document) == {ONE: row}


@pytest.mark.parametrize("field", ["position", "records", "size", "gone_ms", "mtime_ns"])
@pytest.mark.parametrize("number", [-(2**100), 2**100])
def test_numbers_that_no_file_has_are_refused_by_name(field: str, number: int) -> None:
    document = to_document(ONE, SourceOffset(0))
    document["offset"][field] = number
    with pytest.raises(DataError, match=f"{field} of {ONE.key} has to be a whole number"):
        from_document("drops", document)
